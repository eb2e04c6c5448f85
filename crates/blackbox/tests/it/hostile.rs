//! Peers that lie, stall and vanish are disconnected and counted, without an effect on others.

mod siege;
mod unfinished;

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use aulos_blackbox::http;
use aulos_blackbox::load::LoadTest;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::signal::NoiseRng;
use aulos_blackbox::wire::{HEADER, MessageHeader, hello, kind};
use serde_json::Value;

use crate::{long_or_short, quiet_turn, shared_turn, soak};

const CONFIG: &str = "[[station]]\nname = \"default\"\ncodec = \"pcm\"\nsources = [\"demo://\"]\n";

/// Longer than any timeout of the server for a silent peer (5 s).
const CUT_WITHIN: Duration = Duration::from_secs(12);

#[test]
fn hostile_peers_are_disconnected_and_counted_without_loss_for_others() {
    let _turn = quiet_turn();
    let scratch = ScratchDir::new("hostile").unwrap();
    let server = AulosServer::start(&scratch, CONFIG).unwrap();
    let before = cuts(server.http);
    let load = LoadTest {
        server: server.stream,
        clients: 10,
        settle: Duration::from_secs(1),
        listen: long_or_short(60, 16),
    };
    let good = std::thread::spawn(move || load.run(|_| ()));
    std::thread::sleep(Duration::from_millis(1_500));
    let attackers: Vec<_> = ATTACKS
        .iter()
        .map(|&(name, attack)| {
            let stream = server.stream;
            (name, std::thread::spawn(move || is_cut(stream, attack)))
        })
        .collect();
    // One of them closes the connection itself.
    let count = attackers.len() as u64 - 1;
    for (name, attacker) in attackers {
        assert!(attacker.join().unwrap(), "{name}: not cut within {CUT_WITHIN:?}");
    }
    let counted = cuts(server.http) - before;
    let report = good.join().unwrap().unwrap();
    assert_eq!((report.gaps(), report.cut()), (0, 0), "{:#}", report.json());
    assert!(counted >= count, "{count} peers were cut, {counted} counted");
    server.stop().unwrap();
}

