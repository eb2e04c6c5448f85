//! Users, roles and TLS on the ports of the control plane, as those see them who come in.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{PATIENCE, Server, TWO_STATIONS, eventually, hello, resolve, scratch};
use aulos_control::backend::{KickReason, ReactorEvent, SessionCommand, SessionId};
use aulos_proto::snap::wire::Auth;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

const USERS: &str = r#"
[[user]]
name = "kitchen"
role = "listen"
password = "a kitchen password"
[[user]]
name = "board"
role = "control"
token = "a token of a board"
[[user]]
name = "anna"
role = "admin"
password = "anna's password"
"#;

fn closed(more: &str) -> Server {
    Server::of(resolve(&format!("{TWO_STATIONS}{USERS}{more}")))
}

/// One line out, the next answer in; what else comes is counted.
struct Line<S> {
    socket: S,
    read: Vec<u8>,
    notices: usize,
}

impl<S: Read + Write> Line<S> {
    fn new(socket: S) -> Self {
        Self { socket, read: Vec::new(), notices: 0 }
    }

    /// The code of the error, 0 where there is none; none where the server hung up.
    fn code(&mut self, method: &str, params: &Value) -> Option<i64> {
        let answer = self.call(method, params)?;
        Some(answer["error"]["code"].as_i64().unwrap_or(0))
    }

    fn call(&mut self, method: &str, params: &Value) -> Option<Value> {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        write!(self.socket, "{call}\r\n").ok()?;
        self.socket.flush().ok()?;
        loop {
            let line = self.line()?;
            if line.get("id").is_some() {
                return Some(line);
            }
            self.notices += 1;
        }
    }

    fn line(&mut self) -> Option<Value> {
        let mut block = [0; 4_096];
        loop {
            if let Some(at) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=at).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let count = self.socket.read(&mut block).ok().filter(|count| *count > 0)?;
            self.read.extend_from_slice(&block[..count]);
        }
    }
}

fn plain(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// A connection to a server whose own certificate has been pinned.
fn secure(
    address: SocketAddr,
    certificate: &Path,
    own: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key).unwrap(),
    };
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), plain(address))
}

fn secure_to(server: &Server, address: SocketAddr) -> StreamOwned<ClientConnection, TcpStream> {
    secure(address, &server.state_dir.join("tls/cert.pem"), None)
}

fn counter(server: &Server, name: &str) -> u64 {
    let mut line = Line::new(plain(server.control));
    line.call(
        "Server.Authenticate",
        &json!({ "scheme": "Plain", "param": "anna:anna's password" }),
    );
    let status = line.call("Aulos.GetStatus", &json!({})).unwrap();
    status["result"]["counters"][name].as_u64().unwrap_or_else(|| panic!("{name}: {status}"))
}

fn http(mut socket: impl Read + Write, request: &str) -> (u16, String) {
    let request = request.replacen("\r\n", "\r\nHost: x\r\nConnection: close\r\n", 1);
    socket.write_all(request.as_bytes()).unwrap();
    socket.flush().unwrap();
    let mut answer = Vec::new();
    // TLS is not always closed in good order by who is cut.
    drop(socket.read_to_end(&mut answer));
    let text = String::from_utf8_lossy(&answer).into_owned();
    let code = text.split(' ').nth(1).and_then(|code| code.parse().ok());
    (code.unwrap_or_else(|| panic!("no answer: {text:?}")), text)
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\n{headers}\r\n")
}

const BASIC_KITCHEN: &str = "Authorization: Basic a2l0Y2hlbjphIGtpdGNoZW4gcGFzc3dvcmQ=\r\n";
const BASIC_WRONG: &str = "Authorization: Basic a2l0Y2hlbjp3cm9uZw==\r\n";
const BEARER_BOARD: &str = "Authorization: Bearer a token of a board\r\n";

