//! Classification of IP addresses by network scope.
//!
//! A public server that redirects to `http://127.0.0.1/` or `http://10.0.0.1/` makes the client
//! send requests to hosts that the server itself cannot reach. Host names do not reveal that, so
//! the address that is dialled is checked. The standard library has no complete classification in a
//! stable version, so this module contains the registries.
//!
//! Sources: IANA's special-purpose address registries of IPv4 and IPv6 (RFC 6890 and its updates),
//! RFC 4291 (IPv6), RFC 6052 (NAT64 addresses), RFC 3056 (6to4).

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Scope of an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AddressClass {
    /// Globally reachable.
    Public,
    /// Does not name a host: `0.0.0.0/8`, `::`.
    Unspecified,
    /// This host.
    Loopback,
    /// Private network: RFC 1918, shared address space (RFC 6598), unique local addresses of IPv6
    /// (RFC 4193).
    Private,
    /// Link-local: RFC 3927, `fe80::/10`.
    LinkLocal,
    /// Multicast group.
    Multicast,
    /// Reserved, for documentation, for benchmarks, or not allocated.
    Reserved,
}

impl AddressClass {
    /// Scope of `address`. An IPv4 address embedded in an IPv6 address has the scope of the IPv4
    /// address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => of_v6(address),
        }
    }

    /// Whether the address is globally reachable.
    #[must_use]
    pub const fn is_public(self) -> bool {
        matches!(self, Self::Public)
    }
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "a public address",
            Self::Unspecified => "an unspecified address",
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::LinkLocal => "a link-local address",
            Self::Multicast => "a multicast address",
            Self::Reserved => "a reserved address",
        })
    }
}

const fn of_v4(address: Ipv4Addr) -> AddressClass {
    match address.octets() {
        [0, ..] => AddressClass::Unspecified,
        [127, ..] => AddressClass::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => {
            AddressClass::Private
        }
        [169, 254, ..] => AddressClass::LinkLocal,
        [224..=239, ..] => AddressClass::Multicast,
        // 192.0.0.0/24 (protocol assignments), documentation, 6to4 relays, benchmarks, class E and
        // broadcast.
        [192, 0, 0 | 2, _]
        | [198, 51, 100, _]
        | [203, 0, 113, _]
        | [192, 88, 99, _]
        | [198, 18..=19, ..]
        | [240..=255, ..] => AddressClass::Reserved,
        _ => AddressClass::Public,
    }
}

const fn of_v6(address: Ipv6Addr) -> AddressClass {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => AddressClass::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressClass::Loopback,
        // Mapped (::ffff:0:0/96), compatible (::/96), translated (::ffff:0:0:0/96, RFC 2765), NAT64
        // (64:ff9b::/96).
        [0, 0, 0, 0, 0, 0xffff | 0, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        // 6to4: 2002:V4ADDR::/48.
        | [0x2002, high, low, ..] => of_v4(embedded(high, low)),
        // Local-use NAT64 prefix.
        [0x64, 0xff9b, 1, ..] | [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => {
            AddressClass::Private
        }
        [0xfe80..=0xfebf, ..] => AddressClass::LinkLocal,
        [0xff00..=0xffff, ..] => AddressClass::Multicast,
        // Within global unicast: protocol assignments including Teredo (2001::/23), and
        // documentation.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => AddressClass::Reserved,
        // RFC 4291, section 2.4: no other block is allocated.
        [0x2000..=0x3fff, ..] => AddressClass::Public,
        _ => AddressClass::Reserved,
    }
}

/// The IPv4 address in two groups of an IPv6 address.
const fn embedded(high: u16, low: u16) -> Ipv4Addr {
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    Ipv4Addr::new(a, b, c, d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_at_its_edges() {
        use AddressClass::{
            LinkLocal, Loopback, Multicast, Private, Public, Reserved, Unspecified,
        };
        for (class, addresses) in [
            (Unspecified, &["0.0.0.0", "0.255.255.255", "::", "::ffff:0.0.0.0"][..]),
            (
                Loopback,
                &["127.0.0.0", "127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1"][..],
            ),
            (Loopback, &["::127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::", "::ffff:0:7f00:1"]),
            (Private, &["10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255"]),
            (Private, &["192.168.0.0", "192.168.255.255", "100.64.0.0", "100.127.255.255"]),
            (Private, &["fc00::", "fdff:ffff::1", "fec0::1", "::ffff:192.168.1.1", "64:ff9b:1::1"]),
            (Private, &["2002:a00:1::1", "64:ff9b::10.0.0.1"]),
            (LinkLocal, &["169.254.0.0", "169.254.169.254", "169.254.255.255", "fe80::1"]),
            (LinkLocal, &["febf:ffff::1", "::ffff:169.254.169.254"]),
            (Multicast, &["224.0.0.0", "239.255.255.255", "ff02::1", "ffff::", "::ffff:224.0.0.1"]),
            (Reserved, &["192.0.0.1", "192.0.2.1", "198.51.100.1", "203.0.113.255", "192.88.99.1"]),
            (Reserved, &["198.18.0.0", "198.19.255.255", "240.0.0.0", "255.255.255.255"]),
            (Reserved, &["2001::1", "2001:1ff::1", "2001:db8::1", "3fff::1", "3fff:fff::1"]),
            (Reserved, &["100::1", "4000::1", "1fff::1", "5f00::1", "0:0:1::"]),
            (Public, &["1.1.1.1", "9.255.255.255", "11.0.0.0", "126.255.255.255", "128.0.0.0"]),
            (Public, &["100.63.255.255", "100.128.0.0", "169.253.255.255", "169.255.0.0"]),
            (Public, &["172.15.255.255", "172.32.0.0", "192.0.1.0", "192.0.3.0", "192.167.0.1"]),
            (Public, &["192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255"]),
            (Public, &["2000::1", "2001:200::1", "2001:db7::1", "2606:4700::1111", "3ffe::1"]),
            (Public, &["::ffff:1.1.1.1", "64:ff9b::8.8.8.8", "2002:101:101::1", "3fff:1000::1"]),
        ] {
            for text in addresses {
                let address: IpAddr = text.parse().unwrap();
                assert_eq!(AddressClass::of(address), class, "{text}");
                assert_eq!(AddressClass::of(address).is_public(), class == Public, "{text}");
            }
        }
    }

    #[test]
    fn every_non_public_address_of_the_standard_library_is_non_public() {
        let mut chance = aulos_core::Rng::new(3);
        for _ in 0..100_000 {
            let [a, b, c, d] = u32::try_from(chance.next_u64() >> 32).unwrap().to_be_bytes();
            let four = Ipv4Addr::new(a, b, c, d);
            let local = four.is_private()
                || four.is_loopback()
                || four.is_link_local()
                || four.is_multicast()
                || four.is_broadcast()
                || four.is_documentation()
                || four.is_unspecified();
            let class = AddressClass::of(four.into());
            assert!(!local || !class.is_public(), "{four}");
            assert_eq!(AddressClass::of(four.to_ipv6_mapped().into()), class, "{four}");
        }
    }
}
