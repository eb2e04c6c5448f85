//! Sources over SRT: ffmpeg, srt-live-transmit and GStreamer send, plain and encrypted, over a
//! network that loses packets, and with keys and stream ids that are not ours.

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use aulos_blackbox::peer::{Process, find_or_skip};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::Value;

use crate::dj::{active, listen, share_of_the_tone, source};
use crate::retry::retry_after_stall;
use crate::rpc::Rpc;
use crate::{long_shared_turn, shared_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// A station with this source, and a fallback that is clearly another sound.
fn server(scratch: &ScratchDir, uri: &str) -> (AulosServer, Rpc) {
    let config = format!(
        "[[station]]\nname = \"default\"\ncodec = \"pcm\"\n\
         sources = [{{ name = \"studio\", uri = \"{uri}\" }}, \"tone://?hz=3000\"]\n"
    );
    let server = AulosServer::start(scratch, &config).unwrap();
    let rpc = Rpc::connect(server.control);
    (server, rpc)
}

fn srt(rpc: &mut Rpc) -> Value {
    source(rpc)["srt"].clone()
}

fn start(program: &Path, arguments: &str, scratch: &ScratchDir) -> Process {
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace());
    let name = program.file_name().unwrap().to_str().unwrap();
    let (out, err) = (format!("{name}.out"), format!("{name}.err"));
    Process::start(&mut command, &scratch.join(&out), &scratch.join(&err)).unwrap()
}

/// A tone of 440 Hz in real time, encoded like this.
fn tone(codec: &str) -> String {
    format!("-nostdin -loglevel error -re -f lavfi -i sine=440:r=48000,volume=6dB -ac 2 {codec} ")
}

const AAC: &str = "-c:a aac -b:a 128k -f mpegts";

/// The station plays the source, and what is heard of it is the tone.
fn is_heard(ffmpeg: &Path, server: &AulosServer, rpc: &mut Rpc, codec: &str) {
    wait_for("the sender", PATIENCE, || active(rpc) == "studio" && srt(rpc)["codec"] == codec);
    // After the crossfade.
    thread::sleep(Duration::from_secs(1));
    let (report, samples) = listen(ffmpeg, server.http, "default");
    let share = share_of_the_tone(&samples[samples.len() / 3..]);
    assert!(share > 0.98, "{codec}: {share} of it is the tone\n{report}\n{}", srt(rpc));
}

#[test]
fn ffmpeg_as_a_caller_is_heard_in_every_codec_plain_and_encrypted() {
    retry_after_stall("srt::ffmpeg_as_a_caller_is_heard", || {
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let _turn = long_shared_turn();
        let scratch = ScratchDir::new("srt-ffmpeg").unwrap();
        let port = free_port().unwrap();
        let uri =
            format!("srt://127.0.0.1:{port}?mode=listener&streamid=live&passphrase=a-long-secret");
        let (server, mut rpc) = server(&scratch, &uri);
        for (codec, arguments) in [
            ("aac", AAC),
            ("aac", "-c:a aac -b:a 128k -f mpegts -mpegts_flags latm"),
            ("mp2", "-c:a mp2 -b:a 192k -f mpegts"),
            ("mp3", "-c:a libmp3lame -b:a 128k -f mpegts"),
            ("opus", "-c:a libopus -b:a 96k -f mpegts"),
            ("aac", "-c:a aac -b:a 128k -f adts"),
        ] {
            let key = if codec == "opus" { 32 } else { 16 };
            let url = format!(
                "srt://127.0.0.1:{port}?passphrase=a-long-secret&pbkeylen={key}&streamid=live"
            );
            let mut sender = start(&ffmpeg, &(tone(arguments) + &url), &scratch);
            is_heard(&ffmpeg, &server, &mut rpc, codec);
            sender.terminate(PATIENCE).unwrap();
            wait_for("its end", PATIENCE, || srt(&mut rpc)["peer"].is_null());
        }
        let status = rpc.call("Aulos.GetStatus", &Value::Null).to_string();
        assert!(!status.contains("a-long-secret"), "{status}");
        assert!(!server.printed().unwrap().contains("a-long-secret"));
        server.stop().unwrap();
    });
}

