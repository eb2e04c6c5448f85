//! Announcements from URLs: of servers that behave, and of servers that do not.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use aulos_io::SystemClock;
use serde_json::{Value, json};

use crate::announce::{judge, quiet_voice, until_silence};
use crate::common::{Controller, Heard, Playing, Room, resolve, scratch, wave};

/// A station that plays a quiet tone, and the hosts from which announcements may come.
fn config(hosts: &str) -> String {
    format!(
        r#"
        [listen]
        stream = 0
        control = 0
        http = 0
        [streams]
        {hosts}
        [[station]]
        name = "hall"
        codec = "pcm"
        buffer_ms = 1000
        sources = ["tone://?dbfs=-40"]
        "#
    )
}

const LOCAL: &str = r#"announce_hosts = ["127.0.0.1"]"#;

/// Serves requests with `answer`, which gets the target; returns the address, and the number of
/// connections.
pub(crate) fn serve(
    host: &str,
    answer: impl Fn(&str, &mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((host, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (answer, count) = (Arc::new(answer), Arc::<AtomicUsize>::default());
    let counter = Arc::clone(&count);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().take(64).flatten() {
            counter.fetch_add(1, Ordering::Relaxed);
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || {
                let mut head = String::new();
                let mut lines = BufReader::new(stream.try_clone().unwrap());
                while !head.ends_with("\r\n\r\n") {
                    if lines.read_line(&mut head).unwrap_or(0) == 0 {
                        return;
                    }
                }
                let target = head.split(' ').nth(1).unwrap_or_default();
                // The client hangs up when it has enough.
                answer(target, &mut stream).ok();
            });
        }
    });
    (address, count)
}

/// A second of a tone at half of full scale, as FFmpeg encodes it.
fn tone(arguments: &str) -> Vec<u8> {
    let source = "-nostdin -loglevel error -f lavfi -i aevalsrc=0.5*sin(2*PI*440*t):s=48000:d=1";
    let output = Command::new("ffmpeg")
        .args(source.split_whitespace())
        .args(arguments.split_whitespace())
        .arg("pipe:1")
        .output()
        .expect("this test needs ffmpeg: install it (apt-get install ffmpeg)");
    assert!(output.status.success() && output.stdout.len() > 1_000, "{arguments}");
    output.stdout
}

/// Sends pieces in chunked encoding.
fn send_chunked<'a>(
    out: &mut TcpStream,
    pieces: impl Iterator<Item = &'a [u8]>,
    pause: Duration,
) -> std::io::Result<()> {
    out.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    for piece in pieces {
        write!(out, "{:x}\r\n", piece.len())?;
        out.write_all(piece)?;
        out.write_all(b"\r\n")?;
        std::thread::sleep(pause);
    }
    out.write_all(b"0\r\n\r\n")
}

fn announce(caller: &mut Controller, uri: &str) -> u64 {
    let answer = caller.call("Aulos.Announce", json!({ "station": "hall", "uri": uri }));
    answer["result"]["id"].as_u64().unwrap_or_else(|| panic!("{uri}: {answer}"))
}

/// The notification of the end of the announcement.
fn ended(caller: &mut Controller, id: u64) -> Value {
    loop {
        let notice = caller.notice_of("Aulos.OnAnnouncement")["params"].clone();
        if notice["id"] == id && notice["state"] == "ended" {
            return notice;
        }
    }
}

