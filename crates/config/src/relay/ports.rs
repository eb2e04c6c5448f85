//! Ports of relays: `udp://HOST:PORT`, `udp://HOST:FIRST-LAST` and `trunk://HOST:PORT`.

use std::fmt;
use std::net::IpAddr;

use crate::keys::values::parsed;
use crate::keys::{ConfigRead, ReadContext, ValueKind};
use crate::limits::MAX_RELAY_PORTS;
use crate::names::without_brackets;
use crate::tree::Node;

/// A port or a range of ports of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange<H> {
    /// The host.
    pub host: H,
    /// The first port.
    pub first: u16,
    /// The last port; equal to the first for a single port.
    pub last: u16,
    /// Whether the port is a trunk: a flow of many streams to or from another relay of this
    /// program.
    pub trunk: bool,
}

impl<H> PortRange<H> {
    /// The number of ports.
    #[must_use]
    pub fn count(&self) -> usize {
        usize::from(self.last - self.first) + 1
    }

    /// The URL scheme.
    #[must_use]
    pub const fn scheme(&self) -> &'static str {
        if self.trunk { "trunk" } else { "udp" }
    }
}

impl<H: fmt::Display> fmt::Display for PortRange<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.to_string();
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        write!(f, "{}://{host}:{}", self.scheme(), self.first)?;
        if self.last == self.first { Ok(()) } else { write!(f, "-{}", self.last) }
    }
}

impl PortRange<IpAddr> {
    /// Whether both would bind the same socket.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let same_host =
            self.host == other.host || self.host.is_unspecified() || other.host.is_unspecified();
        same_host && self.first != 0 && self.first <= other.last && other.first <= self.last
    }
}

impl ConfigRead for PortRange<String> {
    const KIND: &'static ValueKind = &ValueKind::Text;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        parsed(node, context, parse)
    }
}

impl ConfigRead for PortRange<IpAddr> {
    const KIND: &'static ValueKind = &ValueKind::Text;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        parsed(node, context, |text| {
            let PortRange { host, first, last, trunk } = parse(text)?;
            let host = host.parse().map_err(|_| {
                "the host must be an IP address: 0.0.0.0 is every network, 127.0.0.1 this machine"
            })?;
            Ok::<_, &str>(Self { host, first, last, trunk })
        })
    }
}

/// Parses `udp://HOST:PORT`, `udp://HOST:FIRST-LAST` or `trunk://HOST:PORT`.
fn parse(text: &str) -> Result<PortRange<String>, &'static str> {
    let udp = text.strip_prefix("udp://");
    let trunk = udp.is_none();
    let rest = udp.or_else(|| text.strip_prefix("trunk://"));
    let rest = rest.ok_or("it must begin with udp:// or trunk://")?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, range) = rest.rsplit_once(':').ok_or("the port is missing")?;
    let host = without_brackets(host).to_owned();
    if host.is_empty() {
        return Err("the host is missing");
    }
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let port = |text: &str| text.parse::<u16>();
    let (Ok(first), Ok(last)) = (port(first), port(last)) else {
        return Err("a port must be a number from 1 to 65535");
    };
    match last.checked_sub(first) {
        None => Err("the last port must not be below the first"),
        Some(more) if trunk && more > 0 => Err("a trunk must have one port"),
        Some(more) if usize::from(more) >= MAX_RELAY_PORTS => {
            Err("it must have at most 16384 ports")
        }
        Some(_) => Ok(PortRange { host, first, last, trunk }),
    }
}
