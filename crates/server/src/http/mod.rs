//! Port 1780: the page, the API, and the door to the listeners.
//!
//! `/listen/NAME` is sound without an end. It is served by the media reactors, not by tokio, so the
//! first request line of every connection is looked at before hyper sees it: a listener's socket
//! goes over with the bytes that were read, everything else to the router. The rejected
//! alternative, hyper's upgrade, hands a socket back only after a response of its own.

mod events;
mod host;
mod login;
mod pages;
mod routes;
mod socket;
mod websocket;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use aulos_io::reactor::ListenPolicy;
use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::backend::ListenSink;
use crate::control::connections::ConnectionSlots;
use crate::control::tcp::{
    AcceptedConnection, ConnectionAcceptor, PortCounters, count_refused, keep_alive,
};
use crate::control::{Control, count};
use crate::tls::{self, ClientStream};
use events::EventFeed;
pub(crate) use host::is_our_host;
use login::ConnectionIdentity;
pub(crate) use login::header;
pub use pages::PAGE_READS;
use socket::RewindSocket;

/// Bytes in which the first request line has to end, and the whole head of a listener.
pub const MAX_FIRST_REQUEST: usize = 8 << 10;
/// How long a new connection may take to say what it wants.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may idle between requests, and take for the head of one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections at once; a browser opens six.
pub const MAX_CONNECTIONS: usize = 1_024;
/// Bytes of a request's head in hyper.
const MAX_HEAD: usize = 64 << 10;

/// What begins the request of a listener.
const LISTEN: [&[u8]; 2] = [b"GET /listen/", b"HEAD /listen/"];

/// Serves HTTP until it is dropped.
pub async fn serve(
    listener: TcpListener,
    control: Arc<Control>,
    sink: Arc<dyn ListenSink>,
    door: watch::Receiver<ListenPolicy>,
) {
    let feed = EventFeed::start(Arc::clone(&control));
    let router = routes::router(Arc::clone(&control), feed, Arc::clone(&sink));
    let mut gate = ConnectionAcceptor::new(door, ConnectionSlots::new(MAX_CONNECTIONS));
    loop {
        let Some(accepted) = gate.accept(&listener, &control, REFUSED_COUNTER).await else {
            continue;
        };
        let (control, sink) = (Arc::clone(&control), Arc::clone(&sink));
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let AcceptedConnection { socket, address, policy: door, slot } = accepted;
            let slot = Arc::new(slot);
            let served = async {
                if keep_alive(&socket.0).and_then(|()| socket.0.set_nodelay(true)).is_err() {
                    return;
                }
                match tls::open(socket, address, &door, FIRST_REQUEST_TIMEOUT, false).await {
                    Ok(stream) => {
                        let guest = ConnectionIdentity::new(&stream, Arc::clone(&slot));
                        serve_one(stream, guest, &control, &*sink, service).await;
                    }
                    Err(tls::RefusalReason::Silent) => {
                        count(&control.counters.http_cut_slow_request)
                    }
                    Err(refused) => count_refused(&control, refused),
                }
            };
            slot.run_until_revoked(served, &control.counters.http_cut_unfinished).await;
        });
    }
}

/// What is counted at the port for HTTP when there is no slot.
const REFUSED_COUNTER: PortCounters = |counters| &counters.http_refused;

/// One connection, from its first byte to its end or to a reactor.
async fn serve_one(
    stream: ClientStream,
    guest: ConnectionIdentity,
    control: &Control,
    sink: &dyn ListenSink,
    service: TowerToHyperService<Router>,
) {
    let Ok(FirstRequest { stream, read, is_listener: listener }) =
        read_first_request(stream, control).await
    else {
        return;
    };
    if listener {
        return hand_over_listener(stream, read, &guest, control, sink);
    }
    let io = TokioIo::new(RewindSocket::new(stream, read));
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(guest.clone());
        service.call(request)
    });
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

/// A connection of which the beginning is known.
struct FirstRequest {
    stream: ClientStream,
    read: Vec<u8>,
    is_listener: bool,
}

/// Reads until it is clear whether a listener has come.
async fn read_first_request(
    mut stream: ClientStream,
    control: &Control,
) -> io::Result<FirstRequest> {
    let mut read = Vec::with_capacity(1_024);
    let known = timeout(FIRST_REQUEST_TIMEOUT, async {
        loop {
            match is_listener(&read) {
                // Who a listener is, and by which name it came, stands further down in what it says.
                Some(true) if !login::has_head(&read) => {}
                Some(listener) => return Ok(Some(listener)),
                None => {}
            }
            if read.len() >= MAX_FIRST_REQUEST {
                return Ok(None);
            }
            let rest = MAX_FIRST_REQUEST - read.len();
            let more = (&mut stream).take(rest as u64).read_buf(&mut read).await?;
            if more == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
        }
    });
    match known.await {
        Ok(Ok(Some(listener))) => Ok(FirstRequest { stream, read, is_listener: listener }),
        Ok(Ok(None)) => {
            count(&control.counters.http_cut_long_request);
            // The answer is a courtesy; a peer that does not take it is cut all the same.
            stream.try_answer(TOO_LONG);
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

const MISDIRECTED: &[u8] =
    b"HTTP/1.1 421 Misdirected Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// Whether these first bytes are a listener's; `None` while that cannot be said.
fn is_listener(read: &[u8]) -> Option<bool> {
    let may_be = |begin: &&[u8]| {
        let common = read.len().min(begin.len());
        read[..common] == begin[..common]
    };
    if !LISTEN.iter().any(may_be) {
        return Some(false);
    }
    read.contains(&b'\n').then_some(true)
}

/// Hands a listener over that came by a name of ours (`host` says why) and may listen.
fn hand_over_listener(
    stream: ClientStream,
    read: Vec<u8>,
    guest: &ConnectionIdentity,
    control: &Control,
    sink: &dyn ListenSink,
) {
    if !is_our_host(header(&read, "host"), &control.config().http.names) {
        count(&control.counters.http_wrong_host);
        return stream.try_answer(MISDIRECTED);
    }
    if let Err(refusal) = guest.authorize_listener(&read, control) {
        return stream.try_answer(refusal);
    }
    match stream.into_media() {
        Ok(socket) => sink.accept_listener(socket, read),
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
        assert_eq!(is_listener(b"HEAD /listen/a HTTP/1.1\r\n"), Some(true));
        assert_eq!(is_listener(b"POST /listen/a"), Some(false));
        assert_eq!(is_listener(b"\x16\x03\x01"), Some(false));
    }
}
