//! Web servers that misbehave: each is named, and none holds the player up or fills its memory.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use aulos_blackbox::process_usage;
use tungstenite::handshake::derive_accept_key;

use super::hostile::Playing;
use super::server::Server;

const BINARY: u8 = 0x82;
const PING: u8 = 0x89;

/// Reads the request; the key in it.
fn request(socket: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if socket.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("GET /stream HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nSec-WebSocket-Version: 13\r\n"), "{head}");
    let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "));
    Some(key.unwrap().to_owned())
}

/// Accepts the handshake.
fn accept(socket: &mut TcpStream) {
    if let Some(key) = request(socket) {
        let key = derive_accept_key(key.as_bytes());
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {key}\r\n\r\n"
        );
        drop(socket.write_all(head.as_bytes()));
    }
}

/// Waits until the player has closed the connection.
fn wait_for_end(socket: &mut TcpStream) {
    while socket.read(&mut [0; 4_096]).is_ok_and(|length| length > 0) {}
}

/// A server that acts so, and the message of the player.
type Attack = (fn(&mut TcpStream), &'static str);

const ATTACKS: [Attack; 9] = [
    (
        |socket| drop(socket.write_all(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")),
        "the server does not answer as a web server does",
    ),
    (
        |socket| while socket.write_all(b"HTTP/1.1 101 and on\r\nand: on\r\n").is_ok() {},
        "the server does not answer as a web server does",
    ),
    (
        |socket| drop(socket.write_all(b"HTTP/1.1 404 Not Found\r\n\r\n")),
        "the server answers with HTTP status 404; expected a WebSocket",
    ),
    (
        |socket| drop(socket.write_all(b"HTTP/1.1 401 Unauthorized\r\n\r\n")),
        "the server requires a login that it accepts",
    ),
    (
        |socket| {
            request(socket);
            let key = derive_accept_key(b"another");
            let head = format!(
                "HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Accept: {key}\r\n\r\n"
            );
            drop(socket.write_all(head.as_bytes()));
        },
        "the server does not answer with a WebSocket",
    ),
    (
        |socket| {
            accept(socket);
            drop(socket.write_all(&[&[BINARY, 127][..], &[0x7f; 8]].concat()));
            while socket.write_all(&[0; 65_536]).is_ok() {}
        },
        "the message is too large",
    ),
    (
        |socket| {
            accept(socket);
            let part = [&[2, 126, 0xff, 0xff][..], &[0; 0xffff]].concat();
            drop(socket.write_all(&part));
            let next = [&[0, 126, 0xff, 0xff][..], &[0; 0xffff]].concat();
            while socket.write_all(&next).is_ok() {}
        },
        "the message is too large",
    ),
    (
        |socket| {
            accept(socket);
            drop(socket.write_all(&[BINARY, 0x84, 1, 2, 3, 4, 0, 0, 0, 0]));
        },
        "the frame is masked",
    ),
    (
        |socket| {
            accept(socket);
            let ping = [&[PING, 125][..], &[0; 125]].concat().repeat(100);
            while socket.write_all(&ping).is_ok() {}
            // It has read nothing until here.
        },
        "the server does not read what it is sent",
    ),
];

#[test]
fn misbehaving_web_servers_are_named_and_given_up() {
    let resident = || process_usage::read(std::process::id()).unwrap().resident;
    let before = resident();
    for (attack, words) in ATTACKS {
        let server = Server::start(1, move |connection| {
            attack(&mut connection.socket);
            wait_for_end(&mut connection.socket);
        });
        let mut player = Playing::start_at(&format!("ws://{}", server.address));
        player.expect(words);
        player.stop();
        server.join();
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 20_000_000, "{grown} bytes");
}

#[test]
fn a_handshake_that_never_ends_is_given_up_after_five_seconds() {
    let server = Server::start(1, |connection| {
        let head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n";
        for byte in head.iter().cycle() {
            if connection.socket.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let mut player = Playing::start_at(&format!("ws://{}", server.address));
    player.expect("the server does not complete the handshake within 5 s");
    player.stop();
    server.join();
}
