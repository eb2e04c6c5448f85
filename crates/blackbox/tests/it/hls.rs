//! HLS out: what players of others play, and two servers that make the same segments.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use aulos_blackbox::browser::Browser;
use aulos_blackbox::http;
use aulos_blackbox::peer::{Process, find_or_skip, skip};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::{long_or_short, shared_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

/// Short segments, so that the tests are; the window is long enough for slow players.
const TONE: &str = "[[station]]\nname = \"default\"\nsources = [\"tone://?hz=440&dbfs=-12\"]\n\
    hls = { renditions = [\"flac\", \"opus:96k\", \"aac:128k\"], segment = \"1.92s\", window = \"60s\" }\n";

/// A server whose playlist has so many segments.
fn server_with_segments(scratch: &ScratchDir, config: &str, segments: usize) -> AulosServer {
    let server = AulosServer::start(scratch, config).unwrap();
    wait_for("segments", PATIENCE, || segment_names(server.http).len() >= segments);
    server
}

pub(crate) fn text_at(http: SocketAddr, path: &str) -> Option<String> {
    let (status, body) = http::get(http, path).ok()?;
    (status == 200).then(|| String::from_utf8(body).unwrap())
}

/// The segments in the playlist of FLAC.
fn segment_names(http: SocketAddr) -> Vec<String> {
    let list = text_at(http, "/hls/default/flac/index.m3u8").unwrap_or_default();
    list.lines().filter(|line| line.ends_with(".m4s")).map(str::to_owned).collect()
}

/// Head and body of the response to a request with these fields.
fn request(http: SocketAddr, method: &str, path: &str, fields: &str) -> (String, Vec<u8>) {
    let mut socket = TcpStream::connect(http).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        socket,
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n"
    )
    .unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let body = answer.split_off(end);
    (String::from_utf8(answer).unwrap().to_ascii_lowercase(), body)
}

/// Whether samples of 16 bits have the tone: its level, for most of the time.
pub(crate) fn has_tone(samples: &[u8]) -> bool {
    let values: Vec<_> =
        samples.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect();
    let blocks: Vec<_> = values.chunks(4_800).collect();
    let is_loud = |block: &&&[i16]| {
        let peak = block.iter().map(|value| value.unsigned_abs()).max().unwrap_or(0);
        (7_000..10_000).contains(&peak)
    };
    blocks.len() >= 20 && blocks.iter().filter(is_loud).count() * 10 >= blocks.len() * 9
}

