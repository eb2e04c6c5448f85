//! Who else is there: servers that announce themselves as we do.

use std::net::{IpAddr, UdpSocket};

use mdns_sd::{Receiver, ResolvedService, ServiceDaemon, ServiceEvent};

use super::{Announcer, instance};

/// Another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its name in lists of services.
    pub name: String,
    /// Its machine's, as `kitchen.local`.
    pub host: String,
    /// Where it is reached, in order.
    pub addresses: Vec<IpAddr>,
    /// At this port.
    pub port: u16,
}

/// Looks for other servers as long as it lives.
pub struct Browser {
    daemon: ServiceDaemon,
    events: Receiver<ServiceEvent>,
    /// Our own ports.
    own: Vec<u16>,
    found: Vec<(String, Neighbour)>,
}

/// Servers that are kept; a network with more of them is no house.
const MAX_NEIGHBOURS: usize = 256;
/// What Snapcast's clients connect to.
const KIND: &str = "_snapcast._tcp.local.";

impl std::fmt::Debug for Browser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Browser").field("found", &self.found).finish_non_exhaustive()
    }
}

impl Announcer {
    /// Looks for other servers, on the same thread that announces us; none when that has ended.
    #[must_use]
    pub fn browse(&self) -> Option<Browser> {
        let (daemon, own) = (self.daemon.clone(), self.own.clone());
        let events = daemon.browse(KIND).ok()?;
        Some(Browser { daemon, events, own, found: Vec::new() })
    }
}

impl Browser {
    /// Takes in what has been heard, without waiting. The servers in the order in which they came,
    /// if they are others than before.
    pub fn look(&mut self) -> Option<Vec<Neighbour>> {
        let before = self.found.clone();
        while let Ok(event) = self.events.try_recv() {
            self.hear(event);
        }
        if self.events.is_disconnected()
            && let Ok(events) = self.daemon.browse(KIND)
        {
            // So much was heard at once that the daemon gave up on us.
            self.events = events;
        }
        let all = || self.found.iter().map(|(_, neighbour)| neighbour.clone()).collect();
        (self.found != before).then(all)
    }

    fn hear(&mut self, event: ServiceEvent) {
        match event {
            ServiceEvent::ServiceResolved(service) if service.is_valid() => {
                let key = service.fullname.clone();
                let neighbour = introduce(*service);
                if self.own.contains(&neighbour.port) && neighbour.addresses.iter().any(is_here) {
                    return;
                }
                match self.found.iter().position(|(known, _)| *known == key) {
                    Some(at) => self.found[at].1 = neighbour,
                    None if self.found.len() < MAX_NEIGHBOURS => self.found.push((key, neighbour)),
                    None => {}
                }
            }
            ServiceEvent::ServiceRemoved(_, gone) => self.found.retain(|(key, _)| *key != gone),
            _ => {}
        }
    }
}

/// Whether it is an address of this machine: only those can be listened on. Our name would say less,
/// because it is another one where somebody had it before.
fn is_here(address: &IpAddr) -> bool {
    UdpSocket::bind((*address, 0)).is_ok()
}

fn introduce(service: ResolvedService) -> Neighbour {
    let mut addresses: Vec<IpAddr> =
        service.addresses.iter().map(|address| address.to_ip_addr()).collect();
    addresses.sort();
    Neighbour {
        name: instance(&service.fullname).to_owned(),
        host: service.host.trim_end_matches('.').to_owned(),
        addresses,
        port: service.port,
    }
}
