//! The clients of trusted reverse proxies.
//!
//! A proxy opens all connections from its own address, without TLS as a rule, and names its client
//! in `X-Forwarded-For` and `X-Forwarded-Proto`. Any client can send these fields, so they count
//! only where the other end of the connection is a proxy of the configuration; limits, logins and
//! the rights of callers on this machine depend on them. RFC 7239's `Forwarded` is not read: no
//! common proxy sends it unless it is told to, and two fields with different answers would be one
//! too many.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use aulos_config::HttpSettings;
use aulos_control::Counters;
use aulos_io::reactor::{AddressPermit, ListenPolicy};
use tokio::sync::watch;

use crate::tcp::AddressLimiter;

/// Limits the connections that clients keep open through trusted proxies, as those of clients that
/// connect themselves: WebSockets and listeners. Other requests share the proxy's connections.
pub(super) struct ProxiedClients(Mutex<AddressLimiter>);

/// A client has too many connections, or opens them too fast; counted.
#[derive(Debug)]
pub(super) struct TooManyConnections;

impl ProxiedClients {
    pub(super) fn new(policy: watch::Receiver<ListenPolicy>) -> Self {
        Self(Mutex::new(AddressLimiter::new(policy)))
    }

    /// The permit of a connection that stays open, by its client behind a proxy. One that no proxy
    /// has opened has its permit already.
    ///
    /// # Errors
    /// [`TooManyConnections`].
    pub(super) fn admit(
        &self,
        client: Option<IpAddr>,
        counters: &Counters,
    ) -> Result<AddressPermit, TooManyConnections> {
        let Some(client) = client else { return Ok(AddressPermit::default()) };
        let mut limiter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        limiter.admit(client, counters).ok_or(TooManyConnections)
    }
}

/// The client for which a proxy passes a request on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ForwardedClient {
    pub(super) address: IpAddr,
    /// `None` where the proxy does not say.
    pub(super) is_https: Option<bool>,
}

/// The client that a trusted proxy names in the fields of a request's head, given with their names
/// in lower case.
///
/// Each proxy appends the address from which it got the request. So the list is read from its end,
/// for as long as the proxies are trusted; what stands before an address that is not could come
/// from the client.
pub(super) fn forwarded_client<'a>(
    peer: IpAddr,
    fields: impl Iterator<Item = (&'a str, &'a [u8])>,
    http: &HttpSettings,
) -> ForwardedClient {
    let (mut lists, mut is_https) = (Vec::new(), None);
    for (name, value) in fields {
        match name {
            "x-forwarded-for" => lists.push(value),
            "x-forwarded-proto" => is_https = is_https_name(last_item(value)),
            _ => {}
        }
    }
    let mut address = peer;
    let items = lists.iter().rev().flat_map(|list| list.rsplit(|byte| *byte == b','));
    for item in items {
        if !http.is_trusted_proxy(address) {
            break;
        }
        // Some proxies write `unknown`; the last that is known is the next proxy then.
        let Some(before) = parse_address(item) else { break };
        address = before;
    }
    ForwardedClient { address, is_https }
}

fn last_item(list: &[u8]) -> &[u8] {
    list.rsplit(|byte| *byte == b',').next().unwrap_or_default().trim_ascii()
}

/// Some proxies name the scheme of a WebSocket.
fn is_https_name(name: &[u8]) -> Option<bool> {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    if is("https") || is("wss") {
        Some(true)
    } else if is("http") || is("ws") {
        Some(false)
    } else {
        None
    }
}

/// An address, also in brackets or with a port, as some proxies write it.
fn parse_address(item: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(item.trim_ascii()).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().or_else(|_| text.parse::<SocketAddr>().map(|full| full.ip()));
    address.ok().map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settings(proxies: &[&str]) -> HttpSettings {
        let trusted_proxies = proxies.iter().map(|text| text.parse().unwrap()).collect();
        HttpSettings { trusted_proxies, ..HttpSettings::default() }
    }

    fn client(peer: &str, fields: &[(&str, &str)]) -> (String, Option<bool>) {
        let http = settings(&["127.0.0.1", "10.0.0.0/8", "fd00::/8"]);
        let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
        let found = forwarded_client(peer.parse().unwrap(), fields, &http);
        (found.address.to_string(), found.is_https)
    }

    #[test]
    fn the_last_address_that_is_no_proxy_is_the_client() {
        const FOR: &str = "x-forwarded-for";
        for (peer, values, expected) in [
            ("127.0.0.1", &["203.0.113.9"][..], "203.0.113.9"),
            ("::ffff:127.0.0.1", &["203.0.113.9"], "203.0.113.9"),
            ("127.0.0.1", &["2001:db8::7"], "2001:db8::7"),
            ("127.0.0.1", &["[2001:db8::7]:4711"], "2001:db8::7"),
            ("127.0.0.1", &["[2001:db8::7]"], "2001:db8::7"),
            ("127.0.0.1", &["203.0.113.9:4711"], "203.0.113.9"),
            ("127.0.0.1", &["::ffff:203.0.113.9"], "203.0.113.9"),
            // What the client itself has sent stands in front.
            ("127.0.0.1", &["127.0.0.1, 203.0.113.9"], "203.0.113.9"),
            ("127.0.0.1", &["1.2.3.4,203.0.113.9 , 10.0.0.1"], "203.0.113.9"),
            ("127.0.0.1", &["1.2.3.4", "203.0.113.9", "fd00::1"], "203.0.113.9"),
            ("127.0.0.1", &["10.0.0.2, 10.0.0.1"], "10.0.0.2"),
            ("127.0.0.1", &["1.2.3.4, unknown, 10.0.0.1"], "10.0.0.1"),
            ("127.0.0.1", &["203.0.113.9, "], "127.0.0.1"),
            ("127.0.0.1", &["no address"], "127.0.0.1"),
            ("127.0.0.1", &[], "127.0.0.1"),
            // Not listed.
            ("192.0.2.1", &["127.0.0.1"], "192.0.2.1"),
        ] {
            let fields: Vec<_> = values.iter().map(|value| (FOR, *value)).collect();
            assert_eq!(client(peer, &fields).0, expected.parse::<IpAddr>().unwrap().to_string());
        }
    }

    #[test]
    fn the_scheme_is_the_one_that_the_next_proxy_names() {
        const PROTO: &str = "x-forwarded-proto";
        for (value, expected) in [
            ("https", Some(true)),
            ("HTTPS", Some(true)),
            ("wss", Some(true)),
            ("http", Some(false)),
            ("http, https", Some(true)),
            ("gopher", None),
            ("", None),
        ] {
            assert_eq!(client("127.0.0.1", &[(PROTO, value)]).1, expected, "{value}");
        }
    }

    proptest! {
        /// A client that a trusted proxy appends is found, whatever stands in front of it.
        #[test]
        fn a_client_gives_itself_no_address(
            own in proptest::collection::vec("[ ,.:0-9a-f\\[\\]x]{0,24}", 0..4),
            client_address in any::<u32>(),
        ) {
            let address = IpAddr::from(std::net::Ipv4Addr::from_bits(client_address));
            prop_assume!(!settings(&["127.0.0.1", "10.0.0.0/8"]).is_trusted_proxy(address));
            let shown = address.to_string();
            let all = own.iter().map(String::as_str).chain([&shown[..]]);
            let fields: Vec<_> = all.map(|value| ("x-forwarded-for", value)).collect();
            prop_assert_eq!(client("127.0.0.1", &fields).0, shown);
        }
    }
}
