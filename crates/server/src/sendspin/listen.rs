//! The port for players that connect.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use aulos_control::count;
use aulos_io::descriptors::DescriptorUse;
use aulos_io::reactor::{AddressPermit, ListenPolicy};
use aulos_proto::http::head_length;
use aulos_proto::sendspin::PATH;
use aulos_proto::ws::{WsReader, WsWriter, accept};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

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
    let head: Vec<u8> = read.drain(..length).collect();
    let (response, is_accepted) = accept(&head, PATH, "Sendspin players");
    socket.write_all(response.as_bytes()).await?;
    Ok(is_accepted)
}