#[test]
fn one_port_speaks_both_and_the_certificate_can_be_pinned() {
    let server = Server::start();
    let mut safe = Line::new(secure_to(&server, server.control));
    let mut bare = Line::new(plain(server.control));
    for method in ["Server.GetStatus", "Aulos.GetStatus"] {
        assert_eq!(safe.code(method, &json!({})), Some(0));
        assert_eq!(bare.code(method, &json!({})), Some(0));
    }
    // What one changes the other hears.
    server.hello(1, "a");
    bare.call("Client.SetVolume", &json!({ "id": "a", "volume": { "percent": 7 } }));
    eventually(|| {
        safe.call("Server.GetRPCVersion", &json!({})).unwrap();
        safe.notices > 0
    });
    let (code, _) = http(secure_to(&server, server.http), &get("/healthz", ""));
    assert_eq!((code, http(plain(server.http), &get("/healthz", "")).0), (200, 200));
    // Two megabytes in one answer: more than TLS holds at once.
    let mut big = Line::new(secure_to(&server, server.control));
    let one = json!({ "jsonrpc": "2.0", "id": 1, "method": "General.GetRPCCommands" });
    write!(big.socket, "{}\r\n", Value::from(vec![one; 256])).unwrap();
    assert_eq!(big.line().unwrap().as_array().unwrap().len(), 256);
}

