//! Ports for DJs: who comes, what he wants, and whether he may.
//!
//! A port may have several mounts, of several stations. It is opened as soon as a station has a mount
//! there and closed when none has any more. What is said before a stream is read here, on the control
//! runtime; the stream itself goes with its socket to a reactor. TLS is spoken on the same port, as on
//! every other, and the house's limits per address hold here as well.

mod response;
mod source_client;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aulos_config::{Endpoint, Mount};
use aulos_io::reactor::{ListenPolicy, lengthen_backlog};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::backend::{AudioBackend, ListenSink};
use crate::control::connections::ConnectionSlots;
use crate::control::tcp::{
    AcceptedConnection, ConnectionAcceptor, PortCounters, count_refused, keep_alive,
};
use crate::control::{Control, count};
use crate::tls;

/// Connections that say what they want, at once and on all ports; who is on air is not one of them.
pub(crate) const MAX_SOURCE_CLIENTS: usize = 256;

/// How often it is looked whether there are the right ports.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The pause before a port that is taken is tried again, doubled up to the second.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(500);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(30);

/// What a guest has to do with.
#[derive(Clone)]
struct PortContext {
    control: Arc<Control>,
    sink: Arc<dyn ListenSink>,
    door: watch::Receiver<ListenPolicy>,
    slots: ConnectionSlots,
}

/// A port that is open, or will be.
struct MountPort {
    address: Endpoint,
    open: Option<JoinHandle<()>>,
    retry_at: Instant,
    pause: Duration,
}

/// Keeps the ports open that stations have mounts on, until it is dropped.
pub(crate) async fn serve(
    control: Arc<Control>,
    house: Arc<dyn AudioBackend>,
    sink: Arc<dyn ListenSink>,
    door: watch::Receiver<ListenPolicy>,
) {
    let desk = PortContext { control, sink, door, slots: ConnectionSlots::new(MAX_SOURCE_CLIENTS) };
    let mut ports: Vec<MountPort> = Vec::new();
    let mut looks = interval(POLL_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let mounts = desk.control.mounts();
        ports.retain(|port| mounts.iter().any(|(_, mount)| mount.address == port.address));
        for (_, Mount { address, .. }) in &mounts {
            if !ports.iter().any(|port| port.address == *address) {
                ports.push(MountPort::new(address.clone()));
            }
        }
        for port in &mut ports {
            port.open(&desk, &*house).await;
        }
    }
}

impl MountPort {
    fn new(address: Endpoint) -> Self {
        Self { address, open: None, retry_at: Instant::now(), pause: FIRST_RETRY_PAUSE }
    }

    async fn open(&mut self, desk: &PortContext, house: &dyn AudioBackend) {
        if self.open.is_some() || Instant::now() < self.retry_at {
            return;
        }
        let (host, port) = (self.address.host.clone(), self.address.port);
        // A name is looked up, and that may take its time.
        let opened = tokio::task::spawn_blocking(move || bind(&host, port)).await;
        match opened.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok((listener, address)) => {
                tracing::info!("DJs are let in at {address}");
                house.set_dj_address(&self.address, Ok(address));
                self.open =
                    Some(tokio::spawn(accept(listener, self.address.clone(), desk.clone())));
            }
            Err(error) => {
                tracing::warn!("DJs cannot come to {}: {error}", self.address);
                house.set_dj_address(&self.address, Err(&error));
                self.retry_at = Instant::now() + self.pause;
                self.pause = (self.pause * 2).min(MAX_RETRY_PAUSE);
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

async fn accept(listener: TcpListener, address: Endpoint, desk: PortContext) {
    let mut gate = ConnectionAcceptor::new(desk.door.clone(), desk.slots.clone());
    loop {
        let Some(accepted) = gate.accept(&listener, &desk.control, PORT_COUNTERS).await else {
            continue;
        };
        let (desk, mount) = (desk.clone(), address.clone());
        tokio::spawn(async move {
            let AcceptedConnection { socket, address, policy: door, slot } = accepted;
            let PortContext { control, sink, .. } = &desk;
            let served = async {
                if keep_alive(&socket.0).is_err() {
                    return;
                }
                match tls::open(socket, address, &door, source_client::REQUEST_TIMEOUT, false).await
                {
                    Ok(stream) => source_client::serve(stream, &mount, control, &**sink).await,
                    Err(tls::RefusalReason::Silent) => {
                        count(&control.counters.djs_cut_without_request)
                    }
                    Err(refused) => count_refused(control, refused),
                }
            };
            slot.run_until_revoked(served, &control.counters.djs_cut_unfinished).await;
        });
    }
}

/// What is counted at a port for live sources when there is no slot.
const PORT_COUNTERS: PortCounters = |counters| &counters.djs_refused;
