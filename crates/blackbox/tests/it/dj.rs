//! ffmpeg as a live source, and as a listener of it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::peer::{Process, find_or_skip};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::Value;

use crate::retry::retry_after_stall;
use crate::rpc::Rpc;
use crate::{long_shared_turn, shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

const CONFIG: &str = r#"[[station]]
name = "default"
codec = "pcm"
sources = [{ uri = "icecast://127.0.0.1:0/live", password = "very secret" }]
"#;

/// The fallback of the live source is a clearly different signal.
pub(crate) const COVERED: &str = r#"[[station]]
name = "default"
codec = "pcm"
sources = [{ uri = "icecast://127.0.0.1:0/live", password = "very secret" }, "tone://?hz=3000"]
"#;

pub(crate) fn source(rpc: &mut Rpc) -> Value {
    rpc.call("Aulos.GetStatus", &Value::Null)["stations"][0]["sources"][0].clone()
}

pub(crate) fn active(rpc: &mut Rpc) -> Value {
    rpc.call("Aulos.GetStatus", &Value::Null)["stations"][0]["active"].clone()
}

pub(crate) fn port(rpc: &mut Rpc) -> String {
    let mut port = None;
    wait_for("the DJs' port", PATIENCE, || {
        port = source(rpc)["dj"]["port"].as_str().map(str::to_owned);
        port.is_some()
    });
    port.unwrap()
}

/// A tone of 440 Hz at -12 dBFS, in real time.
fn push(ffmpeg: &Path, url: &str, codec: &str, scratch: &ScratchDir) -> Process {
    let arguments = format!(
        "-nostdin -loglevel error -re -f lavfi -i sine=440:r=48000,volume=6dB -ac 2 {codec} \
         -metadata title=Penguin -metadata artist=Frozen -ice_name House {url}"
    );
    let mut command = Command::new(ffmpeg);
    command.args(arguments.split_whitespace());
    Process::start(&mut command, &scratch.join("push.out"), &scratch.join("push.err")).unwrap()
}

/// ffmpeg's decoding of three seconds: its report, and the samples of one channel at 48 kHz.
pub(crate) fn listen(ffmpeg: &Path, http: SocketAddr, path: &str) -> (String, Vec<i16>) {
    listen_for(ffmpeg, http, path, 3)
}

/// The same for some seconds.
pub(crate) fn listen_for(
    ffmpeg: &Path,
    http: SocketAddr,
    path: &str,
    seconds: u32,
) -> (String, Vec<i16>) {
    let arguments = format!(
        "-nostdin -i http://{http}/listen/{path} -t {seconds} -f s16le -ar 48000 -ac 1 -flush_packets 1 pipe:1"
    );
    let heard = Command::new(ffmpeg).args(arguments.split_whitespace()).output().unwrap();
    let samples = heard.stdout.as_chunks::<2>().0.iter().map(|two| i16::from_le_bytes(*two));
    (String::from_utf8_lossy(&heard.stderr).into_owned(), samples.collect())
}

/// A tenth of a second at 48 kHz: a tone of 440 Hz has 44 whole periods in it. The clock of a live
/// source may be corrected by up to 400 ppm, which over a whole second would look like another
/// tone.
const WINDOW: usize = 4_800;

/// The share of the energy that is a tone of 440 Hz: the mean over windows of a tenth of a second.
pub(crate) fn share_of_the_tone(samples: &[i16]) -> f64 {
    let windows = samples.chunks_exact(WINDOW);
    let count = windows.len() as f64;
    windows.map(share_in_window).sum::<f64>() / count
}

fn share_in_window(samples: &[i16]) -> f64 {
    let (mut sine, mut cosine, mut all) = (0.0, 0.0, 0.0);
    for (index, sample) in samples.iter().enumerate() {
        let phase = index as f64 * 440.0 / 48_000.0 * std::f64::consts::TAU;
        let sample = f64::from(*sample);
        sine += sample * phase.sin();
        cosine += sample * phase.cos();
        all += sample * sample;
    }
    if all == 0.0 {
        0.0
    } else {
        2.0 * (sine * sine + cosine * cosine) / (samples.len() as f64 * all)
    }
}

/// The share of the tone in the best second: ffmpeg sends in real time, and a busy machine can
/// delay it by more than the server buffers.
pub(crate) fn share_in_the_best_second(samples: &[i16]) -> f64 {
    let seconds = samples.windows(48_000).step_by(12_000);
    seconds.map(share_of_the_tone).fold(0.0, f64::max)
}

#[test]
fn ffmpeg_sends_every_format_and_receives_every_container() {
    retry_after_stall("dj::ffmpeg_sends_every_format_and_receives_every_container", || {
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let _turn = long_shared_turn();
        let scratch = ScratchDir::new("dj").unwrap();
        let server = AulosServer::start(&scratch, COVERED).unwrap();
        let mut rpc = Rpc::connect(server.control);
        let url = format!("icecast://source:very%20secret@{}/live", port(&mut rpc));
        let formats = [
            ("mp3", "-c:a libmp3lame -b:a 128k -content_type audio/mpeg -f mp3", "default"),
            (
                "vorbis",
                "-c:a libvorbis -b:a 128k -content_type application/ogg -legacy_icecast 1 -f ogg",
                "default.flac",
            ),
            ("opus", "-c:a libopus -b:a 96k -content_type application/ogg -f ogg", "default.ogg"),
            ("flac", "-c:a flac -content_type audio/flac -f flac", "default.wav"),
            ("flac", "-c:a flac -content_type application/ogg -f ogg", "default.opus"),
            ("aac", "-c:a aac -b:a 128k -content_type audio/aac -tls 1 -f adts", "default"),
        ];
        for (codec, arguments, path) in formats {
            let mut dj = push(&ffmpeg, &url, arguments, &scratch);
            wait_for("the DJ", PATIENCE, || {
                let source = source(&mut rpc);
                source["dj"]["on_air"] == true && source["dj"]["codec"] == codec
            });
            wait_for("the DJ to be heard", PATIENCE, || active(&mut rpc) == "icecast");
            let state = source(&mut rpc)["dj"].clone();
            assert_eq!(state["name"], "House", "{state}");
            assert_eq!(state["tls"], arguments.contains("-tls 1"), "{state}");
            assert!(state["user_agent"].as_str().unwrap().starts_with("Lavf/"), "{state}");
            // After the crossfade.
            std::thread::sleep(Duration::from_secs(1));
            let (report, samples) = listen(&ffmpeg, server.http, path);
            assert!(
                samples.len() >= 140_000,
                "{codec}, {path}: {} samples\n{report}",
                samples.len()
            );
            let share = share_in_the_best_second(&samples);
            assert!(share > 0.99, "{codec}, {path}: {share} of it is the tone\n{report}");
            dj.terminate(PATIENCE).unwrap();
            wait_for("its end", PATIENCE, || source(&mut rpc)["dj"]["on_air"] == false);
            let left = source(&mut rpc)["dj"]["last_left"].clone();
            assert_eq!(left, "the last live source ended its stream", "{codec}");
            wait_for("his last sound", PATIENCE, || active(&mut rpc) == "tone");
        }
        server.stop().unwrap();
    });
}

#[test]
fn a_title_of_a_live_source_reaches_ffmpeg_as_a_listener() {
    retry_after_stall("dj::a_title_of_a_live_source_reaches_ffmpeg_as_a_listener", || {
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let Some(curl) = find_or_skip("curl") else { return };
        let _turn = shared_turn();
        let scratch = ScratchDir::new("dj-title").unwrap();
        let server = AulosServer::start(&scratch, CONFIG).unwrap();
        let mut rpc = Rpc::connect(server.control);
        let port = port(&mut rpc);
        let url = format!("icecast://source:very%20secret@{port}/live");
        let codec = "-c:a libmp3lame -b:a 128k -content_type audio/mpeg -f mp3";
        let mut dj = push(&ffmpeg, &url, codec, &scratch);
        wait_for("the DJ", PATIENCE, || active(&mut rpc) == "icecast");
        let tell = |password: &str| {
            let told = Command::new(&curl)
                .args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-u", password, "--get"])
                .args(["--data-urlencode", "song=Björk - Jóga"])
                .args(["-d", "mode=updinfo", "-d", "mount=/live"])
                .arg(format!("http://{port}/admin/metadata"))
                .output()
                .unwrap();
            String::from_utf8(told.stdout).unwrap()
        };
        assert_eq!(tell("source:very wrong"), "401");
        assert_eq!(tell("source:very secret"), "200");
        wait_for("its title", PATIENCE, || source(&mut rpc)["dj"]["title"]["title"] == "Jóga");
        // It takes up to a tick to get from the control plane to the reactors.
        std::thread::sleep(Duration::from_millis(500));
        // FLAC has the title as ICY metadata in one line, Ogg in two comments.
        for (path, parts) in
            [("default", ["Björk - Jóga"; 2]), ("default.ogg", [": Björk", ": Jóga"])]
        {
            let (report, _) = listen(&ffmpeg, server.http, path);
            assert!(parts.iter().all(|part| report.contains(part)), "{path}: {report}");
            let name =
                report.lines().any(|line| line.contains("icy-name") && line.contains("default"));
            assert!(name, "{path}: {report}");
        }
        dj.terminate(PATIENCE).unwrap();
        // A live source without permission gets an error, and the wrong password is counted.
        let wrong = push(&ffmpeg, &url.replace("secret", "wrong"), codec, &scratch);
        let mut wrong = wrong;
        wait_for("his end", PATIENCE, || wrong.ended().unwrap().is_some());
        let said = std::fs::read_to_string(scratch.join("push.err")).unwrap();
        assert!(said.contains("401"), "{said}");
        server.stop().unwrap();
    });
}

/// The library with which ices, liquidsoap, mpd and others push.
#[test]
fn libshout_streams_with_titles() {
    retry_after_stall("dj::libshout_streams_with_titles", || {
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let Some(ezstream) = find_or_skip("ezstream") else { return };
        let _turn = shared_turn();
        let scratch = ScratchDir::new("dj-libshout").unwrap();
        let song = scratch.join("song.mp3");
        let tone = "-nostdin -loglevel error -f lavfi -i sine=440:r=48000:d=60 -ac 2 -c:a libmp3lame -b:a 128k \
                -metadata title=Penguin -metadata artist=Frozen";
        let made = Command::new(&ffmpeg).args(tone.split_whitespace()).arg(&song).status().unwrap();
        assert!(made.success());
        let server = AulosServer::start(&scratch, CONFIG).unwrap();
        let mut rpc = Rpc::connect(server.control);
        let port = port(&mut rpc);
        let (host, number) = port.split_once(':').unwrap();
        let config = format!(
            "<ezstream><servers><server><protocol>HTTP</protocol><hostname>{host}\
         </hostname><port>{number}</port><user>source</user><password>very secret</password>\
         <tls>none</tls></server></servers><streams><stream><mountpoint>/live</mountpoint><format>MP3</format><stream_name>House\
         </stream_name></stream></streams><intakes><intake><type>file</type>\
         <filename>{}</filename></intake></intakes></ezstream>",
            text(&song)
        );
        let file = scratch.join("ezstream.xml");
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new(ezstream);
        command.arg("-vv").arg("-c").arg(&file);
        let logs = [scratch.join("ezstream.out"), scratch.join("ezstream.err")];
        let mut dj = Process::start(&mut command, &logs[0], &logs[1]).unwrap();
        let said = || {
            let read = |log| std::fs::read_to_string(log).unwrap_or_default();
            read(&logs[0]) + &read(&logs[1])
        };
        wait_for("the DJ", PATIENCE, || {
            assert!(dj.ended().unwrap().is_none(), "{}", said());
            source(&mut rpc)["dj"]["codec"] == "mp3" && active(&mut rpc) == "icecast"
        });
        wait_for("his title", PATIENCE, || {
            let title = source(&mut rpc)["dj"]["title"].clone();
            title["title"].as_str().is_some_and(|title| title.contains("Penguin"))
        });
        let (report, samples) = listen(&ffmpeg, server.http, "default");
        let share = share_in_the_best_second(&samples);
        assert!(share > 0.99, "{share} of it is the tone\n{report}");
        assert_eq!(source(&mut rpc)["dj"]["name"], "House");
        dj.terminate(PATIENCE).unwrap();
        wait_for("his end", PATIENCE, || source(&mut rpc)["dj"]["on_air"] == false);
        server.stop().unwrap();
    });
}

/// A refused client tries again every few seconds; the log has one line for it, at its usual level,
/// until the reason changes. No password reaches it.
#[test]
fn a_refused_live_source_is_logged_once_for_each_reason() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("dj-refused").unwrap();
    let server = AulosServer::start(&scratch, CONFIG).unwrap();
    let mut rpc = Rpc::connect(server.control);
    let port = port(&mut rpc);
    let ask = |request: &str| {
        let mut socket = TcpStream::connect(&port).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        drop(socket.read_to_string(&mut answer));
        assert!(answer.starts_with("HTTP/1.1 40"), "{answer}");
    };
    // `source:very wrong`
    let login = "Authorization: Basic c291cmNlOnZlcnkgd3Jvbmc=\r\n";
    for _ in 0..3 {
        // As libshout does it: first without credentials, to learn the scheme.
        ask("SOURCE /live HTTP/1.0\r\n\r\n");
        ask(&format!("SOURCE /live HTTP/1.0\r\n{login}\r\n"));
    }
    ask(&format!("PUT /other%0Amount HTTP/1.1\r\n{login}\r\n"));
    ask("very wrong\r\n");
    ask("very wrong\r\n");
    let printed = server.printed().unwrap();
    let lines: Vec<_> =
        printed.lines().filter(|line| line.contains("live source refused")).collect();
    let reasons = ["wrong user name or password", "unknown mount", "Shoutcast v1"];
    assert_eq!(lines.len(), reasons.len(), "{printed}");
    for (line, reason) in lines.iter().zip(reasons) {
        assert!(line.contains(reason) && line.contains("127.0.0.1"), "{reason}: {line}");
    }
    assert!(lines[1].contains("/othermount"), "{}", lines[1]);
    assert!(!printed.contains("very wrong") && !printed.contains("c291"), "{printed}");
    server.stop().unwrap();
}