#[test]
fn each_format_plays_with_a_length_in_chunks_and_until_the_end_of_the_connection() {
    let formats: HashMap<&str, Vec<u8>> = HashMap::from([
        ("/token-1.mp3", tone("-ac 1 -ar 24000 -c:a libmp3lame -b:a 64k -f mp3")),
        ("/token-2.flac", tone("-c:a flac -f flac")),
        ("/token-3.ogg", tone("-c:a libopus -b:a 64k -f ogg")),
        // Into a pipe FFmpeg writes no length.
        ("/token-4.wav", tone("-ac 1 -ar 22050 -c:a pcm_s16le -f wav")),
    ]);
    let (server, _) = serve("127.0.0.1", move |target, out| {
        let (path, framing) = target.split_once('?').unwrap();
        let sound = &formats[path];
        match framing {
            "length" => write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", sound.len())?,
            "closed" => write!(out, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?,
            _ => return send_chunked(out, sound.chunks(700), Duration::ZERO),
        }
        out.write_all(sound)
    });
    let playing = Playing::start(resolve(&config(LOCAL)));
    let mut caller = playing.controller();
    let mut sound = playing.listen("hall");
    for path in ["token-1.mp3", "token-2.flac", "token-3.ogg", "token-4.wav"] {
        for framing in ["length", "chunked", "closed"] {
            let id = announce(&mut caller, &format!("http://{server}/{path}?{framing}"));
            let status = caller.call("Aulos.GetStatus", json!({}));
            let shown = &status["result"]["stations"][0]["announcements"][0];
            assert_eq!(shown["uri"], format!("http://{server}/..."));
            // The tone is above 0.2 for about 70 of 100 samples.
            let (mut loud, mut read) = (0, 0);
            while loud < 2 * 30_000 {
                let samples = sound.samples(1_920);
                read += samples.len();
                loud += samples.iter().filter(|sample| sample.abs() > 0.2).count();
                assert!(read < 2 * 48_000 * 8, "{path} {framing}: {loud}");
            }
            let notice = ended(&mut caller, id);
            assert_eq!(notice["cause"], "played", "{path} {framing}: {notice}");
            assert_eq!(notice["uri"], format!("http://{server}/..."), "no token");
        }
    }
}

#[test]
fn sound_starts_within_a_second_while_its_rest_is_still_being_made() {
    let is_complete = Arc::<AtomicBool>::default();
    let flag = Arc::clone(&is_complete);
    let (server, _) = serve("127.0.0.1", move |_, out| {
        // A length of the largest number is that of a file that is being written.
        let mut speech = wave(&[16_384; 48_000 * 3]);
        speech[4..8].fill(0xff);
        speech[40..44].fill(0xff);
        let sent = send_chunked(out, speech.chunks(9_600), Duration::from_millis(90));
        flag.store(true, Ordering::Relaxed);
        sent
    });
    let playing = Playing::start(resolve(&config(LOCAL)));
    let mut caller = playing.controller();
    let mut room = Room::enter(playing.stream, "room");
    while !matches!(room.hear(), Heard::Chunk(..)) {}
    let called = SystemClock::now().as_nanos() / 1_000;
    let id = announce(&mut caller, &format!("http://{server}/speech"));
    let (first, was_complete) = loop {
        let Heard::Chunk(at, sound) = room.hear() else { continue };
        let mut samples = sound.as_chunks::<2>().0.iter().map(|two| i16::from_le_bytes(*two));
        if samples.any(|sample| sample > 8_000) {
            break (i128::from(at), is_complete.load(Ordering::Relaxed));
        }
    };
    let delay = first - i128::from(called);
    eprintln!("from the call to the first sound: {delay} us");
    assert!((0..1_000_000).contains(&delay), "{delay} us");
    assert!(!was_complete, "it was played from its beginning on");
    assert_eq!(ended(&mut caller, id)["cause"], "played");
}

#[test]
fn a_voice_from_a_url_gets_the_loudness_that_is_wanted() {
    let voice = wave(&quiet_voice());
    let (server, _) =
        serve("127.0.0.1", move |_, out| send_chunked(out, voice.chunks(9_600), Duration::ZERO));
    let folder = scratch();
    std::fs::write(folder.join("silence.wav"), wave(&[0; 48_000])).unwrap();
    let sources = format!("sources = [\"file://{}/silence.wav?loop=true\"]", folder.display());
    let tone = r#"sources = ["tone://?dbfs=-40"]"#;
    let normalized = format!("normalize = {{ target = -18.0 }}\n{sources}");
    for (station, params, wanted) in [
        (&normalized, json!({}), -18.0),
        (&normalized, json!({ "loudness_lufs": -24 }), -24.0),
        (&sources, json!({ "loudness_lufs": -22 }), -22.0),
    ] {
        let playing = Playing::start(resolve(&config(LOCAL).replace(tone, station)));
        let mut caller = playing.controller();
        let mut sound = playing.listen("hall");
        let mut call = json!({ "station": "hall", "uri": format!("http://{server}/voice") });
        call.as_object_mut().unwrap().extend(params.as_object().unwrap().clone());
        assert!(caller.call("Aulos.Announce", call)["result"]["id"].is_u64());
        // Measured on the part that arrives in 0.3 s.
        let loudness = judge("url.wav", &until_silence(&mut sound));
        assert!((loudness - wanted).abs() < 1.0, "{params}: {loudness}, not {wanted}");
    }
}

#[test]
fn a_host_that_is_not_listed_is_not_contacted() {
    let (inner, asked) = serve("127.0.0.2", |_, out| out.write_all(b"HTTP/1.1 404 No\r\n\r\n"));
    let (outer, _) = serve("127.0.0.1", move |_, out| {
        write!(out, "HTTP/1.1 302 Found\r\nLocation: http://{inner}/\r\n\r\n")
    });
    let playing = Playing::start(resolve(&config(LOCAL)));
    let mut caller = playing.controller();
    for uri in [format!("http://{outer}/"), format!("http://{inner}/"), "http://[::1]:9/".into()] {
        let id = announce(&mut caller, &uri);
        let notice = ended(&mut caller, id);
        let reason = notice["reason"].as_str().unwrap();
        assert_eq!(notice["cause"], "failed");
        assert!(reason.contains("is a loopback address"), "{uri}: {reason}");
        assert!(reason.contains("`streams.announce_hosts`"), "{uri}: {reason}");
    }
    // By default only the networks of the interfaces, of which loopback is none.
    let playing = Playing::start(resolve(&config("")));
    let mut caller = playing.controller();
    for uri in [format!("http://{outer}/"), "http://169.254.169.254/latest".into()] {
        let id = announce(&mut caller, &uri);
        assert_eq!(ended(&mut caller, id)["cause"], "failed", "{uri}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    for uri in ["http://", "http://a b/", "https://host:99999/", "httpx://host/"] {
        let answer = caller.call("Aulos.Announce", json!({ "station": "hall", "uri": uri }));
        assert_eq!(answer["error"]["code"], -32602, "{uri}: {answer}");
    }
}

/// Ten million zeroes, compressed.
fn gzip_bomb() -> Vec<u8> {
    let mut gzip =
        Command::new("gzip").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = gzip.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(&vec![0; 10_000_000]));
    let output = gzip.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success() && output.stdout.len() > 1_000);
    output.stdout
}

