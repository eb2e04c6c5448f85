//! DJs who push to `icecast://`, in a server that plays.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use aulos_config::Environment;

use crate::common::{ANY_PORTS, Controller, PATIENCE, Playing, eventually, resolve};
use serde_json::{Value, json};

const TWO_MOUNTS: &str = r#"
[limits]
failed_logins_per_minute = 100
[[station]]
name = "default"
codec = "pcm"
spec = "48000:16:1"
sources = [{ uri = "icecast://127.0.0.1:0/live", password = "very secret" }, "tone://?dbfs=-60"]
[[station]]
name = "other"
codec = "pcm"
spec = "48000:16:1"
sources = ["icecast://dj@127.0.0.1:0/other"]
"#;

/// `source:very secret`.
const RIGHT: &str = "Authorization: Basic c291cmNlOnZlcnkgc2VjcmV0\r\n";
/// `source:very wrong`.
const WRONG: &str = "Authorization: Basic c291cmNlOnZlcnkgd3Jvbmc=\r\n";

fn start() -> (Playing, Controller, SocketAddr) {
    let server = Playing::start(resolve(&(ANY_PORTS.to_owned() + TWO_MOUNTS)));
    let mut caller = server.controller();
    let mut port = None;
    eventually(|| {
        port = dj(&mut caller, 0)["port"].as_str().and_then(|port| port.parse().ok());
        port.is_some()
    });
    (server, caller, port.unwrap())
}

/// The `dj` of a station's first source.
fn dj(caller: &mut Controller, station: usize) -> Value {
    caller.call("Aulos.GetStatus", json!({}))["result"]["stations"][station]["sources"][0]["dj"]
        .clone()
}

fn counter(caller: &mut Controller, name: &str) -> u64 {
    caller.call("Aulos.GetStatus", json!({}))["result"]["counters"][name].as_u64().unwrap()
}

