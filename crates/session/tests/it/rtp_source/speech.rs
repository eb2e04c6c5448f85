//! Speech quality with packet loss, measured with PESQ (ITU-T P.862.2) and compared with GStreamer.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant as Clock};

use aulos_blackbox::peer::{Process, find_or_skip, skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_core::Rng;

use super::repair::{InputFixture, OPUS, OPUS_TYPE, PACKET, opus_over, packet, red_packet};

/// Sentences of the Harvard list (IEEE 1969), more than 20 s of them.
const TEXT: &str = "The birch canoe slid on the smooth planks. Glue the sheet to the dark blue background. \
    It is easy to tell the depth of a well. These days a chicken leg is a rare dish. \
    Rice is often served in round bowls. The juice of lemons makes fine punch. \
    The box was thrown beside the parked truck. The hogs were fed chopped corn and garbage. \
    Four hours of steady work faced us. A large size in stockings is hard to sell.";

/// The voice of espeak-ng that Opus at 24 kbit/s changes least (PESQ-WB 3.8 without loss).
const VOICE: &str = "en+klatt4";

/// The required score, against the same stream without loss.
const LEAST: f64 = 4.1;

/// Slightly more than the difference between two runs of GStreamer.
const SAME: f64 = 0.05;

/// Runs a program to its end.
fn run(program: &Path, arguments: &[&str]) {
    let done = Command::new(program).args(arguments).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// The packets of an Opus stream in Ogg, without its two headers (RFC 3533, 6).
fn ogg_packets(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut packets, mut packet, mut at) = (Vec::new(), Vec::new(), 0);
    while at < bytes.len() {
        let segments = usize::from(bytes[at + 26]);
        let table = &bytes[at + 27..at + 27 + segments];
        at += 27 + segments;
        for length in table {
            packet.extend_from_slice(&bytes[at..at + usize::from(*length)]);
            at += usize::from(*length);
            if *length < 255 {
                packets.push(std::mem::take(&mut packet));
            }
        }
    }
    packets.split_off(2)
}

/// The speech as wide-band Opus of 24 kbit/s by libopus, with FEC.
fn speech(espeak: &Path, ffmpeg: &Path, scratch: &ScratchDir) -> Vec<Vec<u8>> {
    let path = |name: &str| scratch.join(name).display().to_string();
    let (wave, ogg) = (path("speech.wav"), path("speech.opus"));
    run(espeak, &["-v", VOICE, "-w", &wave, TEXT]);
    let encode = format!(
        "-nostdin -v error -i {wave} -ar 16000 -ac 1 -c:a libopus -application voip -fec 1 \
         -packet_loss 5 -b:a 24k -frame_duration 20 {ogg}"
    );
    run(ffmpeg, &encode.split_whitespace().collect::<Vec<_>>());
    ogg_packets(&std::fs::read(&ogg).unwrap())
}

/// Writes samples in the format of the PESQ tool.
fn write(scratch: &ScratchDir, name: &str, samples: &[f32]) -> PathBuf {
    let path = scratch.join(name);
    let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    std::fs::write(&path, bytes).unwrap();
    path
}

/// A Python with PESQ.
fn judge() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let venv = std::env::var_os("AULOS_TEST_VENV")
        .map_or_else(|| root.join("../../target/test-venv"), PathBuf::from);
    let python = venv.join("bin/python");
    let there = Command::new(&python).args(["-c", "import pesq, scipy"]).output();
    there.is_ok_and(|done| done.status.success()).then_some(python)
}

/// PESQ-WB of `heard` against `sent`.
fn pesq(python: &Path, sent: &Path, heard: &Path) -> f64 {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/rtp_source/pesq_judge.py");
    let done = Command::new(python).args([&script, sent, heard]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).trim().to_owned();
    said.parse().unwrap_or_else(|_| panic!("{said} {}", String::from_utf8_lossy(&done.stderr)))
}

