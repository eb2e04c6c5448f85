//! Web listeners in a server that plays: containers, titles, heads, and what is not to be had.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::{
    ANY_PORTS, Controller, PATIENCE, Playing, eventually, player, resolve, scratch, script,
};
use aulos_proto::flac::{FlacFileHeader, FlacScanner};
use aulos_proto::http::{BodyDecoder, BodyFraming, icy};
use aulos_proto::ogg::{ParsedPage, parse_page};
use serde_json::json;

const STATIONS: &str = r#"
[[station]]
name = "default"
codec = "pcm"
sources = ["tone://"]
[[station]]
name = "two words"
codec = "pcm"
spec = "48000:24:2"
sources = ["tone://"]
[[station]]
name = "cd.wav"
codec = "flac"
spec = "44100:16:2"
sources = ["tone://"]
[[station]]
name = "opus"
codec = "opus:96k,cbr"
mp3 = "128k"
sources = ["demo://"]
[[station]]
name = "Küche [1]"
codec = "pcm"
sources = ["tone://"]
"#;

fn start() -> Playing {
    Playing::start(resolve(&(ANY_PORTS.to_owned() + STATIONS)))
}

/// A request whose answer goes on.
fn open(server: &Playing, first: &str, fields: &str) -> TcpStream {
    let mut socket = TcpStream::connect(server.http).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(socket, "{first}\r\nHost: localhost:99\r\n{fields}\r\n").unwrap();
    socket
}

