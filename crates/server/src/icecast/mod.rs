//! Ports for source clients (DJs): requests, passwords and mounts.
//!
//! The protocols are Icecast's (`PUT`, `SOURCE`) and Shoutcast v1's (a line with the password).
//! A port may have mounts of several stations. It is opened as soon as a station has a mount there,
//! and closed when none is left. Requests are read here, on the control runtime; the stream itself
//! goes with its socket to a reactor. TLS is supported on the same port, as on every other, and the
//! limits per address apply here as well.

mod authorize;
mod mount_status;
mod source_client;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use aulos_config::{Endpoint, StationSettings};
use aulos_control::backend::{AudioBackend, ListenSink};
use aulos_control::{Control, count, mounts};
use aulos_core::{Backoff, Span};
use aulos_io::SystemClock;
use aulos_io::descriptors::DescriptorUse;
use aulos_io::reactor::{ListenPolicy, lengthen_backlog};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::connections::ConnectionSlots;
use crate::tcp::{
    AcceptedConnection, ConnectionAcceptor, PortCounters, count_handshake, count_refused,
    keep_alive,
};
use crate::tls;
use crate::url_auth::UrlAuthorizer;
use authorize::RefusalLog;

/// Maximum number of connections without a complete request, on all ports; clients on air are not
/// included.
pub(crate) const MAX_SOURCE_CLIENTS: usize = 256;

/// Interval at which the set of ports is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Pause before a port in use is tried again, doubled up to the maximum.
const FIRST_RETRY_PAUSE: Span = Span::from_millis(500);
const MAX_RETRY_PAUSE: Span = Span::from_secs(30);

/// What a connection needs.
#[derive(Clone)]
struct PortContext {
    control: Arc<Control>,
    sink: Arc<dyn ListenSink>,
    door: watch::Receiver<ListenPolicy>,
    slots: ConnectionSlots,
    refusals: Arc<RefusalLog>,
    programs: Arc<UrlAuthorizer>,
}

/// A port that is open, or will be.
struct MountPort {
    /// The address of its mounts.
    mounts: Endpoint,
    /// The address that is open: that of the mounts, or the next port.
    address: Endpoint,
    open: Option<JoinHandle<()>>,
    backoff: Backoff,
}

/// Keeps the ports open for which stations have mounts, until it is dropped.
pub(crate) async fn serve(
    control: Arc<Control>,
    backend: Arc<dyn AudioBackend>,
    sink: Arc<dyn ListenSink>,
    door: watch::Receiver<ListenPolicy>,
) {
    let slots = ConnectionSlots::new(MAX_SOURCE_CLIENTS);
    let (refusals, programs) = Default::default();
    let context = PortContext { control, sink, door, slots, refusals, programs };
    let mut ports: Vec<MountPort> = Vec::new();
    let mut ticks = interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let wanted = addresses(&context.control.stations());
        ports.retain(|port| wanted.contains(&(port.mounts.clone(), port.address.clone())));
        for (mounts, address) in wanted {
            if !ports.iter().any(|port| port.address == address) {
                ports.push(MountPort::new(mounts, address));
            }
        }
        for port in &mut ports {
            port.open(&context, &*backend).await;
        }
    }
}

/// The addresses to open, each behind that of its mounts. Shoutcast programs send their stream to
/// the port after the configured one.
fn addresses(stations: &[Arc<StationSettings>]) -> Vec<(Endpoint, Endpoint)> {
    let all = || mounts(stations).map(|(_, mount)| mount);
    let own = all().map(|mount| (mount.address.clone(), mount.address.clone()));
    let next = all().filter(|mount| mount.shoutcast && mount.address.port != 0).map(|mount| {
        let port = mount.address.port.saturating_add(1);
        (mount.address.clone(), Endpoint { port, ..mount.address.clone() })
    });
    // Another mount's port is opened for that mount.
    own.chain(next.filter(|(_, next)| all().all(|mount| mount.address != *next))).collect()
}

impl MountPort {
    fn new(mounts: Endpoint, address: Endpoint) -> Self {
        let backoff = Backoff::exact(FIRST_RETRY_PAUSE, MAX_RETRY_PAUSE);
        Self { mounts, address, open: None, backoff }
    }

    /// Reports whether the mounts' own port is open.
    fn report(&self, backend: &dyn AudioBackend, opened: Result<SocketAddr, &io::Error>) {
        if self.address == self.mounts {
            backend.set_dj_address(&self.mounts, opened);
        }
    }

    async fn open(&mut self, context: &PortContext, backend: &dyn AudioBackend) {
        if self.open.is_some() || !self.backoff.is_due(SystemClock::now()) {
            return;
        }
        let (host, port) = (self.address.host.clone(), self.address.port);
        // The name lookup may take long.
        let opened = tokio::task::spawn_blocking(move || bind(&host, port)).await;
        match opened.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok((listener, address)) => {
                tracing::info!(target: "live_source", %address, "accepting live sources");
                self.report(backend, Ok(address));
                self.open =
                    Some(tokio::spawn(accept(listener, self.mounts.clone(), context.clone())));
            }
            Err(error) => {
                tracing::warn!(address = %self.address, %error, "cannot accept live sources; retrying");
                self.report(backend, Err(&error));
                self.backoff.failed(SystemClock::now());
            }
        }
    }
}

impl Drop for MountPort {
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            open.abort();
        }
    }
}

fn bind(host: &str, port: u16) -> io::Result<(TcpListener, SocketAddr)> {
    let addresses: Vec<_> = (host, port).to_socket_addrs()?.collect();
    let listener = std::net::TcpListener::bind(&addresses[..])?;
    listener.set_nonblocking(true)?;
    lengthen_backlog(&listener)?;
    let address = listener.local_addr()?;
    Ok((TcpListener::from_std(listener)?, address))
}

async fn accept(listener: TcpListener, address: Endpoint, context: PortContext) {
    let mut acceptor = ConnectionAcceptor::new(
        context.door.clone(),
        context.slots.clone(),
        DescriptorUse::Control,
    );
    loop {
        let Some(accepted) = acceptor.accept(&listener, &context.control, PORT_COUNTERS).await
        else {
            continue;
        };
        let (context, mount) = (context.clone(), address.clone());
        tokio::spawn(async move {
            let AcceptedConnection { socket, address, policy: door, slot } = accepted;
            let PortContext { control, sink, .. } = &context;
            let served = async {
                if keep_alive(&socket.0).is_err() {
                    return;
                }
                match tls::open(socket, address, &door, PEER_START).await {
                    Ok(stream) => {
                        count_handshake(control, &stream);
                        let asked = (&*context.programs, &*context.refusals);
                        source_client::serve(stream, &mount, control, &**sink, asked).await;
                    }
                    Err(tls::RefusalReason::Silent) => {
                        count(&control.counters.djs_cut_without_request);
                    }
                    Err(refused) => count_refused(control, refused),
                }
            };
            slot.run_until_revoked(served, &control.counters.djs_cut_unfinished).await;
        });
    }
}

const PEER_START: tls::PeerStart =
    tls::PeerStart { patience: source_client::REQUEST_TIMEOUT, may_be_quiet: false, is_http: true };

/// The counters of a port for source clients.
const PORT_COUNTERS: PortCounters = |counters| &counters.djs_refused;