/// Headers, and what a browser on another site needs.
#[test]
fn responses_have_the_headers_that_caches_and_browsers_need() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("hls-headers").unwrap();
    let server = server_with_segments(&scratch, TONE, 1);
    let get = |path: &str, fields: &str| request(server.http, "GET", path, fields);
    let (head, master) = get("/hls/default/index.m3u8", "");
    assert!(head.contains("\r\ncontent-type: application/vnd.apple.mpegurl\r\n"), "{head}");
    assert!(head.contains("\r\naccess-control-allow-origin: *\r\n"), "{head}");
    let master = String::from_utf8(master).unwrap();
    assert!(master.contains("CODECS=\"fLaC\"\nflac/index.m3u8\n"), "{master}");
    assert!(master.contains("CODECS=\"Opus\"\nopus-96k/index.m3u8\n"), "{master}");
    assert!(master.contains("CODECS=\"mp4a.40.2\"\naac/index.m3u8\n"), "{master}");
    let (head, packed) = get("/hls/default/flac/index.m3u8", "Accept-Encoding: br, gzip\r\n");
    assert!(head.contains("\r\ncontent-encoding: gzip\r\n") && packed.starts_with(&[0x1f, 0x8b]));
    assert!(head.contains("\r\ncache-control: max-age=1\r\n"), "{head}");
    let name = segment_names(server.http).pop().unwrap();
    let path = format!("/hls/default/flac/{name}");
    let (head, segment) = get(&path, "Origin: https://radio.example\r\n");
    assert!(head.contains("\r\ncache-control: max-age=31536000, immutable\r\n"), "{head}");
    assert!(head.contains("\r\ncontent-type: audio/mp4\r\n"), "{head}");
    assert!(head.contains("\r\naccess-control-allow-origin: *\r\n"), "{head}");
    assert_eq!(&segment[4..12], b"stypmsdh");
    let tag = head.split("\r\netag: ").nth(1).unwrap().split("\r\n").next().unwrap();
    let (head, body) = get(&path, &format!("If-None-Match: {tag}\r\n"));
    assert!(head.starts_with("http/1.1 304 ") && body.is_empty(), "{head}");
    let (head, body) = request(server.http, "HEAD", &path, "");
    assert!(head.starts_with("http/1.1 200 ") && body.is_empty(), "{head}");
    let (head, _) = request(server.http, "OPTIONS", &path, "Origin: https://radio.example\r\n");
    assert!(head.starts_with("http/1.1 204 "), "{head}");
    for odd in
        ["default", "default/", "x/index.m3u8", "default/mp3/index.m3u8", "default/flac/1.m4s"]
    {
        let (head, _) = get(&format!("/hls/{odd}"), "");
        assert!(head.starts_with("http/1.1 404 "), "{odd}: {head}");
    }
    // The requests of one client are one session, and those with an id another one.
    let (head, _) = get(&format!("{path}?id=abc"), "");
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    let status = Rpc::connect(server.control).call("Aulos.GetStatus", &Value::Null);
    assert!(status["counters"]["hls_segments"].as_u64() >= Some(1), "{status}");
    let xml = text_at(server.http, "/admin/listclients?mount=/listen/default").unwrap();
    assert_eq!(xml.matches("<listener").count(), 2, "{xml}");
    server.stop().unwrap();
}

#[test]
fn ffmpeg_plays_every_rendition_without_a_gap() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("hls-ffmpeg").unwrap();
    let server = server_with_segments(&scratch, TONE, 4);
    for rendition in ["flac", "opus-96k", "aac"] {
        let url = format!("http://{}/hls/default/{rendition}/index.m3u8", server.http);
        let output = Command::new(&ffmpeg)
            .args(["-nostdin", "-v", "warning", "-live_start_index", "0", "-i", &url])
            .args(["-t", "6", "-f", "s16le", "-ac", "2", "-ar", "48000", "-"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && has_tone(&output.stdout), "{rendition}: {said}");
        assert_eq!(output.stdout.len(), 6 * 192_000, "{rendition}: {said}");
        assert_eq!(said, "", "{rendition}");
    }
    server.stop().unwrap();
}

#[test]
fn gstreamer_plays_the_multivariant_playlist() {
    let Some(launch) = find_or_skip("gst-launch-1.0") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("hls-gstreamer").unwrap();
    let server = server_with_segments(&scratch, TONE, 4);
    let file = scratch.join("heard.raw");
    let mut command = Command::new(launch);
    command.args(["uridecodebin3", &format!("uri=http://{}/hls/default/index.m3u8", server.http)]);
    command.args("! audioconvert ! audio/x-raw,format=S16LE,channels=2 ! filesink".split(' '));
    command.arg(format!("location={}", file.display()));
    let logs = [scratch.join("gst.out"), scratch.join("gst.err")];
    let mut player = Process::start(&mut command, &logs[0], &logs[1]).unwrap();
    wait_for("four seconds of sound", PATIENCE, || {
        let said = || std::fs::read_to_string(&logs[1]).unwrap();
        assert!(player.ended().unwrap().is_none(), "GStreamer has given up: {}", said());
        std::fs::metadata(&file).is_ok_and(|file| file.len() >= 4 * 192_000)
    });
    drop(player);
    assert!(has_tone(&std::fs::read(&file).unwrap()));
    server.stop().unwrap();
}

