//! A station's stream is pushed to a real icecast2, to which ffmpeg listens.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::peer::{Process, find_or_skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::Value;

use crate::dj::{listen, share_of_the_tone};
use crate::radio::icecast;
use crate::retry::retry_after_stall;
use crate::rpc::Rpc;
use crate::{script, shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

/// A control script that reports each title as soon as there is a file of its name.
const TITLES: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
echo '{"jsonrpc":"2.0","method":"Plugin.Stream.Ready"}'
for title in One Two; do
  while [ ! -e "$title" ]; do sleep 0.05; done
  printf '{"jsonrpc":"2.0","method":"Plugin.Stream.Player.Properties","params":'
  printf '{"metadata":{"title":"%s","artist":["Band"]}}}\n' "$title"
done
sleep 600
"#;

/// A station with a tone that is pushed to two mounts of a server; one with titles and one without.
struct Stage {
    scratch: ScratchDir,
    port: u16,
    server: AulosServer,
    rpc: Rpc,
}

impl Stage {
    fn new(scratch: ScratchDir, port: u16) -> Self {
        let titles = scratch.join("titles");
        script(&titles, TITLES);
        let push = |mount: &str, format: &str| {
            format!(
                "{{ url = \"icecast://127.0.0.1:{port}/{mount}\", password = \"secret\", \
                 format = \"{format}\", name = \"House\" }}"
            )
        };
        let config = format!(
            "[[station]]\nname = \"default\"\nsources = [\"tone://?hz=440&dbfs=-12\"]\n\
             push = [{}, {}]\nplugin = {{ script = \"{}\" }}\n",
            push("live.ogg", "ogg"),
            push("live.flac", "flac"),
            text(&titles)
        );
        let server = AulosServer::start(&scratch, &config).unwrap();
        let rpc = Rpc::connect(server.control);
        Self { scratch, port, server, rpc }
    }

    fn pushes(&mut self) -> Value {
        self.rpc.call("Aulos.GetStatus", &Value::Null)["stations"][0]["pushes"].clone()
    }

    /// Waits until both pushes have this state.
    fn are(&mut self, what: &str) {
        wait_for(what, PATIENCE, || {
            let all = self.pushes();
            (0..2).all(|at| all[at]["state"] == what)
        });
    }

    fn says(&self, title: &str) {
        std::fs::write(self.scratch.join(title), "").unwrap();
    }

    /// ffmpeg's output from the foreign mount, while something happens: mono at 48 kHz.
    fn hears(&self, ffmpeg: &Path, seconds: u32, meanwhile: impl FnOnce(&Self)) -> Vec<i16> {
        let arguments = format!(
            "-nostdin -loglevel error -i http://127.0.0.1:{}/live.ogg -t {seconds} -f s16le \
             -ar 48000 -ac 1 -flush_packets 1 pipe:1",
            self.port
        );
        let (out, err) = (self.scratch.join("heard"), self.scratch.join("heard.err"));
        let mut command = Command::new(ffmpeg);
        let mut process =
            Process::start(command.args(arguments.split_whitespace()), &out, &err).unwrap();
        wait_for("its first second", PATIENCE, || {
            std::fs::metadata(&out).is_ok_and(|file| file.len() > 96_000)
        });
        meanwhile(self);
        process.wait(PATIENCE).unwrap();
        let bytes = std::fs::read(&out).unwrap();
        bytes.as_chunks::<2>().0.iter().map(|two| i16::from_le_bytes(*two)).collect()
    }

    /// Whether a player that requests titles gets this one with the audio of the mount without
    /// titles.
    fn is_told(&self, title: &str) -> bool {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(socket, "GET /live.flac HTTP/1.0\r\nIcy-MetaData: 1\r\n\r\n").unwrap();
        let mut bytes = vec![0; 80_000];
        socket.read_exact(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).contains(&format!("StreamTitle='{title}'"))
    }
}

/// The longest run of samples close to zero.
fn longest_silence(sound: &[i16]) -> usize {
    sound.split(|sample| sample.unsigned_abs() > 300).map(<[i16]>::len).max().unwrap_or(0)
}

#[test]
fn a_real_icecast_gets_the_stream_with_titles_and_again_when_it_was_killed() {
    retry_after_stall(
        "push::a_real_icecast_gets_the_stream_with_titles_and_again_when_it_was_killed",
        || {
            let Some(icecast_program) = find_or_skip("icecast2") else { return };
            let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
            let Some(ffprobe) = find_or_skip("ffprobe") else { return };
            let _turn = shared_turn();
            let scratch = ScratchDir::new("push").unwrap();
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let ice = icecast(&icecast_program, port, &scratch);
            let mut stage = Stage::new(scratch, port);
            stage.are("pushing");
            stage.says("One");
            let mut title = String::new();
            wait_for("the title of a listener who comes", PATIENCE, || {
                let mut command = Command::new(&ffprobe);
                let url = format!("http://127.0.0.1:{port}/live.ogg");
                command.args(["-v", "error", "-show_entries", "stream_tags=artist,title", &url]);
                title = String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned();
                title.contains("=Band\n") && title.contains("=One\n")
            });
            wait_for("the title beside the sound", PATIENCE, || stage.is_told("Band - One"));
            // A change of title leaves no gap in the audio.
            let sound = stage.hears(&ffmpeg, 6, |stage| stage.says("Two"));
            let share = share_of_the_tone(&sound[24_000..]);
            let hole = longest_silence(&sound[24_000..]);
            println!(
                "{} frames, {share:.4} of it the tone, longest silence {hole} frames",
                sound.len()
            );
            assert!(sound.len() > 5 * 48_000 && share > 0.99, "{share}");
            assert!(hole < 48, "{hole} frames");
            wait_for("the next title", PATIENCE, || stage.is_told("Band - Two"));
            drop(ice);
            wait_for("its end", PATIENCE, || {
                let all = stage.pushes();
                (0..2).all(|at| all[at]["failures"].as_u64().unwrap() > 0)
            });
            let told = stage.pushes();
            assert!(told[0]["last_error"].is_string(), "{told}");
            let again = ScratchDir::new("push-again").unwrap();
            let mut ice = icecast(&icecast_program, port, &again);
            stage.are("pushing");
            let sound = stage.hears(&ffmpeg, 3, |_| {});
            assert!(share_of_the_tone(&sound[24_000..]) > 0.99);
            let told = stage.pushes();
            assert!((0..2).all(|at| told[at]["connects"] == 2), "{told}");
            stage.server.stop().unwrap();
            ice.terminate(PATIENCE).unwrap();
        },
    );
}

/// Two instances of this server, over TLS: one plays the other's output.
#[test]
fn a_second_server_receives_the_stream_over_tls() {
    retry_after_stall("push::a_second_server_receives_the_stream_over_tls", || {
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let _turn = shared_turn();
        let (near, far) =
            (ScratchDir::new("push-near").unwrap(), ScratchDir::new("push-far").unwrap());
        let config = "[[station]]\nname = \"default\"\ncodec = \"pcm\"\n\
                  sources = [{ uri = \"icecast://127.0.0.1:0/live\", password = \"very secret\" }]\n";
        let taker = AulosServer::start(&far, config).unwrap();
        let mut there = Rpc::connect(taker.control);
        let mut dj = Value::Null;
        wait_for("the mount's port", PATIENCE, || {
            let status = there.call("Aulos.GetStatus", &Value::Null);
            dj = status["stations"][0]["sources"][0]["dj"].clone();
            dj["port"].is_string()
        });
        let (_, port) = dj["port"].as_str().unwrap().rsplit_once(':').unwrap();
        let config = format!(
            "[[station]]\nname = \"default\"\nsources = [\"tone://?hz=440&dbfs=-12\"]\n\
         push = [{{ url = \"icecasts://localhost:{port}/live\", password = \"very secret\", \
         format = \"flac\" }}]\n"
        );
        let file = near.join("push.toml");
        std::fs::write(&file, config).unwrap();
        let giver = AulosServer::start_with(&near, |command| {
            command.arg("--config").arg(&file);
            command.env("SSL_CERT_FILE", far.join("state/tls/cert.pem"));
        })
        .unwrap();
        wait_for("the stream", PATIENCE, || {
            let status = there.call("Aulos.GetStatus", &Value::Null);
            let source = status["stations"][0]["sources"][0].clone();
            dj = source["dj"].clone();
            source["state"] == "ready" && status["stations"][0]["active"] == "icecast"
        });
        assert_eq!((&dj["tls"], &dj["codec"]), (&Value::Bool(true), &"flac".into()), "{dj}");
        let (report, sound) = listen(&ffmpeg, taker.http, "default");
        let share = share_of_the_tone(&sound[sound.len() - 48_000..]);
        assert!(share > 0.9999, "{share}: {report}");
        giver.stop().unwrap();
        taker.stop().unwrap();
    });
}

#[test]
fn a_rejection_by_a_real_icecast_is_understood() {
    let Some(icecast_program) = find_or_skip("icecast2") else { return };
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("push-no").unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut ice = icecast(&icecast_program, port, &scratch);
    // The mount is in use already.
    let arguments = format!(
        "-nostdin -loglevel error -re -f lavfi -i sine=440:r=48000 -c:a libopus -content_type \
         application/ogg -f ogg icecast://source:secret@127.0.0.1:{port}/taken.ogg"
    );
    let mut command = Command::new(&ffmpeg);
    let [out, err] = ["other.out", "other.err"].map(|name| scratch.join(name));
    let _other = Process::start(command.args(arguments.split_whitespace()), &out, &err).unwrap();
    let answers = |mount: &str| {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(socket, "GET /{mount} HTTP/1.0\r\n\r\n").unwrap();
        let mut head = [0; 12];
        socket.read_exact(&mut head).is_ok() && head.ends_with(b"200")
    };
    wait_for("the other source", PATIENCE, || answers("taken.ogg"));
    let push = |mount: &str, password: &str| {
        format!("{{ url = \"icecast://127.0.0.1:{port}/{mount}\", password = \"{password}\" }}")
    };
    let config = format!(
        "[[station]]\nname = \"default\"\nsources = [\"tone://\"]\npush = [{}, {}]\n",
        push("taken.ogg", "secret"),
        push("own.ogg", "wrong")
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut rpc = Rpc::connect(server.control);
    let mut told = Value::Null;
    wait_for("both answers", PATIENCE, || {
        told = rpc.call("Aulos.GetStatus", &Value::Null)["stations"][0]["pushes"].clone();
        (0..2).all(|at| told[at]["last_error"].is_string())
    });
    assert!(told[0]["last_error"].as_str().unwrap().contains("in use by another source"), "{told}");
    assert!(told[1]["last_error"].as_str().unwrap().contains("(401)"), "{told}");
    assert_eq!(told[1]["state"], "refused", "{told}");
    server.stop().unwrap();
    ice.terminate(PATIENCE).unwrap();
}
