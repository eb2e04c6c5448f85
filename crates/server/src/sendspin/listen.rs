//! The port for players that connect.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use aulos_control::count;
use aulos_io::descriptors::DescriptorUse;
use aulos_io::reactor::{AddressPermit, ListenPolicy};
use aulos_proto::http::{ReceivedHead, head_length};
use aulos_proto::sendspin::PATH;
use aulos_proto::ws::{WsReader, WsWriter};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tungstenite::handshake::derive_accept_key;

use super::admit::{Connection, admit};
use super::context::SendspinContext;
use crate::connections::ConnectionSlots;
use crate::tcp::{AcceptedConnection, ConnectionAcceptor, PortCounters, keep_alive};

/// Players that are not let in yet, on all connections.
const MAX_CONNECTIONS: usize = 128;

/// Longest head of a request.
const MAX_HEAD: usize = 8 << 10;

/// Time for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The counter of this port's connections without a slot.
const REFUSED_COUNTER: PortCounters = |counters| &counters.sendspin_refused;

/// Accepts players until it is dropped.
pub(super) async fn serve(
    listener: TcpListener,
    context: SendspinContext,
    policy: watch::Receiver<ListenPolicy>,
) {
    let slots = ConnectionSlots::new(MAX_CONNECTIONS);
    let mut acceptor = ConnectionAcceptor::new(policy, slots, DescriptorUse::Control);
    loop {
        let accepted = acceptor.accept(&listener, &context.control, REFUSED_COUNTER).await;
        let Some(AcceptedConnection { socket, address: permit, slot, .. }) = accepted else {
            continue;
        };
        let context = context.clone();
        tokio::spawn(async move {
            let served = async {
                if keep_alive(&socket.0).is_ok() {
                    serve_player(socket, permit, &context).await;
                }
            };
            slot.run_until_revoked(served, &context.control.counters.sendspin_refused).await;
        });
    }
}

async fn serve_player(
    (mut socket, address): (TcpStream, SocketAddr),
    permit: AddressPermit,
    context: &SendspinContext,
) {
    let mut read = Vec::new();
    let accepted = timeout(HEAD_TIMEOUT, accept_websocket(&mut socket, &mut read)).await;
    if !matches!(accepted, Ok(Ok(true))) {
        return count(&context.control.counters.sendspin_not_admitted);
    }
    let connection = Connection {
        socket,
        address,
        permit,
        reader: WsReader::default(),
        writer: WsWriter::default(),
        read,
    };
    drop(admit(connection, context).await);
}

/// Answers the handshake of a WebSocket; what is read behind it stays in `read`. False if the
/// request is another one.
async fn accept_websocket(socket: &mut TcpStream, read: &mut Vec<u8>) -> io::Result<bool> {
    let length = loop {
        if let Some(length) = head_length(read) {
            break length;
        }
        if read.len() > MAX_HEAD || socket.read_buf(read).await? == 0 {
            return Ok(false);
        }
    };
    let head = ReceivedHead::parse(read);
    read.drain(..length);
    let request = head.as_ref().ok().and_then(ReceivedHead::request_line);
    let field = |name| head.as_ref().ok().and_then(|head| head.field(name));
    let is_upgrade = field("upgrade").is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"));
    let path = request.map(|(_, target, _)| target.split('?').next().unwrap_or_default());
    let key = field("sec-websocket-key").filter(|_| is_upgrade && path == Some(PATH));
    let Some(key) = key else {
        let text = "this port is for Sendspin players: a WebSocket at /sendspin\n";
        let response = format!(
            "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{text}",
            text.len()
        );
        socket.write_all(response.as_bytes()).await?;
        return Ok(false);
    };
    let response = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\n\r\n",
        derive_accept_key(key)
    );
    socket.write_all(response.as_bytes()).await?;
    Ok(true)
}
