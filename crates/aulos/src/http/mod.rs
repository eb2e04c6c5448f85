//! Port 1780: the page, the API, and the door to the listeners.
//!
//! `/listen/NAME` is sound without an end. It is served by the media reactors, not by tokio, so the
//! first request line of every connection is looked at before hyper sees it: a listener's socket
//! goes over with the bytes that were read, everything else to the router. The rejected
//! alternative, hyper's upgrade, hands a socket back only after a response of its own.

mod events;
mod host;
mod routes;
mod socket;
mod websocket;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::control::tcp::{ACCEPT_PAUSE, Place, keep_alive};
use crate::control::{Control, count};
use crate::house::ListenSink;
use events::Feed;
use socket::Socket;

/// Bytes in which the first request line has to end.
pub const MAX_FIRST: usize = 8 << 10;
/// How long a new connection may take to say what it wants.
const FIRST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may idle between requests, and take for the head of one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections at once; a browser opens six.
pub const MAX_CONNECTIONS: usize = 1_024;
/// Bytes of a request's head in hyper.
const MAX_HEAD: usize = 64 << 10;

/// What begins the request of a listener.
const LISTEN: &[u8] = b"GET /listen/";

/// Serves HTTP until it is dropped.
pub async fn serve(listener: TcpListener, control: Arc<Control>, sink: Arc<dyn ListenSink>) {
    let open = Arc::new(AtomicUsize::new(0));
    let feed = Feed::start(Arc::clone(&control));
    let router = routes::router(Arc::clone(&control), feed, Arc::clone(&sink));
    loop {
        let Ok((socket, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Some(place) = Place::take(&open, MAX_CONNECTIONS) else {
            count(&control.counters.http_refused);
            continue;
        };
        let (control, sink) = (Arc::clone(&control), Arc::clone(&sink));
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let Ok(First { socket, read, listener }) = first(socket, &control).await else {
                return;
            };
            if listener {
                hand_over(socket, peer, read, &*sink);
            } else {
                let io = TokioIo::new(Socket::new(socket, read));
                let served = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIMEOUT)
                    .max_buf_size(MAX_HEAD)
                    .serve_connection(io, service)
                    .with_upgrades()
                    .await;
                if let Err(error) = served {
                    tracing::debug!(%error, "http connection gone");
                }
            }
            drop(place);
        });
    }
}

/// A connection of which the beginning is known.
struct First {
    socket: TcpStream,
    read: Vec<u8>,
    listener: bool,
}

/// Reads until it is clear whether a listener has come.
async fn first(mut socket: TcpStream, control: &Control) -> io::Result<First> {
    keep_alive(&socket)?;
    socket.set_nodelay(true)?;
    let mut read = Vec::with_capacity(1_024);
    let known = timeout(FIRST_TIMEOUT, async {
        loop {
            if let Some(listener) = is_listener(&read) {
                return Ok(Some(listener));
            }
            if read.len() >= MAX_FIRST {
                return Ok(None);
            }
            let rest = MAX_FIRST - read.len();
            let more = (&mut socket).take(rest as u64).read_buf(&mut read).await?;
            if more == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
        }
    });
    match known.await {
        Ok(Ok(Some(listener))) => Ok(First { socket, read, listener }),
        Ok(Ok(None)) => {
            count(&control.counters.http_cut_long_request);
            // The answer is a courtesy; a peer that does not take it is cut all the same.
            socket.try_write(TOO_LONG).ok();
            Err(io::ErrorKind::InvalidData.into())
        }
        Ok(Err(error)) => Err(error),
        Err(_) => {
            count(&control.counters.http_cut_slow_request);
            Err(io::ErrorKind::TimedOut.into())
        }
    }
}

const TOO_LONG: &[u8] =
    b"HTTP/1.1 414 URI Too Long\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// Whether these first bytes are a listener's; `None` while that cannot be said.
fn is_listener(read: &[u8]) -> Option<bool> {
    let common = read.len().min(LISTEN.len());
    if read[..common] != LISTEN[..common] {
        return Some(false);
    }
    read.contains(&b'\n').then_some(true)
}

fn hand_over(socket: TcpStream, peer: SocketAddr, read: Vec<u8>, sink: &dyn ListenSink) {
    match socket.into_std() {
        Ok(socket) => sink.accept(socket, peer, read),
        Err(error) => tracing::debug!(%error, "listener gone"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_known_by_its_whole_first_line() {
        assert_eq!(is_listener(b""), None);
        assert_eq!(is_listener(b"GET /li"), None);
        assert_eq!(is_listener(b"GET /listen/a HTTP/1.1"), None);
        assert_eq!(is_listener(b"GET /listen/a HTTP/1.1\r\n"), Some(true));
        assert_eq!(is_listener(b"GET /listenx"), Some(false));
        assert_eq!(is_listener(b"POST /listen/a"), Some(false));
        assert_eq!(is_listener(b"\x16\x03\x01"), Some(false));
    }
}