fn connect(port: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(port).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Says something, and gives all that is answered.
fn ask(port: SocketAddr, text: &str) -> String {
    let mut socket = connect(port);
    socket.write_all(text.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // Who is cut in the middle of a sentence may be reset.
    drop(socket.read_to_end(&mut answer));
    String::from_utf8(answer).unwrap()
}

fn put(fields: &str) -> String {
    format!("PUT /live HTTP/1.1\r\nHost: x\r\nUser-Agent: test/1\r\n{fields}\r\n")
}

/// The head of a WAVE stream without an end: 16 bits, mono.
const WAVE: &[u8] = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0\x80\xbb\0\0\0\x77\x01\0\
    \x02\0\x10\0data\xff\xff\xff\xff";

/// A DJ who sends a loud tone until he is told to stop.
struct Dj {
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Dj {
    fn push(port: SocketAddr, head: &str, answer: &str) -> Self {
        let mut socket = connect(port);
        socket.write_all(head.as_bytes()).unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            said.push(byte[0]);
        }
        assert!(String::from_utf8_lossy(&said).starts_with(answer), "{said:?}");
        Self::send(socket)
    }

    fn send(mut socket: TcpStream) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            // A little faster than it is played: the server holds him back.
            let wave = |frame: usize| if frame % 48 < 24 { 16_384_i16 } else { -16_384 };
            let tone: Vec<u8> = (0..4_800).flat_map(|frame| wave(frame).to_le_bytes()).collect();
            let mut sent = socket.write_all(WAVE);
            while sent.is_ok() && !ending.load(Ordering::Relaxed) {
                sent = socket.write_all(&tone);
                std::thread::sleep(std::time::Duration::from_millis(80));
            }
        });
        Self { over, thread }
    }

    fn stop(self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

fn hears_the_dj(server: &Playing, station: &str) {
    let mut sound = server.listen(station);
    let mut loud = 0;
    while loud < 48_000 {
        loud += sound.samples(1_920).iter().filter(|sample| sample.abs() > 0.4).count();
    }
}

fn is_on_air(caller: &mut Controller, station: usize, wanted: bool) {
    eventually(|| dj(caller, station)["on_air"] == json!(wanted));
}

#[test]
fn a_live_source_goes_on_air_sends_titles_ends_and_returns() {
    let (server, mut caller, port) = start();
    let playing = |caller: &mut Controller| {
        let status = caller.call("Aulos.GetStatus", json!({}));
        let station = &status["result"]["stations"][0];
        (station["active"].clone(), station["playing"].clone())
    };
    let head = put(&format!("{RIGHT}Expect: 100-continue\r\nIce-Name: Evening\r\n"));
    let first = Dj::push(port, &head, "HTTP/1.1 100 ");
    hears_the_dj(&server, "default");
    let state = dj(&mut caller, 0);
    assert_eq!((&state["codec"], &state["name"]), (&json!("pcm"), &json!("Evening")), "{state}");
    assert_eq!((&state["from"], &state["user_agent"]), (&json!("127.0.0.1"), &json!("test/1")));
    // The seat is taken, and the one who has it goes on.
    assert!(ask(port, &put(RIGHT)).starts_with("HTTP/1.1 403 "));
    let tell = |song: &str, login: &str| {
        let target = format!("/admin/metadata?mode=updinfo&mount=/live&song={song}");
        ask(port, &format!("GET {target} HTTP/1.0\r\n{login}\r\n"))
    };
    assert!(tell("Nobody", WRONG).starts_with("HTTP/1.1 401 "));
    assert!(tell("Bj%F6rk%20-%20J%F3ga", RIGHT).contains("<return>1</return>"));
    eventually(|| {
        let title = json!({ "title": "Jóga", "artist": ["Björk"] });
        playing(&mut caller) == (json!("icecast"), title)
    });
    first.stop();
    is_on_air(&mut caller, 0, false);
    eventually(|| playing(&mut caller) == (json!("tone"), json!({})));
    assert!(tell("Nobody", RIGHT).starts_with("HTTP/1.1 404 "));
    // The old way, as programs from before 2013 do it.
    let head = format!("SOURCE /live ICE/1.0\r\n{RIGHT}content-type: audio/wav\r\n\r\n");
    let second = Dj::push(port, &head, "HTTP/1.0 200 ");
    eventually(|| playing(&mut caller).0 == json!("icecast"));
    hears_the_dj(&server, "default");
    second.stop();
    assert_eq!(counter(&mut caller, "djs_on_air"), 2);
    assert_eq!(counter(&mut caller, "djs_refused_taken"), 1);
}

/// A Shoutcast program sends its password alone, waits for the answer, and sends titles to
/// `/admin.cgi`.
#[test]
fn a_shoutcast_source_goes_on_air_and_sends_titles() {
    let (server, mut caller, port) = start();
    let mut socket = connect(port);
    socket.write_all(b"very secret\r\n").unwrap();
    let mut answer = [0; 20];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"OK2\r\nicy-caps:11\r\n\r\n");
    socket.write_all(b"icy-name:Evening\r\ncontent-type:audio/wav\r\n\r\n").unwrap();
    let live = Dj::send(socket);
    hears_the_dj(&server, "default");
    assert_eq!(dj(&mut caller, 0)["name"], json!("Evening"));
    let tell = |query: &str, login: &str| {
        let target = format!("/admin{query}&mode=updinfo&song=Bj%F6rk%20-%20J%F3ga");
        ask(port, &format!("GET {target} HTTP/1.0\r\n{login}\r\n")).split_off(9)
    };
    assert!(tell(".cgi?pass=hackme", "").starts_with("400 "));
    assert!(tell(".cgi?pass=very%20secret", "").starts_with("200 "));
    eventually(|| dj(&mut caller, 0)["title"]["artist"] == json!(["Björk"]));
    // As Icecast takes them, too: without the slash, and as its administrator.
    let admin = "Authorization: Basic YWRtaW46dmVyeSBzZWNyZXQ=\r\n";
    assert!(tell("/metadata?mount=live", RIGHT).starts_with("200 "));
    assert!(tell("/metadata?mount=/live", admin).starts_with("200 "));
    assert!(tell("/metadata?mount=/live", WRONG).starts_with("401 "));
    // There are two mounts, so one has to be named.
    assert!(tell("/metadata?a=b", RIGHT).starts_with("404 "));
    assert!(ask(port, &put(admin)).starts_with("HTTP/1.1 401 "), "no stream by that name");
    live.stop();
}

