//! Ports for DJs: who comes, what he wants, and whether he may.
//!
//! A port may have several mounts, of several stations. It is opened as soon as a station has a mount
//! there and closed when none has any more. What is said before a stream is read here, on the control
//! runtime; the stream itself goes with its socket to a reactor. TLS is spoken on the same port, as on
//! every other, and the house's limits per address hold here as well.

mod answer;
mod guest;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aulos_config::{Endpoint, Mount};
use aulos_io::reactor::{Door, lengthen_backlog};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::control::connections::ConnectionSlots;
use crate::control::tcp::{Accepted, Gate, PortCounters, count_refused, keep_alive};
use crate::control::{Control, count};
use crate::house::{House, ListenSink};
use crate::tls;

/// Connections that say what they want, at once and on all ports; who is on air is not one of them.
pub(crate) const MAX_GUESTS: usize = 256;

/// How often it is looked whether there are the right ports.
const LOOK: Duration = Duration::from_millis(250);

/// The pause before a port that is taken is tried again, doubled up to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(30);

/// What a guest has to do with.
#[derive(Clone)]
struct Desk {
    control: Arc<Control>,
    sink: Arc<dyn ListenSink>,
    door: watch::Receiver<Door>,
    guests: ConnectionSlots,
}

/// A port that is open, or will be.
struct Port {
    address: Endpoint,
    open: Option<JoinHandle<()>>,
    retry_at: Instant,
    pause: Duration,
}

/// Keeps the ports open that stations have mounts on, until it is dropped.
pub(crate) async fn serve(
    control: Arc<Control>,
    house: Arc<dyn House>,
    sink: Arc<dyn ListenSink>,
    door: watch::Receiver<Door>,
) {
    let desk = Desk { control, sink, door, guests: ConnectionSlots::new(MAX_GUESTS) };
    let mut ports: Vec<Port> = Vec::new();
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let mounts = desk.control.mounts();
        ports.retain(|port| mounts.iter().any(|(_, mount)| mount.address == port.address));
        for (_, Mount { address, .. }) in &mounts {
            if !ports.iter().any(|port| port.address == *address) {
                ports.push(Port::new(address.clone()));
            }
        }
        for port in &mut ports {
            port.open(&desk, &*house).await;
        }
    }
}

impl Port {
    fn new(address: Endpoint) -> Self {
        Self { address, open: None, retry_at: Instant::now(), pause: FIRST_PAUSE }
    }

    async fn open(&mut self, desk: &Desk, house: &dyn House) {
        if self.open.is_some() || Instant::now() < self.retry_at {
            return;
        }
        let (host, port) = (self.address.host.clone(), self.address.port);
        // A name is looked up, and that may take its time.
        let opened = tokio::task::spawn_blocking(move || bind(&host, port)).await;
        match opened.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok((listener, address)) => {
                tracing::info!("DJs are let in at {address}");
                house.djs_come_to(&self.address, Ok(address));
                self.open =
                    Some(tokio::spawn(accept(listener, self.address.clone(), desk.clone())));
            }
            Err(error) => {
                tracing::warn!("DJs cannot come to {}: {error}", self.address);
                house.djs_come_to(&self.address, Err(&error));
                self.retry_at = Instant::now() + self.pause;
                self.pause = (self.pause * 2).min(LAST_PAUSE);
            }
        }
    }
}

impl Drop for Port {
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

async fn accept(listener: TcpListener, address: Endpoint, desk: Desk) {
    let mut gate = Gate::new(desk.door.clone(), desk.guests.clone());
    loop {
        let Some(accepted) = gate.accept(&listener, &desk.control, PORT).await else { continue };
        let (desk, mount) = (desk.clone(), address.clone());
        tokio::spawn(async move {
            let Accepted { socket, address, door, slot } = accepted;
            let Desk { control, sink, .. } = &desk;
            let served = async {
                if keep_alive(&socket.0).is_err() {
                    return;
                }
                match tls::open(socket, address, &door, guest::PATIENCE, false).await {
                    Ok(stream) => guest::attend(stream, &mount, control, &**sink).await,
                    Err(tls::Refused::Silent) => count(&control.counters.djs_cut_without_request),
                    Err(refused) => count_refused(control, refused),
                }
            };
            slot.guard(served, &control.counters.djs_cut_unfinished).await;
        });
    }
}

/// What is counted at a port for live sources when there is no slot.
const PORT: PortCounters = |counters| &counters.djs_refused;
