//! Addresses of servers, as people write them.

use core::fmt;
use core::str::FromStr;
use std::net::Ipv6Addr;

use aulos_proto::snap::wire::Auth;
use aulos_proto::uri::percent_decode;

/// Address of a server, or the type of service to search for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "these are the parts of an address")]
pub struct ServerAddress {
    /// How the server is spoken to.
    pub scheme: Scheme,
    /// User and password.
    pub auth: Option<Auth>,
    /// A name or an IP address, an IPv6 address without brackets; or a type of mDNS services, which
    /// begins with `_`.
    pub host: String,
    /// TCP port. Of no meaning with a type of services.
    pub port: u16,
    /// Path of the WebSocket; begins with a slash.
    pub path: String,
}

/// Transport of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scheme {
    /// Plain TCP.
    Tcp,
    /// TLS on the port that also takes plain TCP; aulos alone has it.
    Tls,
    /// WebSocket on the HTTP port.
    Ws,
    /// WebSocket with TLS.
    Wss,
}

impl Scheme {
    const ALL: [(&str, Self, u16); 5] = [
        ("tcp", Self::Tcp, 1704),
        ("tls", Self::Tls, 1704),
        ("tcps", Self::Tls, 1704),
        ("ws", Self::Ws, 1780),
        ("wss", Self::Wss, 1788),
    ];

    /// Whether the transport is encrypted.
    #[must_use]
    pub const fn has_tls(self) -> bool {
        matches!(self, Self::Tls | Self::Wss)
    }

    /// Whether the transport is a WebSocket.
    #[must_use]
    pub const fn is_websocket(self) -> bool {
        matches!(self, Self::Ws | Self::Wss)
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, scheme, _)| *scheme == self).map_or("", |(name, ..)| name)
    }
}

impl ServerAddress {
    /// An address without a login.
    #[must_use]
    pub fn new(scheme: Scheme, host: &str, port: u16) -> Self {
        Self { scheme, auth: None, host: host.to_owned(), port, path: STREAM_PATH.to_owned() }
    }

    /// The type of services to search for, in place of a host.
    #[must_use]
    pub fn service(&self) -> Option<&str> {
        self.host.starts_with('_').then_some(&self.host)
    }

    /// Host and port, as in a URL.
    pub(crate) fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl Default for ServerAddress {
    /// A server of the network, as with snapclient.
    fn default() -> Self {
        Self::new(Scheme::Tcp, "_snapcast._tcp", 1704)
    }
}

impl FromStr for ServerAddress {
    type Err = InvalidAddress;

    /// Parses `SCHEME://[USER:PASSWORD@]HOST[:PORT][/PATH]`; without a scheme it is `tcp`.
    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let (name, rest) = text.split_once("://").unwrap_or(("tcp", text));
        let known = Scheme::ALL.iter().find(|(known, ..)| *known == name);
        let unknown = || InvalidAddress::Scheme(name.to_owned());
        let &(_, scheme, default_port) = known.ok_or_else(unknown)?;
        for (is_needed, is_there, feature) in [
            (scheme.has_tls(), cfg!(feature = "tls"), "tls"),
            (scheme.is_websocket(), cfg!(feature = "ws"), "ws"),
        ] {
            if is_needed && !is_there {
                return Err(InvalidAddress::NotBuilt(name.to_owned(), feature));
            }
        }
        // A message must not repeat a password.
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, rest),
        };
        let invalid = || InvalidAddress::Form(place.to_owned());
        let (place, path) = match place.split_once('/') {
            Some((place, path)) if scheme.is_websocket() && !path.is_empty() => {
                (place, format!("/{path}"))
            }
            Some((place, "")) => (place, STREAM_PATH.to_owned()),
            Some(_) => return Err(invalid()),
            None => (place, STREAM_PATH.to_owned()),
        };
        let (host, port) = host_and_port(place).ok_or_else(invalid)?;
        let is_host = |c: char| !c.is_whitespace() && !c.is_control() && !"/@?#[]".contains(c);
        let is_path = |c: char| c.is_ascii_graphic();
        if host.is_empty() || !host.chars().all(is_host) || !path.chars().all(is_path) {
            return Err(invalid());
        }
        let auth = match login {
            None => None,
            Some(login) => {
                let (user, password) = login.split_once(':').ok_or(InvalidAddress::Login)?;
                Some(Auth::basic(&percent_decode(user), &percent_decode(password)))
            }
        };
        let port = port.unwrap_or(default_port);
        Ok(Self { scheme, auth, host: host.to_owned(), port, path })
    }
}

