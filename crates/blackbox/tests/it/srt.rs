//! Sources over SRT, and pushes: ffmpeg, srt-live-transmit and GStreamer send, plain and encrypted, over a
//! network that loses packets, and with keys and stream ids that are not ours.

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use aulos_blackbox::lossy_proxy::{Impairment, LossyProxy};
use aulos_blackbox::peer::{Process, find_or_skip};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::Value;

use crate::dj::{active, listen, share_in_the_best_second, share_of_the_tone, source};
use crate::retry::retry_after_stall;
use crate::rpc::Rpc;
use crate::{long_shared_turn, shared_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// A station with this source, and a fallback that is clearly another sound.
fn server(scratch: &ScratchDir, uri: &str) -> (AulosServer, Rpc) {
    let config = format!(
        "[[station]]\nname = \"default\"\ncodec = \"pcm\"\n\
         sources = [{{ name = \"studio\", uri = \"{uri}\", input_buffer_ms = 1000 }}, \"tone://?hz=3000\"]\n"
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
    let share = share_in_the_best_second(&samples);
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
            // What is buffered of it is still played.
            wait_for("its end", PATIENCE, || {
                srt(&mut rpc)["peer"].is_null() && active(&mut rpc) == "tone"
            });
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
        wait_for("the fallback", PATIENCE, || active(&mut rpc) == "tone");
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
        if let Some(transmit) = find_or_skip("srt-live-transmit") {
            let udp = free_port().unwrap();
            let ends = format!("-a:no udp://127.0.0.1:{udp} {url}");
            let mut sender = start(&transmit, &ends, &scratch);
            let page = "<html>".repeat(200);
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            wait_for("the reason", PATIENCE, || {
                for _ in 0..10 {
                    socket.send_to(page.as_bytes(), ("127.0.0.1", udp)).unwrap();
                }
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
             ! audioconvert ! opusenc bitrate=96000 ! mpegtsmux ! srtsink \
             uri=srt://127.0.0.1:{port}?mode=listener passphrase=a-long-secret \
             wait-for-connection=false"
        );
        let mut pipeline = start(&gst, &pipeline, &scratch);
        is_heard(&ffmpeg, &server, &mut rpc, "opus");
        drop(pipeline.terminate(PATIENCE));
        server.stop().unwrap();
    });
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
        let network = Impairment { loss: 0.1, delay: Duration::from_millis(20), seed: 1 };
        let proxy = LossyProxy::start(port, network).unwrap();
        let url = format!("srt://127.0.0.1:{}?latency=600000", proxy.port);
        let mut sender = start(&ffmpeg, &(tone(AAC) + &url), &scratch);
        is_heard(&ffmpeg, &server, &mut rpc, "aac");
        wait_for("losses", PATIENCE, || srt(&mut rpc)["lost"].as_u64() > Some(5));
        let status = srt(&mut rpc);
        assert!(status["retransmitted"].as_u64() > Some(0), "{status}");
        assert_eq!(status["dropped"], 0, "{status}");
        assert!(status["round_trip_ms"].as_f64() > Some(0.0), "{status}");
        sender.terminate(PATIENCE).unwrap();
        assert!(proxy.stop() > 10);
        server.stop().unwrap();
    });
}

/// What ffmpeg decodes of an address in three seconds.
fn received(ffmpeg: &Path, url: &str) -> Vec<i16> {
    let arguments =
        format!("-nostdin -loglevel error -i {url} -t 3 -f s16le -ar 48000 -ac 1 pipe:1");
    let heard = Command::new(ffmpeg).args(arguments.split_whitespace()).output().unwrap();
    samples(&heard.stdout)
}

fn samples(bytes: &[u8]) -> Vec<i16> {
    bytes.as_chunks::<2>().0.iter().map(|two| i16::from_le_bytes(*two)).collect()
}

#[test]
fn a_station_is_sent_to_ffmpeg_and_gstreamer_as_callers_and_as_a_listener() {
    retry_after_stall("srt::a_station_is_sent_to_ffmpeg_and_gstreamer", || {
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let Some(gst) = find_or_skip("gst-launch-1.0") else { return };
        let _turn = long_shared_turn();
        let scratch = ScratchDir::new("srt-push").unwrap();
        let ports = [(); 3].map(|()| free_port().unwrap());
        let [aac, opus, mp3] = ports.map(|port| format!("srt://127.0.0.1:{port}"));
        let config = format!(
            "[[station]]\nname = \"default\"\ncodec = \"pcm\"\n\
             sources = [\"tone://?hz=440&dbfs=-12\"]\npush = [\n\
             {{ url = \"{aac}?mode=listener\", password = \"a-long-secret\" }},\n\
             {{ url = \"{opus}?mode=listener\", format = \"opus:96k\" }},\n\
             {{ url = \"{mp3}?streamid=radio\", format = \"mp3:128k\" }}]\n"
        );
        let server = AulosServer::start(&scratch, &config).unwrap();
        let mut rpc = Rpc::connect(server.control);
        let mut pushes =
            || rpc.call("Aulos.GetStatus", &Value::Null)["stations"][0]["pushes"].clone();
        let heard = received(&ffmpeg, &format!("{aac}?passphrase=a-long-secret"));
        let share = share_of_the_tone(&heard[48_000..]);
        assert!(heard.len() > 130_000 && share > 0.98, "{} {share} {}", heard.len(), pushes());
        // It calls, in vain at first.
        wait_for("nobody to answer", PATIENCE, || pushes()[2]["state"] == "waiting");
        let heard = received(&ffmpeg, &format!("{mp3}?mode=listener"));
        let share = share_of_the_tone(&heard[48_000..]);
        assert!(heard.len() > 130_000 && share > 0.98, "{} {share} {}", heard.len(), pushes());
        let out = scratch.join("gst.raw");
        let pipeline = format!(
            "-q srtsrc uri={opus}?mode=caller ! tsdemux ! opusdec ! audioconvert ! audioresample ! \
             audio/x-raw,format=S16LE,rate=48000,channels=1 ! filesink location={}",
            out.display()
        );
        let mut receiver = start(&gst, &pipeline, &scratch);
        wait_for("the sound", PATIENCE, || {
            std::fs::metadata(&out).is_ok_and(|file| file.len() > 300_000)
        });
        let state = pushes()[1].clone();
        assert_eq!(state["state"], "pushing", "{state}");
        assert!(state["srt"]["packets"].as_u64() > Some(20), "{state}");
        drop(receiver.terminate(PATIENCE));
        let share = share_of_the_tone(&samples(&std::fs::read(&out).unwrap())[48_000..]);
        assert!(share > 0.98, "{share}");
        assert!(!pushes().to_string().contains("a-long-secret"));
        server.stop().unwrap();
    });
}
