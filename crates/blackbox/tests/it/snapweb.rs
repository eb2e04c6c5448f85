//! A player over a WebSocket that has Snapweb's bugs (0.9.1): it counts its header into the size of
//! a message, gives the length of its JSON in UTF-16 units, requests the time right after its
//! Hello, and swaps `received` and `sent`.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use aulos_blackbox::client::clock_us;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::wire::{HEADER, MessageHeader, kind};
use serde_json::json;
use tungstenite::{Message, WebSocket};

use crate::rpc::Rpc;
use crate::{shared_turn, wait_for};

const TWO: &str = r#"
[[station]]
name = "default"
codec = "flac"
sources = ["demo://"]
[[station]]
name = "second"
codec = "pcm"
sources = ["tone://?hz=440"]
"#;

struct Snapweb {
    socket: WebSocket<TcpStream>,
    next: u16,
}

impl Snapweb {
    /// Connects, sends Hello and Time, without waiting for anything.
    fn connect(http: SocketAddr, id: &str) -> Self {
        let socket = TcpStream::connect(http).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.set_nodelay(true).unwrap();
        let url = format!("ws://{http}/stream");
        let (socket, _) = tungstenite::client(url, socket).unwrap();
        let mut player = Self { socket, next: 1 };
        let hello = json!({
            "MAC": "00:00:00:00:00:00", "HostName": "Küche – Büro", "Version": "0.9.1",
            "ClientName": "Snapweb", "OS": "Linux", "Arch": "web", "Instance": 1, "ID": id,
            "SnapStreamProtocolVersion": 2,
        });
        let text = hello.to_string();
        let mut payload =
            u32::try_from(text.encode_utf16().count()).unwrap().to_le_bytes().to_vec();
        payload.extend_from_slice(text.as_bytes());
        player.send(kind::HELLO, &payload);
        player.send(kind::TIME, &[0; 8]);
        player
    }

    fn send(&mut self, kind: u16, payload: &[u8]) -> u16 {
        let id = self.next;
        self.next += 1;
        let header =
            MessageHeader { kind, id, refers_to: 0, sent: clock_us(), received: 0, size: 0 };
        let mut message = header.message(payload);
        let size = u32::try_from(message.len()).unwrap();
        message[22..26].copy_from_slice(&size.to_le_bytes());
        self.socket.send(Message::binary(message)).unwrap();
        id
    }