#[test]
fn a_slow_hello_within_the_time_limit_is_served() {
    let _turn = quiet_turn();
    let scratch = ScratchDir::new("slow").unwrap();
    let server = AulosServer::start(&scratch, CONFIG).unwrap();
    let mut socket = TcpStream::connect(server.stream).unwrap();
    socket.set_nodelay(true).unwrap();
    for byte in hello(1) {
        socket.write_all(&[byte]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut bytes = [0; 26];
    socket.read_exact(&mut bytes).unwrap();
    let header = MessageHeader::parse(&bytes).unwrap();
    assert_eq!((header.kind, header.refers_to), (kind::SERVER_SETTINGS, 2));
    drop(socket);
    server.stop().unwrap();
}

#[test]
fn a_peer_that_stops_reading_does_not_affect_others() {
    let _turn = quiet_turn();
    let scratch = ScratchDir::new("deaf").unwrap();
    let server = AulosServer::start(&scratch, CONFIG).unwrap();
    let before = cuts(server.http);
    let deaf: Vec<TcpStream> = (0..20)
        .map(|id| {
            let mut socket = TcpStream::connect(server.stream).unwrap();
            socket.write_all(&hello(1_000 + id)).unwrap();
            socket
        })
        .collect();
    let silent: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(server.stream).unwrap()).collect();
    let load = LoadTest {
        server: server.stream,
        clients: 10,
        settle: Duration::from_secs(1),
        listen: long_or_short(60, 8),
    };
    let report = load.run(|_| ()).unwrap();
    assert_eq!((report.gaps(), report.cut()), (0, 0), "{:#}", report.json());
    if soak() {
        // 20 ms of 3.8 kB fill any socket's buffers within a minute.
        let counted = cuts(server.http) - before;
        assert!(counted >= 220, "20 that do not read and 200 that say nothing: {counted} cut");
    }
    drop((deaf, silent));
    server.stop().unwrap();
}

type Attack = fn(&mut TcpStream) -> io::Result<()>;

const ATTACKS: &[(&str, Attack)] = &[
    ("garbage", |socket| {
        let mut noise = NoiseRng(77);
        let bytes: Vec<u8> = (0..4096).flat_map(|_| noise.next_u64().to_le_bytes()).collect();
        socket.write_all(&bytes)
    }),
    ("no such type", |socket| socket.write_all(&message(99, &[]))),
    ("a payload of 2 MB announced", |socket| {
        let mut bytes = message(kind::HELLO, &[]);
        bytes[22..26].copy_from_slice(&2_000_000_u32.to_le_bytes());
        socket.write_all(&bytes)
    }),
    ("a payload of 4 GB announced, and sent as far as it goes", |socket| {
        let mut bytes = message(kind::HELLO, &[]);
        bytes[22..26].copy_from_slice(&u32::MAX.to_le_bytes());
        socket.write_all(&bytes)?;
        (0..100).try_for_each(|_| socket.write_all(&[b'x'; 4096]))
    }),
    ("truncated, then hung up", |socket| {
        socket.write_all(&hello(2)[..60])?;
        socket.shutdown(Shutdown::Write)
    }),
    ("truncated, then silent", |socket| socket.write_all(&hello(3)[..60])),
    ("nothing at all", |_| Ok(())),
    ("a byte every 200 ms", |socket| {
        let start = Instant::now();
        hello(4).iter().take_while(|_| start.elapsed() < CUT_WITHIN).try_for_each(|byte| {
            std::thread::sleep(Duration::from_millis(200));
            socket.write_all(&[*byte])
        })
    }),
    ("Hello without JSON", |socket| socket.write_all(&message(kind::HELLO, b"\x04\0\0\0{{{{"))),
    ("Hello that is longer inside than outside", |socket| {
        socket.write_all(&message(kind::HELLO, b"\xFF\xFF\xFF\x7F{}"))
    }),
    ("Hello of a hundred thousand brackets", |socket| {
        let mut payload = 100_000_u32.to_le_bytes().to_vec();
        payload.resize(100_004, b'[');
        socket.write_all(&message(kind::HELLO, &payload))
    }),
    ("asks for the time, but never says hello", |socket| {
        let start = Instant::now();
        while start.elapsed() < CUT_WITHIN {
            socket.write_all(&message(kind::TIME, &[0; 8]))?;
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }),
];

/// Where everybody may listen, a wrong secret is still refused: with the reason, and without sound.
#[test]
fn a_hello_with_a_wrong_secret_gets_the_reason_and_no_sound() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("wrong-secret").unwrap();
    let users = "[access]\nanonymous = \"listen\"\n[[user]]\nname = \"anna\"\nrole = \"admin\"\n\
        password = \"a good password\"\n";
    let server = AulosServer::start(&scratch, &format!("{CONFIG}{users}")).unwrap();
    let kinds = |secret: Option<&str>| {
        let mut socket = TcpStream::connect(server.stream).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        socket.write_all(&hello_with(secret)).unwrap();
        let mut read = Vec::new();
        // A listener is sent sound until this end closes.
        let ended =
            (&mut socket).take(20_000).read_to_end(&mut read).is_ok() && read.len() < 20_000;
        let (mut kinds, mut rest) = (Vec::new(), &read[..]);
        while let Some(header) = MessageHeader::parse(rest) {
            let end = rest.len().min(HEADER + header.size as usize);
            kinds.push((header.kind, rest[HEADER..end].to_vec()));
            rest = &rest[end..];
        }
        (kinds, ended)
    };
    let (messages, ended) = kinds(Some("anna:a guess"));
    let [(kind::MAX, reason)] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!(reason[..4], 401_u32.to_le_bytes());
    assert!(ended);
    for secret in [None, Some("anna:a good password")] {
        let (messages, ended) = kinds(secret);
        assert!(messages.iter().any(|(kind, _)| *kind == kind::WIRE_CHUNK), "{secret:?}");
        assert!(!ended);
    }
    server.stop().unwrap();
}

/// A Hello with name and password.
fn hello_with(secret: Option<&str>) -> Vec<u8> {
    let mut body: Value = serde_json::from_slice(&hello(7)[HEADER + 4..]).unwrap();
    if let Some(secret) = secret {
        body["Auth"] = serde_json::json!({ "scheme": "Plain", "param": secret });
    }
    let body = body.to_string();
    let length = u32::try_from(body.len()).unwrap().to_le_bytes();
    message(kind::HELLO, &[&length, body.as_bytes()].concat())
}

fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
    MessageHeader { kind, id: 2, refers_to: 0, sent: 0, received: 0, size: 0 }.message(payload)
}

/// Whether the server ends the connection.
fn is_cut(server: SocketAddr, attack: Attack) -> bool {
    let start = Instant::now();
    let mut socket = TcpStream::connect(server).unwrap();
    // An error here is the server's disconnect, seen while still writing.
    if attack(&mut socket).is_err() {
        return true;
    }
    let mut buffer = [0; 4096];
    while let Some(left) = CUT_WITHIN.checked_sub(start.elapsed()) {
        socket.set_read_timeout(Some(left.max(Duration::from_millis(1)))).unwrap();
        match socket.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return !matches!(e.kind(), io::ErrorKind::WouldBlock),
        }
    }
    false
}

/// Number of peers that the server has disconnected, for any cause.
fn cuts(http: SocketAddr) -> u64 {
    let counters = counters(http);
    let counters = counters.as_object().expect("counters");
    let cut = counters.iter().filter(|(name, _)| name.contains("cut"));
    cut.filter_map(|(_, count)| count.as_u64()).sum()
}

pub(crate) fn counter(http: SocketAddr, name: &str) -> u64 {
    counters(http)[name].as_u64().expect("a counter")
}

fn counters(http: SocketAddr) -> Value {
    let (status, body) = http::get(http, "/api/v1/status").unwrap();
    assert_eq!(status, 200);
    let mut body: Value = serde_json::from_slice(&body).unwrap();
    body["counters"].take()
}
