//! Which addresses a redirect or an entry of a playlist may lead to.
//!
//! What the operator wrote may be anywhere. But a server on the public network must not be able to
//! make this one ask machines of its own network, or itself. From the first public address on, only
//! public ones are dialled. It is the address that counts and not the name: what was resolved is what
//! is connected to, so that a name with two answers gains nothing.

use std::net::{IpAddr, SocketAddr};

use aulos_proto::http::AddressClass;

use super::error::RadioError;

/// How far the next request may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum AddressScope {
    /// To every address: no public server had a say in it.
    #[default]
    Any,
    /// To public addresses.
    Public,
}

impl AddressScope {
    /// The addresses of `host` that may be dialled.
    ///
    /// # Errors
    /// [`Failure::NotPublic`] when there are addresses, and none may be.
    pub(super) fn filter(
        self,
        host: &str,
        found: Vec<SocketAddr>,
        class_of: fn(IpAddr) -> AddressClass,
    ) -> Result<Vec<SocketAddr>, RadioError> {
        let allowed = |at: &SocketAddr| self == Self::Any || class_of(at.ip()).is_public();
        let first = found.first().map(SocketAddr::ip);
        let admitted: Vec<_> = found.into_iter().filter(allowed).collect();
        match first {
            Some(address) if admitted.is_empty() => {
                Err(RadioError::NotPublic(host.to_owned(), address, class_of(address)))
            }
            _ => Ok(admitted),
        }
    }

    /// How far what a server of this class says may lead.
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
    fn from_a_public_address_only_public_ones_are_reached() {
        let all = ["127.0.0.1", "1.1.1.1", "10.0.0.1"];
        assert_eq!(admitted(AddressScope::Any, &all).unwrap(), all);
        assert_eq!(admitted(AddressScope::Public, &all).unwrap(), ["1.1.1.1"]);
        assert_eq!(
            admitted(AddressScope::Public, &["::ffff:10.0.0.1", "fe80::1"]).unwrap_err(),
            "a public server leads to host.example, and ::ffff:10.0.0.1 is a private address: only \
             an address in the configuration may be one"
        );
        assert_eq!(admitted(AddressScope::Public, &[]).unwrap(), [""; 0]);
    }

    #[test]
    fn once_public_always_public() {
        let class = |text: &str| AddressClass::of(text.parse().unwrap());
        let scope = AddressScope::default().after(class("10.0.0.1")).after(class("127.0.0.1"));
        assert_eq!(scope, AddressScope::Any);
        let scope = scope.after(class("1.1.1.1"));
        assert_eq!(scope, AddressScope::Public);
        assert_eq!(scope.after(class("10.0.0.1")), AddressScope::Public);
    }
}
