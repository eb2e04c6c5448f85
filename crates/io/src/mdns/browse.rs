//! Discovery of other servers that announce themselves.

use std::net::{IpAddr, UdpSocket};

use mdns_sd::{Receiver, ResolvedService, ServiceDaemon, ServiceEvent};

use super::{Announcer, instance_name};

/// Another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredServer {
    /// The instance name of its service.
    pub name: String,
    /// Its host name, for example `kitchen.local`.
    pub host: String,
    /// Its addresses, sorted.
    pub addresses: Vec<IpAddr>,
    /// Its port.
    pub port: u16,
}

/// Discovers other servers until it is dropped.
pub struct Browser {
    daemon: ServiceDaemon,
    events: Receiver<ServiceEvent>,
    /// The ports of this server.
    own_ports: Vec<u16>,
    /// The type that is looked for, with the domain.
    service_type: String,
    servers: Vec<(String, DiscoveredServer)>,
}

/// The most servers that are kept.
const MAX_SERVERS: usize = 256;
/// The service type that Snapcast's clients look for.
pub const SNAPCAST_SERVICE: &str = "_snapcast._tcp";

impl std::fmt::Debug for Browser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Browser").field("found", &self.servers).finish_non_exhaustive()
    }
}

impl Announcer {
    /// Discovers what announces itself with this service type, on the announcer's thread. `None` if
    /// that thread has ended.
    #[must_use]
    pub fn browse(&self, service_type: &str) -> Option<Browser> {
        let (daemon, own_ports) = (self.daemon.clone(), self.own_ports.clone());
        let service_type = format!("{service_type}.local.");
        let events = daemon.browse(&service_type).ok()?;
        Some(Browser { daemon, events, own_ports, service_type, servers: Vec::new() })
    }
}

impl Browser {
    /// Handles the pending events without waiting. Returns the servers in the order of discovery if
    /// the list has changed.
    pub fn poll(&mut self) -> Option<Vec<DiscoveredServer>> {
        let before = self.servers.clone();
        while let Ok(event) = self.events.try_recv() {
            self.handle_event(event);
        }
        if self.events.is_disconnected()
            && let Ok(events) = self.daemon.browse(&self.service_type)
        {
            // The daemon dropped the subscription because too many events came at once.
            self.events = events;
        }
        let all = || self.servers.iter().map(|(_, server)| server.clone()).collect();
        (self.servers != before).then(all)
    }

    fn handle_event(&mut self, event: ServiceEvent) {
        match event {
            ServiceEvent::ServiceResolved(service) if service.is_valid() => {
                let key = service.fullname.clone();
                let server = discovered_server(*service);
                if self.own_ports.contains(&server.port)
                    && server.addresses.iter().any(is_local_address)
                {
                    return;
                }
                match self.servers.iter().position(|(known, _)| *known == key) {
                    Some(at) => self.servers[at].1 = server,
                    None if self.servers.len() < MAX_SERVERS => self.servers.push((key, server)),
                    None => {}
                }
            }
            ServiceEvent::ServiceRemoved(_, gone) => self.servers.retain(|(key, _)| *key != gone),
            _ => {}
        }
    }
}

/// Whether the machine has this address: only local addresses can be bound. The name is no
/// criterion, because it changes when another server already has it.
fn is_local_address(address: &IpAddr) -> bool {
    UdpSocket::bind((*address, 0)).is_ok()
}

fn discovered_server(service: ResolvedService) -> DiscoveredServer {
    let mut addresses: Vec<IpAddr> =
        service.addresses.iter().map(|address| address.to_ip_addr()).collect();
    addresses.sort();
    DiscoveredServer {
        name: instance_name(&service.fullname),
        host: service.host.trim_end_matches('.').to_owned(),
        addresses,
        port: service.port,
    }
}