#[test]
fn a_title_needs_no_mount_where_there_is_one() {
    let text = TWO_MOUNTS.split("[[station]]").next().unwrap().to_owned()
        + "[[station]]"
        + TWO_MOUNTS.split("[[station]]").nth(1).unwrap();
    let server = Playing::start(resolve(&(ANY_PORTS.to_owned() + &text)));
    let mut caller = server.controller();
    let mut port: Option<SocketAddr> = None;
    eventually(|| {
        port = dj(&mut caller, 0)["port"].as_str().and_then(|port| port.parse().ok());
        port.is_some()
    });
    let live = Dj::push(port.unwrap(), &put(RIGHT), "HTTP/1.0 200 ");
    let title = format!("GET /admin/metadata?mode=updinfo&song=One HTTP/1.0\r\n{RIGHT}\r\n");
    assert!(ask(port.unwrap(), &title).starts_with("HTTP/1.1 200 "));
    eventually(|| dj(&mut caller, 0)["title"]["title"] == json!("One"));
    live.stop();
}

#[test]
fn mounts_share_a_port_and_each_has_its_own_dj() {
    let (server, mut caller, port) = start();
    let one = Dj::push(port, &put(RIGHT), "HTTP/1.0 200 ");
    // This one is on loopback and has no password: whatever is said is right.
    let other = put(WRONG).replace("/live", "/other");
    let two = Dj::push(port, &other, "HTTP/1.0 200 ");
    hears_the_dj(&server, "default");
    hears_the_dj(&server, "other");
    one.stop();
    is_on_air(&mut caller, 0, false);
    is_on_air(&mut caller, 1, true);
    two.stop();
}