fn head(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// The head, and so many bytes behind it.
fn get(server: &Playing, path: &str, fields: &str, count: usize) -> (String, Vec<u8>) {
    let mut socket = open(server, &format!("GET /listen/{path} HTTP/1.0"), fields);
    let head = head(&mut socket);
    let mut body = vec![0; count];
    socket.read_exact(&mut body).unwrap();
    (head, body)
}

/// A whole answer.
fn ask(server: &Playing, first: &str) -> String {
    let mut answer = String::new();
    open(server, first, "").read_to_string(&mut answer).unwrap();
    answer
}

fn codecs(caller: &mut Controller) -> u64 {
    let status = caller.call("Aulos.GetStatus", json!({}));
    status["result"]["counters"]["listener_codecs"].as_u64().unwrap()
}

#[test]
fn every_container_is_correct_and_encoded_once() {
    let server = start();
    let mut caller = server.controller();
    for (path, media, magic) in [
        ("default", "audio/wav", &b"RIFF"[..]),
        ("default.wav", "audio/wav", b"RIFF"),
        ("default.flac", "audio/flac", b"fLaC"),
        ("default.ogg", "audio/ogg", b"OggS"),
        ("default.opus", "audio/ogg", b"OggS"),
        ("default.mp3", "audio/mpeg", b"\xff\xfb"),
        ("two%20words.wav", "audio/wav", b"RIFF"),
        ("cd.wav", "audio/flac", b"fLaC"),
        ("cd.wav.wav", "audio/wav", b"RIFF"),
    ] {
        let (head, body) = get(&server, path, "Range: bytes=100-\r\n", 5_000);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {head}");
        assert!(head.contains(&format!("\r\nContent-Type: {media}\r\n")), "{path}: {head}");
        assert!(!head.contains("icy-metaint") && head.contains("\r\nicy-name: "), "{path}: {head}");
        assert!(body.starts_with(magic), "{path}: {:?}", &body[..16]);
        // It goes on: there is sound behind the head.
        assert!(body[200..].iter().any(|byte| *byte != 0), "{path}");
    }
    // 24 bits in 3 bytes, which is what WAVE has.
    let (_, body) = get(&server, "two%20words.wav", "", 44);
    assert_eq!(body[32..36], [6, 0, 24, 0]);
    let listeners: Vec<_> =
        (0..3).map(|_| open(&server, "GET /listen/default.ogg HTTP/1.1", "")).collect();
    for mut listener in listeners.iter().map(|listener| listener.try_clone().unwrap()) {
        head(&mut listener);
    }
    eventually(|| codecs(&mut caller) == 1);
    drop(listeners);
    eventually(|| codecs(&mut caller) == 0);
}

/// The pages of some seconds of a stream: for each its frames at 48 kHz, its packets, and its
/// bytes.
fn pages(server: &Playing, path: &str) -> Vec<(u64, usize, usize)> {
    let (_, body) = get(server, path, "", 60_000);
    let (mut rest, mut before, mut all) = (&body[..], 0, Vec::new());
    while let Ok(ParsedPage::Page(page)) = parse_page(rest) {
        let packets = page.segments.iter().filter(|length| **length < 255).count();
        all.push((page.granule - before, packets, page.total_len()));
        before = page.granule;
        rest = &rest[page.total_len()..];
    }
    // The two heads.
    all.split_off(2)
}

#[test]
fn packets_of_opus_share_pages_and_none_waits_longer_than_a_listener_is_served() {
    let server = start();
    // One that is made from now on, and one that has a second of the past.
    for path in ["default.ogg", "opus"] {
        let pages = pages(&server, path);
        let (first, others) = pages.split_first().unwrap();
        assert!(first.0 <= 9_600, "{first:?}");
        for (frames, packets, _) in others {
            assert!((2_880..=9_600).contains(frames), "{path}: {pages:?}");
            assert_eq!(*frames, 960 * *packets as u64);
        }
        let bytes: usize = pages.iter().map(|page| page.2).sum();
        let heads: usize = pages.len() * 27;
        println!("{path}: {} pages, {bytes} bytes, {heads} of them heads", pages.len());
        // A page for each packet of 480 bytes would be 5.6 %.
        assert!(heads * 50 < bytes, "{heads} of {bytes}");
    }
}

/// A player takes the number of the first frame for its position.
#[test]
fn frames_of_flac_count_from_where_the_listener_joins() {
    let server = start();
    let (_, body) = get(&server, "cd.wav", "", 6_000);
    let head = FlacFileHeader::parse(&body).unwrap().unwrap();
    let sound = &body[usize::try_from(head.audio_offset).unwrap()..];
    let mut scanner = FlacScanner::new(head.info.clone());
    scanner.push(sound);
    let found = scanner.finish();
    let most = sound.len() as u64 / u64::from(found.smallest);
    let numbered = found.frames.0 / u64::from(head.info.block_size().unwrap());
    assert!((2..=most).contains(&numbered) && found.damaged == 0, "{most} frames: {found:?}");
}

#[test]
fn a_listener_gets_the_settings_of_the_station() {
    let server = start();
    for (path, kbps) in [
        ("opus", 96),
        ("opus.ogg", 96),
        ("default.ogg", 192),
        ("opus.mp3", 128),
        ("default.mp3", 192),
    ] {
        let head = ask(&server, &format!("HEAD /listen/{path} HTTP/1.1"));
        assert!(head.contains(&format!("\r\nicy-br: {kbps}\r\n")), "{path}: {head}");
    }
    let mut caller = server.controller();
    let stations = caller.call("Aulos.GetStatus", json!({}))["result"]["stations"].clone();
    assert_eq!(
        (&stations[3]["codec"], &stations[3]["encoder"]),
        (&json!("opus"), &json!("opus:96k,cbr"))
    );
    // Every packet of 20 ms has the same size.
    let sizes: std::collections::BTreeSet<usize> = pages(&server, "opus")
        .into_iter()
        .map(|(_, packets, bytes)| (bytes - 27 - packets) / packets)
        .collect();
    assert_eq!(sizes.into_iter().collect::<Vec<_>>(), [240]);
}

#[test]
fn an_unavailable_format_is_reported_with_the_available_ones() {
    let server = start();
    let wma = ask(&server, "GET /listen/default.wma HTTP/1.1");
    assert!(
        wma.starts_with("HTTP/1.1 404 ") && wma.contains("available formats: .flac, .ogg"),
        "{wma}"
    );
    let opus = ask(&server, "GET /listen/cd.wav.opus HTTP/1.1");
    assert!(opus.starts_with("HTTP/1.1 406 ") && opus.contains("48000 Hz only"), "{opus}");
    assert!(ask(&server, "GET /listen/nobody.ogg HTTP/1.1").starts_with("HTTP/1.1 404 "));
    let head = ask(&server, "HEAD /listen/default.ogg HTTP/1.1");
    assert!(
        head.contains("\r\nContent-Type: audio/ogg\r\n") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    let list = ask(&server, "GET /listen/two%20words.m3u HTTP/1.1");
    let entry = "#EXTINF:-1,two words\r\nhttp://localhost:99/listen/two%20words.mp3\r\n";
    assert!(list.contains("audio/x-mpegurl") && list.ends_with(entry), "{list}");
    // The address is ASCII, as players need it, and leads to the station.
    let list = ask(&server, "GET /listen/K%C3%BCche%20%5B1%5D.m3u HTTP/1.1");
    let address = "http://localhost:99/listen/K%C3%BCche%20%5B1%5D";
    assert!(list.ends_with(&format!("#EXTINF:-1,Küche [1]\r\n{address}.mp3\r\n")), "{list}");
    let path = address.strip_prefix("http://localhost:99").unwrap();
    let head = ask(&server, &format!("HEAD {path} HTTP/1.1"));
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let status = ask(&server, &format!("GET /status-json.xsl?mount={path} HTTP/1.0"));
    assert!(status.contains(&format!("\"{address}\"")), "{status}");
    let list = ask(&server, "GET /listen/default.pls HTTP/1.1");
    assert!(list.contains("File1=http://localhost:99/listen/default.mp3\r\n"), "{list}");
    let list = ask(&server, "GET /listen/default.flac.m3u HTTP/1.1");
    assert!(list.ends_with("http://localhost:99/listen/default.flac\r\n"), "{list}");
}

#[test]
fn titles_are_sent_to_clients_that_request_them() {
    let dir = scratch();
    let teller = dir.join("teller");
    script(&teller, &player("*GetProperties*) tell playing ;;").replace(
        "\"canControl\":true",
        "\"metadata\":{\"title\":\"J\\\\u00f3ga\",\"artist\":[\"Bj\\\\u00f6rk\"]},\"canControl\":true",
    ));
    let plugin = format!("plugin = {{ script = \"{}\" }}", teller.display());
    let text = STATIONS.replacen("sources", &format!("{plugin}\nsources"), 1);
    let server = Playing::start(resolve(&(ANY_PORTS.to_owned() + &text)));
    let mut caller = server.controller();
    eventually(|| {
        let status = caller.call("Aulos.GetStatus", json!({}));
        status["result"]["stations"][0]["playing"]["title"] == json!("Jóga")
    });
    for (path, magic) in [
        ("default", &b"RIFF"[..]),
        ("default.flac", b"fLaC"),
        ("default.ogg", b"OggS"),
        ("default.mp3", b"\xff\xfb"),
    ] {
        let (head, bytes) = get(&server, path, "Icy-MetaData: 1\r\n", 70_000);
        assert!(head.contains("\r\nicy-metaint: 16000\r\n"), "{head}");
        let (mut sound, mut titles) = (Vec::new(), Vec::new());
        BodyDecoder::new(BodyFraming::UntilClosed, Some(icy::INTERVAL))
            .push(&bytes, |piece| sound.extend_from_slice(piece), |title| titles.push(title))
            .unwrap();
        assert!(sound.starts_with(magic), "{path}");
        assert_eq!(titles.len(), 1, "{path}: {titles:?}");
        assert_eq!(icy::stream_title(&titles[0]), "Björk - Jóga", "{path}");
    }
}

/// Directories and statistics tools read Icecast's interfaces.
#[test]
fn listeners_are_counted_listed_and_logged() {
    let dir = scratch();
    let log = dir.join("access.log");
    let text = format!("{ANY_PORTS}[http]\naccess_log = \"{}\"\n{STATIONS}", log.display());
    let server = Playing::start(resolve(&text));
    let body = |path: &str| {
        let answer = ask(&server, &format!("GET {path} HTTP/1.0"));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.0 200") || head.starts_with("HTTP/1.1 200"), "{head}");
        body.to_owned()
    };
    let count = |field: &str| {
        let stats: serde_json::Value =
            serde_json::from_str(&body("/status-json.xsl?mount=/listen/default")).unwrap();
        stats["icestats"]["source"][field].as_u64().unwrap()
    };
    let agent = "User-Agent: VLC \"3\" <x>\r\n";
    let mut first = open(&server, "GET /listen/default?token=secret HTTP/1.1", agent);
    first.read_exact(&mut [0; 20_000]).unwrap();
    let second = open(&server, "GET /listen/default.ogg HTTP/1.1", agent);
    // A playlist is no listener.
    ask(&server, "GET /listen/default.m3u HTTP/1.1");
    eventually(|| count("listeners") == 2);
    let clients = body("/admin/listclients?mount=/listen/default");
    assert!(clients.contains("<Listeners>2</Listeners>"), "{clients}");
    assert!(clients.contains("<IP>127.0.0.1</IP>"), "{clients}");
    assert!(clients.contains("<UserAgent>VLC '3' &lt;x&gt;</UserAgent>"), "{clients}");
    let stats = body("/admin/stats");
    assert!(stats.contains("<listeners>2</listeners>"), "{stats}");
    assert!(stats.contains("<source mount=\"/listen/two%20words\">"), "{stats}");
    let one = body("/admin/stats?mount=/listen/default");
    assert_eq!(one.matches("<source ").count(), 1, "{one}");
    // A mount in another container, as a directory lists it.
    let stats: serde_json::Value =
        serde_json::from_str(&body("/status-json.xsl?mount=/listen/default.mp3")).unwrap();
    let source = &stats["icestats"]["source"];
    assert_eq!((&source["server_type"], &source["bitrate"]), (&json!("audio/mpeg"), &json!(192)));
    assert!(source["listenurl"].as_str().unwrap().ends_with("/listen/default.mp3"), "{source}");
    assert!(!body("/status-json.xsl?mount=/listen/cd.wav.ogg").contains("\"source\""));
    assert!(body("/admin/listmounts").contains("<server_type>audio/wav</server_type>"));
    assert!(ask(&server, "GET /admin/listclients?mount=/x HTTP/1.0").contains(" 404 "));
    let status = server.controller().call("Aulos.GetStatus", json!({}));
    assert_eq!(status["result"]["stations"][0]["listeners"], 2);
    drop((first, second));
    eventually(|| count("listeners") == 0);
    assert_eq!(count("listener_peak"), 2);
    let mut lines = String::new();
    eventually(|| {
        lines = std::fs::read_to_string(&log).unwrap_or_default();
        lines.lines().count() == 2
    });
    assert!(lines.contains("] \"GET /listen/default HTTP/1.1\" 200 "), "{lines}");
    assert!(lines.lines().all(|line| line.starts_with("127.0.0.1 - - [")), "{lines}");
    assert!(lines.contains("\"-\" \"VLC '3' <x>\" ") && !lines.contains("secret"), "{lines}");
    let line = lines.lines().find(|line| line.contains("/listen/default HTTP")).unwrap();
    let bytes: u64 =
        line.split("\" 200 ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(bytes >= 20_000, "{lines}");
}

/// A program that decides about listeners: it permits those whose form has `tok%3Dgood`, for one
/// second, and passes on all forms.
fn gatekeeper() -> (std::net::SocketAddr, std::sync::mpsc::Receiver<String>) {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let (told, forms) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in socket.incoming() {
            let mut stream = stream.unwrap();
            let head = head(&mut stream);
            let length = head.to_lowercase();
            let length = length.split("content-length: ").nth(1).unwrap();
            let mut form = vec![0; length.lines().next().unwrap().parse().unwrap()];
            stream.read_exact(&mut form).unwrap();
            let form = String::from_utf8(form).unwrap();
            let verdict = match form.contains("tok%3Dgood") {
                true => "icecast-auth-user: 1\r\nicecast-auth-timelimit: 1\r\n",
                false => "Icecast-Auth-Message: no subscription\r\n",
            };
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{verdict}\r\n").unwrap();
            if told.send(form).is_err() {
                return;
            }
        }
    });
    (address, forms)
}

#[test]
fn a_program_decides_about_listeners_and_is_told_when_they_leave() {
    let (gate, forms) = gatekeeper();
    let auth = format!(
        "[http]\nlistener_add = \"http://{gate}/a\"\nlistener_remove = \"http://{gate}/r\""
    );
    let server = Playing::start(resolve(&format!("{ANY_PORTS}{auth}\n{STATIONS}")));
    let form = || forms.recv_timeout(PATIENCE).unwrap();

    let refused = ask(&server, "GET /listen/default HTTP/1.1");
    assert!(
        refused.starts_with("HTTP/1.1 401 ") && refused.ends_with("\nno subscription\n"),
        "{refused}"
    );
    assert!(form().starts_with(
        "action=listener_add&server=localhost&port=99&client=1&mount=/listen/default&user=&"
    ));
    // echo -n dj:x | base64
    let with_password = "Authorization: Basic ZGo6eA==\r\n";
    let mut socket = open(&server, "GET /listen/default HTTP/1.1", with_password);
    assert!(head(&mut socket).starts_with("HTTP/1.1 403 "));
    assert!(form().contains("&user=dj&pass=x&ip=127.0.0.1&"));
    // Playlists have no sound.
    assert!(ask(&server, "GET /listen/default.m3u HTTP/1.1").starts_with("HTTP/1.1 200 "));

    let mut socket = open(&server, "GET /listen/default.wav?tok=good HTTP/1.1", "");
    let mut heard = Vec::new();
    let end = socket.read_to_end(&mut heard);
    assert!(heard.starts_with(b"HTTP/1.1 200 ") && heard.len() > 100_000, "{end:?}");
    assert!(form().contains("client=3&mount=/listen/default.wav%3Ftok%3Dgood&"));
    let told = form();
    assert!(told.starts_with("action=listener_remove&") && told.contains("&client=3&"), "{told}");
    assert!(told.ends_with("&duration=1") || told.ends_with("&duration=2"), "{told}");
}

#[test]
fn no_listener_is_admitted_while_the_deciding_program_is_away() {
    let text = format!("{ANY_PORTS}[http]\nlistener_add = \"http://127.0.0.1:9/\"\n{STATIONS}");
    let server = Playing::start(resolve(&text));
    let answer = ask(&server, "GET /listen/default HTTP/1.1");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
}
