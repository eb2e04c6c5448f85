//! Selects a network interface.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "two facts")]
pub struct Interface {
    /// Its index.
    pub index: u32,
    /// One of its addresses, of the wanted family if it has one.
    pub address: IpAddr,
}

/// The network interfaces that have an address, at one time.
#[derive(Debug, PartialEq)]
pub struct InterfaceTable(Vec<if_addrs::Interface>);

impl InterfaceTable {
    /// The interfaces that there are now.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn read() -> io::Result<Self> {
        Ok(Self(if_addrs::get_if_addrs()?))
    }

    /// The interface with that name (`eth0`) or that address (`192.0.2.1`).
    #[must_use]
    pub fn find(&self, wanted: &str, v6: bool) -> Option<Interface> {
        let address: Option<IpAddr> = wanted.parse().ok();
        let is_it = |card: &&if_addrs::Interface| match address {
            Some(address) => card.ip() == address,
            None => card.name == wanted,
        };
        let mut found: Vec<_> = self.0.iter().filter(is_it).collect();
        found.sort_by_key(|card| card.ip().is_ipv6() != v6);
        let card = found.first()?;
        Some(Interface { index: card.index?, address: card.ip() })
    }

    /// The interface for packets to or from `peer`: `wanted`, or that of the current routes.
    ///
    /// # Errors
    /// When there is no such interface, or no route.
    pub fn find_for(&self, wanted: Option<&str>, peer: SocketAddr) -> io::Result<Interface> {
        let found = match wanted {
            Some(wanted) => self.find(wanted, peer.is_ipv6()),
            None => self.find(&source_address_for(peer)?.to_string(), peer.is_ipv6()),
        };
        found.ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// Whether the interface is still there, with that address.
    #[must_use]
    pub fn contains(&self, interface: &Interface) -> bool {
        let Interface { index, address } = *interface;
        self.0.iter().any(|card| card.index == Some(index) && card.ip() == address)
    }
}

/// The networks of all interfaces: an address, and the bits that its network has in common.
///
/// # Errors
/// When the system does not tell.
pub fn interface_networks() -> io::Result<Vec<(IpAddr, u8)>> {
    let of = |card: if_addrs::Interface| match card.addr {
        if_addrs::IfAddr::V4(own) => (own.ip.into(), own.prefixlen),
        if_addrs::IfAddr::V6(own) => (own.ip.into(), own.prefixlen),
    };
    Ok(if_addrs::get_if_addrs()?.into_iter().map(of).collect())
}

/// The source address for packets to `to` under the current routes.
///
/// # Errors
/// When there is no route.
pub fn source_address_for(to: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Nothing is sent: the system only looks up the route.
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_found_by_its_address_and_by_its_name() {
        let table = InterfaceTable::read().unwrap();
        let by_address = table.find("127.0.0.1", false).unwrap();
        let by_name = table.find("lo", false).unwrap();
        assert_eq!(by_address, by_name);
        assert!(by_name.index > 0 && by_name.address.is_loopback());
        assert!(interface_networks().unwrap().contains(&("127.0.0.1".parse().unwrap(), 8)));
        assert_eq!(table.find("no-such-card", false), None);
        assert_eq!(
            source_address_for("127.0.0.9:5004".parse().unwrap()).unwrap(),
            by_address.address
        );
    }

    #[test]
    fn an_interface_that_was_made_again_is_another_one() {
        let card = |index| if_addrs::Interface {
            name: "vlan7".to_owned(),
            addr: if_addrs::IfAddr::V4(if_addrs::Ifv4Addr {
                ip: [192, 0, 2, 1].into(),
                netmask: [255, 255, 255, 0].into(),
                prefixlen: 24,
                broadcast: None,
            }),
            index: Some(index),
            oper_status: if_addrs::IfOperStatus::Up,
            is_p2p: false,
        };
        let group = "239.1.2.3:5004".parse().unwrap();
        let (before, after) = (InterfaceTable(vec![card(3)]), InterfaceTable(vec![card(8)]));
        let interface = before.find_for(Some("vlan7"), group).unwrap();
        assert_eq!(interface, before.find_for(Some("192.0.2.1"), group).unwrap());
        assert!(before.contains(&interface) && !after.contains(&interface) && before != after);
        assert_eq!(after.find_for(Some("vlan7"), group).unwrap().index, 8);
        let gone = InterfaceTable(Vec::new()).find_for(Some("vlan7"), group).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::AddrNotAvailable);
    }
}