#[test]
fn vlc_plays_the_multivariant_playlist() {
    let Some(vlc) = find_or_skip("vlc") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("hls-vlc").unwrap();
    let server = server_with_segments(&scratch, TONE, 4);
    // A folder that nobody may write to; the server's is private.
    let folder = std::env::temp_dir().join(format!("aulos-hls-vlc-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&folder, mode).unwrap();
    let file = folder.join("heard.wav");
    let mut command = crate::players::as_nobody(&vlc);
    command.env("HOME", &folder).args(["-I", "dummy", "--aout=afile"]);
    command.arg(format!("--audiofile-file={}", file.display()));
    command.arg(format!("http://{}/hls/default/index.m3u8", server.http)).arg("vlc://quit");
    let logs = [scratch.join("vlc.out"), scratch.join("vlc.err")];
    let mut player = Process::start(&mut command, &logs[0], &logs[1]).unwrap();
    // `--run-time` would compare with the time stamp, which counts from 1970.
    wait_for("five seconds of sound", PATIENCE, || {
        assert!(player.ended().unwrap().is_none(), "VLC has given up");
        std::fs::metadata(&file).is_ok_and(|file| file.len() >= 5 * 192_000)
    });
    drop(player);
    let heard = std::fs::read(&file).unwrap_or_default();
    let said = std::fs::read_to_string(&logs[1]).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(has_tone(heard.get(44..).unwrap_or_default()), "{} bytes\n{said}", heard.len());
    server.stop().unwrap();
}

/// hls.js in a browser: it plays at the live edge, and never stalls. Two hours in the soak.
#[test]
fn hls_js_plays_without_a_stall() {
    let Some(chromium) = find_or_skip("chromium") else { return };
    let script = std::env::var_os("AULOS_TEST_HLS").map(std::fs::read_to_string);
    let Some(Ok(script)) = script else { return skip("hls.js") };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("hls-js").unwrap();
    let server = server_with_segments(&scratch, TONE, 4);
    let mut browser = Browser::open(&chromium, &scratch, "about:blank").unwrap();
    browser.run(&format!("{script}\n;true")).unwrap();
    let url = format!("http://{}/hls/default/index.m3u8", server.http);
    let start = "
        window.seen = { errors: [], levels: 0, playing: 0 };
        window.audio = document.body.appendChild(document.createElement('audio'));
        window.hls = new Hls({ enableWorker: false, liveSyncDurationCount: 3 });
        hls.on(Hls.Events.ERROR, (_, data) => seen.errors.push(data.details));
        hls.on(Hls.Events.MANIFEST_PARSED, (_, data) => { seen.levels = data.levels.length; });
        hls.loadSource(URL_HERE);
        hls.attachMedia(audio);
        audio.play().then(() => { seen.playing = 1; }, (e) => seen.errors.push(String(e)));
        true"
        .replace("URL_HERE", &format!("'{url}'"));
    browser.run(&start).unwrap();
    let look = "({ ...seen, time: audio.currentTime, paused: audio.paused,
                   ready: audio.readyState, date: hls.playingDate && +hls.playingDate })";
    let mut begun = Value::Null;
    wait_for("sound", PATIENCE, || {
        begun = browser.run(look).unwrap();
        begun["playing"] == 1 && begun["date"].is_u64()
    });
    assert_eq!(begun["levels"], 3, "{begun}");
    let (real, wait) = (Instant::now(), long_or_short(2 * 3_600, 8));
    std::thread::sleep(wait);
    let (ended, real) = (browser.run(look).unwrap(), real.elapsed().as_secs_f64());
    assert_eq!(ended["errors"], json!([]), "{ended}");
    let played = ended["time"].as_f64().unwrap() - begun["time"].as_f64().unwrap();
    assert!((played - real).abs() < 1.0, "{played} s of {real} s: {ended}");
    // What is heard now was recorded some segments ago, by the playlist's dates.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let behind = now.as_secs_f64() - ended["date"].as_f64().unwrap() / 1_000.0;
    assert!((1.0..20.0).contains(&behind), "{behind} s behind: {ended}");
    drop(browser);
    server.stop().unwrap();
}

