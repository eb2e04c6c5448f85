//! The control port against friends and foes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;

use crate::common::{Controller, PATIENCE, Server, eventually};
use rustix::net::{AddressFamily, SocketType};
use serde_json::{Value, json};

fn volume(percent: u8) -> Value {
    json!({ "id": "a", "volume": { "percent": percent } })
}

/// Any answer at all: the server lives and listens.
fn lives(server: &Server) {
    let answer = server.controller().call("Server.GetRPCVersion", json!({}));
    assert_eq!(answer["result"]["major"], 23);
}

fn counter(server: &Server, name: &str) -> u64 {
    let status = server.controller().call("Aulos.GetStatus", json!({}));
    status["result"]["counters"][name].as_u64().unwrap()
}

#[test]
fn a_change_notifies_all_controllers_except_its_origin() {
    let server = Server::start();
    server.hello(1, "a");
    let (mut one, mut two) = (server.controller(), server.controller());
    // Both are known to the server once they have been answered.
    two.call("Server.GetRPCVersion", json!({}));
    let answer = one.call("Client.SetVolume", volume(31));
    assert_eq!(answer["result"]["volume"]["percent"], 31);
    let notice = two.notice_of("Client.OnVolumeChanged");
    assert_eq!(notice["params"]["volume"], json!({ "percent": 31, "muted": false }));
    assert!(notice.get("id").is_none());
    one.call("Server.GetRPCVersion", json!({}));
    let own = |notice: &Value| notice["method"] == "Client.OnVolumeChanged";
    assert!(!one.notices.iter().any(own), "{:?}", one.notices);
}

#[test]
fn lines_are_assembled_from_any_segmentation() {
    let server = Server::start();
    let mut controller = server.controller();
    let call = br#"{"jsonrpc":"2.0","id":1,"method":"Server.GetRPCVersion"}"#;
    for byte in call.iter().chain(b"\n") {
        controller.socket.write_all(&[*byte]).unwrap();
    }
    assert_eq!(controller.message()["id"], 1);
    // Three at once, as PipeWire sends them.
    let many = [&call[..], b"\r\n\r\n", call, b"\n", call, b"\n"].concat();
    controller.socket.write_all(&many).unwrap();
    for _ in 0..3 {
        assert_eq!(controller.message()["result"]["minor"], 0);
    }
    // And the last one may have no end.
    controller.socket.write_all(call).unwrap();
    controller.socket.shutdown(Shutdown::Write).unwrap();
    assert_eq!(controller.message()["id"], 1);
    assert_eq!(controller.line(), None);
}

#[test]
fn a_batch_is_answered_as_one() {
    let server = Server::start();
    let mut controller = server.controller();
    let call = |id: u8| json!({ "jsonrpc": "2.0", "id": id, "method": "Server.GetRPCVersion" });
    controller
        .send(&json!([call(1), { "jsonrpc": "2.0", "method": "Nope" }, 5, call(2)]).to_string());
    let answers = controller.message();
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), 3);
    assert_eq!((&answers[0]["id"], &answers[2]["id"]), (&json!(1), &json!(2)));
    assert_eq!(answers[1]["error"]["code"], -32_600);
}

/// A call without an id that only reads has no effect and no answer: it is not carried out.
#[test]
fn a_list_of_questions_that_want_no_answer_costs_nothing() {
    let server = Server::start();
    let mut controller = server.controller();
    let asked = || server.backend.asked.load(Ordering::Relaxed);
    let before = asked();
    let silent = json!({ "jsonrpc": "2.0", "method": "Server.GetStatus" });
    controller.send(&Value::from(vec![silent.clone(); 256]).to_string());
    (0..200).for_each(|_| controller.send(&silent.to_string()));
    controller.call("Server.GetRPCVersion", json!({}));
    // The clock looks at both stations ten times a second; each answer would have looked as well.
    assert!(asked() - before < 456, "{}", asked() - before);
}

#[test]
fn garbage_is_answered_and_the_connection_lives() {
    let server = Server::start();
    let mut controller = server.controller();
    // The first line is a call: what does not even begin as one is cut, see below.
    controller.call("Server.GetRPCVersion", json!({}));
    let deep = "[".repeat(60_000);
    let deep_object = r#"{"a":"#.repeat(10_000);
    for line in ["garbage", "{", &deep, &deep_object, "\u{0}\u{1}", "GET / HTTP/1.1", "null"] {
        controller.send(line);
        let code = controller.message()["error"]["code"].as_i64().unwrap();
        assert!((-32_700..=-32_600).contains(&code), "{line:.20}: {code}");
    }
    controller.socket.write_all(b"\xff\xfe\x80\r\n").unwrap();
    assert_eq!(controller.message()["error"]["code"], -32_700);
    assert_eq!(controller.call("Server.GetRPCVersion", json!({}))["result"]["major"], 23);
    assert_eq!(counter(&server, "rpc_not_understood"), 8);
}

