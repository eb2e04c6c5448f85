//! The HTTP server on port 1780: the page, the API, and the hand-over of listeners.
//!
//! `/listen/NAME` is endless audio, served by the media reactors and not by tokio. The first
//! request line of every connection is therefore read before hyper sees it: a listener's socket
//! goes to a reactor with the bytes read so far, everything else to the router. Hyper's upgrade was
//! rejected: it returns a socket only after a response of its own.

mod api;
mod app_state;
mod events;
mod forwarded;
mod heartbeat;
mod hls;
mod host;
mod icecast_admin;
mod large_body;
mod listen_index;
mod listener_auth;
mod login;
mod monitoring;
mod pages;
mod routes;
mod socket;
mod subscription;
mod system_probe;
mod web;
mod websocket;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use aulos_config::StationSettings;
use aulos_control::backend::{ListenSink, ListenerRequest};
use aulos_control::{Control, MountTable, count};
use aulos_io::descriptors::DescriptorUse;
use aulos_io::reactor::ListenPolicy;
use aulos_proto::http::{ReceivedHead, head_length};
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

use crate::connections::ConnectionSlots;
use crate::tcp::{
    AcceptedConnection, ConnectionAcceptor, PortCounters, count_handshake, count_refused,
    keep_alive,
};
use crate::tls::{self, ClientStream};
use events::EventFeed;
use forwarded::ProxiedClients;
use hls::HlsState;
pub(crate) use host::is_our_host;
use listener_auth::{ListenerAuthorizer, is_for_sound};
use login::ConnectionIdentity;
pub(crate) use login::header;
pub use pages::PAGE_READS;
use socket::RewindSocket;

/// Longest first request line, and longest head of a listener, in bytes.
pub const MAX_FIRST_REQUEST: usize = 8 << 10;
/// Time limit for the first request line of a connection.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const PEER_START: tls::PeerStart =
    tls::PeerStart { patience: FIRST_REQUEST_TIMEOUT, may_be_quiet: false, is_http: true };
/// Time limit for the head of a request, and for idling between requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit of connections; a browser opens six.
pub const MAX_CONNECTIONS: usize = 1_024;
/// Longest request head in hyper, in bytes.
const MAX_HEAD: usize = 64 << 10;

/// How the requests of listeners begin.
const LISTENER_METHODS: [&str; 2] = ["GET ", "HEAD "];

/// How the paths of listeners of stations begin.
const LISTEN: &[u8] = b"/listen/";

/// Serves HTTP until the future is dropped.
pub async fn serve(
    listener: TcpListener,
    control: Arc<Control>,
    sink: Arc<dyn ListenSink>,
    policy: watch::Receiver<ListenPolicy>,
) {
    let feed = EventFeed::start(Arc::clone(&control));
    let proxied = Arc::new(ProxiedClients::new(policy.clone()));
    let gate = Arc::new(ListenerAuthorizer::default());
    let hls = HlsState::new(Arc::clone(&gate));
    let router = routes::router(
        Arc::clone(&control),
        feed,
        Arc::clone(&sink),
        Arc::clone(&proxied),
        hls.clone(),
    );
    let accept = accept_all(listener, control, sink, policy, (router, gate, proxied));
    tokio::select! {
        () = accept => {}
        () = hls.end_idle_sessions() => {}
    }
}

/// Accepts connections until the future is dropped.
async fn accept_all(
    listener: TcpListener,
    control: Arc<Control>,
    sink: Arc<dyn ListenSink>,
    policy: watch::Receiver<ListenPolicy>,
    (router, gate, proxied): (Router, Arc<ListenerAuthorizer>, Arc<ProxiedClients>),
) {
    let mut acceptor =
        ConnectionAcceptor::new(policy, ConnectionSlots::new(MAX_CONNECTIONS), DescriptorUse::Http);
    loop {
        let Some(accepted) = acceptor.accept(&listener, &control, REFUSED_COUNTER).await else {
            continue;
        };
        let ports = Ports {
            control: Arc::clone(&control),
            sink: Arc::clone(&sink),
            gate: Arc::clone(&gate),
            proxied: Arc::clone(&proxied),
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let AcceptedConnection { socket, address, policy, slot } = accepted;
            let slot = Arc::new(slot);
            let served = async {
                if keep_alive(&socket.0).and_then(|()| socket.0.set_nodelay(true)).is_err() {
                    return;
                }
                match tls::open(socket, address, &policy, PEER_START).await {
                    Ok(stream) => {
                        count_handshake(&ports.control, &stream);
                        let identity = ConnectionIdentity::new(&stream, Arc::clone(&slot));
                        serve_one(stream, identity, &ports, service).await;
                    }
                    Err(tls::RefusalReason::Silent) => {
                        count(&ports.control.counters.http_cut_slow_request);
                    }
                    Err(refused) => count_refused(&ports.control, refused),
                }
            };
            slot.run_until_revoked(served, &ports.control.counters.http_cut_unfinished).await;
        });
    }
}