/// What GStreamer plays of the packets, which are sent in real time.
fn gstreamer(
    program: &Path,
    payloads: &[Vec<u8>],
    is_lost: impl Fn(usize) -> bool,
    scratch: &ScratchDir,
) -> PathBuf {
    let heard = scratch.join("gstreamer.raw");
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let arguments = format!(
        "-q udpsrc address=127.0.0.1 port={port} caps=application/x-rtp,media=audio,\
         clock-rate=48000,encoding-name=OPUS,payload={OPUS_TYPE} ! \
         rtpjitterbuffer do-lost=true latency=500 ! rtpopusdepay ! \
         opusdec use-inband-fec=true plc=true ! audioconvert ! audioresample ! \
         audio/x-raw,format=F32LE,rate=48000,channels=1 ! \
         filesink sync=false buffer-mode=unbuffered location={}",
        heard.display()
    );
    let logs = [scratch.join("gst.out"), scratch.join("gst.err")];
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace());
    let mut listener = Process::start(&mut command, &logs[0], &logs[1]).unwrap();
    // GStreamer is ready when it has bound its port, so that binding fails here.
    let patience = Duration::from_secs(60);
    let start = Clock::now();
    while UdpSocket::bind(("127.0.0.1", port)).is_ok() {
        assert!(start.elapsed() < patience, "GStreamer does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let start = Clock::now();
    for (number, payload) in (0_u32..).zip(payloads) {
        let due = Duration::from_millis(20) * number;
        std::thread::sleep(due.saturating_sub(start.elapsed()));
        if !is_lost(number as usize) {
            let packet = packet(1, u64::from(number), 960, OPUS_TYPE, payload);
            sender.send_to(&packet, ("127.0.0.1", port)).unwrap();
        }
    }
    let enough = (payloads.len() as u64 - 50) * 960 * 4;
    let start = Clock::now();
    while std::fs::metadata(&heard).map_or(0, |file| file.len()) < enough {
        let errors = std::fs::read_to_string(&logs[1]).unwrap_or_default();
        assert!(start.elapsed() < patience, "GStreamer has not played it: {errors}");
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(listener.terminate(patience));
    heard
}

#[test]
fn speech_that_loses_one_packet_in_twenty_sounds_as_with_gstreamer_or_better() {
    let Some(espeak) = find_or_skip("espeak-ng") else { return };
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let Some(python) = judge() else { return skip("pesq") };
    let scratch = ScratchDir::new("rtp-speech").unwrap();
    let payloads = speech(&espeak, &ffmpeg, &scratch);
    assert!(payloads.len() >= 1_000, "20 s of speech");
    let mut dice = Rng::new(6);
    let lost: Vec<bool> =
        (0..payloads.len()).map(|number| dice.chance(0.05) && number > 10).collect();
    let is_lost = |number: usize| lost[number];
    let share = lost.iter().filter(|lost| **lost).count() as f64 / lost.len() as f64;

    let whole = write(&scratch, "whole.raw", &opus_over(&payloads, |_| false).heard);
    let repaired = opus_over(&payloads, is_lost);
    let counts = repaired.counts();
    let ours = pesq(&python, &whole, &write(&scratch, "ours.raw", &repaired.heard));
    println!("{:.1} % lost: PESQ-WB {ours:.2}; {counts:?}", share * 100.0);
    assert!((0.04..0.06).contains(&share), "{share}");
    assert!(ours >= LEAST, "PESQ-WB {ours}");
    let mut receiver = InputFixture::new(OPUS, OPUS_TYPE);
    for number in 0..payloads.len() {
        if !is_lost(number) {
            receiver.receive(&red_packet(&payloads, number, 960, OPUS_TYPE, 1));
        }
        receiver.wait(PACKET);
    }
    let red = pesq(&python, &whole, &write(&scratch, "red.raw", &receiver.heard));
    println!("RED of one generation: PESQ-WB {red:.2}; {:?}", receiver.counts());
    assert!(red >= ours, "PESQ-WB {red} with RED, {ours} without");
    let Some(program) = find_or_skip("gst-launch-1.0") else { return };
    let theirs = pesq(&python, &whole, &gstreamer(&program, &payloads, is_lost, &scratch));
    println!("GStreamer: PESQ-WB {theirs:.2}");
    assert!(ours >= theirs - SAME, "PESQ-WB {ours}, GStreamer {theirs}");
}
