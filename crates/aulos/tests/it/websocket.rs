//! Web sockets: control at `/jsonrpc`, the handshake of `/stream`, and who may not.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::common::{PATIENCE, Server, eventually, resolve};
use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

fn connect(server: &Server, path: &str, header: &str) -> Result<WebSocket<TcpStream>, String> {
    open(server.http, path, header)
}

/// A WebSocket at an HTTP port, with a header of its own, or the status of the refusal.
pub(crate) fn open(
    http: SocketAddr,
    path: &str,
    header: &str,
) -> Result<WebSocket<TcpStream>, String> {
    let socket = TcpStream::connect(http).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut request = tungstenite::http::Request::builder()
        .uri(format!("ws://{http}{path}"))
        .header("Host", http.to_string())
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    if let Some((name, value)) = header.split_once(": ") {
        request.headers_mut().unwrap().insert(
            tungstenite::http::HeaderName::from_bytes(name.as_bytes()).unwrap(),
            value.parse().unwrap(),
        );
    }
    tungstenite::client(request.body(()).unwrap(), socket)
        .map(|(socket, _)| socket)
        .map_err(|error| error.to_string())
}

pub(crate) fn message(socket: &mut WebSocket<TcpStream>) -> Value {
    match socket.read().unwrap() {
        Message::Text(text) => serde_json::from_str(&text).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn call(socket: &mut WebSocket<TcpStream>, method: &str, params: &Value) -> Value {
    let call = json!({ "jsonrpc": "2.0", "id": "x", "method": method, "params": params });
    socket.send(Message::text(call.to_string())).unwrap();
    message_with(socket, |message| message.get("id").is_some())
}

/// The next message that is the wanted one.
fn message_with(socket: &mut WebSocket<TcpStream>, is_wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let message = message(socket);
        if is_wanted(&message) {
            return message;
        }
    }
}

#[test]
fn a_websocket_controller_calls_and_gets_notifications() {
    let server = Server::start();
    server.hello(1, "a");
    let mut socket = connect(&server, "/jsonrpc", "").unwrap();
    let status = call(&mut socket, "Server.GetStatus", &json!({}));
    assert_eq!(status["result"]["server"]["streams"][0]["id"], "default");
    let mut other = server.controller();
    other.call("Client.SetVolume", json!({ "id": "a", "volume": { "percent": 12 } }));
    // What the player's arrival and reports change comes as notifications too.
    let notice = message_with(&mut socket, |message| message["method"] == "Client.OnVolumeChanged");
    assert_eq!(notice["params"]["volume"]["percent"], 12);
    call(&mut socket, "Client.SetName", &json!({ "id": "a", "name": "Küche" }));
    assert_eq!(other.notice_of("Client.OnNameChanged")["params"]["name"], "Küche");
    // And a batch is one message.
    let one = json!({ "jsonrpc": "2.0", "id": 1, "method": "Server.GetRPCVersion" });
    socket.send(Message::text(json!([one, one]).to_string())).unwrap();
    let batch = message_with(&mut socket, Value::is_array);
    assert_eq!(batch.as_array().unwrap().len(), 2);
}

#[test]
fn an_endless_call_ends_the_connection() {
    let server = Server::start();
    let mut socket = connect(&server, "/jsonrpc", "").unwrap();
    // The server may close before all of it is written.
    socket.send(Message::text("x".repeat(300_000))).ok();
    let end = socket.read();
    assert!(matches!(end, Ok(Message::Close(_)) | Err(_)), "{end:?}");
    assert!(server.controller().call("Server.GetRPCVersion", json!({}))["result"].is_object());
}

#[test]
fn a_websocket_player_is_handed_over_with_all_bytes_read() {
    let server = Server::start();
    let mut socket = TcpStream::connect(server.http).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = "GET /stream HTTP/1.1\r\nHost: localhost:1780\r\nConnection: keep-alive, Upgrade\r\n\
                   Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nframes";
    socket.write_all(request.as_bytes()).unwrap();
    eventually(|| server.sink.1.lock().unwrap().len() == 1);
    let (theirs, mut read) = server.sink.1.lock().unwrap().remove(0);
    assert_eq!(theirs.address(), socket.local_addr().unwrap());
    let mut theirs = theirs.into_socket();
    theirs.set_nonblocking(false).unwrap();
    while read.len() < 6 {
        let mut block = [0; 16];
        let count = theirs.read(&mut block).unwrap();
        read.extend_from_slice(&block[..count]);
    }
    assert_eq!(read, b"frames");
    theirs.write_all(b"\x82\x05sound").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\x82\x05sound") {
        let mut block = [0; 256];
        let count = socket.read(&mut block).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&block[..count]);
    }
    let head = String::from_utf8_lossy(&answer).to_lowercase();
    assert!(head.starts_with("http/1.1 101"), "{head}");
    // The example of RFC 6455, 1.3.
    assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
}

#[test]
fn foreign_pages_are_rejected_on_both_websockets() {
    let server = Server::start();
    for path in ["/jsonrpc", "/stream"] {
        let refused = connect(&server, path, "Origin: http://evil.example").unwrap_err();
        assert!(refused.contains("403"), "{path}: {refused}");
        let refused = connect(&server, path, "Host: evil.example").unwrap_err();
        assert!(refused.contains("421"), "{path}: {refused}");
    }
    let text = format!("[http]\nnames = [\"Radio.example\"]\n{}", crate::common::TWO_STATIONS);
    let server = Server::of(resolve(&text));
    connect(&server, "/jsonrpc", "Origin: https://radio.example").unwrap();
    let counters = server.controller().call("Aulos.GetStatus", json!({}))["result"].clone();
    assert_eq!(counters["counters"]["http_cross_site"], 0);
}

#[test]
fn an_invalid_handshake_gets_an_error() {
    let server = Server::start();
    for (path, wanted) in [("/stream", "426"), ("/jsonrpc", "405")] {
        let mut socket = TcpStream::connect(server.http).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {wanted}")), "{path}: {answer}");
    }
}

#[test]
fn a_folder_is_served_and_nothing_outside_of_it() {
    let folder = crate::common::scratch();
    let root = folder.join("www");
    std::fs::create_dir_all(root.join("sub")).unwrap();
    std::fs::write(root.join("index.html"), "<p>snapweb").unwrap();
    std::fs::write(root.join("app.js"), "1").unwrap();
    std::fs::write(root.join("a.wasm"), "2").unwrap();
    std::fs::write(folder.join("secret.txt"), "secret").unwrap();
    let root = root.display();
    let text = format!("[http]\ndoc_root = \"{root}\"\n{}", crate::common::TWO_STATIONS);
    let server = Server::of(resolve(&text));
    let get = |path: &str| {
        let mut socket = TcpStream::connect(server.http).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer.to_lowercase()
    };
    for (path, kind) in
        [("/", "text/html"), ("/app.js", "text/javascript"), ("/a.wasm", "application/wasm")]
    {
        let answer = get(path);
        assert!(answer.starts_with("http/1.1 200"), "{path}: {answer}");
        assert!(answer.contains(&format!("content-type: {kind}")), "{path}: {answer}");
    }
    assert!(get("/").contains("snapweb") && get("/aulos").contains("<html"));
    for path in [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/sub/../../secret.txt",
        "//etc/passwd",
        "/%5c..%5csecret.txt",
        "/sub/",
        "/nope",
    ] {
        let answer = get(path);
        assert!(!answer.contains("200 ok") && !answer.contains("secret\n"), "{path}: {answer}");
        assert!(!answer.contains("app.js"), "a listing: {answer}");
    }
}
