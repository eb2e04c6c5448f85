//! Mounts: frames that are passed as they came, and the change from one source to another.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use aulos_blackbox::peer::{Process, find_or_skip};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::Value;

use crate::retry::retry_after_stall;
use crate::rpc::Rpc;
use crate::{shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// A file of MP3 with a tone, whose frames use the bit reservoir.
pub(crate) fn tone_file(ffmpeg: &Path, scratch: &ScratchDir, hz: u32, arguments: &str) -> PathBuf {
    let file = scratch.join(format!("{hz}.mp3"));
    let sound = format!(
        "aevalsrc='0.4*sin(2*PI*{hz}*t)*(0.5+0.5*gt(mod(t,0.37),0.18))+\
         0.1*(random(0)-0.5)*lt(mod(t,0.53),0.05)':s=44100:d=20,\
         aformat=channel_layouts=stereo"
    );
    let status = Command::new(ffmpeg)
        .args(["-nostdin", "-v", "error", "-f", "lavfi", "-i", &sound])
        .args(arguments.split_whitespace())
        .args(["-write_xing", "0", "-id3v2_version", "0", "-f", "mp3"])
        .arg(&file)
        .status()
        .unwrap();
    assert!(status.success());
    file
}

/// Sends a file again and again, as it is.
pub(crate) fn send(
    ffmpeg: &Path,
    file: &Path,
    to: &str,
    scratch: &ScratchDir,
    name: &str,
) -> Process {
    let mut command = Command::new(ffmpeg);
    command.args(["-nostdin", "-loglevel", "error", "-re", "-stream_loop", "-1", "-i"]).arg(file);
    command
        .args("-c copy -write_xing 0 -id3v2_version 0 -content_type audio/mpeg -f mp3".split(' '));
    command.arg(to);
    let [out, err] = ["out", "err"].map(|end| scratch.join(format!("{name}.{end}")));
    Process::start(&mut command, &out, &err).unwrap()
}

/// A listener, and what it has received.
pub(crate) struct MountListener {
    pub(crate) socket: TcpStream,
    pub(crate) bytes: Vec<u8>,
}

impl MountListener {
    /// Returns the head of the response too.
    pub(crate) fn connect(http: SocketAddr, path: &str, more: &str) -> (Self, String) {
        let mut socket = TcpStream::connect(http).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n").unwrap();
        let mut bytes = Vec::new();
        let mut listener = Self { socket, bytes: Vec::new() };
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|four: &[u8]| four == b"\r\n\r\n") {
                break end + 4;
            }
            listener.read();
            bytes.append(&mut listener.bytes);
        };
        listener.bytes = bytes.split_off(end);
        (listener, String::from_utf8(bytes).unwrap())
    }

    pub(crate) fn read(&mut self) {
        let mut piece = [0; 8_192];
        let count = self.socket.read(&mut piece).unwrap();
        assert!(count > 0, "the server has closed the connection");
        self.bytes.extend_from_slice(&piece[..count]);
    }

    pub(crate) fn read_until(&mut self, what: &str, mut it_is: impl FnMut() -> bool) {
        wait_for(what, PATIENCE, || {
            self.read();
            it_is()
        });
    }

    pub(crate) fn read_for(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.read();
        }
    }
}

/// A mount with two sources, and a station behind them.
pub(crate) fn two_sources(port: u16) -> String {
    format!(
        "[[station]]\nname = \"default\"\nspec = \"44100:16:2\"\n\
         sources = [\"tone://?hz=1500&dbfs=-12\"]\n\
         [[mount]]\nname = \"live.mp3\"\nstation = \"default\"\nsources = [\n\
         {{ name = \"first\", uri = \"icecast://127.0.0.1:{port}/first\" }},\n\
         {{ name = \"second\", uri = \"icecast://127.0.0.1:{port}/second\" }}]\n\
         switch = {{ failback_delay_s = 1 }}\n"
    )
}

/// The source of the mount that is on air, and whether its frames are passed.
pub(crate) fn on_air(rpc: &mut Rpc) -> (String, bool) {
    let status = rpc.call("Aulos.GetStatus", &Value::Null);
    let stations = status["stations"].as_array().unwrap().clone();
    let mount = stations.into_iter().find(|one| one["name"] == "live.mp3").unwrap();
    let active = mount["active"].as_str().unwrap_or_default().to_owned();
    let mut sources = mount["sources"].as_array().unwrap().iter();
    let passed = sources.any(|one| one["name"] == *active && one["pass"]["passed"] == true);
    (active, passed)
}

