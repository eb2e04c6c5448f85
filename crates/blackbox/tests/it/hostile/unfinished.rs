//! Requests whose end never comes: their memory has one limit over all connections, and every
//! connection that is closed for it is counted.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use aulos_blackbox::process_usage;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::json;

use super::{CONFIG, counter};
use crate::rpc::Rpc;
use crate::{quiet_turn, wait_for};

/// Bytes of each unfinished request: less than the longest that is accepted.
const SENT: usize = 200 << 10;

/// A quarter of the connections of a port, which one address may hold.
const CONNECTIONS: usize = 250;

/// How a request begins; its end is far away.
type Beginning = fn() -> Vec<u8>;

const BEGINNINGS: [(&str, Beginning); 3] = [
    ("a line", || b"{\"id\":1,\"method\":\"".to_vec()),
    ("a body", || {
        b"POST /jsonrpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
          Content-Length: 262000\r\n\r\n"
            .to_vec()
    }),
    ("a message", || {
        let mut bytes = b"GET /jsonrpc HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
            Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            .to_vec();
        // A text of 262,000 bytes, with a mask of zeros.
        bytes.extend([0x81, 0xff]);
        bytes.extend(262_000_u64.to_be_bytes());
        bytes.extend([0; 4]);
        bytes
    }),
];

#[test]
fn requests_without_an_end_have_one_limit_over_all_connections() {
    let _turn = quiet_turn();
    let scratch = ScratchDir::new("unfinished").unwrap();
    let server = AulosServer::start(&scratch, CONFIG).unwrap();
    let resident = || process_usage::read(server.id()).unwrap().resident;
    let cut = || counter(server.http, "controllers_cut_memory");
    Rpc::connect(server.control).call("Server.GetRPCVersion", &json!({}));
    let before = resident();
    for (what, beginning) in BEGINNINGS {
        let port = if what == "a line" { server.control } else { server.http };
        let counted = cut();
        let crowd: Vec<_> = (0..CONNECTIONS).map(|_| begin(port, &beginning())).collect();
        wait_for(what, Duration::from_secs(10), || cut() > counted);
        let grown = resident().saturating_sub(before);
        println!("{what}: {} cut, {} kB more", cut() - counted, grown >> 10);
        // The budget twice, because the HTTP library holds what it has read beside what is kept.
        assert!(grown < 80 << 20, "{what}: grown by {grown} bytes");
        // A short call needs nothing of the budget.
        Rpc::connect(server.control).call("Server.GetRPCVersion", &json!({}));
        drop(crowd);
        wait_for("the memory to be given back", Duration::from_secs(10), || {
            resident().saturating_sub(before) < 16 << 20
        });
        // A long one has room again.
        let name = "n".repeat(100 << 10);
        let answer =
            Rpc::connect(server.control).answer("Aulos.SavePreset", &json!({ "name": name }));
        assert!(answer["result"].is_object(), "{answer}");
    }
    server.stop().unwrap();
}

/// Sends the beginning of a request, as much as is taken.
fn begin(port: SocketAddr, beginning: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(port).unwrap();
    socket.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut bytes = beginning.to_vec();
    bytes.resize(SENT, b'a');
    if socket.write_all(&bytes).is_err() {
        // It was cut; an answer that came before is of no interest.
        drop(socket.set_nonblocking(true).and_then(|()| socket.read(&mut [0; 512])));
    }
    socket
}
