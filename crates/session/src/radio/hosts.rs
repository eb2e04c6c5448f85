//! Restricts the hosts that a call may name.
//!
//! A URL in the configuration may lead anywhere, one in a control call must not: the caller would
//! make this machine send requests to itself and to its neighbours. The list applies to the
//! resolved addresses, which are the ones connected to, so that a name with changing answers gains
//! nothing.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::str::FromStr;

use aulos_proto::http::AddressClass;

use super::error::RadioError;

/// Permitted hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "each is a form of the configuration key")]
pub enum HostRule {
    /// The private networks of this machine's interfaces.
    Lan,
    /// A host name, in lower case, at public and private addresses.
    Name(String),
    /// A network, also one that no other rule admits, such as loopback.
    Network(IpNetwork),
}

/// An IP network, or with the full prefix length one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the two parts of `192.168.1.0/24`")]
pub struct IpNetwork {
    /// One of its addresses.
    pub address: IpAddr,
    /// Bits that all its addresses have in common.
    pub prefix: u8,
}

/// The hosts from which something may be fetched now.
#[derive(Clone, Debug, Default)]
#[allow(clippy::exhaustive_structs, reason = "the rules, and what one of them refers to")]
pub struct HostAllowList {
    /// Each of them permits.
    pub rules: Vec<HostRule>,
    /// The networks of this machine's interfaces.
    pub lan: Vec<IpNetwork>,
}

impl HostAllowList {
    /// The addresses of `host` that may be connected to.
    ///
    /// # Errors
    /// [`RadioError::NotAllowed`] when there are addresses, and none is permitted.
    pub fn filter(
        &self,
        host: &str,
        addresses: Vec<SocketAddr>,
    ) -> Result<Vec<SocketAddr>, RadioError> {
        let first = addresses.first().map(SocketAddr::ip);
        let allowed =
            |at: &SocketAddr| self.rules.iter().any(|rule| self.allows(rule, host, at.ip()));
        let admitted: Vec<_> = addresses.into_iter().filter(allowed).collect();
        match first {
            Some(address) if admitted.is_empty() => {
                let class = AddressClass::of(address);
                Err(RadioError::NotAllowed(host.to_owned(), address, class))
            }
            _ => Ok(admitted),
        }
    }

    fn allows(&self, rule: &HostRule, host: &str, address: IpAddr) -> bool {
        let class = AddressClass::of(address);
        let is_metadata = METADATA.contains(&address.to_canonical());
        match rule {
            HostRule::Network(network) => network.contains(address),
            _ if is_metadata => false,
            HostRule::Lan => {
                class == AddressClass::Private && self.lan.iter().any(|lan| lan.contains(address))
            }
            HostRule::Name(name) => {
                let is_host = host.trim_end_matches('.').eq_ignore_ascii_case(name);
                is_host && matches!(class, AddressClass::Private | AddressClass::Public)
            }
        }
    }
}

impl IpNetwork {
    /// Whether the address is in it; an IPv4 address in an IPv6 address is an IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let common = |own: u128, other: u128, bits: u32| {
            let rest = bits.saturating_sub(u32::from(self.prefix));
            (own ^ other).checked_shr(rest).unwrap_or(0) == 0
        };
        match (self.address.to_canonical(), address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                common(own.to_bits().into(), other.to_bits().into(), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => common(own.to_bits(), other.to_bits(), 128),
            _ => false,
        }
    }
}

impl FromStr for IpNetwork {
    type Err = InvalidIpNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidIpNetwork> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().map_err(|_| InvalidIpNetwork)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(most), str::parse::<u8>).map_err(|_| InvalidIpNetwork)?;
        if prefix <= most { Ok(Self { address, prefix }) } else { Err(InvalidIpNetwork) }
    }
}

/// The text is no address and no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "there is nothing to add")]
pub struct InvalidIpNetwork;

impl fmt::Display for InvalidIpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected an address, or a network such as 192.168.1.0/24")
    }
}

impl core::error::Error for InvalidIpNetwork {}