/// The counter of this port's connections without a slot.
const REFUSED_COUNTER: PortCounters = |counters| &counters.http_refused;

/// What a connection leads to.
struct Ports {
    control: Arc<Control>,
    sink: Arc<dyn ListenSink>,
    gate: Arc<ListenerAuthorizer>,
    proxied: Arc<ProxiedClients>,
}

/// Serves one connection until it ends or goes to a reactor.
async fn serve_one(
    stream: ClientStream,
    identity: ConnectionIdentity,
    ports: &Ports,
    service: TowerToHyperService<Router>,
) {
    let Ok(FirstRequest { stream, read, destination }) =
        read_first_request(stream, &ports.control).await
    else {
        return;
    };
    if let Destination::Listener(mount) = destination {
        return hand_over_listener(stream, (read, mount), identity, ports).await;
    }
    let io = TokioIo::new(RewindSocket::new(stream, read));
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(identity.clone());
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
        tracing::debug!(%error, "http connection failed");
    }
}

/// A connection whose first request has been classified.
struct FirstRequest {
    stream: ClientStream,
    read: Vec<u8>,
    destination: Destination,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq)]
enum Destination {
    Router,
    /// To a reactor: a listener of this mount, or else of a station.
    Listener(Option<Arc<StationSettings>>),
}

