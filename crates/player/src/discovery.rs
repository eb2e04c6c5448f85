//! Finds a server by multicast DNS: one question through every interface, and the first answer.
//!
//! The questions come from a port of their own, so that the answers come to this socket alone, and
//! neither port 5353 nor a daemon is needed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use aulos_core::{Instant, Span};
use aulos_proto::mdns::{MAX_PACKET, MDNS_PORT, MdnsSearch, ServiceInstance};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::netdevice::name_to_index;
use rustix::net::sockopt;

use crate::clock;

/// A server that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundServer {
    pub(crate) name: String,
    pub(crate) host: String,
    /// Never empty.
    pub(crate) addresses: Vec<SocketAddr>,
}

/// Searches until a server has answered, or the one of this name; `None` if none has within `time`.
/// Then `others` are the names of those that have.
pub(crate) fn find(
    service: &str,
    name: Option<&str>,
    time: Span,
) -> io::Result<Result<FoundServer, Vec<String>>> {
    let invalid = || io::Error::other(format!("`{service}` is not a type of mDNS services"));
    let mut search = MdnsSearch::new(service).ok_or_else(invalid)?;
    let sockets = Sockets::open()?;
    let begin = clock::now();
    let mut questions = QUESTIONS_AT.map(|at| begin + at).into_iter().peekable();
    let (mut packet, mut asked, mut scope) = (vec![0; MAX_PACKET], Vec::new(), 0);
    let mut sent = 0;
    loop {
        let now = clock::now();
        // Also when an answer leaves a question.
        let query = search.query();
        let is_due = questions.next_if(|at| *at <= now).is_some() || query != asked;
        if is_due && sent < MAX_QUERIES {
            sent += 1;
            sockets.send(&query);
            asked = query;
        }
        if now >= begin + time {
            return Ok(Err(search.found().map(|found| found.name).collect()));
        }
        let until = questions.peek().copied().unwrap_or(begin + time).min(begin + time);
        sockets.wait(until);
        for _ in 0..MAX_PACKETS {
            let Some((length, from)) = sockets.receive(&mut packet) else { break };
            if let SocketAddr::V6(from) = from {
                scope = from.scope_id();
            }
            search.handle_packet(packet.get(..length).unwrap_or_default());
        }
        let is_wanted =
            |found: &ServiceInstance| name.is_none_or(|name| found.name.eq_ignore_ascii_case(name));
        let found = search.found().filter(is_wanted).find_map(|found| reachable(found, scope));
        if let Some(found) = found {
            return Ok(Ok(found));
        }
    }
}

/// The addresses in the order in which to try them. One that is local to a link needs the link.
fn reachable(found: ServiceInstance, scope: u32) -> Option<FoundServer> {
    let ServiceInstance { name, host, port, addresses } = found;
    let is_local = |at: &Ipv6Addr| at.is_unicast_link_local();
    let usable = addresses.into_iter().filter_map(|address| match address {
        IpAddr::V4(at) => Some((0, SocketAddr::from((at, port)))),
        IpAddr::V6(at) if !is_local(&at) => Some((1, SocketAddr::from((at, port)))),
        IpAddr::V6(_) if scope == 0 => None,
        IpAddr::V6(at) => Some((2, SocketAddrV6::new(at, port, 0, scope).into())),
    });
    let mut usable: Vec<_> = usable.collect();
    usable.sort_by_key(|(order, _)| *order);
    let addresses: Vec<_> = usable.into_iter().map(|(_, address)| address).collect();
    (!addresses.is_empty()).then_some(FoundServer { name, host, addresses })
}

/// One socket for each version of IP that there is.
struct Sockets {
    all: Vec<UdpSocket>,
    interfaces: Vec<u32>,
}

impl Sockets {
    fn open() -> io::Result<Self> {
        let bound = [
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)),
            UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)),
        ];
        let (mut all, mut error) = (Vec::new(), None);
        for socket in bound {
            match socket.and_then(|socket| socket.set_nonblocking(true).map(|()| socket)) {
                Ok(socket) => all.push(socket),
                Err(why) => error = Some(why),
            }
        }
        match (all.first(), error) {
            (None, Some(error)) => Err(error),
            (None, None) => Err(io::Error::other("no sockets")),
            (Some(socket), _) => {
                let interfaces = interfaces(socket);
                Ok(Self { all, interfaces })
            }
        }
    }

    /// Sends through every interface; those that refuse it have no network.
    fn send(&self, query: &[u8]) {
        for socket in &self.all {
            let is_v4 = socket.local_addr().is_ok_and(|address| address.is_ipv4());
            for &interface in &self.interfaces {
                let to: SocketAddr = if is_v4 {
                    let any = Ipv4Addr::UNSPECIFIED;
                    let _refused =
                        sockopt::set_ip_multicast_if_with_ifindex(socket, &any, &any, interface);
                    (GROUP_V4, MDNS_PORT).into()
                } else {
                    SocketAddrV6::new(GROUP_V6, MDNS_PORT, 0, interface).into()
                };
                drop(socket.send_to(query, to));
            }
        }
    }

    /// Waits for a packet.
    fn wait(&self, until: Instant) {
        let mut fds: Vec<_> =
            self.all.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        let timeout = clock::timeout(until - clock::now());
        // A signal ends the wait early.
        let _ready = poll(&mut fds, Some(&timeout));
    }

    fn receive(&self, packet: &mut [u8]) -> Option<(usize, SocketAddr)> {
        self.all.iter().find_map(|socket| socket.recv_from(packet).ok())
    }
}

/// Numbers of the network interfaces; 0, the one of the default route, if they are not known.
fn interfaces(socket: &UdpSocket) -> Vec<u32> {
    // In a network namespace /sys may be that of another one.
    let table = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let names = table.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    let numbers = names.filter_map(|name| name_to_index(socket, name).ok());
    let numbers: Vec<u32> = numbers.take(MAX_INTERFACES).collect();
    if numbers.is_empty() { vec![0] } else { numbers }
}

const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);

/// Packets are lost, in wireless networks above all.
const QUESTIONS_AT: [Span; 2] = [Span::ZERO, Span::from_millis(300)];

const MAX_INTERFACES: usize = 32;

/// Of one search, and between two looks at the clock: answers may be a flood.
const MAX_QUERIES: usize = 6;
const MAX_PACKETS: usize = 64;
