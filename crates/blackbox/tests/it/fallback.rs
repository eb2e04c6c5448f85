//! Real programs as sources: killed, stopped, silent, flapping. The output is recorded and analyzed
//! frame by frame, on its own clock: the time that anything takes on this machine does not matter.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::signal::RATE;
use serde_json::{Value, json};

use crate::retry::retry_after_stall;
use crate::rpc::Rpc;
use crate::wave_recording::WaveRecording;
use crate::{long_shared_turn, script, shared_turn, text, wait_for};

/// A loaded machine starts programs slowly.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that writes the audio of `body` to its output, and its process id into a file.
pub(crate) fn program(scratch: &ScratchDir, name: &str, body: &str) -> PathBuf {
    let path = scratch.join(name);
    script(&path, &format!("#!/bin/sh\necho $$ > {}.pid\n{body}\n", text(&path)));
    path
}

/// A command for ffmpeg to play this filter in real time.
fn plays(ffmpeg: &Path, filter: &str) -> String {
    let input = format!("-nostdin -v error -re -f lavfi -i '{filter}'");
    format!("{} {input} -f s16le -ar 48000 -ac 2 -", text(ffmpeg))
}

pub(crate) fn signal(program: &Path, name: &str) {
    let id = std::fs::read_to_string(program.with_extension("pid")).unwrap();
    let status = Command::new("kill").arg(format!("-{name}")).arg(id.trim()).status().unwrap();
    assert!(status.success(), "{name} to {id}");
}

/// A server that plays the programs in this order, then a tone; with a recorder of its output.
struct Stage {
    server: AulosServer,
    rpc: Rpc,
    recording: WaveRecording,
    _scratch: ScratchDir,
}

impl Stage {
    fn new(scratch: ScratchDir, programs: &[&Path], keys: &str) -> Self {
        let sources = programs.iter().map(|path| format!("\"process://{}\", ", text(path)));
        Self::of(scratch, &sources.collect::<String>(), keys)
    }

    /// The same with other sources.
    fn of(scratch: ScratchDir, sources: &str, keys: &str) -> Self {
        let config = format!(
            "[[station]]\nname = \"default\"\ncodec = \"pcm\"\n\
             sources = [{sources}\"tone://?hz=250&dbfs=-18\"]\n{keys}\n"
        );
        let server = AulosServer::start(&scratch, &config).unwrap();
        let rpc = Rpc::connect(server.control);
        let recording = WaveRecording::start(server.http, "default");
        Self { server, rpc, recording, _scratch: scratch }
    }

    fn station(&mut self) -> Value {
        self.rpc.call("Aulos.GetStatus", &json!({}))["stations"][0].clone()
    }

    /// Waits until this source is on air.
    fn hears(&mut self, source: &str) {
        wait_for(source, PATIENCE, || self.station()["active"] == source);
    }

    /// The recording, the station's status, and the notified changes.
    fn end(mut self) -> (Vec<i16>, Value, Vec<Value>) {
        std::thread::sleep(Duration::from_secs(2));
        let station = self.station();
        let sound = self.recording.left();
        let told = std::mem::take(&mut self.rpc.told);
        let told = told.into_iter().filter(|notice| notice["method"] == "Aulos.OnSwitch");
        let told = told.map(|notice| notice["params"].clone()).collect();
        self.server.stop().unwrap();
        (sound, station, told)
    }
}

fn count(station: &Value, cause: &str) -> u64 {
    station["switch"]["switches"][cause].as_u64().unwrap_or(0)
}

/// The longest run of zeros, in frames, after the first audio.
fn longest_silence(sound: &[i16]) -> usize {
    let start = sound.iter().position(|sample| *sample != 0).unwrap_or(sound.len());
    let runs = sound[start..].split(|sample| sample.unsigned_abs() > 1);
    runs.map(<[i16]>::len).max().unwrap_or(0)
}

/// Positions where the signal does not continue one of these sines: the recurrence of a sine fails
/// where a frame is missing, repeated or inserted. A fade counts as one position.
fn breaks(sound: &[i16], tones: &[f64]) -> usize {
    let factors: Vec<f64> = tones
        .iter()
        .map(|hz| {
            2.0 * (std::f64::consts::TAU * hz / f64::from(u32::try_from(RATE).unwrap())).cos()
        })
        .collect();
    let (mut places, mut last) = (0, None);
    for (at, three) in sound.windows(3).enumerate() {
        let [a, b, c] = [three[0], three[1], three[2]].map(f64::from);
        let fits = |factor: &f64| (factor * b - a - c).abs() < 24.0;
        if factors.iter().any(fits) {
            continue;
        }
        if last.is_none_or(|last| at - last > 3 * RATE / 50) {
            places += 1;
        }
        last = Some(at);
    }
    places
}

const TONES: [f64; 3] = [1_000.0, 440.0, 250.0];