/// Host, without brackets, and port; `None` if the text has another form.
fn host_and_port(text: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        }
        None if text.parse::<Ipv6Addr>().is_ok() => (text, None),
        None => match text.split_once(':') {
            None => (text, None),
            Some((host, port)) => (host, Some(port)),
        },
    };
    let port = match port {
        None => None,
        Some(port) => Some(port.parse().ok().filter(|port| *port > 0)?),
    };
    Some((host, port))
}

impl fmt::Display for ServerAddress {
    /// Without the login.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.scheme.name();
        match self.service() {
            Some(service) => write!(f, "{scheme}://{service}")?,
            None => write!(f, "{scheme}://{}", self.authority())?,
        }
        if self.path != STREAM_PATH { f.write_str(&self.path) } else { Ok(()) }
    }
}

/// Why a text is not the address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidAddress {
    /// This scheme is not supported.
    Scheme(String),
    /// This scheme needs a feature that the program was built without.
    NotBuilt(String, &'static str),
    /// The login is not a user and a password.
    Login,
    /// This text has another form. A login is left out.
    Form(String),
}

impl fmt::Display for InvalidAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme(scheme) => {
                write!(f, "`{scheme}://` is not supported; expected tcp, ws, wss or tls")
            }
            Self::NotBuilt(scheme, feature) => write!(
                f,
                "this program was built without `{scheme}://`; use `aulos play`, or build \
                 aulos-player with the feature `{feature}`"
            ),
            Self::Login => f.write_str(
                "the login in front of `@` is invalid; expected USER:PASSWORD, with %40 for @",
            ),
            Self::Form(text) => write!(
                f,
                "`{text}` is not the address of a server; expected tcp://HOST[:PORT], \
                 ws://HOST[:PORT] or wss://HOST[:PORT]"
            ),
        }
    }
}

impl core::error::Error for InvalidAddress {}

/// Where Snapcast's servers have the WebSocket.
const STREAM_PATH: &str = "/stream";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_others_are_refused_with_the_reason() {
        for (text, expected) in [
            ("tcp://kitchen.local", "tcp://kitchen.local:1704"),
            ("kitchen:1705", "tcp://kitchen:1705"),
            ("tcp://192.0.2.1:9/", "tcp://192.0.2.1:9"),
            ("tcp://[2001:db8::1]", "tcp://[2001:db8::1]:1704"),
            ("[::1]:7", "tcp://[::1]:7"),
            ("::1", "tcp://[::1]:1704"),
            ("ws://kitchen", "ws://kitchen:1780"),
            ("ws://kitchen/stream", "ws://kitchen:1780"),
            ("ws://proxy:80/audio/stream", "ws://proxy:80/audio/stream"),
            ("tcp://_snapcast._tcp", "tcp://_snapcast._tcp"),
        ] {
            assert_eq!(text.parse::<ServerAddress>().unwrap().to_string(), expected);
        }
        for text in ["", "a:b", "a:0", "a:70000", "[::1", "[::1]x", "a/b", "a b"] {
            let error = text.parse::<ServerAddress>().unwrap_err();
            assert_eq!(error, InvalidAddress::Form(text.to_owned()));
        }
        assert_eq!("u@h".parse::<ServerAddress>(), Err(InvalidAddress::Login));
        let error = "http://host".parse::<ServerAddress>().unwrap_err().to_string();
        assert_eq!(error, "`http://` is not supported; expected tcp, ws, wss or tls");
    }

    #[test]
    fn a_login_is_decoded_and_not_shown() {
        let address: ServerAddress = "ws://anna:p%40ss:1@kitchen".parse().unwrap();
        assert_eq!(address.auth, Some(Auth::basic("anna", "p@ss:1")));
        assert_eq!(address.to_string(), "ws://kitchen:1780");
        assert!(!format!("{address:?}").contains("p@ss"), "{address:?}");
        let error = "tcp://anna:secret@a b".parse::<ServerAddress>().unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn schemes_with_tls_need_a_build_with_it() {
        for (text, expected) in [
            ("wss://kitchen", "wss://kitchen:1788"),
            ("tls://kitchen", "tls://kitchen:1704"),
            ("tcps://kitchen:7", "tls://kitchen:7"),
        ] {
            let shown = text.parse::<ServerAddress>().map(|address| address.to_string());
            let scheme = text.split_once(':').unwrap().0.to_owned();
            let missing = Err(InvalidAddress::NotBuilt(scheme, "tls"));
            let has_tls = cfg!(feature = "tls");
            assert_eq!(shown, if has_tls { Ok(expected.to_owned()) } else { missing });
        }
    }
}