#[test]
fn a_caller_with_another_key_or_stream_id_is_refused_and_the_station_plays_on() {
    retry_after_stall("srt::a_caller_with_another_key_or_stream_id_is_refused", || {
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let _turn = shared_turn();
        let scratch = ScratchDir::new("srt-refused").unwrap();
        let port = free_port().unwrap();
        let uri = format!("srt://:{port}?streamid=live&passphrase=a-long-secret");
        let (server, mut rpc) = server(&scratch, &uri);
        for (query, code) in [
            ("streamid=live&passphrase=another-secret", 1_010),
            ("streamid=live", 1_011),
            ("streamid=other&passphrase=a-long-secret", 1_404),
        ] {
            let url = format!("srt://127.0.0.1:{port}?{query}");
            let mut sender = start(&ffmpeg, &(tone(AAC) + &url), &scratch);
            assert!(!sender.wait(PATIENCE).unwrap().success(), "{query}");
            wait_for("the reason", PATIENCE, || srt(&mut rpc)["last_refused"]["code"] == code);
            assert_eq!(active(&mut rpc), "tone");
        }
        // A second caller is refused while the first one is heard.
        let url = format!("srt://127.0.0.1:{port}?streamid=live&passphrase=a-long-secret");
        let mut first = start(&ffmpeg, &(tone(AAC) + &url), &scratch);
        wait_for("the sender", PATIENCE, || active(&mut rpc) == "studio");
        let mut second = start(&ffmpeg, &(tone(AAC) + &url), &scratch);
        assert!(!second.wait(PATIENCE).unwrap().success());
        wait_for("the reason", PATIENCE, || srt(&mut rpc)["last_refused"]["code"] == 1_409);
        assert_eq!(active(&mut rpc), "studio");
        first.terminate(PATIENCE).unwrap();
        // What is no sound is refused as well.
        let page = scratch.join("page");
        std::fs::write(&page, "<html>".repeat(100_000)).unwrap();
        if let Some(transmit) = find_or_skip("srt-live-transmit") {
            let feed =
                format!("cat {} | {} file://con '{url}'", page.display(), transmit.display());
            let mut command = Command::new("sh");
            command.args(["-c", &feed]);
            let (out, err) = (scratch.join("page.out"), scratch.join("page.err"));
            let mut sender = Process::start(&mut command, &out, &err).unwrap();
            wait_for("the reason", PATIENCE, || {
                let reason = source(&mut rpc)["reason"].clone();
                reason.as_str().is_some_and(|text| text.contains("cannot be played"))
            });
            drop(sender.terminate(PATIENCE));
        }
        server.stop().unwrap();
    });
}

#[test]
fn srt_live_transmit_and_gstreamer_as_listeners_are_called_and_heard() {
    retry_after_stall("srt::srt_live_transmit_and_gstreamer_as_listeners", || {
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let Some(transmit) = find_or_skip("srt-live-transmit") else { return };
        let Some(gst) = find_or_skip("gst-launch-1.0") else { return };
        let _turn = long_shared_turn();
        let scratch = ScratchDir::new("srt-called").unwrap();
        let (port, udp) = (free_port().unwrap(), free_port().unwrap());
        let uri = format!("srt://127.0.0.1:{port}?passphrase=a-long-secret&latency=200");
        let (server, mut rpc) = server(&scratch, &uri);
        wait_for("nobody to answer", PATIENCE, || {
            source(&mut rpc)["reason"].as_str().is_some_and(|text| text.contains("nobody answers"))
        });
        let relay = format!(
            "udp://127.0.0.1:{udp} srt://127.0.0.1:{port}?mode=listener&passphrase=a-long-secret"
        );
        let mut listener = start(&transmit, &relay, &scratch);
        let target = format!("udp://127.0.0.1:{udp}?pkt_size=1316");
        let mut sender = start(&ffmpeg, &(tone(AAC) + &target), &scratch);
        is_heard(&ffmpeg, &server, &mut rpc, "aac");
        sender.terminate(PATIENCE).unwrap();
        drop(listener.terminate(PATIENCE));
        wait_for("its end", PATIENCE, || srt(&mut rpc)["peer"].is_null());
        let pipeline = format!(
            "-q audiotestsrc freq=440 volume=0.25 is-live=true ! audio/x-raw,rate=48000,channels=2 \
             ! audioconvert ! avenc_aac bitrate=128000 ! mpegtsmux ! srtsink \
             uri=srt://127.0.0.1:{port}?mode=listener passphrase=a-long-secret \
             wait-for-connection=false"
        );
        let mut pipeline = start(&gst, &pipeline, &scratch);
        is_heard(&ffmpeg, &server, &mut rpc, "aac");
        drop(pipeline.terminate(PATIENCE));
        server.stop().unwrap();
    });
}

