//! The address of a relay's destination.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::time::Duration;

use aulos_config::PortRange;

/// An address of `dest` that packets can be sent to from a port of `listen`. The lookup has a
/// thread of its own, because it can take arbitrarily long; the control thread waits for
/// [`LOOKUP_TIMEOUT`] at most.
pub(super) fn resolve(dest: &PortRange<String>, listen: IpAddr) -> io::Result<SocketAddr> {
    if let Ok(host) = dest.host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(host, dest.first));
    }
    let (sender, mut answer) = aulos_rt::channel::bounded(1);
    let (host, port) = (dest.host.clone(), dest.first);
    std::thread::Builder::new().name("aulos-look-up".to_owned()).spawn(move || {
        let found = (host.as_str(), port).to_socket_addrs();
        let found = found.map(|all| choose(&all.collect::<Vec<_>>(), listen));
        // The receiver may have timed out.
        drop(sender.send(found));
    })?;
    let slow = || io::Error::new(io::ErrorKind::TimedOut, "the name lookup timed out");
    let none = || io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    answer.recv_timeout(LOOKUP_TIMEOUT).map_err(|_| slow())??.ok_or_else(none)
}

/// The first address that the socket of `listen` reaches: one of its family, to which there is a
/// route. Datagrams are not answered, so nothing more can be known.
fn choose(found: &[SocketAddr], listen: IpAddr) -> Option<SocketAddr> {
    let mut suitable = found.iter().filter(|address| listen.is_ipv6() || address.is_ipv4());
    let first = suitable.clone().next().or_else(|| found.first());
    suitable.find(|address| has_route(**address)).or(first).copied()
}

fn has_route(address: SocketAddr) -> bool {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Sends nothing: the kernel looks up the route.
    UdpSocket::bind((any, 0)).and_then(|socket| socket.connect(address)).is_ok()
}

/// Time for which the control thread waits for a lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_an_address_that_the_relay_can_send_to() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (v6, v4) = (at("[::1]:7000"), at("127.0.0.1:7000"));
        let any_v4 = Ipv4Addr::UNSPECIFIED.into();
        assert_eq!(choose(&[v6, v4], any_v4), Some(v4), "a socket of IPv4 does not send to IPv6");
        assert_eq!(choose(&[v6, v4], Ipv6Addr::UNSPECIFIED.into()), Some(v6));
        // A link-local address without a zone has no route.
        let lost = at("[fe80::1]:7000");
        assert_eq!(choose(&[lost, v4], Ipv6Addr::UNSPECIFIED.into()), Some(v4));
        assert_eq!(choose(&[lost], any_v4), Some(lost), "the error of sending says why");
        assert_eq!(choose(&[], any_v4), None);
    }
}
