//! Port 1780 as browsers, programs and strangers meet it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, Server, eventually};
use aulos_control::backend::{
    Loudness, SourceState, StationOutput, StationReport, StationState, StationStatus,
};
use aulos_core::{Db, Lufs, Span};
use serde_json::{Value, json};

fn connect(server: &Server) -> TcpStream {
    let socket = TcpStream::connect(server.http).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends a request on a connection of its own and gives head and body.
fn ask(server: &Server, request: &str) -> (String, String) {
    let mut socket = connect(server);
    let request = request.replacen(" HTTP/1.1\r\n", " HTTP/1.1\r\nConnection: close\r\n", 1);
    socket.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

fn get(server: &Server, path: &str) -> (String, String) {
    ask(server, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
}

fn post(server: &Server, headers: &str, body: &str) -> (String, String) {
    let length = body.len();
    ask(
        server,
        &format!(
            "POST /jsonrpc HTTP/1.1\r\nHost: x:1\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        ),
    )
}

#[test]
fn the_openrpc_document_is_the_same_by_a_call_and_by_an_address() {
    let server = Server::start();
    let (head, body) = get(&server, "/openrpc.json");
    assert!(head.starts_with("http/1.1 200") && head.contains("application/json"), "{head}");
    let called = post(&server, "", r#"{"jsonrpc":"2.0","id":1,"method":"rpc.discover"}"#).1;
    let called: Value = serde_json::from_str(&called).unwrap();
    let document: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(called["result"], document);
    let names = document["methods"].as_array().unwrap().iter().map(|one| one["name"].clone());
    assert!(names.into_iter().any(|name| name == "Aulos.SetSource"));
}

/// Reads up to `end`, and gives all of it; what came behind it stays in `kept` for the next time.
fn read_until(socket: &mut TcpStream, kept: &mut Vec<u8>, end: &str) -> String {
    let mut block = [0; 4_096];
    loop {
        if let Some(at) = kept.windows(end.len()).position(|found| found == end.as_bytes()) {
            let rest = kept.split_off(at + end.len());
            return String::from_utf8(std::mem::replace(kept, rest)).unwrap();
        }
        let count = socket.read(&mut block).unwrap();
        assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(kept));
        kept.extend_from_slice(&block[..count]);
    }
}

fn playing() -> StationReport {
    let mut machine = StationStatus {
        active: Some(1),
        output: StationOutput::Active(1),
        loudness: Loudness {
            measured: Span::from_millis(12_340),
            momentary: Some(Lufs::new(-18.456)),
            true_peak: Some(Db::new(-1.0)),
            ..Loudness::NONE
        },
        ..StationStatus::new(aulos_core::Instant::ZERO)
    };
    machine.inputs[1].loudness.integrated = Some(Lufs::new(-20.0));
    machine.level.channels = 2;
    machine.level.peak[0] = Db::new(-12.34);
    StationReport {
        state: StationState::Playing,
        machine,
        sources: vec![SourceState::Failed("no such file".to_owned()), SourceState::Ready],
        radios: vec![None, None],
        live_inputs: Vec::new(),
        ..StationReport::default()
    }
}

#[test]
fn the_page_runs_its_own_script_and_no_other() {
    let server = Server::start();
    for path in ["/", "/aulos"] {
        let (head, page) = get(&server, path);
        assert!(head.starts_with("http/1.1 200"), "{head}");
        for rule in ["default-src 'none'", "script-src 'self';", "style-src 'self';"] {
            assert!(head.contains(rule), "{head}");
        }
        assert!(!head.contains("unsafe") && head.contains("cache-control: no-cache"), "{head}");
        for reach_out in ["http://", "https://", "//cdn", "@import"] {
            let found = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!found.contains(reach_out), "{reach_out}");
        }
        // Every file that the page names is there, by an address relative to both paths.
        let files: Vec<&str> = page
            .split('"')
            .filter(|value| value.starts_with("aulos/") && !value.contains(' '))
            .collect();
        assert!(files.len() > 10, "{files:?}");
        for file in files {
            let (head, _) = get(&server, &format!("/{file}"));
            assert!(head.starts_with("http/1.1 200") && head.contains("etag: "), "{file}: {head}");
        }
    }
    assert!(get(&server, "/aulos/meters.js").1.contains("role=\"meter\""));
    for path in ["/aulos/nothing.js", "/aulos/../Cargo.toml", "/aulos/%2e%2e/%2e%2e/etc/passwd"] {
        assert!(get(&server, path).0.starts_with("http/1.1 404"), "{path}");
    }
}

#[test]
fn a_websocket_is_sent_what_it_subscribes_to() {
    let server = Server::start();
    *server.backend.stations.lock().unwrap() = vec![playing()];
    let url = format!("ws://{}/jsonrpc", server.http);
    let (mut socket, _) = tungstenite::client(&url, connect(&server)).unwrap();
    let mut call = |id: u64, params: Value| {
        let call =
            json!({ "jsonrpc": "2.0", "id": id, "method": "Aulos.Subscribe", "params": params });
        socket.send(tungstenite::Message::text(call.to_string())).unwrap();
        loop {
            match socket.read().unwrap() {
                tungstenite::Message::Text(text) => {
                    let answer: Value = serde_json::from_str(&text).unwrap();
                    if answer["id"] == id {
                        break answer;
                    }
                }
                other => assert!(other.is_binary(), "{other}"),
            }
        }
    };
    let answer = call(1, json!({ "meters": { "stations": ["nowhere"] } }));
    assert!(answer["error"]["data"].as_str().unwrap().contains("nowhere"), "{answer}");
    let answer = call(2, json!({ "meters": { "hz": 11 } }));
    assert!(answer["error"]["data"].as_str().unwrap().contains("meters.hz"), "{answer}");
    let answer = call(3, json!({ "status": true, "meters": { "hz": 5 } }));
    let taken = json!({ "status": true, "meters": { "stations": null, "hz": 5.0 } });
    assert_eq!(answer["result"], taken);
    let mut next = |wanted: &str| loop {
        if let tungstenite::Message::Text(text) = socket.read().unwrap() {
            let message: Value = serde_json::from_str(&text).unwrap();
            if message["method"] == wanted {
                break message["params"].clone();
            }
        }
    };
    assert_eq!(next("Aulos.OnStatus")["stations"][0]["name"], "default");
    let layout = next("Aulos.OnMeterLayout");
    assert_eq!(layout["stations"][0], json!({ "name": "default", "channels": 2 }));
    let frame = loop {
        if let tungstenite::Message::Binary(frame) = socket.read().unwrap() {
            break frame;
        }
    };
    let word = |number: usize| i16::from_le_bytes([frame[16 + 2 * number], frame[17 + 2 * number]]);
    assert_eq!((frame[0], word(0), word(14), word(15)), (1, -1_846, -1_234, i16::MIN));
    // A change of the status comes without a call.
    server.hello(1, "newcomer");
    loop {
        if let tungstenite::Message::Text(text) = socket.read().unwrap()
            && text.contains("Aulos.OnStatus")
            && text.contains("newcomer")
        {
            break;
        }
    }
    let error = server.controller().call("Aulos.Subscribe", json!({ "status": true }));
    assert!(error["error"]["data"].as_str().unwrap().contains("WebSocket"), "{error}");
}

/// A WebSocket that subscribes to the status.
fn subscribed(server: &Server) -> tungstenite::WebSocket<TcpStream> {
    let url = format!("ws://{}/jsonrpc", server.http);
    let (mut socket, _) = tungstenite::client(&url, connect(server)).unwrap();
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "Aulos.Subscribe",
        "params": { "status": true, "meters": {} } });
    socket.send(tungstenite::Message::text(call.to_string())).unwrap();
    socket
}

#[test]
fn a_page_that_reads_nothing_is_cut_and_delays_no_other() {
    let server = Server::start();
    for client in 0..500 {
        server.hello(client, &format!("client {client}"));
    }
    let mut reader = subscribed(&server);
    let stuck = [subscribed(&server), subscribed(&server), subscribed(&server)];
    let mut controller = server.controller();
    let cut = || {
        let status: Value = serde_json::from_str(&get(&server, "/api/v1/status").1).unwrap();
        status["counters"]["controllers_cut_slow"].as_u64().unwrap()
    };
    let start = Instant::now();
    let mut statuses = 0;
    for percent in (0..100).cycle() {
        let volume = json!({ "id": "client 1", "volume": { "percent": percent } });
        controller.call("Client.SetVolume", volume);
        let before = statuses;
        while before == statuses {
            if let tungstenite::Message::Text(text) = reader.read().unwrap() {
                statuses += usize::from(text.contains("Aulos.OnStatus"));
            }
        }
        if statuses % 20 == 0 && cut() >= stuck.len() as u64 {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(90), "{} of {} cut", cut(), stuck.len());
    }
    assert!(start.elapsed() > Duration::from_secs(9), "cut after {:?}", start.elapsed());
    assert!(statuses > 50, "{statuses} statuses in {:?}", start.elapsed());
}

#[test]
fn the_status_has_stations_sources_levels_and_clients() {
    let server = Server::start();
    server.hello(1, "a");
    *server.backend.stations.lock().unwrap() = vec![playing()];
    let (head, body) = get(&server, "/api/v1/status");
    assert!(head.contains("application/json") && head.contains("nosniff"), "{head}");
    let status: Value = serde_json::from_str(&body).unwrap();
    let station = &status["stations"][0];
    assert_eq!(station["name"], "default");
    assert_eq!((&station["state"], &station["active"]), (&json!("playing"), &json!("demo")));
    assert_eq!(station["levels_dbfs"], json!([-12.3, null]));
    let loudness = &station["loudness"];
    assert_eq!(
        (&loudness["momentary_lufs"], &loudness["measured_s"]),
        (&json!(-18.46), &json!(12.3))
    );
    assert_eq!(
        (&loudness["true_peak_dbtp"], &loudness["integrated_lufs"]),
        (&json!(-1.0), &Value::Null)
    );
    assert_eq!(station["sources"][0]["loudness"]["integrated_lufs"], Value::Null);
    assert_eq!(station["sources"][1]["loudness"]["integrated_lufs"], -20.0);
    assert_eq!(station["sources"][0]["reason"], "no such file");
    assert_eq!((&station["codec"], &station["spec"]), (&json!("flac"), &json!("48000:16:2")));
    assert_eq!(station["clients"][0]["id"], "a");
    assert_eq!(status["stations"][1]["state"], "stopped");
    assert_eq!(status["counters"]["fake"], 1);
    assert!(status["uptime_s"].is_u64() && status["version"].is_string());
    assert_eq!(get(&server, "/healthz").1, "ok\n");
    assert!(get(&server, "/nothing").0.starts_with("http/1.1 404"));
    assert!(ask(&server, "DELETE / HTTP/1.1\r\nHost: x\r\n\r\n").0.starts_with("http/1.1 405"));
}

/// Widgets and exporters read it: one source is an object, several are a list.
#[test]
fn icecasts_status_has_the_stations_as_its_sources() {
    let server = Server::start();
    let read = |path: &str| -> Value {
        let (head, body) = get(&server, path);
        assert!(head.contains("content-type: application/json"), "{head}");
        serde_json::from_str(&body).unwrap()
    };
    let stats = read("/status-json.xsl")["icestats"].clone();
    assert!(stats["server_id"].as_str().unwrap().starts_with("aulos"), "{stats}");
    assert!(stats["server_start"].as_str().unwrap().ends_with(" +0000"), "{stats}");
    assert!(stats["server_start_iso8601"].as_str().unwrap().ends_with("+0000"), "{stats}");
    let sources = stats["source"].as_array().unwrap();
    assert!(sources.len() > 1, "{stats}");
    let url = sources[0]["listenurl"].as_str().unwrap();
    let mount = url.strip_prefix("http://x").unwrap();
    let one = read(&format!("/status-json.xsl?mount={mount}"))["icestats"]["source"].clone();
    assert_eq!(one, sources[0]);
    assert_eq!((&one["server_type"], &one["samplerate"]), (&json!("audio/flac"), &json!(48_000)));
    assert_eq!((&one["channels"], &one["dummy"]), (&json!(2), &Value::Null));
    for text in ["server_name", "stream_start", "stream_start_iso8601", "title"] {
        assert!(one[text].is_string(), "{text}: {one}");
    }
    assert!(one["listeners"].is_u64(), "{one}");
    assert_eq!(read("/status-json.xsl?mount=/x")["icestats"].get("source"), None);
}

#[test]
fn calls_are_answered_and_those_from_another_site_are_not() {
    let server = Server::start();
    server.hello(1, "a");
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"Server.GetRPCVersion"}"#;
    for ours in ["", "Origin: http://x:1\r\n", "Sec-Fetch-Site: same-origin\r\n"] {
        let (head, body) = post(&server, ours, call);
        assert!(head.starts_with("http/1.1 200"), "{ours}: {head}");
        assert!(body.contains("\"major\":23"), "{body}");
    }
    for theirs in
        ["Origin: http://evil.example\r\n", "Origin: null\r\n", "Sec-Fetch-Site: cross-site\r\n"]
    {
        assert!(post(&server, theirs, call).0.starts_with("http/1.1 403"), "{theirs}");
    }
    let mut other = server.controller();
    other.call("Server.GetRPCVersion", json!({}));
    let set = r#"{"jsonrpc":"2.0","method":"Client.SetVolume","params":{"id":"a","volume":{"percent":5}}}"#;
    assert!(post(&server, "", set).0.starts_with("http/1.1 204"));
    assert_eq!(other.notice_of("Client.OnVolumeChanged")["params"]["volume"]["percent"], 5);
    let (head, body) = post(&server, "", "{");
    assert!(head.starts_with("http/1.1 200") && body.contains("-32700"), "{head} {body}");
    assert!(post(&server, "", &"x".repeat(300_000)).0.starts_with("http/1.1 413"));
}