impl FromStr for HostRule {
    type Err = InvalidHostRule;

    fn from_str(text: &str) -> Result<Self, InvalidHostRule> {
        if text.eq_ignore_ascii_case("lan") {
            return Ok(Self::Lan);
        }
        if let Ok(network) = text.parse() {
            return Ok(Self::Network(network));
        }
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.is_empty() || !text.chars().all(is_name) {
            return Err(InvalidHostRule);
        }
        Ok(Self::Name(text.trim_end_matches('.').to_ascii_lowercase()))
    }
}

/// The text is no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidHostRule;

impl fmt::Display for InvalidHostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected `lan`, a host name, an address, or a network such as 192.168.1.0/24")
    }
}

impl core::error::Error for InvalidHostRule {}

/// Addresses outside the link-local networks at which clouds give credentials to their machines.
const METADATA: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn list(rules: &[&str], lan: &[&str]) -> HostAllowList {
        let network = |text: &&str| match text.parse() {
            Ok(HostRule::Network(network)) => network,
            other => panic!("{text}: {other:?}"),
        };
        HostAllowList {
            rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
            lan: lan.iter().map(network).collect(),
        }
    }

    fn admits(list: &HostAllowList, host: &str, address: &str) -> bool {
        let found = vec![SocketAddr::new(address.parse().unwrap(), 80)];
        list.filter(host, found).is_ok()
    }

    #[test]
    fn the_local_network_is_that_of_the_interfaces_and_nothing_special() {
        let lan = list(&["lan"], &["192.168.1.7/24", "127.0.0.1/8", "169.254.3.4/16", "1.2.3.4/8"]);
        for (address, expected) in [
            ("192.168.1.200", true),
            ("::ffff:192.168.1.200", true),
            ("192.168.2.1", false),
            ("10.0.0.1", false),
            ("127.0.0.1", false),
            ("::1", false),
            ("169.254.169.254", false),
            ("1.2.3.5", false),
            ("0.0.0.0", false),
        ] {
            assert_eq!(admits(&lan, "ha.local", address), expected, "{address}");
        }
        let six = list(&["lan"], &["fd12:3456::1/64", "fd00:ec2::1/64", "100.100.0.1/10"]);
        assert!(admits(&six, "ha.local", "fd12:3456::99"));
        for metadata in ["fd00:ec2::254", "100.100.100.200"] {
            assert!(!admits(&six, "ha.local", metadata), "{metadata}");
            assert!(admits(&list(&[metadata], &[]), "ha.local", metadata), "{metadata}");
        }
    }

    #[test]
    fn a_name_admits_public_and_private_addresses_and_a_network_all_of_its_own() {
        let named = list(&["Voice.example.", "127.0.0.0/8"], &[]);
        assert!(admits(&named, "voice.EXAMPLE", "1.1.1.1"));
        assert!(admits(&named, "voice.example.", "10.0.0.1"));
        assert!(admits(&named, "any.example", "127.9.9.9"));
        for (host, address) in [
            ("voice.example", "169.254.169.254"),
            ("voice.example", "::1"),
            ("voice.example", "100.100.100.200"),
            ("other.example", "1.1.1.1"),
            ("xvoice.example", "1.1.1.1"),
        ] {
            assert!(!admits(&named, host, address), "{host} {address}");
        }
        let mixed = ["127.0.0.1:80", "8.8.8.8:80"].map(|at| at.parse().unwrap()).to_vec();
        assert_eq!(named.filter("any", mixed).unwrap(), ["127.0.0.1:80".parse().unwrap()]);
        assert!(admits(&list(&["0.0.0.0/0", "::/0"], &[]), "x", "8.8.8.8"));
        assert!(!admits(&list(&["10.0.0.0/32"], &[]), "x", "10.0.0.1"));
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in
            ["", "192.168.1.0/33", "fd00::/129", "host/24", "http://a", "a b", "*", "1.2.3.4/"]
        {
            assert_eq!(text.parse::<HostRule>(), Err(InvalidHostRule), "{text}");
        }
    }
}
