//! Multicast DNS: announces the server's ports, so that no address has to be typed.
//!
//! The crate `mdns-sd` implements the protocol (RFC 6762 and 6763) on one thread of its own.
//! `docs/decisions/mdns.md` has the reason against avahi. Where avahi runs, both share port 5353
//! through `SO_REUSEADDR` and `SO_REUSEPORT`, and the kernel delivers multicast to each. They must
//! not share a host name; avahi owns the machine's, so the server uses another one.

mod browse;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use mdns_sd::{
    DaemonEvent, IfKind, IfPredicate, MDNS_PORT, RRType, Receiver, ServiceDaemon, ServiceInfo,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

pub use browse::{Browser, DiscoveredServer, SNAPCAST_SERVICE};

/// One port to announce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its service type, for example `_snapcast._tcp`.
    pub service_type: &'static str,
    /// The listening address, never on loopback. A wildcard stands for every address that the
    /// machine has, now or later.
    pub listen: SocketAddr,
    /// What its TXT record says of the path, where it has one.
    pub path: Option<String>,
    /// Its own name, where it is not announced under that of the server.
    pub name: Option<String>,
}

/// An event of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MdnsEvent {
    /// Another server has the same name; this is the new name.
    Renamed(String),
    /// An announcement failed, with the reason.
    Failed(String),
}

/// Announces the services until it is dropped.
pub struct Announcer {
    daemon: ServiceDaemon,
    events: Receiver<DaemonEvent>,
    /// The ports of this server.
    own_ports: Vec<u16>,
    /// The first label of the host name.
    host: String,
    /// The name of the server.
    name: String,
    services: Vec<Service>,
    /// The full names under which the services are registered, in their order.
    registered: Vec<String>,
}

impl std::fmt::Debug for Announcer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Announcer").finish_non_exhaustive()
    }
}

impl Announcer {
    /// Starts a thread that announces the services under `name` and answers queries.
    ///
    /// `host` is the first label of the host name and must be unique on this machine. Without a
    /// network the thread waits for one.
    ///
    /// # Errors
    /// When a program uses port 5353 exclusively, or there are no sockets or threads left.
    pub fn start(name: &str, host: &str, services: &[Service]) -> io::Result<Self> {
        if let Some(refused) = mdns_port_error(services) {
            return Err(refused);
        }
        let daemon = ServiceDaemon::new().map_err(io::Error::other)?;
        let events = daemon.monitor().map_err(io::Error::other)?;
        let own_ports = services.iter().map(|service| service.listen.port()).collect();
        let (host, services, registered) = (host.to_owned(), services.to_vec(), Vec::new());
        let name = name.to_owned();
        let mut announcer = Self { daemon, events, own_ports, host, name, services, registered };
        announcer.register().map_err(io::Error::other)?;
        Ok(announcer)
    }

    /// The events since the last call, without waiting.
    ///
    /// After a conflict the services are registered anew under the name that the daemon has chosen.
    /// The daemon alone would still answer for the old name too: when the server that owns it is
    /// started again, it would take a third name, which may be the one chosen here.
    pub fn poll_events(&mut self) -> Vec<MdnsEvent> {
        let mut events = Vec::new();
        while let Ok(event) = self.events.try_recv() {
            match event {
                DaemonEvent::NameChange(change)
                    if change.rr_type == RRType::SRV
                        && self.registered.contains(&change.original) =>
                {
                    let name = instance_name(&change.new_name);
                    if let Err(error) = self.rename(&change.original, &name) {
                        events.push(MdnsEvent::Failed(error.to_string()));
                    }
                    events.push(MdnsEvent::Renamed(name));
                }
                DaemonEvent::Error(error) => events.push(MdnsEvent::Failed(error.to_string())),
                _ => {}
            }
        }
        events
    }

    /// Sends the goodbye packets and waits until they are sent.
    pub fn stop(self) {
        if let Ok(done) = self.daemon.shutdown() {
            // If the goodbye is not sent by then, peers notice at their next connection.
            done.recv_timeout(GOODBYE_TIMEOUT).ok();
        }
    }

    /// Announces all services again, those under the same name as `original` under this name.
    fn rename(&mut self, original: &str, name: &str) -> mdns_sd::Result<()> {
        let at = self.registered.iter().position(|registered| registered == original);
        match at.and_then(|at| self.services.get_mut(at)?.name.as_mut()) {
            Some(own) => name.clone_into(own),
            None => name.clone_into(&mut self.name),
        }
        for registered in self.registered.drain(..) {
            // The daemon sends the goodbye by itself.
            drop(self.daemon.unregister(&registered)?);
        }
        self.announce()
    }

    fn register(&mut self) -> mdns_sd::Result<()> {
        // No announcement is sent through an interface on which no service is reachable.
        let reached: Vec<IpAddr> = self.services.iter().map(Service::address).collect();
        let useful = move |at: IpAddr| reached.iter().any(|&listen| is_reachable_at(listen, at));
        self.daemon.disable_interface(IfKind::All)?;
        self.daemon
            .enable_interface(IfKind::Predicate(IfPredicate::new(move |card| useful(card.ip()))))?;
        self.announce()
    }

