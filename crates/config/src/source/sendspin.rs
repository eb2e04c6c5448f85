//! Players of Sendspin servers: `sendspin://`, which connect or wait for servers.

use std::net::IpAddr;

use aulos_proto::sendspin::{CLIENT_PORT, PATH, SERVER_PORT};

use crate::keys::{NamedEnum, keys};
use crate::names::{Endpoint, endpoint};
use crate::source::kind::SourceKind;
use crate::source::query::{Parsed, Query};

/// A player of a Sendspin server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendspinSource {
    /// The address to connect to, or to listen on; the port is never 0.
    pub address: Endpoint,
    /// The path of the WebSocket, with its leading slash.
    pub path: String,
    /// Whether it waits for servers that connect.
    pub listens: bool,
    /// The name that servers show; by default the station's.
    pub player: Option<String>,
    /// Whether a server may play that is not paired.
    pub unpaired: bool,
}

impl SourceKind for SendspinSource {
    fn scheme(&self) -> &'static str {
        "sendspin"
    }

    fn listen_address(&self) -> Option<&Endpoint> {
        self.listens.then_some(&self.address)
    }

    fn server(&self) -> Option<Endpoint> {
        (!self.listens).then(|| self.address.clone())
    }

    fn has_transport(&self) -> bool {
        true
    }
}

/// Who connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendspinMode {
    Client,
    Listener,
}

impl NamedEnum for SendspinMode {
    fn values() -> Vec<(&'static str, Self)> {
        vec![("client", Self::Client), ("listener", Self::Listener)]
    }
}

keys! {
    /// Parameters of `sendspin:`.
    pub(crate) struct SendspinParams {
        /// `listener` waits for servers that connect and announces itself, `client` connects to the host.
        mode: Option<SendspinMode>, default_doc "`listener` for 0.0.0.0, [::] and without a host, else `client`";
        /// The name that servers show.
        player: Option<String>, default_doc "the station's";
        /// Let servers play that are not paired: everybody who reaches the port, or who answers at the
        /// host.
        unpaired: bool = false;
    }
}

pub(crate) fn parse(query: &Query<'_>) -> Parsed<SendspinSource> {
    let SendspinParams { mode, player, unpaired, .. } = query.params();
    let uri = query.uri;
    if uri.user.is_some() {
        return query.refuse("`sendspin:` has no users", "leave out what is before the @");
    }
    let authority = uri.authority();
    let host = endpoint(&authority, Some("0.0.0.0"), Some(CLIENT_PORT)).map(|at| at.host);
    let host = host.unwrap_or_default();
    let is_open = host.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_unspecified());
    let listens = mode.map_or(is_open, |mode| mode == SendspinMode::Listener);
    let (default_host, port) =
        if listens { (Some("0.0.0.0"), CLIENT_PORT) } else { (None, SERVER_PORT) };
    let address = endpoint(&authority, default_host, Some(port)).filter(|at| at.port != 0);
    let Some(address) = address.filter(|_| listens || !is_open) else {
        let hint = "as in sendspin://0.0.0.0:8928/sendspin or sendspin://192.0.2.7:8927/sendspin";
        return query.refuse(format!("\"{authority}\" is not HOST:PORT"), hint);
    };
    let path = if uri.path.trim_matches('/').is_empty() { PATH } else { &uri.path };
    if path.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return query.refuse("the path is not valid", "as in sendspin://0.0.0.0:8928/sendspin");
    }
    let is_valid = |name: &String| !name.trim().is_empty() && !name.contains(char::is_control);
    if player.as_ref().is_some_and(|name| !is_valid(name) || name.len() > MAX_NAME) {
        return query.refuse(
            "`player` is not valid",
            &format!("1 to {MAX_NAME} bytes without line breaks"),
        );
    }
    Some(vec![SendspinSource { address, path: path.to_owned(), listens, player, unpaired }])
}

/// Longest name of a player.
const MAX_NAME: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceConfig;
    use crate::tests::{first_problem, load_text, station};

    fn source(uri: &str) -> SendspinSource {
        let loaded = load_text(&station(&format!("sources = [\"{uri}\"]")), &[]).unwrap();
        let SourceConfig::Sendspin(source) = loaded.stations[0].sources[0].config.clone() else {
            panic!()
        };
        source
    }

    #[test]
    fn the_host_decides_who_connects_unless_it_is_given() {
        let waits = source("sendspin://0.0.0.0:8928/sendspin");
        assert!(waits.listens && !waits.unpaired);
        assert_eq!((waits.address.port, waits.path.as_str()), (8_928, "/sendspin"));
        for uri in ["sendspin://", "sendspin://[::]", "sendspin://0.0.0.0/"] {
            let waits = source(uri);
            assert!(waits.listens, "{uri}");
            assert_eq!((waits.address.port, waits.path.as_str()), (8_928, "/sendspin"), "{uri}");
        }
        let local = source("sendspin://127.0.0.1:9000?mode=listener&unpaired=true&player=A%20b");
        assert!(local.listens && local.unpaired);
        assert_eq!(local.player.as_deref(), Some("A b"));
        let connects = source("sendspin://music.local/other");
        assert!(!connects.listens);
        assert_eq!(connects.address.to_string(), "music.local:8927");
        assert_eq!(connects.path, "/other");
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_reason() {
        for (uri, reason) in [
            ("sendspin://music:0", "is not HOST:PORT"),
            ("sendspin://?mode=client", "is not HOST:PORT"),
            ("sendspin://me@music", "has no users"),
            ("sendspin://music?player=", "`player` is not valid"),
            ("sendspin://music?unpaired=maybe", "unpaired"),
            ("sendspin://music?mode=both", "client"),
        ] {
            let problem = first_problem(&station(&format!("sources = [\"{uri}\"]")), &[]);
            assert!(problem.contains(reason), "{uri}: {problem}");
        }
    }
}
