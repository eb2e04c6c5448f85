//! Restricts the addresses to which a redirect or a playlist entry may lead.
//!
//! A URL in the configuration may lead anywhere. But a server on the public network must not make
//! this one send requests to its own network, or to itself (SSRF). From the first public address
//! on, only public ones are dialled. The check applies to the resolved address, which is the one
//! connected to, so that a name with changing answers gains nothing.

use core::net::{IpAddr, SocketAddr};

use aulos_proto::http::AddressClass;

use super::error::RadioError;

/// Permitted addresses of the next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum AddressScope {
    /// Every address: no public server was involved.
    #[default]
    Any,
    /// Public addresses.
    Public,
}

impl AddressScope {
    /// The addresses of `host` that may be dialled.
    ///
    /// # Errors
    /// [`RadioError::NotPublic`] when there are addresses, and none is permitted.
    pub(super) fn filter(
        self,
        host: &str,
        addresses: Vec<SocketAddr>,
        class_of: fn(IpAddr) -> AddressClass,
    ) -> Result<Vec<SocketAddr>, RadioError> {
        let allowed = |at: &SocketAddr| self == Self::Any || class_of(at.ip()).is_public();
        let first = addresses.first().map(SocketAddr::ip);
        let admitted: Vec<_> = addresses.into_iter().filter(allowed).collect();
        match first {
            Some(address) if admitted.is_empty() => {
                Err(RadioError::NotPublic(host.to_owned(), address, class_of(address)))
            }
            _ => Ok(admitted),
        }
    }

    /// The scope of addresses that a server of this class refers to.
    pub(super) const fn after(self, class: AddressClass) -> Self {
        if class.is_public() { Self::Public } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(scope: AddressScope, found: &[&str]) -> Result<Vec<String>, String> {
        let found = found.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 80)).collect();
        let admitted = scope.filter("host.example", found, AddressClass::of);
        let text = |all: Vec<SocketAddr>| all.iter().map(|at| at.ip().to_string()).collect();
        admitted.map(text).map_err(|failure| failure.to_string())
    }

    #[test]
    fn redirects_from_public_addresses_reach_only_public_ones() {
        let all = ["127.0.0.1", "1.1.1.1", "10.0.0.1"];
        assert_eq!(admitted(AddressScope::Any, &all).unwrap(), all);
        assert_eq!(admitted(AddressScope::Public, &all).unwrap(), ["1.1.1.1"]);
        assert_eq!(
            admitted(AddressScope::Public, &["::ffff:10.0.0.1", "fe80::1"]).unwrap_err(),
            "a public server refers to host.example, and ::ffff:10.0.0.1 is a private address, \
             which only a URL in the configuration may name"
        );
        assert_eq!(admitted(AddressScope::Public, &[]).unwrap(), [""; 0]);
    }

    #[test]
    fn after_a_public_address_all_redirects_must_be_public() {
        let class = |text: &str| AddressClass::of(text.parse().unwrap());
        let scope = AddressScope::default().after(class("10.0.0.1")).after(class("127.0.0.1"));
        assert_eq!(scope, AddressScope::Any);
        let scope = scope.after(class("1.1.1.1"));
        assert_eq!(scope, AddressScope::Public);
        assert_eq!(scope.after(class("10.0.0.1")), AddressScope::Public);
    }
}