    fn announce(&mut self) -> mdns_sd::Result<()> {
        let host = &self.host;
        let all: Vec<IpAddr> = self.services.iter().map(Service::address).collect();
        for service in &self.services {
            // Addresses belong to the host name, so services with different addresses need
            // different host names.
            let listen = service.address();
            let same = all.iter().position(|&address| address == listen).unwrap_or(0);
            let host = match same {
                0 => format!("{host}.local."),
                number => format!("{host}-{}.local.", number + 1),
            };
            let kind = format!("{}.local.", service.service_type);
            let port = service.listen.port();
            let path = service.path.as_deref().map(|path| [("path", path)]);
            let name = service.name.as_ref().unwrap_or(&self.name);
            let properties = path.as_ref().map_or(&[][..], |path| &path[..]);
            let mut info =
                ServiceInfo::new(&kind, name, &host, "", port, properties)?.enable_addr_auto();
            let cards = IfPredicate::new(move |card| is_reachable_at(listen, card.ip()));
            info.set_interfaces(vec![IfKind::Predicate(cards)]);
            self.registered.push(info.get_fullname().to_owned());
            self.daemon.register(info)?;
        }
        Ok(())
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        // The daemon's thread does not end by itself. After `stop` it is gone already.
        self.daemon.shutdown().ok();
    }
}

impl Service {
    fn address(&self) -> IpAddr {
        self.listen.ip().to_canonical()
    }
}

/// The instance name of a full service name: `Snapcast (2)` of `Snapcast (2)._snapcast._tcp.local.`
fn instance_name(service: &str) -> String {
    let kind = service.strip_suffix("._tcp.local.").and_then(|rest| rest.rsplit_once("._"));
    let name = kind.map_or(service, |(name, _)| name);
    // A full name escapes dots and backslashes (RFC 6763, section 4.3).
    name.replace("\\.", ".").replace("\\\\", "\\")
}

/// Whether a socket that listens on `listen` is reachable at the interface address `at`.
///
/// IPv6 link-local addresses are useless in an answer, because it does not name the link.
fn is_reachable_at(listen: IpAddr, at: IpAddr) -> bool {
    if !listen.is_unspecified() {
        return listen == at;
    }
    match at {
        _ if at.is_loopback() => false,
        IpAddr::V4(_) => true,
        IpAddr::V6(at) => listen.is_ipv6() && !at.is_unicast_link_local(),
    }
}

/// The error that prevents the use of port 5353 in all required address families, if there is one.
/// The daemon does not report it.
fn mdns_port_error(services: &[Service]) -> Option<io::Error> {
    let mut refused = None;
    for address in services.iter().map(Service::address) {
        let any_v4 = (AddressFamily::INET, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let any_v6 = (AddressFamily::INET6, IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        let needed = if address.is_ipv4() { &[any_v4][..] } else { &[any_v6, any_v4] };
        for &(family, any) in needed {
            match check_shared_bind(family, SocketAddr::new(any, MDNS_PORT)) {
                Ok(()) => return None,
                Err(error) => refused = Some(error),
            }
        }
    }
    refused
}

fn check_shared_bind(family: AddressFamily, address: SocketAddr) -> io::Result<()> {
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    bind(&socket, &address)?;
    Ok(())
}

/// How long the shutdown waits for the goodbye: well below the second within which a server ends.
const GOODBYE_TIMEOUT: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_is_every_card_and_an_address_is_one() {
        let reached = |listen: &str| -> Vec<&str> {
            let cards = ["127.0.0.1", "192.168.1.5", "172.17.0.1", "::1", "fe80::1", "2001:db8::1"];
            let listen: IpAddr = listen.parse().unwrap();
            let at = |card: &&str| is_reachable_at(listen.to_canonical(), card.parse().unwrap());
            cards.into_iter().filter(at).collect()
        };
        assert_eq!(reached("0.0.0.0"), ["192.168.1.5", "172.17.0.1"]);
        assert_eq!(reached("::"), ["192.168.1.5", "172.17.0.1", "2001:db8::1"]);
        assert_eq!(reached("192.168.1.5"), ["192.168.1.5"]);
        assert_eq!(reached("::ffff:192.168.1.5"), ["192.168.1.5"]);
        assert_eq!(reached("2001:db8::1"), ["2001:db8::1"]);
        assert_eq!(reached("fe80::1"), ["fe80::1"]);
    }

    #[test]
    fn a_servers_name_is_the_label_before_the_service_type() {
        assert_eq!(
            instance_name("House of._sound (2)._snapcast._tcp.local."),
            "House of._sound (2)"
        );
        assert_eq!(instance_name("House of\\. sound._snapcast._tcp.local."), "House of. sound");
        assert_eq!(instance_name("odd"), "odd");
    }
}