fn answer_badly(target: &str, out: &mut TcpStream) -> std::io::Result<()> {
    const OK: &str = "HTTP/1.1 200 OK\r\n";
    let (name, number) = target.split_once('=').unwrap_or((target, "0"));
    match name {
        "/missing" => write!(out, "HTTP/1.1 404 Not Found\r\n\r\n"),
        "/page" => write!(out, "{OK}\r\n<!DOCTYPE html><html><body>{}", "x".repeat(5_000)),
        "/large" => write!(out, "{OK}Content-Length: 9000000\r\n\r\n{}", "x".repeat(5_000)),
        "/endless" => {
            write!(out, "{OK}\r\n")?;
            out.write_all(&wave(&[0; 480])[..44])?;
            loop {
                out.write_all(&[0; 65_536])?;
            }
        }
        "/flood" => {
            write!(out, "{OK}")?;
            loop {
                write!(out, "X-Header: {}\r\n", "y".repeat(1_000))?;
            }
        }
        "/redirect" => {
            let next = number.parse::<u32>().unwrap() + 1;
            write!(out, "HTTP/1.1 302 Found\r\nLocation: /redirect={next}\r\n\r\n")
        }
        "/bomb" => {
            write!(out, "{OK}Content-Type: audio/mpeg\r\nContent-Encoding: gzip\r\n\r\n")?;
            out.write_all(&gzip_bomb())
        }
        "/list.m3u" => write!(out, "{OK}\r\n#EXTM3U\nhttp://127.0.0.1/{}\n", "x".repeat(50)),
        "/half" => {
            write!(out, "{OK}Content-Length: 100000\r\n\r\n")?;
            out.write_all(&wave(&[1_000; 24_000]))
        }
        _ => {
            if name == "/stall" {
                write!(out, "{OK}Content-Length: 100000\r\n\r\n")?;
                out.write_all(&wave(&[1_000; 48_000])[..30_000])?;
            }
            std::thread::sleep(Duration::from_secs(30));
            Ok(())
        }
    }
}

#[test]
fn a_server_that_misbehaves_costs_its_announcement_and_nothing_else() {
    let (server, _) = serve("127.0.0.1", answer_badly);
    let playing = Playing::start(resolve(&config(LOCAL)));
    let mut caller = playing.controller();
    let mut failure = |name: &str| {
        let id = announce(&mut caller, &format!("http://{server}{name}"));
        let notice = ended(&mut caller, id);
        assert_eq!(notice["cause"], "failed", "{name}: {notice}");
        notice["reason"].as_str().unwrap().to_owned()
    };
    for (name, expected) in [
        ("/missing", "the URL does not exist on the server (404)"),
        ("/page", "a web page, not audio"),
        ("/large", "larger than 8 MiB"),
        ("/endless", "larger than 8 MiB"),
        ("/flood", "the answer is not HTTP"),
        ("/redirect=0", "more than 3 redirects"),
        ("/bomb", "not MP3, AAC, Ogg, FLAC or WAVE"),
        ("/list.m3u", "a playlist, not audio"),
        ("/half", "closed the connection before the end"),
        ("/stall", "sent nothing for 3 s"),
        ("/silent", "timeout: "),
    ] {
        let reason = failure(name);
        assert!(reason.contains(expected), "{name}: {reason}");
    }
    assert!(caller.call("Aulos.GetInfo", json!({}))["result"]["version"].is_string());
}