/// What a browser sends for a page of another site without asking first (a form, or `fetch` with
/// `no-cors`), and for a page whose own name has been made to point here.
#[test]
fn simple_requests_and_other_names_of_a_page_call_nothing() {
    let server = Server::start();
    server.hello(1, "a");
    let set = r#"{"jsonrpc":"2.0","id":1,"method":"Client.SetVolume","params":{"id":"a","volume":{"percent":5}}}"#;
    for kind in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
    {
        for origin in ["null", "http://evil.example", "http://x:2", "https://x.evil.example:1"] {
            let headers = format!("Origin: {origin}\r\nContent-Type: {kind}\r\n");
            assert!(post(&server, &headers, set).0.starts_with("http/1.1 403"), "{headers}");
        }
    }
    let length = set.len();
    for request in ["POST /jsonrpc", "GET /jsonrpc", "GET /stream", "GET /api/v1/status", "GET /"] {
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        let rebound = format!(
            "{request} HTTP/1.1\r\nHost: evil.example:1780\r\nOrigin: http://evil.example:1780\r\n\
             {upgrade}Content-Length: {length}\r\n\r\n{set}"
        );
        assert!(ask(&server, &rebound).0.starts_with("http/1.1 421"), "{request}");
        let page = rebound.replacen("Host: evil.example:1780", "Host: 127.0.0.1:1780", 1);
        let code = if request.contains("GET /api") || request == "GET /" { "200" } else { "403" };
        // What may be fetched cannot be read by the page: there are no CORS headers.
        let (head, _) = ask(&server, &page);
        assert!(head.starts_with(&format!("http/1.1 {code}")), "{request}: {head}");
        assert!(!head.contains("access-control"), "{head}");
    }
    let client = server.controller().call("Client.GetStatus", json!({ "id": "a" }));
    assert_eq!(client["result"]["client"]["config"]["volume"]["percent"], 100);
}