#[test]
fn a_silent_controller_gets_notifications() {
    let server = Server::start();
    let mut watcher = Line::new(plain(server.control));
    let notice = std::thread::spawn(move || watcher.line());
    // The server may accept it later than it hears of the first clients.
    for number in 1.. {
        if notice.is_finished() {
            break;
        }
        server.hello(number, &format!("client {number}"));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(notice.join().unwrap().expect("a notification")["method"].is_string());
}

#[test]
fn listeners_and_players_are_handed_over_with_their_tls() {
    let server = Server::start();
    let mut listener = secure_to(&server, server.http);
    listener.write_all(get("/listen/default", "Host: x\r\n").as_bytes()).unwrap();
    listener.flush().unwrap();
    eventually(|| server.sink.0.lock().unwrap().len() == 1);
    let (socket, read) = server.sink.0.lock().unwrap().remove(0);
    assert!(socket.is_tls() && read.starts_with(b"GET /listen/default"));
    socket.respond_and_close(b"sound");
    let mut sound = Vec::new();
    listener.read_to_end(&mut sound).unwrap();
    assert_eq!(sound, b"sound");
    let mut player = secure_to(&server, server.http);
    let upgrade = "Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    player.write_all(get("/stream", upgrade).as_bytes()).unwrap();
    player.flush().unwrap();
    eventually(|| server.sink.1.lock().unwrap().len() == 1);
    let (socket, _) = server.sink.1.lock().unwrap().remove(0);
    assert!(socket.is_tls() && socket.is_authorized());
}

#[test]
fn where_tls_is_required_plain_http_gets_the_reason_and_nothing_else() {
    let server = Server::of(resolve(&format!("{TWO_STATIONS}[tls]\nrequire = true")));
    assert_eq!(Line::new(plain(server.control)).code("Server.GetStatus", &json!({})), None);
    // A long request is refused in the same way: unread bytes would reset the connection.
    for fields in ["Host: x\r\n", &format!("Host: x\r\nCookie: {}\r\n", "x".repeat(20_000))] {
        let mut socket = plain(server.http);
        socket.write_all(get("/healthz", fields).as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nthis port requires TLS; use https://\n"), "{answer}");
    }
    let mut safe = Line::new(secure_to(&server, server.control));
    eventually(|| {
        let status = safe.call("Aulos.GetStatus", &json!({})).unwrap();
        status["result"]["counters"]["control_refused_plain"] == 3
    });
}

#[test]
fn invalid_tls_is_closed_and_counted() {
    let server = Server::start();
    for address in [server.control, server.http] {
        let mut socket = plain(address);
        socket.write_all(&[&[0x16, 3, 1, 2, 0], &[0xA5; 512][..]].concat()).unwrap();
        let mut alert = Vec::new();
        drop(socket.read_to_end(&mut alert));
        // Nothing but an alert (RFC 8446, 6).
        assert!(alert.is_empty() || alert[0] == 0x15, "{alert:?}");
    }
    eventually(|| counter(&server, "control_cut_tls_failed") == 2);
}

#[test]
fn a_login_grants_the_rights_of_its_role_and_notifications() {
    let server = closed("");
    server.event(hello_from(1, "a", Some(("Plain", "kitchen:a kitchen password")), false));
    let mut line = Line::new(plain(server.control));
    let volume = json!({ "id": "a", "volume": { "percent": 9 } });
    assert_eq!(line.code("Server.GetRPCVersion", &json!({})), Some(0));
    assert_eq!(line.code("Server.GetStatus", &json!({})), Some(401));
    assert_eq!(line.code("No.Such", &json!({})), Some(-32_601));
    let login = |line: &mut Line<TcpStream>, scheme: &str, param: &str| {
        line.code("Server.Authenticate", &json!({ "scheme": scheme, "param": param }))
    };
    assert_eq!(login(&mut line, "Plain", "kitchen:wrong"), Some(401));
    assert_eq!(login(&mut line, "Plain", "board:a token of a board"), Some(401));
    assert_eq!(line.code("Server.GetStatus", &json!({})), Some(401));
    let mut board = Line::new(plain(server.control));
    assert_eq!(login(&mut board, "Bearer", "a token of a board"), Some(0));
    assert_eq!(board.code("Client.SetVolume", &volume), Some(0));
    assert_eq!(board.code("Server.DeleteClient", &json!({ "id": "a" })), Some(403));
    assert_eq!(line.notices, 0, "a stranger hears nothing");
    assert_eq!(login(&mut line, "Plain", "kitchen:a kitchen password"), Some(0));
    assert_eq!(line.code("Server.GetStatus", &json!({})), Some(0));
    assert_eq!(line.code("Client.SetVolume", &volume), Some(403));
    let commands = line.call("General.GetRPCCommands", &json!({})).unwrap();
    let allowed = commands["result"]["commands"].as_array().unwrap().iter();
    let allowed = allowed.filter(|command| command["hasPermission"] == true).count();
    assert_eq!(allowed, 23, "five for everyone, eighteen for listeners");
    board.call("Client.SetVolume", &json!({ "id": "a", "volume": { "percent": 8 } }));
    eventually(|| {
        line.call("Server.GetRPCVersion", &json!({})).unwrap();
        line.notices > 0
    });
    assert_eq!(counter(&server, "logins_failed"), 2);
}

/// Before a login there is little to ask, and no way to ask it a thousand times.
#[test]
fn calls_before_a_login_are_limited() {
    let server = closed("");
    let login = json!({ "scheme": "Plain", "param": "anna:anna's password" });
    let version = json!({ "jsonrpc": "2.0", "id": 1, "method": "Server.GetRPCVersion" });
    // No lists.
    let mut line = Line::new(plain(server.control));
    write!(line.socket, "{}\r\n", Value::from(vec![version.clone(); 100])).unwrap();
    let answer = line.line().unwrap();
    assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(401), &Value::Null), "{answer}");
    // Few calls, one after the other.
    let mut refused = 0;
    for number in 0..64 {
        let code = line.code("General.GetRPCCommands", &json!({})).unwrap();
        assert!(code == 0 || (code == 403 && number >= 16), "call {number}: {code}");
        refused += u64::from(code == 403);
    }
    assert!(refused > 0, "64 calls without a login");
    // They come back with time, and a login works as before.
    eventually(|| {
        let code = line.code("Server.Authenticate", &login);
        refused += u64::from(code == Some(403));
        code == Some(0)
    });
    assert!((0..64).all(|_| line.code("General.GetRPCCommands", &json!({})) == Some(0)));
    write!(line.socket, "{}\r\n", Value::from(vec![version; 256])).unwrap();
    assert_eq!(line.line().unwrap().as_array().unwrap().len(), 256);
    assert_eq!(counter(&server, "calls_refused_before_login"), 1 + refused);
}

#[test]
fn a_line_is_short_before_a_login_and_long_behind_it() {
    let server = closed("");
    let login = json!({ "scheme": "Plain", "param": "anna:anna's password" });
    let long = json!({ "scheme": "Plain", "param": "x".repeat(200_000) });
    let mut line = Line::new(plain(server.control));
    assert_eq!(line.code("Server.Authenticate", &login), Some(0));
    assert_eq!(line.code("Server.Authenticate", &long), Some(401));
    let mut line = Line::new(plain(server.control));
    assert_eq!(line.code("Server.Authenticate", &long), None, "it is cut");
    assert_eq!(counter(&server, "controllers_cut_long_line"), 1);
}