/// Source clients such as butt show the number of listeners from it. It needs the permission that
/// the HTTP port requires.
#[test]
fn the_status_of_a_mount_has_the_number_of_its_listeners() {
    let _turn = shared_turn();
    let locked = "[[user]]\nname = \"board\"\nrole = \"control\"\npassword_file = \"secret\"\n";
    for more in ["", locked] {
        let scratch = ScratchDir::new("dj-status").unwrap();
        let port = free_port().unwrap();
        let secret = scratch.join("secret");
        std::fs::write(&secret, "very secret").unwrap();
        std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
        let config = CONFIG.replace("127.0.0.1:0/", &format!("127.0.0.1:{port}/"));
        let config = config + &more.replace("\"secret\"", &format!("\"{}\"", text(&secret)));
        let server = AulosServer::start(&scratch, &config).unwrap();
        wait_for("the port", PATIENCE, || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let ask = |host: &str| {
            let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let request = format!("GET /status-json.xsl HTTP/1.1\r\nHost: {host}\r\n\r\n");
            socket.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            socket.read_to_string(&mut answer).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            (head[9..12].to_owned(), serde_json::from_str::<Value>(body).unwrap_or_default())
        };
        assert_eq!(ask("evil.example").0, "421");
        let (status, body) = ask("localhost:8000");
        if more.is_empty() {
            let source = &body["icestats"]["source"];
            assert_eq!((&*status, &source["listeners"]), ("200", &Value::from(0)), "{body}");
            assert_eq!(source["listenurl"], "http://localhost:8000/live", "{body}");
        } else {
            assert_eq!((&*status, body), ("401", Value::Null));
        }
        let printed = server.printed().unwrap();
        assert!(!printed.contains("live source refused"), "{printed}");
        server.stop().unwrap();
    }
}
