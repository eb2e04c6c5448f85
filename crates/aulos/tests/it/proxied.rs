//! Clients behind a reverse proxy: their address, scheme, limits and logins.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::{ANY_PORTS, PATIENCE, Playing, Server, TWO_STATIONS, eventually, resolve};
use serde_json::{Value, json};

const PROXY: &str = "[http]\ntrusted_proxies = [\"127.0.0.0/30\"]\n";
/// As of two proxies; the first address is what the client itself has claimed.
const CLIENT: &str = "X-Forwarded-For: 127.0.0.1, 203.0.113.9, 127.0.0.2\r\n\
    X-Forwarded-Proto: https\r\n";

fn server(http: &str) -> Server {
    Server::of(resolve(&format!("{http}{TWO_STATIONS}")))
}

fn open(http: std::net::SocketAddr, first: &str, fields: &str) -> TcpStream {
    let mut socket = TcpStream::connect(http).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(socket, "{first} HTTP/1.1\r\nHost: radio.lan\r\n{fields}\r\n").unwrap();
    socket
}

fn ask(http: std::net::SocketAddr, first: &str, fields: &str) -> String {
    let mut answer = String::new();
    let fields = format!("Connection: close\r\n{fields}");
    open(http, first, &fields).read_to_string(&mut answer).unwrap();
    answer
}

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[test]
fn the_client_of_a_trusted_proxy_has_its_own_address() {
    for (config, expected) in [(PROXY, "203.0.113.9"), ("", "127.0.0.1")] {
        let server = server(config);
        let _listener = open(server.http, "GET /listen/default", CLIENT);
        let fields = format!("{UPGRADE}{CLIENT}");
        let _player = open(server.http, "GET /stream", &fields);
        let (listeners, players) = (&server.sink.0, &server.sink.1);
        eventually(|| listeners.lock().unwrap().len() + players.lock().unwrap().len() == 2);
        for sockets in [listeners, players] {
            let sockets = sockets.lock().unwrap();
            assert_eq!(sockets[0].0.address().ip().to_string(), expected);
            assert_eq!(sockets[0].0.is_https(), !config.is_empty());
        }
    }
}

#[test]
fn links_and_listeners_are_as_the_proxy_names_them() {
    let station = "[[station]]\nname = \"default\"\nsources = [\"tone://\"]\n";
    for (config, scheme) in [(PROXY, "https"), ("", "http")] {
        let server = Playing::start(resolve(&format!("{config}{ANY_PORTS}{station}")));
        let list = ask(server.http, "GET /listen/default.m3u", CLIENT);
        assert!(list.contains(&format!("\r\n{scheme}://radio.lan/listen/default")), "{list}");
        // The figures for administrators have the client's address too.
        let _listener = open(server.http, "GET /listen/default", CLIENT);
        let address = if config.is_empty() { "127.0.0.1" } else { "203.0.113.9" };
        eventually(|| {
            let clients = ask(server.http, "GET /admin/listclients?mount=/listen/default", "");
            clients.contains(&format!("<IP>{address}</IP>"))
        });
        let status = ask(server.http, "GET /status-json.xsl", CLIENT);
        assert!(status.contains(&format!("\"{scheme}://radio.lan/listen/default")), "{status}");
    }
}

#[test]
fn wrong_logins_and_connections_are_limited_for_each_client_behind_a_proxy() {
    let limits = "[limits]\nfailed_logins_per_minute = 2\nsessions_per_address = 16\n\
        [[user]]\nname = \"anna\"\npassword = \"correct horse\"\nrole = \"admin\"\n";
    let server = server(&format!("{PROXY}{limits}"));
    let status = |client: u8, login: &str| {
        let fields =
            format!("X-Forwarded-For: 203.0.113.{client}\r\nAuthorization: Bearer {login}\r\n");
        let answer = ask(server.http, "GET /api/v1/status", &fields);
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    let tries: Vec<_> = (0..4).map(|_| status(1, "wrong")).collect();
    assert_eq!(tries, ["401", "401", "429", "429"]);
    assert_eq!(status(2, "wrong"), "401", "another client has its own tries");
    // Idle WebSockets hold their permits.
    let fields = format!("X-Forwarded-For: 203.0.113.3\r\n{UPGRADE}");
    let head = |fields: &str| {
        let mut socket = open(server.http, "GET /jsonrpc", fields);
        let mut head = [0; 12];
        socket.read_exact(&mut head).unwrap();
        (String::from_utf8_lossy(&head).into_owned(), socket)
    };
    let held: Vec<_> = (0..16).map(|_| head(&fields)).collect();
    assert!(held.iter().all(|(head, _)| head == "HTTP/1.1 101"), "{held:?}");
    assert_eq!(head(&fields).0, "HTTP/1.1 429");
    assert_eq!(head(&fields.replace(".3\r\n", ".4\r\n")).0, "HTTP/1.1 101");
}

#[test]
fn a_client_behind_a_local_proxy_is_no_caller_on_this_machine() {
    // Such a caller may name a control script; the answer to another one names the reason.
    let streams = "[streams]\nplugins_by_rpc = true\n";
    let server = server(&format!("{PROXY}{streams}"));
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "Stream.AddStream", "params":
        { "streamUri": "tcp://127.0.0.1:0?name=x&controlscript=none.py" } });
    let mut texts = Vec::new();
    for fields in ["", CLIENT] {
        let body = call.to_string();
        let fields = format!("{fields}Content-Length: {}\r\n\r\n{body}", body.len());
        let answer = ask(server.http, "POST /jsonrpc", &fields);
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let answer: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
        texts.push(answer["error"].to_string());
    }
    assert_ne!(texts[0], texts[1]);
    assert!(texts[1].contains("this machine"), "{texts:?}");
}