#[test]
fn programs_that_are_killed_and_stopped_leave_no_hole() {
    retry_after_stall("fallback::programs_that_are_killed_and_stopped_leave_no_hole", || {
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let _turn = shared_turn();
        let scratch = ScratchDir::new("fallback").unwrap();
        let sine = |hz| {
            format!("exec {}", plays(&ffmpeg, &format!("sine=frequency={hz}:sample_rate=48000")))
        };
        let first = program(&scratch, "first", &sine(1_000));
        let second = program(&scratch, "second", &sine(440));
        let mut stage =
            Stage::new(scratch, &[&first, &second], "switch = { failback_delay_s = 1 }\n");
        stage.hears("process");
        wait_for("the second one", PATIENCE, || {
            stage.station()["sources"][1]["health"]["state"] == "healthy"
        });
        signal(&first, "KILL");
        stage.hears("process-2");
        stage.hears("process");
        signal(&first, "STOP");
        stage.hears("process-2");
        signal(&second, "KILL");
        stage.hears("tone");
        signal(&first, "CONT");
        stage.hears("process");
        let (sound, station, told) = stage.end();
        let switches: u64 = ["first", "better", "late", "error", "ended"]
            .into_iter()
            .map(|cause| count(&station, cause))
            .sum();
        let places = breaks(&sound, &TONES);
        println!(
            "{} frames, longest silence {}, {places} breaks, {switches} switches, told {}: {}",
            sound.len(),
            longest_silence(&sound),
            told.len(),
            station["switch"]
        );
        assert!(count(&station, "error") >= 2 && count(&station, "late") >= 1, "{station}");
        assert!(longest_silence(&sound) <= RATE / 1_000, "{} frames", longest_silence(&sound));
        // Fades, and the moment at which a stopped program catches up with a clock that ran on.
        let catching_up = 2;
        assert!(u64::try_from(places).unwrap() <= switches + catching_up, "{places} breaks");
        assert_eq!(station["sources"][0]["health"]["failures"]["error"], 1, "{station}");
        assert!(told.len() >= 5, "{told:?}");
    });
}

#[test]
fn a_source_of_digital_silence_falls_back_and_returns() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("silence").unwrap();
    let filter = "sine=frequency=1000:sample_rate=48000,volume=0:enable=between(t\\,5\\,10)";
    let first = program(&scratch, "first", &format!("exec {}", plays(&ffmpeg, filter)));
    let mut stage = Stage::new(scratch, &[&first], "silence = { for_s = 1 }\n");
    stage.hears("process");
    stage.hears("tone");
    stage.hears("process");
    let (sound, station, _) = stage.end();
    println!("longest silence {} frames: {}", longest_silence(&sound), station["switch"]);
    assert_eq!(count(&station, "silent"), 1, "{station}");
    // It is detected on input, 0.4 s before it would be played, unless the program was late.
    assert!(longest_silence(&sound) <= RATE * 11 / 10, "{} frames", longest_silence(&sound));
    assert_eq!(station["sources"][0]["health"]["failures"]["silent"], 1, "{station}");
}

#[test]
fn a_program_that_flaps_once_a_second_is_left_once() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("flap").unwrap();
    let sine = |seconds: f64| {
        plays(&ffmpeg, &format!("sine=frequency=1000:sample_rate=48000:duration={seconds}"))
    };
    let body = format!("{}\nwhile :; do sleep 0.5; {}; done", sine(4.0), sine(0.5));
    let first = program(&scratch, "first", &body);
    let mut stage = Stage::new(scratch, &[&first], "");
    stage.hears("process");
    stage.hears("tone");
    // Twelve seconds of flapping, on the station's clock.
    std::thread::sleep(Duration::from_secs(12));
    let (sound, station, _) = stage.end();
    println!("longest silence {} frames: {}", longest_silence(&sound), station["switch"]);
    assert_eq!(count(&station, "late"), 1, "{station}");
    assert!(count(&station, "first") + count(&station, "better") <= 2, "{station}");
    assert_eq!(station["active"], "tone");
    assert!(longest_silence(&sound) <= RATE / 1_000, "{} frames", longest_silence(&sound));
}

