//! `aulos relay` between real peers: ffmpeg and GStreamer, and two hundred streams with counted
//! packets.

use std::collections::HashMap;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use aulos_blackbox::peer::{Process, find_or_skip};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::binary;
use serde_json::Value;

use crate::dj::share_of_the_tone;
use crate::retry::retry_after_stall;
use crate::{long_shared_turn, shared_turn, turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// A relay on a free port.
pub(crate) struct Relay {
    process: Process,
    pub(crate) port: u16,
    logs: [std::path::PathBuf; 2],
}

impl Relay {
    fn start(scratch: &ScratchDir, name: &str, from: &str, to: &str, dest: u16) -> Self {
        Self::start_with(scratch, name, (from, to), dest, &["--opus-bitrate", "64000"])
    }

    /// With further arguments.
    pub(crate) fn start_with(
        scratch: &ScratchDir,
        name: &str,
        (from, to): (&str, &str),
        dest: u16,
        more: &[&str],
    ) -> Self {
        let mut command = Command::new(binary());
        command.args(["relay", "udp://127.0.0.1:0", "--from", from, "--to", to, "--json"]);
        command.args(more).args(["--dest", &format!("udp://127.0.0.1:{dest}")]);
        let logs = [scratch.join(format!("{name}.out")), scratch.join(format!("{name}.err"))];
        let process = Process::start(&mut command, &logs[0], &logs[1]).unwrap();
        let mut port = None;
        wait_for("the relay's port", PATIENCE, || {
            let said = std::fs::read_to_string(&logs[1]).unwrap_or_default();
            let place = said.split("udp://127.0.0.1:").nth(1);
            port = place.and_then(|rest| rest.split(' ').next()?.parse().ok());
            port.is_some()
        });
        Self { process, port: port.unwrap(), logs }
    }

    /// Terminates it, and returns its final statistics.
    pub(crate) fn stop(mut self) -> Value {
        self.process.terminate(PATIENCE).unwrap();
        let said = std::fs::read_to_string(&self.logs[0]).unwrap();
        serde_json::from_str(said.lines().last().unwrap()).unwrap()
    }
}

/// A tone of 440 Hz at -12 dBFS for some seconds, in real time.
fn say(ffmpeg: &Path, codec: &str, seconds: u32, port: u16, scratch: &ScratchDir) -> Process {
    let arguments = format!(
        "-nostdin -loglevel error -re -f lavfi -i sine=440:r=48000:d={seconds},volume=6dB {codec} \
         -f rtp rtp://127.0.0.1:{port}?rtcpport={port}"
    );
    let mut command = Command::new(ffmpeg);
    command.args(arguments.split_whitespace());
    Process::start(&mut command, &scratch.join("say.out"), &scratch.join("say.err")).unwrap()
}

/// A second from the middle of a file of raw samples, once it is long enough.
fn middle(file: &Path) -> Vec<i16> {
    let bytes = std::fs::read(file).unwrap_or_default();
    let samples: Vec<i16> =
        bytes.as_chunks::<2>().0.iter().map(|two| i16::from_le_bytes(*two)).collect();
    assert!(samples.len() > 3 * 48_000, "only {} samples came", samples.len());
    samples[96_000..144_000].to_vec()
}

#[test]
fn ffmpeg_receives_a_transcoded_stream_of_ffmpeg() {
    retry_after_stall("relay::ffmpeg_receives_a_transcoded_stream_of_ffmpeg", || {
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let _turn = long_shared_turn();
        let scratch = ScratchDir::new("relay-ffmpeg").unwrap();
        // Packets of PCM of 5 ms: Opus supports none of ffmpeg's default lengths.
        let cases = [
            ("pcmu", "-ar 8000 -ac 1 -c:a pcm_mulaw", "pcma", "8", ""),
            (
                "l16/48000/2:97",
                "-ac 2 -af asetnsamples=240 -c:a pcm_s16be -payload_type 97",
                "opus:111",
                "111",
                "opus/48000/2",
            ),
            ("opus:97", "-ac 2 -c:a libopus -b:a 64k -payload_type 97", "g722", "9", ""),
            ("g722", "-ar 16000 -ac 1 -c:a g722", "l24/48000/1:98", "98", "L24/48000/1"),
        ];
        for (from, codec, to, number, map) in cases {
            let dest = free_port().unwrap();
            let relay = Relay::start(&scratch, "relay", from, to, dest);
            let mut sdp = format!(
                "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\n\
             m=audio {dest} RTP/AVP {number}\na=rtcp-mux\n"
            );
            if !map.is_empty() {
                sdp += &format!("a=rtpmap:{number} {map}\n");
            }
            let (description, heard) = (scratch.join("heard.sdp"), scratch.join("heard.raw"));
            std::fs::write(&description, sdp).unwrap();
            std::fs::remove_file(&heard).ok();
            let mut listener = Command::new(&ffmpeg);
            listener
                .args([
                    "-nostdin",
                    "-loglevel",
                    "error",
                    "-protocol_whitelist",
                    "file,udp,rtp",
                    "-i",
                ])
                .arg(&description)
                .args(["-t", "4", "-f", "s16le", "-ar", "48000", "-ac", "1", "-flush_packets", "1"])
                .arg(&heard);
            let logs = [scratch.join("listen.out"), scratch.join("listen.err")];
            let mut listener = Process::start(&mut listener, &logs[0], &logs[1]).unwrap();
            let mut sender = say(&ffmpeg, codec, 12, relay.port, &scratch);
            wait_for("four seconds", PATIENCE, || listener.ended().unwrap().is_some());
            let share = share_of_the_tone(&middle(&heard));
            assert!(share > 0.98, "{from} to {to}: {share} of it is the tone");
            drop(sender.terminate(PATIENCE));
            let came = relay.stop();
            let total = &came["relays"][0];
            assert_eq!(total["lost"], 0, "{came}");
            assert_eq!((&total["dropped"], &total["foreign"]), (&0.into(), &0.into()), "{came}");
            assert_eq!(total["received"], total["sent"], "{came}");
            assert!(total["sent"].as_u64().unwrap() > 100, "{came}");
        }
    });
}

#[test]
fn gstreamer_receives_a_stream_of_ffmpeg_through_its_jitter_buffer() {
    retry_after_stall(
        "relay::gstreamer_receives_a_stream_of_ffmpeg_through_its_jitter_buffer",
        || {
            let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
            let codec = "-ar 8000 -ac 1 -c:a pcm_mulaw";
            gstreamer_hears("relay-gst", |port, scratch| say(&ffmpeg, codec, 12, port, scratch));
        },
    );
}

#[test]
fn gstreamer_receives_a_stream_of_gstreamer() {
    retry_after_stall("relay::gstreamer_receives_a_stream_of_gstreamer", || {
        let Some(gstreamer) = find_or_skip("gst-launch-1.0") else { return };
        gstreamer_hears("relay-gst-gst", |port, scratch| {
            let arguments = format!(
                "-q audiotestsrc is-live=true freq=440 volume=0.25 samplesperbuffer=160 num-buffers=600 ! \
             audio/x-raw,rate=8000,channels=1 ! mulawenc ! \
             rtppcmupay min-ptime=20000000 max-ptime=20000000 ! udpsink host=127.0.0.1 port={port}"
            );
            let mut command = Command::new(&gstreamer);
            command.args(arguments.split_whitespace());
            Process::start(&mut command, &scratch.join("say.out"), &scratch.join("say.err"))
                .unwrap()
        });
    });
}

/// Audio sent as PCMU is received as PCMA.
fn gstreamer_hears(name: &str, say: impl FnOnce(u16, &ScratchDir) -> Process) {
    let Some(gstreamer) = find_or_skip("gst-launch-1.0") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new(name).unwrap();
    let dest = free_port().unwrap();
    let relay = Relay::start(&scratch, "relay", "pcmu", "pcma", dest);
    let heard = scratch.join("heard.raw");
    let mut command = Command::new(gstreamer);
    command.args(["-q", "udpsrc", "address=127.0.0.1"]).arg(format!("port={dest}")).args([
        "caps=application/x-rtp,media=audio,clock-rate=8000,encoding-name=PCMA,payload=8",
        "!",
        "rtpjitterbuffer",
        "latency=100",
        "!",
        "rtppcmadepay",
        "!",
        "alawdec",
        "!",
        "audioconvert",
        "!",
        "audioresample",
        "!",
        "audio/x-raw,format=S16LE,rate=48000,channels=1",
        "!",
        "filesink",
        "sync=false",
        "buffer-mode=unbuffered",
    ]);
    command.arg(format!("location={}", heard.display()));
    let logs = [scratch.join("gst.out"), scratch.join("gst.err")];
    let mut listener = Process::start(&mut command, &logs[0], &logs[1]).unwrap();
    let mut sender = say(relay.port, &scratch);
    let enough = 4 * 48_000 * 2;
    wait_for("four seconds of it", PATIENCE, || {
        let said = std::fs::read_to_string(&logs[1]).unwrap_or_default();
        assert!(listener.ended().unwrap().is_none(), "{said}");
        std::fs::metadata(&heard).is_ok_and(|file| file.len() > enough)
    });
    let share = share_of_the_tone(&middle(&heard));
    assert!(share > 0.98, "{share} of it is the tone");
    drop(sender.terminate(PATIENCE));
    drop(listener.terminate(PATIENCE));
    assert_eq!(relay.stop()["relays"][0]["lost"], 0);
}

#[test]
fn of_two_hundred_streams_on_one_port_every_packet_arrives_once_and_in_order() {
    retry_after_stall(
        "relay::of_two_hundred_streams_on_one_port_every_packet_arrives_once_and_in_order",
        || {
            let _turn = turn();
            let scratch = ScratchDir::new("relay-many").unwrap();
            let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
            listener.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            let dest = listener.local_addr().unwrap().port();
            let relay = Relay::start(&scratch, "relay", "pcmu", "pcma", dest);
            let reader = std::thread::spawn(move || listen(&listener));
            let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
            let start = Instant::now();
            for number in 0..PACKETS {
                for stream in 0..STREAMS {
                    let mut datagram = vec![0xff; 12 + 160];
                    datagram[..4].copy_from_slice(&[0x80, 0, 0, 0]);
                    datagram[2..4].copy_from_slice(&number.wrapping_add(65_520).to_be_bytes());
                    datagram[4..8].copy_from_slice(&(u32::from(number) * 160).to_be_bytes());
                    datagram[8..12].copy_from_slice(&(0x1000 + u32::from(stream)).to_be_bytes());
                    // Ten at a time: by default a receiver's socket buffer holds not many more.
                    if stream % 10 == 0 {
                        let due = u64::from(number) * 20_000 + u64::from(stream) * 100;
                        let due = start + Duration::from_micros(due);
                        std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    }
                    sender.send_to(&datagram, ("127.0.0.1", relay.port)).unwrap();
                }
            }
            std::thread::sleep(Duration::from_millis(300));
            let came = relay.stop();
            let heard = reader.join().unwrap();
            let total = &came["relays"][0];
            let all = u64::from(PACKETS) * u64::from(STREAMS);
            let counted = ["received", "sent", "lost"].map(|key| total[key].as_u64().unwrap());
            assert_eq!(counted, [all, all, 0], "{total}");
            assert_eq!(came["streams"].as_array().unwrap().len(), usize::from(STREAMS));
            assert_eq!(
                heard.len(),
                usize::from(STREAMS),
                "as many sources, each with a number of its own"
            );
            for (ssrc, sequences) in heard {
                let wanted: Vec<u16> =
                    (0..PACKETS).map(|number| number.wrapping_add(65_520)).collect();
                assert_eq!(sequences, wanted, "source {ssrc:08x}");
            }
        },
    );
}

const STREAMS: u16 = 200;
const PACKETS: u16 = 30;

/// The sequence numbers of each source, until nothing has come for a second.
fn listen(socket: &UdpSocket) -> HashMap<u32, Vec<u16>> {
    let mut heard: HashMap<u32, Vec<u16>> = HashMap::new();
    let mut datagram = [0; 1_500];
    let begun = Instant::now();
    loop {
        let Ok(length) = socket.recv(&mut datagram) else {
            if heard.is_empty() && begun.elapsed() < PATIENCE {
                continue;
            }
            return heard;
        };
        // RTCP shares the port (RFC 5761).
        if length < 12 || (192..224).contains(&datagram[1]) {
            continue;
        }
        let sequence = u16::from_be_bytes([datagram[2], datagram[3]]);
        let ssrc = u32::from_be_bytes([datagram[8], datagram[9], datagram[10], datagram[11]]);
        heard.entry(ssrc).or_default().push(sequence);
    }
}