#[test]
fn a_rejected_live_source_gets_the_reason_and_is_counted() {
    let (_server, mut caller, port) = start();
    let refused = |fields: &str| ask(port, &put(fields));
    let wrong = refused(WRONG);
    assert!(wrong.starts_with("HTTP/1.1 401 ") && wrong.contains("WWW-Authenticate"), "{wrong}");
    // A name without a password is asked for one, and that is no guess.
    assert!(refused("").starts_with("HTTP/1.1 401 "));
    assert_eq!(counter(&mut caller, "logins_failed"), 1);
    let unknown = put(RIGHT).replace("/live", "/nothing");
    assert!(ask(port, &unknown).starts_with("HTTP/1.1 404 "));
    let page = refused(&format!("{RIGHT}Content-Type: text/html\r\n"));
    assert!(page.starts_with("HTTP/1.1 415 ") && page.contains("MP3, AAC"), "{page}");
    assert!(ask(port, "hackme\r\n\r\n").starts_with("HTTP/1.1 400 "));
    assert!(ask(port, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    let page = refused("Origin: http://evil.example\r\n");
    assert!(
        page.starts_with("HTTP/1.1 403 ") && page.contains("cannot be a live source"),
        "{page}"
    );
    let methods = ask(port, "OPTIONS * HTTP/1.1\r\n\r\n");
    assert!(methods.contains("\r\nAllow: PUT, SOURCE, GET, OPTIONS\r\n"), "{methods}");
    for (name, count) in [
        ("djs_refused_unknown", 1),
        ("djs_refused_type", 1),
        ("http_cross_site", 1),
        ("djs_not_understood", 1),
        ("djs_on_air", 0),
    ] {
        assert_eq!(counter(&mut caller, name), count, "{name}");
    }
}

/// A mount on loopback needs no password, and a browser here sends requests for pages of anywhere.
#[test]
fn no_page_in_a_browser_reaches_a_mount_without_a_password() {
    let (_server, mut caller, port) = start();
    let title = "GET /admin/metadata?mode=updinfo&mount=/other&song=x HTTP/1.1\r\n";
    let answer = |first: &str, fields: &str| {
        let answer = ask(port, &format!("{first}{fields}\r\n"));
        answer.get(9..12).unwrap_or_default().to_owned()
    };
    let push = "PUT /other HTTP/1.1\r\n";
    for (first, fields, code) in [
        // An image of this address in a page: browsers say where it stands.
        (title, "Host: 127.0.0.1\r\nSec-Fetch-Site: cross-site\r\n", "403"),
        (title, "Host: 127.0.0.1\r\nReferer: https://evil.example/\r\n", "403"),
        (title, "Host: 127.0.0.1\r\nOrigin: null\r\n", "403"),
        (push, "Host: 127.0.0.1\r\nOrigin: null\r\n", "403"),
        ("SOURCE /other ICE/1.0\r\n", "Origin: http://evil.example\r\n", "403"),
        // A page whose own name has been made to point here says nothing but that name.
        (title, "Host: evil.example:8000\r\n", "421"),
        (push, "Host: evil.example:8000\r\n", "421"),
        // A form of a browser that says nothing of the page.
        (
            "POST /other HTTP/1.1\r\n",
            "Host: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n",
            "404",
        ),
        // A program may.
        (title, "Host: localhost:8000\r\n", "404"),
        (title, "", "404"),
    ] {
        assert_eq!(answer(first, fields), code, "{first}{fields}");
    }
    assert_eq!(counter(&mut caller, "http_cross_site"), 5);
    assert_eq!(counter(&mut caller, "http_wrong_host"), 2);
    assert_eq!(counter(&mut caller, "djs_on_air"), 0);
}

#[test]
fn requests_that_are_never_ended_keep_no_source_out() {
    let (_server, mut caller, port) = start();
    let silent: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut socket = connect(port);
            socket.write_all(b"PUT /li").unwrap();
            socket
        })
        .collect();
    assert!(ask(port, "OPTIONS * HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
    assert!(counter(&mut caller, "djs_cut_unfinished") >= 45);
    assert_eq!(counter(&mut caller, "djs_refused"), 0);
    drop(silent);
}

#[test]
fn heads_without_end_and_garbage_do_no_harm() {
    let (server, mut caller, port) = start();
    let head = "X-Filler: 0123456789012345678901234567890123456789\r\n".repeat(1_000);
    let mut endless = connect(port);
    endless.write_all(put("").trim_end().as_bytes()).unwrap();
    // The client sends until it is disconnected; without that, a hundred megabytes.
    let sent = (0..2_000).take_while(|_| endless.write_all(head.as_bytes()).is_ok()).count();
    assert!(sent < 2_000);
    eventually(|| counter(&mut caller, "djs_cut_long_request") == 1);
    let mut garbage = connect(port);
    garbage.write_all(put(RIGHT).as_bytes()).unwrap();
    let junk: Vec<u8> =
        (0..100_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let sent = (0..2_000).take_while(|_| garbage.write_all(&junk).is_ok()).count();
    assert!(sent < 2_000);
    eventually(|| counter(&mut caller, "djs_cut_unplayable") == 1);
    let left = dj(&mut caller, 0)["last_left"].as_str().unwrap().to_owned();
    assert!(left.contains("cannot be played"), "{left}");
    let next = Dj::push(port, &put(RIGHT), "HTTP/1.0 200 ");
    hears_the_dj(&server, "default");
    next.stop();
}

#[test]
fn a_reload_opens_and_closes_ports_and_reports_a_used_one() {
    let (server, mut caller, port) = start();
    let dj_on_air = Dj::push(port, &put(RIGHT), "HTTP/1.0 200 ");
    is_on_air(&mut caller, 0, true);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let number = taken.local_addr().unwrap().port();
    let moved = TWO_MOUNTS.replace("127.0.0.1:0/other", &format!("127.0.0.1:{number}/other"));
    server.next(resolve(&(ANY_PORTS.to_owned() + &moved)));
    caller.call("Aulos.Reload", json!({}));
    eventually(|| {
        let status = caller.call("Aulos.GetStatus", json!({}));
        let source = &status["result"]["stations"][1]["sources"][0];
        source["state"] == "failed" && source["reason"].as_str().unwrap().contains("in use")
    });
    // The one whose station is the same has heard nothing of it.
    assert_eq!(dj(&mut caller, 0)["on_air"], json!(true));
    drop(taken);
    eventually(|| dj(&mut caller, 1)["port"].as_str().is_some());
    let bare = TWO_MOUNTS.split("[[station]]").nth(2).unwrap();
    let bare = bare.replace("icecast://dj@127.0.0.1:0/other", "tone://");
    server.next(resolve(&format!("{ANY_PORTS}[[station]]{bare}")));
    caller.call("Aulos.Reload", json!({}));
    dj_on_air.stop();
    eventually(|| TcpStream::connect(port).is_err());
}

#[test]
fn a_call_adds_a_mount_on_this_machine_only() {
    let text = ANY_PORTS.to_owned() + "[streams]\nschemes = [\"icecast\"]\n" + TWO_MOUNTS;
    let server = Playing::start(resolve(&text));
    let mut caller = server.controller();
    let mut add = |uri: &str| {
        let answer = caller.call("Stream.AddStream", json!({ "streamUri": uri }));
        answer.get("error").map(ToString::to_string)
    };
    assert!(add("icecast://0.0.0.0:0/a?name=a").unwrap().contains("only this machine"));
    assert!(add("icecast://127.0.0.1:0/live?name=b").unwrap().contains("mount of `default`"));
    assert_eq!(add("icecast://127.0.0.1:0/c?name=c"), None);
}

#[test]
fn an_invalid_mount_is_reported_before_the_server_starts() {
    let text = r#"[listen]
http = 8000
[[station]]
name = "a"
sources = [
  "icecast://0.0.0.0:8000/live",
  "icecast://source:hackme@127.0.0.1:8001/live",
  "icecast://127.0.0.1:8001/live?password=hackme",
  "icecast://127.0.0.1:8001/",
  { uri = "icecast://0.0.0.0:8001/short", password = "abc" },
  { uri = "icecast://0.0.0.0:8001/file", password_file = "/does/not/exist" },
  { uri = "icecast://0.0.0.0:8001/both", password = "long enough", password_env = "X" },
  "icecast://127.0.0.1:8002/twice",
  { uri = "demo://", password = "for nobody" },
]
[[station]]
name = "b"
sources = ["icecast://127.0.0.1:8002/twice"]
"#;
    let file = aulos_config::ConfigFile { name: "aulos.toml", text };
    let error = aulos_config::load(Some(file), &[], &Environment::default()).unwrap_err();
    let told = error.to_string();
    assert!(!told.contains("long enough\""), "{told}");
    for line in [
        "aulos.toml:2:8: port 8000 is both `listen.http` and that of a mount",
        "aulos.toml:6:3: the mount at 0.0.0.0:8000 accepts any client of the network",
        "aulos.toml:7:3: a source URI must not contain a password",
        "aulos.toml:8:3: a source URI must not contain a password",
        "aulos.toml:9:3: \"/\" is not a valid mount",
        "aulos.toml:10:54: a secret of 3 bytes is too short",
        "aulos.toml:11:58: /does/not/exist: ",
        "`station.a.sources.6` has two of `password`, `password_file` and `password_env`",
        "aulos.toml:14:11: `password` requires an icecast: or snapcast: or srt: source",
        "aulos.toml:18:12: duplicate mount `/twice` at 127.0.0.1:8002",
    ] {
        assert!(told.contains(line), "{line}\n{told}");
    }
}