/// MP3 frames of 44,100 Hz, MPEG 1.
fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    const KBPS: [usize; 15] = [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320];
    let mut all = Vec::new();
    while let [0xff, 0xfa | 0xfb, c, ..] = bytes {
        let length = 144_000 * KBPS[usize::from(c >> 4)] / 44_100 + usize::from(c >> 1 & 1);
        let Some((frame, rest)) = bytes.split_at_checked(length) else { break };
        all.push(frame.to_vec());
        bytes = rest;
    }
    all
}

/// What decoders say against the stream.
pub(crate) fn complaints(
    ffmpeg: &Path,
    mpg123: &Path,
    bytes: &[u8],
    scratch: &ScratchDir,
) -> String {
    let file = scratch.join("received.mp3");
    std::fs::write(&file, bytes).unwrap();
    let file = text(&file);
    let output = Command::new(ffmpeg)
        .args(["-v", "error", "-xerror", "-i", file, "-f", "s16le", "-y", "/dev/null"])
        .output()
        .unwrap();
    let mut all = String::from_utf8_lossy(&output.stderr).into_owned();
    let output = Command::new(mpg123).args(["-t", file]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    all.extend(said.lines().filter(|line| line.contains("error") || line.contains("Note")));
    all
}

/// Checks that a stream has at least so many frames of both files, and of an encoder.
pub(crate) fn check_frames(stream: &[u8], files: &[PathBuf; 2], least: [usize; 3]) {
    let known = files.each_ref().map(|file| frames(&std::fs::read(file).unwrap()));
    let of = |frame: &Vec<u8>| known.iter().position(|file| file.contains(frame));
    let mut sources: Vec<_> = frames(stream).iter().map(of).collect();
    let count = |source| sources.iter().filter(|it| **it == source).count();
    for (source, least) in [Some(0), Some(1), None].into_iter().zip(least) {
        assert!(count(source) >= least, "{} frames of {source:?}", count(source));
    }
    // Nothing comes twice, and each source is one piece behind its first, silent frames.
    sources.dedup();
    assert!(sources.len() < 12, "{sources:?}");
}

#[test]
fn frames_are_passed_and_the_next_source_takes_over_at_a_frame() {
    let name = "mounts::frames_are_passed_and_the_next_source_takes_over_at_a_frame";
    retry_after_stall(name, || {
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let Some(mpg123) = find_or_skip("mpg123") else { return };
        let _turn = shared_turn();
        let scratch = ScratchDir::new("mounts").unwrap();
        let port = free_port().unwrap();
        let server = AulosServer::start(&scratch, &two_sources(port)).unwrap();
        let mut rpc = Rpc::connect(server.control);
        let files = [
            tone_file(&ffmpeg, &scratch, 440, "-c:a libmp3lame -b:a 128k"),
            tone_file(&ffmpeg, &scratch, 660, "-c:a libmp3lame -q:a 3"),
        ];
        let send = |file: usize, mount: &str, name: &str| {
            let url = format!("icecast://source:any@127.0.0.1:{port}/{mount}");
            send(&ffmpeg, &files[file], &url, &scratch, name)
        };
        let (mut first, mut second) = (send(0, "first", "a"), send(1, "second", "b"));
        let is = |source: &str, passed| (source.to_owned(), passed);
        wait_for("the first source", PATIENCE, || on_air(&mut rpc) == is("first", true));
        let (mut listener, head) = MountListener::connect(server.http, "/live.mp3", "");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("Content-Type: audio/mpeg\r\n"), "{head}");
        listener.read_for(Duration::from_secs(3));
        first.terminate(PATIENCE).unwrap();
        listener.read_until("the second source", || on_air(&mut rpc) == is("second", true));
        listener.read_for(Duration::from_secs(3));
        second.terminate(PATIENCE).unwrap();
        listener.read_until("the station", || on_air(&mut rpc) == is("default", false));
        listener.read_for(Duration::from_secs(2));
        let _again = send(0, "first", "c");
        listener.read_until("the first source again", || on_air(&mut rpc) == is("first", true));
        listener.read_for(Duration::from_secs(2));
        // A frame has 26 ms: most of five and of three seconds, and of two for the encoder.
        check_frames(&listener.bytes, &files, [150, 80, 50]);
        assert_eq!(complaints(&ffmpeg, &mpg123, &listener.bytes, &scratch), "");
        // To Snapcast clients a mount is no stream, and it has no path of stations.
        assert_eq!(rpc.status()["streams"].as_array().unwrap().len(), 1);
        let (_, head) = MountListener::connect(server.http, "/listen/live.mp3", "");
        assert!(head.starts_with("HTTP/1.1 404"), "{head}");
        server.stop().unwrap();
    });
}