#[test]
fn http_requires_a_login_and_applies_its_role() {
    let server = closed("");
    let ask = |path: &str, headers: &str| http(plain(server.http), &get(path, headers));
    for path in ["/", "/aulos", "/api/v1/status", "/api/v1/events", "/listen/default", "/nothing"] {
        let (code, text) = ask(path, "");
        assert_eq!(code, 401, "{path}");
        assert!(text.to_lowercase().contains("www-authenticate: basic realm=\"aulos\""), "{text}");
        assert_eq!(ask(path, BASIC_WRONG).0, 401, "{path}");
    }
    assert_eq!(ask("/healthz", "").0, 200);
    assert_eq!((ask("/login", "").0, ask("/login", BASIC_KITCHEN).0), (401, 303));
    assert_eq!(ask("/api/v1/status", BASIC_KITCHEN).0, 200);
    assert_eq!(ask("/", BEARER_BOARD).0, 200);
    // Addresses of listeners are for administrators.
    assert_eq!(ask("/status-json.xsl", BASIC_KITCHEN).0, 200);
    assert_eq!((ask("/admin/stats", "").0, ask("/admin/stats", BASIC_KITCHEN).0), (401, 403));
    for path in ["/admin/stats", "/api/v1/configuration", "/api/v1/diagnostics"] {
        for login in [BASIC_KITCHEN, BEARER_BOARD] {
            assert_eq!(ask(path, login).0, 403, "{path}");
        }
        assert_eq!(ask(path, BASIC_WRONG).0, 401, "{path}");
    }
    assert!(server.sink.0.lock().unwrap().is_empty());
    let mut listener = plain(server.http);
    let request = get("/listen/default", &format!("Host: x\r\n{BASIC_KITCHEN}"));
    // It comes in pieces, and the name is in the last of them.
    for part in request.as_bytes().chunks(40) {
        listener.write_all(part).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    eventually(|| server.sink.0.lock().unwrap().len() == 1);
    let post = |headers: &str, method: &str| {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": {} }).to_string();
        let length = call.len();
        let head = format!("POST /jsonrpc HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\r\n");
        http(plain(server.http), &(head + &call))
    };
    for method in ["Server.GetStatus", "Aulos.SavePreset", "Aulos.Reload", "Nope"] {
        assert_eq!(post("", method).0, 401, "{method}");
    }
    for method in
        ["Aulos.GetInfo", "Server.GetRPCVersion", "General.GetRPCCommands", "rpc.discover"]
    {
        let (code, text) = post("", method);
        assert!(code == 200 && text.contains("\"result\""), "{method}: {text:.200}");
        assert_eq!(post(BASIC_WRONG, method).0, 401, "{method}");
    }
    assert!(post(BASIC_KITCHEN, "Server.GetStatus").1.contains("\"result\""));
    assert!(post(BASIC_KITCHEN, "Aulos.Reload").1.contains("403"));
    assert!(post(BEARER_BOARD, "Aulos.Reload").1.contains("403"));
}

#[test]
fn web_sockets_log_in_by_their_request_or_by_a_call() {
    let server = closed("");
    let connect = |path: &str, headers: &str| {
        let upgrade = "Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        let mut socket = plain(server.http);
        socket.write_all(get(path, &format!("{upgrade}{headers}")).as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let code = String::from_utf8(head).unwrap().split(' ').nth(1).unwrap().to_owned();
        let role = tungstenite::protocol::Role::Client;
        (code, tungstenite::WebSocket::from_raw_socket(socket, role, None))
    };
    let call = |socket: &mut tungstenite::WebSocket<TcpStream>, method: &str, params: Value| {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        socket.send(tungstenite::Message::text(call.to_string())).unwrap();
        let answer = socket.read().unwrap().into_text().unwrap();
        serde_json::from_str::<Value>(&answer).unwrap()["error"]["code"].as_i64().unwrap_or(0)
    };
    let (code, mut stranger) = connect("/jsonrpc", "");
    assert_eq!(code, "101");
    assert_eq!(call(&mut stranger, "Server.GetStatus", json!({})), 401);
    let login = json!({ "scheme": "Basic", "param": "a2l0Y2hlbjphIGtpdGNoZW4gcGFzc3dvcmQ=" });
    assert_eq!(call(&mut stranger, "Server.Authenticate", login), 0);
    assert_eq!(call(&mut stranger, "Server.GetStatus", json!({})), 0);
    let (_, mut board) = connect("/jsonrpc", BEARER_BOARD);
    assert_eq!(call(&mut board, "Aulos.SavePreset", json!({ "name": "x" })), 0);
    assert_eq!(connect("/jsonrpc", BASIC_WRONG).0, "401");
    assert_eq!(connect("/stream", BASIC_WRONG).0, "401");
    for (headers, vouched) in [("", false), (BASIC_KITCHEN, true)] {
        assert_eq!(connect("/stream", headers).0, "101");
        eventually(|| server.sink.1.lock().unwrap().len() == 1);
        assert_eq!(server.sink.1.lock().unwrap().remove(0).0.is_authorized(), vouched);
    }
}

fn hello_from(session: u64, id: &str, auth: Option<(&str, &str)>, vouched: bool) -> ReactorEvent {
    let mut event = hello(session, id);
    let ReactorEvent::Hello { hello, authorized, .. } = &mut event else { panic!() };
    let owned = |(scheme, param): (&str, &str)| (scheme.to_owned(), param.to_owned());
    hello.auth = auth.map(owned).map(|(scheme, param)| Auth { scheme, param });
    *authorized = vouched;
    event
}

#[test]
fn a_player_must_authenticate() {
    let server = closed("[limits]\nfailed_logins_per_minute = 2");
    let right = Some(("Plain", "kitchen:a kitchen password"));
    let wrong = Some(("Plain", "kitchen:guess"));
    let answer = |session: u64, auth, vouched| {
        server.event(hello_from(session, &format!("c{session}"), auth, vouched));
        let mut found = None;
        eventually(|| {
            let commands = server.backend.commands.lock().unwrap();
            let ours = |command: &&SessionCommand| command.session() == SessionId(session);
            found = commands.iter().find(ours).cloned();
            found.is_some()
        });
        match found.unwrap() {
            SessionCommand::Kick { cause, .. } => Err(cause),
            _ => Ok(()),
        }
    };
    assert_eq!(answer(1, None, false), Err(KickReason::Unauthorized));
    assert_eq!(answer(2, right, false), Ok(()));
    assert_eq!(answer(3, None, true), Ok(()));
    assert_eq!(answer(4, wrong, false), Err(KickReason::Unauthorized));
    // A wrong password is refused, also on a preauthenticated connection.
    assert_eq!(answer(5, wrong, true), Err(KickReason::Unauthorized));
    // All come from one address, and that has guessed twice.
    assert_eq!(answer(6, right, false), Err(KickReason::RateLimited));
    assert_eq!(answer(7, None, true), Ok(()));
    assert_eq!((counter(&server, "logins_failed"), counter(&server, "logins_slowed")), (2, 1));
}

#[test]
fn a_client_certificate_grants_the_role_of_its_user() {
    let dir = scratch();
    let make = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        (certificate, PrivateKeyDer::Pkcs8(key.serialize_der().into()))
    };
    let pem = |certificate: &CertificateDer<'_>| {
        use base64::Engine as _;
        let text = base64::prelude::BASE64_STANDARD.encode(certificate);
        format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
    };
    let (anna, other) = (make("anna"), make("somebody"));
    let ca = dir.join("clients.pem");
    std::fs::write(&ca, pem(&anna.0) + &pem(&other.0)).unwrap();
    let tls = format!("[tls]\nclient_ca = \"{}\"\nclient_role = \"listen\"", ca.display());
    let server = closed(&tls);
    let pinned = server.state_dir.join("tls/cert.pem");
    let code = |own, method: &str| {
        Line::new(secure(server.control, &pinned, own)).code(method, &json!({}))
    };
    let copy = |(certificate, key): &(CertificateDer<'static>, PrivateKeyDer<'static>)| {
        Some((certificate.clone(), key.clone_key()))
    };
    assert_eq!(code(copy(&anna), "Aulos.Reload"), Some(0));
    assert_eq!(code(copy(&other), "Server.GetStatus"), Some(0));
    assert_eq!(code(copy(&other), "Aulos.Reload"), Some(403));
    assert_eq!(code(None, "Server.GetStatus"), Some(401));
    assert_eq!(code(Some(make("anna")), "Server.GetStatus"), None, "no certificate proves it");
    let (code, _) = http(secure(server.http, &pinned, copy(&other)), &get("/api/v1/status", ""));
    assert_eq!(code, 200);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn an_old_connection_loses_rights_when_users_are_configured() {
    let server = Server::start();
    let mut browser = plain(server.http);
    let mut ask = || {
        browser.write_all(get("/api/v1/status", "Host: x\r\n").as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            browser.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.split("content-length: ").nth(1).unwrap().split('\r').next().unwrap();
        browser.read_exact(&mut vec![0; length.parse().unwrap()]).unwrap();
        head.split(' ').nth(1).unwrap().to_owned()
    };
    let mut watcher = plain(server.http);
    watcher.write_all(get("/api/v1/events", "Host: x\r\n").as_bytes()).unwrap();
    assert_eq!(ask(), "200");
    let mut line = Line::new(plain(server.control));
    assert_eq!(line.code("Server.GetStatus", &json!({})), Some(0));
    let mut next = resolve(&format!("{TWO_STATIONS}{USERS}"));
    next.state_dir.clone_from(&server.state_dir);
    *server.next.lock().unwrap() = Ok(next);
    server.hang_up();
    // What shows the page's events ends, and with it what is under way to it.
    let mut events = Vec::new();
    while !events.ends_with(b"\r\n0\r\n\r\n") {
        let mut block = [0; 4_096];
        let count = watcher.read(&mut block).unwrap();
        events.extend_from_slice(&block[..count]);
    }
    assert_eq!(line.code("Server.GetStatus", &json!({})), None);
    assert_eq!(ask(), "401");
}

#[test]
fn a_reload_applies_users_and_certificates() {
    let server = closed("");
    let pinned = server.state_dir.join("tls/cert.pem");
    let mut line = Line::new(secure_to(&server, server.control));
    let login = |password: &str| json!({ "scheme": "Plain", "param": format!("anna:{password}") });
    assert_eq!(line.code("Server.Authenticate", &login("anna's password")), Some(0));
    let changed = USERS.replace("anna's password", "another password");
    let mut next = resolve(&format!("{TWO_STATIONS}{changed}"));
    next.state_dir.clone_from(&server.state_dir);
    *server.next.lock().unwrap() = Ok(next);
    // A new certificate under the same name, as those have it that end every few months.
    let before = std::fs::read(&pinned).unwrap();
    std::fs::remove_dir_all(server.state_dir.join("tls")).unwrap();
    let answer = line.call("Aulos.Reload", &json!({})).unwrap();
    assert_eq!(answer["result"]["settings"], json!(["access"]));
    assert_eq!(line.code("Server.GetStatus", &json!({})), None, "it is asked again");
    eventually(|| std::fs::read(&pinned).is_ok_and(|now| now != before));
    eventually(|| {
        let mut again = Line::new(secure_to(&server, server.control));
        again.code("Server.Authenticate", &login("another password")) == Some(0)
            && again.code("Server.Authenticate", &login("anna's password")) == Some(401)
    });
}

/// The list of places where text from the network is interpreted is complete only while each of its
/// checks is tested.
#[test]
fn every_row_about_text_from_the_network_names_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/explanation/security.md")).unwrap();
    let section = page.split("\n## ").find(|part| part.starts_with("Text from the network"));
    let rows = section.unwrap().lines().filter(|line| line.starts_with("| ")).skip(1);
    let mut count = 0;
    for row in rows {
        let test = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let (name, file) = test.split_once(" in ").unwrap_or_else(|| panic!("{row}"));
        let (name, file) = (name.trim_matches('`'), file.trim_matches('`'));
        let source =
            std::fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert!(source.contains(&format!("fn {name}(")), "{file} has no test `{name}`");
        count += 1;
    }
    assert!(count > 20, "{count}");
}