    /// The next protocol message; each is one binary WebSocket message.
    fn read(&mut self) -> (MessageHeader, Vec<u8>) {
        loop {
            match self.socket.read().unwrap() {
                Message::Binary(bytes) => {
                    let header = MessageHeader::parse(&bytes).unwrap();
                    assert_eq!(HEADER + header.size as usize, bytes.len());
                    return (header, bytes[HEADER..].to_vec());
                }
                Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The next message of a kind; chunks and settings before it are skipped.
    fn next_of(&mut self, wanted: u16) -> (MessageHeader, Vec<u8>) {
        loop {
            let (header, payload) = self.read();
            if header.kind == wanted {
                return (header, payload);
            }
            // Settings precede the codec header of another stream: its buffer may differ.
            let also = [kind::WIRE_CHUNK, kind::SERVER_SETTINGS];
            assert!(also.contains(&header.kind), "{header:?}");
        }
    }

    /// The first messages: settings, and in either order the Time response and a codec header,
    /// which is returned.
    fn opening(&mut self) -> (MessageHeader, Vec<u8>) {
        let (mut time, mut codec) = (None, None);
        loop {
            let (header, payload) = self.read();
            match header.kind {
                kind::TIME => time = Some(header),
                kind::CODEC_HEADER => codec = Some(payload),
                // The chunks after the header may come first, if the Time request came a little
                // later.
                other => assert!([kind::SERVER_SETTINGS, kind::WIRE_CHUNK].contains(&other)),
            }
            if let (Some(time), Some(codec)) = (&time, &codec) {
                return (*time, codec.clone());
            }
        }
    }

    /// The next settings; everything else before them is skipped.
    fn next_settings(&mut self) -> Vec<u8> {
        loop {
            let (header, payload) = self.read();
            if header.kind == kind::SERVER_SETTINGS {
                return payload;
            }
        }
    }

    /// The times of the next chunks, microseconds.
    fn chunks(&mut self, count: usize) -> Vec<i64> {
        let time = |payload: &[u8]| {
            let word =
                |at: usize| i64::from(i32::from_le_bytes(payload[at..at + 4].try_into().unwrap()));
            word(0) * 1_000_000 + word(4)
        };
        (0..count).map(|_| time(&self.next_of(kind::WIRE_CHUNK).1)).collect()
    }
}

/// Asserts a timeline without gaps: each chunk begins where the one before ended.
fn continuous(times: &[i64], step: i64) {
    for pair in times.windows(2) {
        assert!((pair[1] - pair[0] - step).abs() <= 1, "{pair:?}");
    }
}

fn settings(payload: &[u8]) -> serde_json::Value {
    serde_json::from_slice(&payload[4..]).unwrap()
}

#[test]
fn snapweb_plays_with_all_its_faults() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("snapweb").unwrap();
    let server = AulosServer::start(&scratch, TWO).unwrap();
    let mut player = Snapweb::connect(server.http, "4a1c-web");
    // The settings come first; otherwise Snapweb fails on the next message.
    let (first, payload) = player.read();
    assert_eq!((first.kind, first.refers_to), (kind::SERVER_SETTINGS, 1));
    assert_eq!(settings(&payload)["bufferMs"], 1_000);
    let (time, header) = player.opening();
    assert_eq!(time.refers_to, 2);
    assert!(time.received > 0 && time.sent >= time.received, "{time:?}");
    assert_eq!(&header[4..8], b"flac");
    continuous(&player.chunks(150), 20_000);

    let mut rpc = Rpc::connect(server.control);
    let group = rpc.group_of("4a1c-web").unwrap();
    let client = &group["clients"][0];
    assert_eq!(client["host"]["name"], "Küche – Büro");
    assert_eq!((&client["connected"], &client["host"]["arch"]), (&json!(true), &json!("web")));
    rpc.call("Client.SetVolume", &json!({ "id": "4a1c-web", "volume": { "percent": 33 } }));
    let (changed, payload) = player.next_of(kind::SERVER_SETTINGS);
    assert_eq!((changed.refers_to, &settings(&payload)["volume"]), (0, &json!(33)));

    // Another stream comes over the same connection, after its own codec header.
    rpc.call("Group.SetStream", &json!({ "id": group["id"], "stream_id": "second" }));
    let (_, header) = player.next_of(kind::CODEC_HEADER);
    assert_eq!(&header[4..7], b"pcm");
    continuous(&player.chunks(50), 20_000);

    // Messages that each WebSocket must answer.
    let asked = player.send(kind::TIME, &[0; 8]);
    assert_eq!(player.next_of(kind::TIME).0.refers_to, asked);
    player.socket.send(Message::Ping(b"x"[..].into())).unwrap();
    loop {
        match player.socket.read().unwrap() {
            Message::Pong(payload) => break assert_eq!(&payload[..], b"x"),
            Message::Binary(_) => {}
            other => panic!("{other:?}"),
        }
    }
    player.socket.close(None).unwrap();
    wait_for("the end", Duration::from_secs(20), || {
        rpc.group_of("4a1c-web").unwrap()["clients"][0]["connected"] == false
    });
}

#[test]
fn a_cap_holds_for_the_clients_own_knob_and_after_a_restart() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("cap").unwrap();
    let loud = |server: &AulosServer| {
        let player = Snapweb::connect(server.http, "4a1c-cap");
        let mut rpc = Rpc::connect(server.control);
        wait_for("the client", Duration::from_secs(20), || rpc.group_of("4a1c-cap").is_some());
        (player, rpc)
    };
    let set = ["--set", "clients.initial_volume=40", "--set", "clients.volume_cap=80"];
    let config = scratch.join("aulos.toml");
    std::fs::write(&config, TWO).unwrap();
    let start = || {
        AulosServer::start_with(&scratch, |command| {
            command.arg("--config").arg(&config).args(set);
        })
        .unwrap()
    };
    let server = start();
    let (mut player, mut rpc) = loud(&server);
    let volume =
        |player: &mut Snapweb| settings(&player.next_settings())["volume"].as_u64().unwrap();
    assert_eq!(volume(&mut player), 40);
    let client = json!("4a1c-cap");
    let turn_to = |rpc: &mut Rpc, params: &serde_json::Value| {
        rpc.call("Aulos.SetVolume", params)["percent"].as_u64().unwrap()
    };
    assert_eq!(turn_to(&mut rpc, &json!({ "client": client, "percent": 95 })), 80);
    assert_eq!(volume(&mut player), 80);
    assert_eq!(
        rpc.call("Aulos.SetVolumeCap", &json!({ "client": client, "percent": 30 }))["cap"],
        30
    );
    assert_eq!(volume(&mut player), 30);
    let group = rpc.group_of("4a1c-cap").unwrap()["id"].clone();
    assert_eq!(turn_to(&mut rpc, &json!({ "group": group, "delta": -10 })), 20);
    assert_eq!(volume(&mut player), 20);
    // A volume change at the client: the server corrects it, and others are notified of the result.
    let body = json!({ "volume": 99, "muted": false }).to_string();
    let mut payload = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
    payload.extend_from_slice(body.as_bytes());
    player.send(CLIENT_INFO, &payload);
    assert_eq!(volume(&mut player), 30);
    let told = rpc.hear("Client.OnVolumeChanged");
    assert_eq!((&told["id"], &told["volume"]["percent"]), (&client, &json!(30)));
    drop((player, rpc));
    server.stop().unwrap();

    let server = start();
    let (mut player, mut rpc) = loud(&server);
    assert_eq!(volume(&mut player), 30);
    assert_eq!(turn_to(&mut rpc, &json!({ "client": client, "percent": 60 })), 30);
    server.stop().unwrap();
}

/// Settings made at the client.
const CLIENT_INFO: u16 = 7;

#[test]
fn a_websocket_violation_closes_only_that_connection() {
    use std::io::{Read as _, Write as _};
    let _turn = shared_turn();
    let scratch = ScratchDir::new("broken-ws").unwrap();
    let server = AulosServer::start(&scratch, TWO).unwrap();
    let mut good = Snapweb::connect(server.http, "good");
    let request = "GET /stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
                   Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    for bad in [
        &b"\x82\x05hello"[..],
        b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0",
        b"\x83\x80\0\0\0\0",
        b"\x82\x9a\0\0\0\0\xff\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        b"GET / HTTP/1.1\r\n\r\n",
    ] {
        let mut socket = TcpStream::connect(server.http).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.write_all(&[request.as_bytes(), bad].concat()).unwrap();
        let mut answer = Vec::new();
        // The connection may be reset with unread bytes of ours.
        drop(socket.read_to_end(&mut answer));
        assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
    }
    good.opening();
    continuous(&good.chunks(60), 20_000);
}