#[test]
fn listeners_are_limited_and_a_hidden_mount_is_in_no_public_list() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("mount-limits").unwrap();
    let config = "[[station]]\nname = \"default\"\nsources = [\"tone://\"]\n\
         [[mount]]\nname = \"small.opus\"\nstation = \"default\"\nmax_listeners = 1\n\
         max_duration_s = 3\nhidden = true\n";
    let server = AulosServer::start(&scratch, config).unwrap();
    let path = "/small.opus";
    let (mut first, head) = MountListener::connect(server.http, path, "");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("audio/ogg"), "{head}");
    let (_, head) = MountListener::connect(server.http, path, "");
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    let get = |path: &str| {
        let (status, body) = aulos_blackbox::http::get(server.http, path).unwrap();
        assert_eq!(status, 200, "{path}");
        String::from_utf8(body).unwrap()
    };
    assert!(!get("/status-json.xsl").contains("small.opus"));
    assert!(!get("/listen/").contains("small.opus"));
    let own = get("/status-json.xsl?mount=/small.opus");
    assert!(own.contains("\"listeners\":1") && own.contains("audio/ogg"), "{own}");
    let clients = get("/admin/listclients?mount=/small.opus");
    assert!(clients.contains("<Listeners>1</Listeners>"), "{clients}");
    // Its time is over; another one may listen.
    let mut piece = [0; 8_192];
    while first.socket.read(&mut piece).is_ok_and(|count| count > 0) {}
    wait_for("room for a listener", PATIENCE, || {
        MountListener::connect(server.http, path, "").1.starts_with("HTTP/1.1 200")
    });
    server.stop().unwrap();
}

#[test]
fn a_listener_gets_the_intro_first_and_then_frames_that_decode() {
    let name = "mounts::a_listener_gets_the_intro_first_and_then_frames_that_decode";
    retry_after_stall(name, || {
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let Some(mpg123) = find_or_skip("mpg123") else { return };
        let _turn = shared_turn();
        let scratch = ScratchDir::new("mount-intro").unwrap();
        let port = free_port().unwrap();
        let intro = tone_file(&ffmpeg, &scratch, 880, "-t 4 -c:a libmp3lame -b:a 128k");
        let live = tone_file(&ffmpeg, &scratch, 440, "-c:a libmp3lame -q:a 3");
        let config = format!(
            "[[mount]]\nname = \"live.mp3\"\nintro = \"{}\"\n\
             sources = [\"icecast://127.0.0.1:{port}/live?name=live\"]\n\
             icy = {{ name = \"Night\", genre = \"Jazz\", site = \"https://a.example\", \
             public = true, bitrate_kbps = 128 }}\n",
            text(&intro)
        );
        let server = AulosServer::start(&scratch, &config).unwrap();
        let mut rpc = Rpc::connect(server.control);
        let url = format!("icecast://source:any@127.0.0.1:{port}/live");
        let _sender = send(&ffmpeg, &live, &url, &scratch, "live");
        wait_for("the source", PATIENCE, || on_air(&mut rpc) == ("live".to_owned(), true));
        let (mut listener, head) = MountListener::connect(server.http, "/live.mp3", "");
        for line in [
            "icy-name: Night",
            "icy-genre: Jazz",
            "icy-url: https://a.example",
            "icy-pub: 1",
            "icy-br: 128",
        ] {
            assert!(head.contains(&format!("\r\n{line}\r\n")), "{line}: {head}");
        }
        listener.read_for(Duration::from_secs(3));
        let intro = std::fs::read(&intro).unwrap();
        assert!(listener.bytes.len() > intro.len() + 30_000, "{}", listener.bytes.len());
        assert!(listener.bytes.starts_with(&intro), "the intro comes first, as it is");
        let known = frames(&std::fs::read(&live).unwrap());
        let behind = frames(&listener.bytes[intro.len()..]);
        // The burst may begin with frames of the encoder, before the source came.
        let first = behind.iter().position(|frame| known.contains(frame)).unwrap();
        let live = &behind[first..];
        let passed = live.iter().filter(|frame| known.contains(frame)).count();
        assert!(live.len() > 50 && passed + 12 > live.len(), "{passed} of {}", live.len());
        assert_eq!(complaints(&ffmpeg, &mpg123, &listener.bytes, &scratch), "");
        let (_, status) = aulos_blackbox::http::get(server.http, "/status-json.xsl").unwrap();
        let status: Value = serde_json::from_slice(&status).unwrap();
        let source = &status["icestats"]["source"];
        let source = source.as_array().map_or(source, |all| all.last().unwrap());
        assert_eq!(source["server_name"], "Night", "{source}");
        assert_eq!(source["genre"], "Jazz", "{source}");
        assert_eq!(source["bitrate"], 128, "{source}");
        server.stop().unwrap();
    });
}
