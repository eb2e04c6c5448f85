//! Stations that other servers publish through NATS: `nats://`.

use aulos_core::Span;

use crate::cluster::{NATS_PORT, NatsServer, check_build};
use crate::keys::keys;
use crate::limits::{MAX_NAME, NATS_LATENCY_MS};
use crate::names::endpoint;
use crate::source::kind::SourceKind;
use crate::source::query::{Parsed, Query};

/// A station that another server publishes through NATS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsSource {
    /// The server; none means those of `cluster`.
    pub server: Option<NatsServer>,
    /// The site; none means that of `cluster`.
    pub site: Option<String>,
    /// The name of the station there.
    pub station: String,
    /// How much earlier than at the origin it plays; negative for later.
    pub latency: Span,
    /// Whether its chunks are passed to the station's clients as they are.
    pub pass: bool,
}

impl SourceKind for NatsSource {
    fn scheme(&self) -> &'static str {
        "nats"
    }

    fn is_passed(&self) -> bool {
        self.pass
    }
}

keys! {
    /// Parameters of `nats:`.
    pub(crate) struct NatsParams {
        /// Site of the station.
        site: Option<String>, default_doc "that of `cluster`, or `default`";
        /// Connect with TLS; the certificate must be valid for the host.
        tls: bool = false;
        /// How much earlier than at the origin the station plays, or later if it is negative: half
        /// of the time by which the network is slower towards this server than away from it.
        latency: f64 = 0.0, range NATS_LATENCY_MS, "milliseconds";
        /// Pass the origin's chunks on without encoding them, so that the station's clients play in
        /// sync with those of the origin; the station's `buffer_ms` must be at least 300 shorter
        /// than there.
        pass: bool = false;
    }
}

/// `nats://HOST/STATION`, or `nats:///STATION` with the servers of `cluster`.
pub(crate) fn parse(query: &Query<'_>) -> Parsed<NatsSource> {
    let NatsParams { site, tls, latency, pass, .. } = query.params();
    check_build(query.at, query.problems);
    let (uri, hint) = (query.uri, "as in nats://nats.example/kitchen or nats:///kitchen");
    if uri.user.is_some() {
        let hint = "a login is in the table `cluster`";
        return query.refuse("a `nats:` URI must not contain a user", hint);
    }
    let authority = uri.authority();
    let server = if authority.is_empty() {
        None
    } else {
        let address = endpoint(&authority, None, Some(NATS_PORT)).filter(|at| at.port != 0);
        let Some(address) = address else {
            return query.refuse(format!("\"{authority}\" is not HOST:PORT"), hint);
        };
        Some(NatsServer { address, tls })
    };
    let station = uri.path.trim_start_matches('/').to_owned();
    let is_name =
        |name: &str| !name.is_empty() && name.len() <= MAX_NAME && !name.contains(char::is_control);
    if !is_name(&station) || site.as_deref().is_some_and(|site| !is_name(site)) {
        return query.refuse("a `nats:` URI has the name of a station, and of a site", hint);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the range is that of a minute")]
    let latency = Span::from_micros((latency * 1_000.0).round() as i64);
    Some(vec![NatsSource { server, site, station, latency, pass }])
}