/// A web radio of a tone of 1 kHz in real time. Its first listener gets it for `seconds` seconds,
/// each later one for `tenths` tenths of a second; then the connection is closed. Returns its port,
/// and a count of its listeners.
fn flapping_radio(seconds: usize, tenths: usize) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let listeners = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&listeners);
    std::thread::spawn(move || {
        for mut socket in listener.incoming().take(100).flatten() {
            let earlier = counted.fetch_add(1, Ordering::Relaxed);
            let blocks = if earlier == 0 { seconds * 50 } else { tenths * 5 };
            std::thread::spawn(move || {
                socket.read_exact(&mut [0; 64]).ok();
                let head = b"HTTP/1.0 200 OK\r\nContent-Type: audio/wav\r\n\r\n";
                let mut sent = socket.write_all(&[&head[..], ENDLESS].concat());
                let start = Instant::now();
                for (block, due) in (0..blocks).zip((0..).step_by(20)) {
                    let due = Duration::from_millis(due);
                    std::thread::sleep(due.saturating_sub(start.elapsed()));
                    let frame = |frame: usize| {
                        let phase = (frame % RATE) as f64 * 1_000.0 / RATE as f64;
                        #[allow(
                            clippy::cast_possible_truncation,
                            reason = "a quarter of full scale"
                        )]
                        let sample =
                            ((phase * std::f64::consts::TAU).sin() * 8_192.0).round() as i16;
                        [sample.to_le_bytes(), sample.to_le_bytes()].concat()
                    };
                    let frames = block * RATE / 50..(block + 1) * RATE / 50;
                    let sound: Vec<u8> = frames.flat_map(frame).collect();
                    sent = sent.and_then(|()| socket.write_all(&sound));
                }
            });
        }
    });
    (port, listeners)
}

/// The header of an endless WAVE file: two channels of 16 bits at 48 kHz.
const ENDLESS: &[u8] =
    b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x02\0\x80\xbb\0\0\0\xee\x02\0\
    \x04\0\x10\0data\xff\xff\xff\xff";

#[test]
fn a_web_radio_that_hangs_up_once_a_second_is_left_once() {
    let _turn = long_shared_turn();
    let (port, listeners) = flapping_radio(6, 5);
    let scratch = ScratchDir::new("flapping-radio").unwrap();
    let source = format!("\"http://127.0.0.1:{port}/live\", ");
    let mut stage = Stage::of(scratch, &source, "");
    stage.hears("http");
    // The next source takes over when the buffer of two seconds is used up, and not at the first
    // disconnect.
    stage.hears("tone");
    let before = listeners.load(Ordering::Relaxed);
    wait_for("more of its flapping", PATIENCE, || listeners.load(Ordering::Relaxed) > before + 2);
    let (sound, station, told) = stage.end();
    let connects = station["sources"][0]["radio"]["connects"].as_u64().unwrap();
    let places = breaks(&sound, &TONES);
    println!(
        "{} frames, longest silence {}, {places} breaks, {connects} connects: {}",
        sound.len(),
        longest_silence(&sound),
        station["switch"]
    );
    assert_eq!(count(&station, "late") + count(&station, "error"), 1, "{station}");
    assert!(count(&station, "first") + count(&station, "better") <= 2, "{told:?}");
    assert_eq!(station["active"], "tone");
    assert!(longest_silence(&sound) <= RATE / 1_000, "{} frames", longest_silence(&sound));
    // Fades between sources, and joints between successive bodies of the radio.
    let switches = count(&station, "first") + count(&station, "better") + 1;
    assert!(u64::try_from(places).unwrap() <= switches + connects, "{places} breaks");
}

/// Another server that is killed and comes back on its port.
#[test]
fn another_snapcast_server_that_is_killed_leaves_no_hole() {
    let _turn = shared_turn();
    let origin_scratch = ScratchDir::new("snapcast-killed").unwrap();
    let config = "[[station]]\nname = \"default\"\ncodec = \"flac\"\n\
                  sources = [\"tone://?hz=440&dbfs=-18\"]\n";
    let origin = AulosServer::start(&origin_scratch, config).unwrap();
    let address = origin.stream;
    let scratch = ScratchDir::new("snapcast-fallback").unwrap();
    let mut stage = Stage::of(scratch, &format!("\"snapcast://{address}\", "), "");
    stage.hears("snapcast");
    // Beyond its start.
    std::thread::sleep(Duration::from_secs(1));
    let id = origin.id().to_string();
    assert!(Command::new("kill").args(["-KILL", &id]).status().unwrap().success());
    drop(origin);
    stage.hears("tone");
    let source = stage.station()["sources"][0].clone();
    let reason = source["reason"].as_str().unwrap_or_default().to_owned();
    assert!(
        ["connection refused", "connection reset", "closed"].iter().any(|why| reason.contains(why)),
        "{source}"
    );
    let origin = AulosServer::start_with(&origin_scratch, |command| {
        command.arg("--config").arg(origin_scratch.join("aulos.toml"));
        command.args(["--set", &format!("listen.stream={address}")]);
    });
    let origin = origin.unwrap();
    stage.hears("snapcast");
    let (sound, station, told) = stage.end();
    origin.stop().unwrap();
    let places = breaks(&sound, &TONES);
    println!(
        "{} frames, longest silence {}, {places} breaks, told {}: {}",
        sound.len(),
        longest_silence(&sound),
        told.len(),
        station["switch"]
    );
    assert_eq!(count(&station, "error"), 1, "{station}");
    assert!(longest_silence(&sound) <= RATE / 1_000, "{} frames", longest_silence(&sound));
    assert!(places <= told.len(), "{places} breaks, {told:?}");
}