/// What one server has, by rendition and name.
type Segments = HashMap<String, Vec<u8>>;

fn collect(http: SocketAddr, renditions: &[&str], into: &mut Segments) {
    for rendition in renditions {
        let list = text_at(http, &format!("/hls/default/{rendition}/index.m3u8"));
        for name in list.unwrap_or_default().lines().filter(|line| line.ends_with(".m4s")) {
            let path = format!("/hls/default/{rendition}/{name}");
            if into.contains_key(&path) {
                continue;
            }
            // One that is refused has audio that was filled in.
            if let Ok((200, body)) = http::get(http, &path) {
                into.insert(path, body);
            }
        }
    }
}

/// Two servers play one origin; one is restarted. What both have is the same, byte by byte. An
/// hour in the soak.
#[test]
fn two_servers_of_one_origin_make_the_same_segments() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("hls-origin").unwrap();
    let port = free_port().unwrap();
    let file = scratch.join("origin.toml");
    let config = "[[station]]\nname = \"default\"\ncodec = \"flac\"\nsources = [\"demo://\"]\n";
    std::fs::write(&file, config).unwrap();
    let origin = AulosServer::start_with(&scratch, |command| {
        let port = format!("listen.stream=127.0.0.1:{port}");
        command.arg("--config").arg(&file).args(["--set", &port]);
    })
    .unwrap();
    let edge = format!(
        "[[station]]\nname = \"default\"\ncodec = \"flac\"\nbuffer_ms = 600\n\
         sources = [\"snapcast://127.0.0.1:{port}?pass=true\"]\n\
         hls = {{ renditions = [\"flac\", \"opus:64k,cbr\", \"aac:96k\"], segment = \"1.92s\", window = \"30s\", \
         paired = true }}\n"
    );
    let renditions = ["flac", "opus-64k-cbr", "aac-96k"];
    let scratches = [ScratchDir::new("hls-one").unwrap(), ScratchDir::new("hls-two").unwrap()];
    let one = AulosServer::start(&scratches[0], &edge).unwrap();
    let mut two = AulosServer::start(&scratches[1], &edge).unwrap();
    let (mut ones, mut twos) = (Segments::new(), Segments::new());
    let common = |ones: &Segments, twos: &Segments| {
        let both = ones.iter().filter_map(|(path, bytes)| Some((path, bytes, twos.get(path)?)));
        let different = both.clone().filter(|(_, bytes, other)| bytes != other);
        let mut different: Vec<_> = different.map(|(path, ..)| path).collect();
        different.sort_unstable();
        assert!(different.is_empty(), "different: {different:?}");
        both.count()
    };
    let look = |two: &AulosServer, ones: &mut Segments, twos: &mut Segments| {
        std::thread::sleep(Duration::from_millis(500));
        collect(one.http, &renditions, ones);
        collect(two.http, &renditions, twos);
    };
    wait_for("segments of both", PATIENCE, || {
        look(&two, &mut ones, &mut twos);
        common(&ones, &twos) >= 6
    });
    two.stop().unwrap();
    let scratch_of_third = ScratchDir::new("hls-three").unwrap();
    two = AulosServer::start(&scratch_of_third, &edge).unwrap();
    let mut after = Segments::new();
    let until = Instant::now() + long_or_short(3_600, 0);
    wait_for("segments after the restart", PATIENCE + long_or_short(3_600, 0), || {
        look(&two, &mut ones, &mut after);
        common(&ones, &after) >= 6 && Instant::now() >= until
    });
    println!("{} segments compared", common(&ones, &twos) + common(&ones, &after));
    let list = text_at(one.http, "/hls/default/flac/index.m3u8").unwrap();
    assert!(!list.contains("DISCONTINUITY"), "{list}");
    for server in [one, two, origin] {
        server.stop().unwrap();
    }
}
