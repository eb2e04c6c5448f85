//! Streams of other Snapcast servers: `snapcast://`.

use aulos_core::Span;
use aulos_proto::snap::wire::MAX_ID;

use crate::keys::keys;
use crate::limits::SOURCE_LATENCY_MS;
use crate::names::{Endpoint, endpoint};
use crate::security::secrets::RedactedDebug;
use crate::source::kind::{PasswordSlot, SourceKind};
use crate::source::query::{Parsed, Query};

/// Another Snapcast server, and this client of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapcastSource {
    /// The address to connect to; the port is never 0.
    pub address: Endpoint,
    /// Whether the connection uses TLS.
    pub tls: bool,
    /// The id there; by default made of this host's name and the station's.
    pub id: Option<String>,
    /// The name of this host there; by default its own.
    pub host_name: Option<String>,
    /// How much earlier than the server's loudspeakers it plays.
    pub latency: Span,
    /// Whether its chunks are passed to the station's clients as they are.
    pub pass: bool,
    /// The user to log in as.
    pub user: Option<String>,
    /// The user's password.
    pub password: RedactedDebug<Option<String>>,
}

impl SourceKind for SnapcastSource {
    fn scheme(&self) -> &'static str {
        "snapcast"
    }

    fn is_passed(&self) -> bool {
        self.pass
    }

    fn server(&self) -> Option<Endpoint> {
        Some(self.address.clone())
    }

    fn password_mut(&mut self) -> Option<PasswordSlot<'_>> {
        let (has_user, password) = (self.user.is_some(), &mut self.password);
        Some(PasswordSlot::Login { has_user, password, hint: SECRET_HINT })
    }
}

keys! {
    /// Parameters of `snapcast:`.
    pub(crate) struct SnapcastParams {
        /// Connect with TLS, to another aulos; its certificate must be valid for the host.
        tls: bool = false;
        /// Id of this client on the other server, which keeps its settings under it.
        id: Option<String>, default_doc "this host's name and the station's";
        /// Name of this host on the other server.
        host_name: Option<String>, default_doc "this host's name";
        /// How much earlier than the other server's loudspeakers the source plays.
        latency: u32 = 0, range SOURCE_LATENCY_MS, "milliseconds";
        /// Pass the other server's chunks on without encoding them, so that the station's clients
        /// play in sync with those of that server; the station's `buffer_ms` must be at least 300
        /// shorter than there.
        pass: bool = false;
    }
}

/// Another Snapcast server. The password is a key of its own.
pub(crate) fn parse(query: &Query<'_>) -> Parsed<SnapcastSource> {
    let SnapcastParams { tls, id, host_name, latency, pass, .. } = query.params();
    let uri = query.uri;
    if uri.user.as_ref().is_some_and(|user| user.contains(':')) {
        return query.refuse("a source URI must not contain a password", SECRET_HINT);
    }
    let authority = uri.authority();
    let address = endpoint(&authority, None, Some(SNAPCAST_PORT)).filter(|at| at.port != 0);
    let Some(address) = address else {
        let hint = "as in snapcast://living-room.local or snapcast://192.0.2.7:1704";
        return query.refuse(format!("\"{authority}\" is not HOST:PORT"), hint);
    };
    for (key, text) in [("id", &id), ("host_name", &host_name)] {
        let is_valid = |text: &String| {
            !text.is_empty() && text.len() <= MAX_ID && !text.contains(char::is_control)
        };
        if text.as_ref().is_some_and(|text| !is_valid(text)) {
            let hint = format!("1 to {MAX_ID} bytes without line breaks");
            return query.refuse(format!("`{key}` is not valid"), &hint);
        }
    }
    let latency = Span::from_millis(latency.into());
    let (user, password) = (uri.user.clone(), RedactedDebug(None));
    Some(vec![SnapcastSource { address, tls, id, host_name, latency, pass, user, password }])
}

/// Snapcast's port of streams.
const SNAPCAST_PORT: u16 = 1_704;

const SECRET_HINT: &str = "write { uri = \"snapcast://USER@HOST\", password_file = \"FILE\" }";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceConfig;
    use crate::tests::{load_text, station};

    #[test]
    fn another_snapcast_server_has_a_port_an_identity_and_a_login() {
        let load = |uri: &str, more: &str| {
            load_text(&station(&format!("sources = [{{ uri = \"{uri}\"{more} }}]")), &[])
        };
        let parsed = |uri: &str, more: &str| match load(uri, more)
            .unwrap()
            .stations
            .remove(0)
            .sources
            .remove(0)
            .config
        {
            SourceConfig::Snapcast(source) => source,
            other => panic!("{other:?}"),
        };
        let plain = parsed("snapcast://living-room.local", "");
        assert_eq!(plain.address.to_string(), "living-room.local:1704");
        assert_eq!((plain.tls, plain.id, plain.latency), (false, None, Span::ZERO));
        assert!(!plain.pass && parsed("snapcast://living-room.local?pass=true", "").pass);
        let all = "snapcast://me@[::1]:1800?tls=true&id=a&host_name=B%20C&latency=250";
        let all = parsed(all, ", password = \"open sesame\"");
        assert_eq!(all.address.to_string(), "[::1]:1800");
        assert_eq!((all.id.as_deref(), all.host_name.as_deref()), (Some("a"), Some("B C")));
        assert_eq!((all.tls, all.latency), (true, Span::from_millis(250)));
        assert_eq!(
            (all.user.as_deref(), all.password.0.as_deref()),
            (Some("me"), Some("open sesame"))
        );
        assert!(!format!("{all:?}").contains("sesame"));
        for (uri, more, problem) in [
            ("snapcast://", "", "is not HOST:PORT"),
            ("snapcast://a:0", "", "is not HOST:PORT"),
            ("snapcast://a?id=", "", "`id` is not valid"),
            ("snapcast://a?latency=60001", "", "latency"),
            ("snapcast://a?codec=flac", "", "codec"),
            ("snapcast://a?pass=maybe", "", "pass"),
            ("snapcast://me:open@a", "", "must not contain a password"),
            ("snapcast://me@a", "", "a user and a password"),
            ("snapcast://a", ", password = \"open sesame\"", "a user and a password"),
        ] {
            let told = load(uri, more).unwrap_err().to_string();
            assert!(told.contains(problem), "{uri}: {told}");
            assert!(!told.contains("sesame") && !told.contains("me:open"), "{told}");
        }
    }
}
