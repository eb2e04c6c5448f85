//! A WebSocket whose peer is asked for a sign of life.
//!
//! A proxy closes a WebSocket on which the server sends nothing for a while, often 60 s, and a
//! browser cannot send pings itself. Keep-alive probes of TCP do not help: they end at the proxy.

use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use bytes::Bytes;
use tokio::time::{Interval, MissedTickBehavior, interval_at};

use crate::input_budget::is_budget_error;

/// Time between two pings: two of them fit into the 60 s after which nginx and others close.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(25);

/// A WebSocket that pings, and that ends when a ping has no answer.
pub(super) struct PingedSocket {
    socket: WebSocket,
    timer: Interval,
    ping: PingState,
}

/// The ping of the current interval.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PingState {
    /// None is outstanding: the peer has sent something since the last one.
    Answered,
    /// One has to be sent.
    Due,
    /// One was sent; the peer has until the next one to send anything.
    Sent,
}

/// Why a WebSocket has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketEnd {
    /// The peer closed it, or it broke.
    Closed,
    /// A ping had no answer.
    Silent,
    /// The unfinished input of all connections reached its limit.
    OutOfMemory,
}

impl PingedSocket {
    pub(super) fn new(socket: WebSocket) -> Self {
        Self::with_interval(socket, PING_INTERVAL)
    }

    fn with_interval(socket: WebSocket, interval: Duration) -> Self {
        let mut timer = interval_at(tokio::time::Instant::now() + interval, interval);
        // After a long call the peer has a whole interval again.
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { socket, timer, ping: PingState::Answered }
    }

    /// The next call. May be dropped while it waits.
    ///
    /// # Errors
    /// That the WebSocket has ended.
    pub(super) async fn receive(&mut self) -> Result<Bytes, SocketEnd> {
        loop {
            tokio::select! {
                // What has arrived counts before the time that is over.
                biased;
                message = self.socket.recv() => {
                    self.ping = PingState::Answered;
                    match message {
                        Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                        Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => {
                            return Ok(message.into_data());
                        }
                        Some(Err(error)) if is_budget_error(&error) => {
                            return Err(SocketEnd::OutOfMemory);
                        }
                        Some(Ok(Message::Close(_)) | Err(_)) | None => {
                            return Err(SocketEnd::Closed);
                        }
                    }
                }
                _ = self.timer.tick() => match self.ping {
                    PingState::Answered => self.ping = PingState::Due,
                    PingState::Due | PingState::Sent => return Err(SocketEnd::Silent),
                },
            }
            if self.ping == PingState::Due {
                let ping = Message::Ping(Bytes::new());
                self.send(ping).await.map_err(|_| SocketEnd::Closed)?;
                self.ping = PingState::Sent;
            }
        }
    }

    pub(super) async fn send(&mut self, message: Message) -> Result<(), axum::Error> {
        self.socket.send(message).await
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::extract::ws::WebSocketUpgrade;
    use axum::routing::get;
    use hyper::server::conn::http1;
    use hyper_util::rt::TokioIo;
    use hyper_util::service::TowerToHyperService;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{Instant, timeout};

    use super::*;

    /// Longer than a busy machine keeps the test from answering.
    const INTERVAL: Duration = Duration::from_millis(300);
    /// Longer than anything here takes.
    const PATIENCE: Duration = Duration::from_secs(20);
    /// Frames of RFC 6455, 5.2: FIN, the opcode, and the length of their payload.
    const PING: [u8; 2] = [0x89, 0];
    const TEXT: [u8; 2] = [0x81, 1];
    /// A masked pong and a masked text of one byte.
    const ANSWER: [u8; 6] = [0x8a, 0x80, 1, 2, 3, 4];
    const CALL: [u8; 7] = [0x81, 0x81, 0, 0, 0, 0, b'x'];

    type End = Arc<Mutex<Option<SocketEnd>>>;

    /// A server that echoes calls until a WebSocket ends.
    async fn serve(end: End) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let echo = move |upgrade: WebSocketUpgrade| async move {
            upgrade.on_upgrade(async move |socket| {
                let mut socket = PingedSocket::with_interval(socket, INTERVAL);
                let ended = loop {
                    match socket.receive().await {
                        Ok(call) => {
                            let text = String::from_utf8(call.to_vec()).unwrap();
                            socket.send(Message::text(text)).await.unwrap();
                        }
                        Err(ended) => break ended,
                    }
                };
                *end.lock().unwrap() = Some(ended);
            })
        };
        let service = TowerToHyperService::new(Router::new().route("/", get(echo)));
        tokio::spawn(async move {
            let (socket, _) = listener.accept().await.unwrap();
            let socket = TokioIo::new(socket);
            let served = http1::Builder::new().serve_connection(socket, service).with_upgrades();
            served.await.unwrap();
        });
        address
    }

    async fn connect(address: SocketAddr) -> TcpStream {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let head = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        socket.write_all(head).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(socket.read_u8().await.unwrap());
        }
        assert!(answer.starts_with(b"HTTP/1.1 101"));
        socket
    }

    async fn frame(socket: &mut TcpStream) -> [u8; 2] {
        let mut head = [0; 2];
        timeout(PATIENCE, socket.read_exact(&mut head)).await.unwrap().unwrap();
        head
    }

    #[tokio::test]
    async fn an_idle_websocket_gets_a_ping_in_each_interval_and_stays_open_while_it_answers() {
        let end = End::default();
        let mut socket = connect(serve(Arc::clone(&end)).await).await;
        let begin = Instant::now();
        for ping in 1..=2 {
            assert_eq!(frame(&mut socket).await, PING);
            assert!(begin.elapsed() >= INTERVAL * (ping - 1), "they come one after the other");
            socket.write_all(&ANSWER).await.unwrap();
        }
        socket.write_all(&CALL).await.unwrap();
        // A ping may be on its way before the answer.
        let mut head = frame(&mut socket).await;
        while head == PING {
            socket.write_all(&ANSWER).await.unwrap();
            head = frame(&mut socket).await;
        }
        assert_eq!((head, socket.read_u8().await.unwrap()), (TEXT, b'x'));
        assert_eq!(*end.lock().unwrap(), None);
    }

    #[tokio::test]
    async fn a_websocket_that_answers_no_ping_ends() {
        let end = End::default();
        let mut socket = connect(serve(Arc::clone(&end)).await).await;
        let mut received = Vec::new();
        timeout(PATIENCE, socket.read_to_end(&mut received)).await.unwrap().ok();
        assert_eq!(received, PING, "one ping, and none after it");
        assert_eq!(*end.lock().unwrap(), Some(SocketEnd::Silent));
    }
}