/// Reads until it is clear whether the request is a listener's.
async fn read_first_request(
    mut stream: ClientStream,
    control: &Control,
) -> io::Result<FirstRequest> {
    let mut read = Vec::with_capacity(1_024);
    let mounts = control.mounts();
    let known = timeout(FIRST_REQUEST_TIMEOUT, async {
        loop {
            match destination(&read, &mounts) {
                // A listener's complete head is needed: it has the `Host` and `Authorization`
                // headers.
                Some(Destination::Listener(_)) if head_length(&read).is_none() => {}
                Some(destination) => return Ok(Some(destination)),
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
        Ok(Ok(Some(destination))) => Ok(FirstRequest { stream, read, destination }),
        Ok(Ok(None)) => {
            count(&control.counters.http_cut_long_request);
            // Best effort: the connection is closed even if the peer does not read this.
            stream.try_send_response(TOO_LONG);
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

const DENIED: &[u8] = b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

const BUSY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

const MOUNT_FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
      the mount has as many listeners as it may have\n";

const TOO_MANY: &[u8] =
    b"HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// Where a request goes; `None` while more bytes are needed.
fn destination(read: &[u8], mounts: &MountTable) -> Option<Destination> {
    let of_method = |method: &&str| read.strip_prefix(method.as_bytes());
    let Some(target) = LISTENER_METHODS.iter().find_map(of_method) else {
        let may_be = LISTENER_METHODS.iter().any(|method| method.as_bytes().starts_with(read));
        return (!may_be).then_some(Destination::Router);
    };
    let Some(end) = target.iter().position(|byte| b" ?\r\n".contains(byte)) else {
        let may_be = LISTEN.starts_with(target)
            || target.starts_with(LISTEN)
            || mounts.has_path_beginning(target);
        return (!may_be).then_some(Destination::Router);
    };
    let (path, rest) = target.split_at(end);
    let mount = mounts.at_path(path);
    // The list of stations is a page.
    if mount.is_none() && (!path.starts_with(LISTEN) || path == LISTEN) {
        return Some(Destination::Router);
    }
    rest.contains(&b'\n').then(|| Destination::Listener(mount.cloned()))
}

/// Whether a listener is refused by its address or its program; counted.
fn is_denied(read: &[u8], identity: &ConnectionIdentity, control: &Control) -> bool {
    let agent = header(read, "user-agent").unwrap_or_default();
    let is_denied = control.config().http.denies(identity.from, &agent);
    if is_denied {
        count(&control.counters.http_listeners_denied);
        tracing::info!(target: "listener", from = %identity.from, "denied by address or agent");
    }
    is_denied
}

/// Hands a listener to a reactor, if its host name is one of ours (see `host`) and it may listen.
async fn hand_over_listener(
    stream: ClientStream,
    (read, mount): (Vec<u8>, Option<Arc<StationSettings>>),
    identity: ConnectionIdentity,
    ports: &Ports,
) {
    let Ports { control, sink, gate, proxied } = ports;
    let head = ReceivedHead::parse(&read).ok();
    let fields = head.iter().flat_map(ReceivedHead::fields);
    let config = control.config();
    let http = &config.http;
    let Ok(identity) = identity.behind_proxy(fields, http) else {
        count(&control.counters.control_refused_same_address);
        return stream.try_send_response(TOO_MANY);
    };
    if !is_our_host(header(&read, "host").as_deref(), &http.names) {
        count(&control.counters.http_wrong_host);
        return stream.try_send_response(MISDIRECTED);
    }
    if is_denied(&read, &identity, control) {
        return stream.try_send_response(DENIED);
    }
    // Without users of ours, credentials are meant for the program that decides.
    let has_users = !control.access.rules().users.is_empty();
    if (has_users || http.listener_auth.is_none())
        && let Err(refusal) = identity.authorize_listener(&read, control)
    {
        return stream.try_send_response(refusal);
    }
    let permission = match http.listener_auth.as_ref().filter(|_| is_for_sound(&read)) {
        Some(auth) => match gate.ask(auth.clone(), &read, &identity).await {
            Ok(permission) => Some(permission),
            Err(refusal) => {
                tracing::info!(target: "listener", from = %identity.from, ?refusal, "refused");
                return stream.try_send_response(refusal.response().as_bytes());
            }
        },
        None => None,
    };
    // It leaves the slots of HTTP, and would otherwise take the descriptors of other requests.
    if DescriptorUse::Sound.check_next().is_err() {
        count(&control.counters.http_refused);
        return stream.try_send_response(BUSY);
    }
    let Ok(permit) = proxied.admit(identity.proxied_client(), &control.counters) else {
        return stream.try_send_response(TOO_MANY);
    };
    match stream.into_media() {
        Ok(socket) => {
            let name = mount.as_deref().map(|mount| mount.name.as_str());
            let session = control.register_listener(&read, name, identity.from);
            if let Some(permission) = permission {
                let (gate, session) = (Arc::clone(gate), Arc::downgrade(&session));
                tokio::spawn(async move { gate.follow(permission, session).await });
            }
            if is_for_sound(&read) && mount.is_some_and(|mount| control.listeners.is_full(&mount)) {
                return socket.respond_and_close(MOUNT_FULL);
            }
            let allow_origin = http.allow_origin.clone();
            let request = ListenerRequest { head: read, session, allow_origin };
            sink.accept_listener(identity.mark_forwarded(socket, permit), request);
        }
        Err(error) => tracing::debug!(%error, "cannot hand over a listener"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_known_by_its_whole_first_line() {
        let text = "[[station]]\nname = \"a\"\nsources = [\"demo://\"]\n\
             [[mount]]\nname = \"live.mp3\"\nstation = \"a\"";
        let file = aulos_config::ConfigFile { name: "a.toml", text };
        let env = aulos_config::Environment::default();
        let mounts = MountTable::new(&aulos_config::load(Some(file), &[], &env).unwrap().stations);
        let known = |read: &[u8]| {
            let destination = destination(read, &mounts)?;
            Some(destination != Destination::Router)
        };
        let Some(Destination::Listener(Some(mount))) = destination(b"GET /live.mp3 \n", &mounts)
        else {
            panic!("not the mount");
        };
        assert_eq!(mount.name, "live.mp3");
        assert_eq!(destination(b"GET /listen/a\n", &mounts), Some(Destination::Listener(None)));
        assert_eq!(known(b"GET /live.mp"), None);
        assert_eq!(known(b"GET /live.mp3?x=1 HTTP/1.1\r\n"), Some(true));
        assert_eq!(known(b"HEAD /live.mp3 HTTP/1.0\r\n"), Some(true));
        assert_eq!(known(b"GET /live.mp3x HTTP/1.1\r\n"), Some(false));
        assert_eq!(known(b"GET /live.ogg HTTP/1.1\r\n"), Some(false));
        assert_eq!(known(b""), None);
        assert_eq!(known(b"GET /li"), None);
        assert_eq!(known(b"GET /listen/a HTTP/1.1"), None);
        assert_eq!(known(b"GET /listen/a HTTP/1.1\r\n"), Some(true));
        assert_eq!(known(b"GET /listenx"), Some(false));
        assert_eq!(known(b"GET /listen/ HTTP/1.1\r\n"), Some(false));
        assert_eq!(known(b"GET /listen/"), None);
        assert_eq!(known(b"HEAD /listen/a HTTP/1.1\r\n"), Some(true));
        assert_eq!(known(b"POST /listen/a"), Some(false));
        assert_eq!(known(b"\x16\x03\x01"), Some(false));
    }
}
