//! Who else is there: servers that announce themselves as we do.

use std::net::{IpAddr, UdpSocket};

use mdns_sd::{Receiver, ResolvedService, ServiceDaemon, ServiceEvent};

use super::{Announcer, instance_name};

/// Another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredServer {
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
    own_ports: Vec<u16>,
    servers: Vec<(String, DiscoveredServer)>,
}

/// Servers that are kept; a network with more of them is no house.
const MAX_SERVERS: usize = 256;
/// What Snapcast's clients connect to.
const SERVICE_TYPE: &str = "_snapcast._tcp.local.";

impl std::fmt::Debug for Browser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Browser").field("found", &self.servers).finish_non_exhaustive()
    }
}

impl Announcer {
    /// Looks for other servers, on the same thread that announces us; none when that has ended.
    #[must_use]
    pub fn browse(&self) -> Option<Browser> {
        let (daemon, own) = (self.daemon.clone(), self.own_ports.clone());
        let events = daemon.browse(SERVICE_TYPE).ok()?;
        Some(Browser { daemon, events, own_ports: own, servers: Vec::new() })
    }
}

impl Browser {
    /// Takes in what has been heard, without waiting. The servers in the order in which they came,
    /// if they are others than before.
    pub fn poll(&mut self) -> Option<Vec<DiscoveredServer>> {
        let before = self.servers.clone();
        while let Ok(event) = self.events.try_recv() {
            self.handle_event(event);
        }
        if self.events.is_disconnected()
            && let Ok(events) = self.daemon.browse(SERVICE_TYPE)
        {
            // So much was heard at once that the daemon gave up on us.
            self.events = events;
        }
        let all = || self.servers.iter().map(|(_, neighbour)| neighbour.clone()).collect();
        (self.servers != before).then(all)
    }

    fn handle_event(&mut self, event: ServiceEvent) {
        match event {
            ServiceEvent::ServiceResolved(service) if service.is_valid() => {
                let key = service.fullname.clone();
                let neighbour = discovered_server(*service);
                if self.own_ports.contains(&neighbour.port)
                    && neighbour.addresses.iter().any(is_local_address)
                {
                    return;
                }
                match self.servers.iter().position(|(known, _)| *known == key) {
                    Some(at) => self.servers[at].1 = neighbour,
                    None if self.servers.len() < MAX_SERVERS => self.servers.push((key, neighbour)),
                    None => {}
                }
            }
            ServiceEvent::ServiceRemoved(_, gone) => self.servers.retain(|(key, _)| *key != gone),
            _ => {}
        }
    }
}

/// Whether it is an address of this machine: only those can be listened on. Our name would say less,
/// because it is another one where somebody had it before.
fn is_local_address(address: &IpAddr) -> bool {
    UdpSocket::bind((*address, 0)).is_ok()
}

fn discovered_server(service: ResolvedService) -> DiscoveredServer {
    let mut addresses: Vec<IpAddr> =
        service.addresses.iter().map(|address| address.to_ip_addr()).collect();
    addresses.sort();
    DiscoveredServer {
        name: instance_name(&service.fullname).to_owned(),
        host: service.host.trim_end_matches('.').to_owned(),
        addresses,
        port: service.port,
    }
}