/// What a page of any site can let a browser send to any port: the request line comes first, the
/// body is the page's own (`fetch(url, { method: "POST", mode: "no-cors", body })`, or a form).
#[test]
fn a_call_in_the_body_of_an_http_request_is_not_carried_out_and_not_answered() {
    let server = Server::start();
    server.hello(1, "a");
    let call =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "Client.SetVolume", "params": volume(7) });
    let length = call.to_string().len() + 2;
    let post = format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nOrigin: https://evil.example\r\n\
         Content-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{call}\r\n",
        server.control
    );
    let openings =
        [post.clone(), format!("\r\n \t{post}"), format!("x{call}\r\n"), format!("\0{call}\n")];
    for opening in &openings {
        let mut page = server.controller();
        // The server may have hung up before the last piece.
        for piece in opening.as_bytes().chunks(3) {
            drop(page.socket.write_all(piece));
        }
        // Nothing of what it sent is answered; what happens elsewhere may have been told before.
        while let Some(line) = page.line() {
            let message: Value = serde_json::from_str(&line).unwrap();
            assert!(message.get("id").is_none() && message.get("method").is_some(), "{line}");
        }
    }
    let client = server.controller().call("Client.GetStatus", json!({ "id": "a" }));
    assert_eq!(client["result"]["client"]["config"]["volume"]["percent"], 100, "{client}");
    assert_eq!(counter(&server, "controllers_cut_not_json"), openings.len() as u64);
    assert_eq!(counter(&server, "rpc_not_understood"), 0);
}

#[test]
fn a_line_without_an_end_is_cut_and_counted() {
    let server = Server::start();
    let mut controller = server.controller();
    controller.socket.write_all(b"{").unwrap();
    let block = [b'x'; 4_096];
    let cut = (0..10_000).any(|_| controller.socket.write_all(&block).is_err());
    assert!(cut, "40 MB were taken");
    assert_eq!(counter(&server, "controllers_cut_long_line"), 1);
}

/// The answers to two batches have more than eight megabytes: all that one address may have in
/// memory of batches.
#[test]
fn answers_that_are_not_read_are_limited_per_address() {
    let server = Server::start();
    for session in 0..2_000 {
        server.hello(session, &format!("client-{session}"));
    }
    let status = json!({ "jsonrpc": "2.0", "id": 1, "method": "Server.GetStatus" });
    let batch = format!("{}\n", Value::from(vec![status; 32]));
    let _deaf = [(); 2].map(|()| {
        let mut socket = server.controller().socket;
        socket.write_all(batch.as_bytes()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(socket.peek(&mut [0]).unwrap(), 1, "its answer is in memory");
        socket
    });
    let mut next = server.controller();
    next.socket.write_all(batch.as_bytes()).unwrap();
    // A single call of the same address, and a batch of another one, do not wait.
    let answer = server.controller().call("Server.GetStatus", json!({}));
    assert!(answer["result"]["server"].is_object());
    let mut other = Controller::new(connect_from([127, 0, 0, 2], server.control));
    other.send(batch.trim());
    assert!(other.message().is_array());
    next.socket.set_nonblocking(true).unwrap();
    assert!(next.socket.peek(&mut [0]).is_err(), "it waits for one of its address");
    next.socket.set_nonblocking(false).unwrap();
    assert!(next.message().is_array());
    assert!(counter(&server, "controllers_cut_slow") >= 1);
}

fn connect_from(address: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((address, 0))).unwrap();
    rustix::net::connect(&socket, &to).unwrap();
    socket.into()
}

#[test]
fn a_controller_that_does_not_read_is_disconnected_and_counted() {
    let server = Server::start();
    for session in 0..200 {
        server.hello(session, &format!("client-{session}"));
    }
    let deaf = server.controller();
    let mut friend = server.controller();
    let group =
        friend.call("Server.GetStatus", json!({}))["result"]["server"]["groups"][0]["id"].clone();
    // Each makes a notification of a hundred kilobytes.
    for _ in 0..150 {
        let answer =
            friend.call("Group.SetClients", json!({ "id": group, "clients": ["client-0"] }));
        assert!(answer.get("result").is_some());
    }
    eventually(|| counter(&server, "controllers_cut_slow") == 1);
    // The deaf one finds its connection closed after what was under way.
    let mut rest = deaf.socket.try_clone().unwrap();
    let mut block = vec![0; 1 << 20];
    eventually(|| matches!(rest.read(&mut block), Ok(0) | Err(_)));
}

#[test]
fn a_controller_that_does_not_read_blocks_no_other() {
    let server = Server::start();
    for session in 0..200 {
        server.hello(session, &format!("client-{session}"));
    }
    let mut deaf = server.controller();
    deaf.socket.set_nonblocking(true).unwrap();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"Server.GetStatus"}"#;
    let mut sent = 0;
    while deaf.socket.write_all(format!("{call}\n").as_bytes()).is_ok() && sent < 2_000 {
        sent += 1;
    }
    lives(&server);
}

#[test]
fn half_open_connections_and_port_scans_are_not_logged() {
    let server = Server::start();
    let silent: Vec<Controller> = (0..100).map(|_| server.controller()).collect();
    for _ in 0..200 {
        drop(server.controller());
    }
    for _ in 0..50 {
        let mut rude = server.controller();
        rude.socket.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"meth").unwrap();
    }
    lives(&server);
    drop(silent);
}

#[test]
fn what_was_set_is_there_after_a_restart() {
    let server = Server::start();
    server.hello(1, "a");
    server.controller().call("Client.SetVolume", volume(12));
    let state_dir = server.state_dir.clone();
    server.stop();
    let mut resolved = crate::common::resolve(crate::common::TWO_STATIONS);
    resolved.state_dir = state_dir;
    let again = Server::of(resolved);
    let answer = again.controller().call("Client.GetStatus", json!({ "id": "a" }));
    assert_eq!(answer["result"]["client"]["config"]["volume"]["percent"], 12);
    assert_eq!(answer["result"]["client"]["connected"], false);
}
