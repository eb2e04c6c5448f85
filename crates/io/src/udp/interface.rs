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

/// The interface with that name (`eth0`) or that address (`192.0.2.1`).
///
/// # Errors
/// When there is no such interface now.
pub fn find_interface(wanted: &str, v6: bool) -> io::Result<Interface> {
    let address: Option<IpAddr> = wanted.parse().ok();
    let all = if_addrs::get_if_addrs()?;
    let is_it = |card: &&if_addrs::Interface| match address {
        Some(address) => card.ip() == address,
        None => card.name == wanted,
    };
    let mut found: Vec<_> = all.iter().filter(is_it).collect();
    found.sort_by_key(|card| card.ip().is_ipv6() != v6);
    let card = found.first().and_then(|card| Some((card.index?, card.ip())));
    let (index, address) = card.ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok(Interface { index, address })
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
        let by_address = find_interface("127.0.0.1", false).unwrap();
        let by_name = find_interface("lo", false).unwrap();
        assert_eq!(by_address, by_name);
        assert!(by_name.index > 0 && by_name.address.is_loopback());
        assert!(interface_networks().unwrap().contains(&("127.0.0.1".parse().unwrap(), 8)));
        let none = find_interface("no-such-card", false).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::AddrNotAvailable);
        assert_eq!(
            source_address_for("127.0.0.9:5004".parse().unwrap()).unwrap(),
            by_address.address
        );
    }
}