/// Passes datagrams between a caller and `to`, and loses every tenth of them.
struct LossyProxy {
    port: u16,
    is_done: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<u64>>,
}

impl LossyProxy {
    fn new(to: u16) -> Self {
        let outer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let inner = UdpSocket::bind("127.0.0.1:0").unwrap();
        inner.connect(("127.0.0.1", to)).unwrap();
        outer.set_nonblocking(true).unwrap();
        inner.set_nonblocking(true).unwrap();
        let port = outer.local_addr().unwrap().port();
        let is_done = Arc::<AtomicBool>::default();
        let done = Arc::clone(&is_done);
        let thread = thread::spawn(move || {
            let (mut caller, mut random, mut lost) = (None, 1u64, 0);
            let mut bytes = [0; 2_048];
            let mut passes = |count: usize| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let passes = count > 0 && random >> 33 > (1 << 31) / 10;
                lost += u64::from(!passes);
                passes
            };
            while !done.load(Ordering::Relaxed) {
                while let Ok((count, from)) = outer.recv_from(&mut bytes) {
                    caller = Some(from);
                    if passes(count) {
                        drop(inner.send(&bytes[..count]));
                    }
                }
                while let Ok(count) = inner.recv(&mut bytes) {
                    if let Some(caller) = caller.filter(|_| passes(count)) {
                        drop(outer.send_to(&bytes[..count], caller));
                    }
                }
                thread::sleep(Duration::from_millis(1));
            }
            lost
        });
        Self { port, is_done, thread: Some(thread) }
    }

    fn stop(mut self) -> u64 {
        self.is_done.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

#[test]
fn what_a_network_loses_is_sent_again_and_counted() {
    retry_after_stall("srt::what_a_network_loses_is_sent_again_and_counted", || {
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let _turn = shared_turn();
        let scratch = ScratchDir::new("srt-loss").unwrap();
        let port = free_port().unwrap();
        let (server, mut rpc) =
            server(&scratch, &format!("srt://127.0.0.1:{port}?mode=listener&latency=600"));
        let proxy = LossyProxy::new(port);
        let url = format!("srt://127.0.0.1:{}?latency=600000", proxy.port);
        let mut sender = start(&ffmpeg, &(tone(AAC) + &url), &scratch);
        is_heard(&ffmpeg, &server, &mut rpc, "aac");
        let begin = Instant::now();
        wait_for("losses", PATIENCE, || srt(&mut rpc)["lost"].as_u64() > Some(5));
        let status = srt(&mut rpc);
        assert!(status["retransmitted"].as_u64() > Some(0), "{status} {:?}", begin.elapsed());
        assert_eq!(status["dropped"], 0, "{status}");
        assert!(status["round_trip_ms"].as_f64() > Some(0.0), "{status}");
        sender.terminate(PATIENCE).unwrap();
        assert!(proxy.stop() > 10);
        server.stop().unwrap();
    });
}