#[test]
fn events_bring_the_status_and_then_levels_and_changes() {
    let server = Server::start();
    let mut socket = connect(&server);
    socket.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut kept = Vec::new();
    let mut until = |end: &str| read_until(&mut socket, &mut kept, end);
    let first = until("\n\n");
    assert!(first.to_lowercase().contains("text/event-stream"), "{first}");
    until("event: levels");
    *server.backend.stations.lock().unwrap() = vec![playing()];
    let more = until("\"momentary_lufs\":-18.46");
    assert!(more.contains("\"levels_dbfs\":[-12.3,null]"), "{more}");
    let more = if more.contains("event: status") { more } else { until("event: status") };
    assert!(more.contains("event: status"));
    server.hello(1, "newcomer");
    until("newcomer");
}

#[test]
fn a_listener_is_handed_over_with_all_bytes_read() {
    let server = Server::start();
    let mut socket = connect(&server);
    for part in ["GET /lis", "ten/kitchen%20radio?x=1 HT", "TP/1.1\r\nHost: x\r\n", "\r\n"] {
        socket.write_all(part.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    eventually(|| server.sink.0.lock().unwrap().len() == 1);
    let (theirs, mut read) = server.sink.0.lock().unwrap().remove(0);
    assert_eq!(theirs.address(), socket.local_addr().unwrap());
    let mut theirs = theirs.into_socket();
    theirs.set_nonblocking(false).unwrap();
    while !read.ends_with(b"\r\n\r\n") {
        let mut block = [0; 64];
        let count = theirs.read(&mut block).unwrap();
        read.extend_from_slice(&block[..count]);
    }
    assert_eq!(read, b"GET /listen/kitchen%20radio?x=1 HTTP/1.1\r\nHost: x\r\n\r\n");
    theirs.write_all(b"sound").unwrap();
    let mut sound = [0; 5];
    socket.read_exact(&mut sound).unwrap();
    assert_eq!(&sound, b"sound");
}

#[test]
fn a_request_for_a_foreign_host_is_rejected() {
    let server = Server::start();
    for host in ["evil.example", "127.0.0.1.evil.example:1780", "a.b", ""] {
        let mut socket = connect(&server);
        let request = format!("GET /listen/default HTTP/1.1\r\nX: y\r\nHOST: {host}\r\n\r\n");
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 421"), "{host}: {answer}");
    }
    assert!(server.sink.0.lock().unwrap().is_empty());
    let status: Value = serde_json::from_str(&get(&server, "/api/v1/status").1).unwrap();
    assert_eq!(status["counters"]["http_wrong_host"], 4);
    let mut own = connect(&server);
    own.write_all(b"GET /listen/default HTTP/1.1\nhost: radio.lan:1780\n\n").unwrap();
    let mut plain = connect(&server);
    plain.write_all(b"GET /listen/default HTTP/1.0\r\n\r\n").unwrap();
    eventually(|| server.sink.0.lock().unwrap().len() == 2);
}

#[test]
fn a_listener_on_a_used_connection_is_sent_to_a_new_one() {
    let server = Server::start();
    let mut socket = connect(&server);
    socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    read_until(&mut socket, &mut Vec::new(), "ok\n");
    socket.write_all(b"GET /listen/a%20b?c HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let answer = answer.to_lowercase();
    assert!(answer.starts_with("http/1.1 307"), "{answer}");
    assert!(answer.contains("location: /listen/a%20b?c\r\n"), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    // The first request of a connection is looked at before that, whether it wants sound or a head.
    let mut first = connect(&server);
    first.write_all(b"HEAD /listen/x HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    eventually(|| !server.sink.0.lock().unwrap().is_empty());
}

#[test]
fn strangers_are_cut_and_counted() {
    let server = Server::start();
    let mut endless = connect(&server);
    endless.write_all(format!("GET /listen/{}", "x".repeat(20_000)).as_bytes()).ok();
    let mut answer = Vec::new();
    endless.read_to_end(&mut answer).ok();
    let mut tls = connect(&server);
    tls.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").unwrap();
    let mut slow = connect(&server);
    slow.write_all(b"GET /listen").unwrap();
    let mut nothing = Vec::new();
    slow.read_to_end(&mut nothing).unwrap();
    assert!(nothing.is_empty());
    let status: Value = serde_json::from_str(&get(&server, "/api/v1/status").1).unwrap();
    assert_eq!(status["counters"]["http_cut_long_request"], 1);
    assert_eq!(status["counters"]["http_cut_slow_request"], 1);
    assert!(server.sink.0.lock().unwrap().is_empty());
}
