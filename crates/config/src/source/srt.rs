//! Streams over SRT: `srt://`, as a caller or as a listener.

use std::net::IpAddr;

use aulos_core::Span;
use aulos_proto::srt::MAX_STREAM_ID;
use aulos_proto::uri::percent_decode;
use aulos_session::srt::{SrtConfig, SrtPassphrase};

use crate::keys::{NamedEnum, keys};
use crate::limits::SRT_LATENCY_MS;
use crate::names::{Endpoint, endpoint};
use crate::problem::{ConfigLocation, Problems};
use crate::source::kind::{PasswordSlot, SourceKind};
use crate::source::query::{Parsed, Query};
use crate::source::rtp::Senders;

/// A stream over SRT.
#[derive(Clone, Debug, PartialEq)]
pub struct SrtSource {
    /// Which end of the connection the source is.
    pub mode: SrtMode,
    /// The address to call, or to listen on; the port is never 0.
    pub address: Endpoint,
    /// Latency, passphrase and stream id.
    pub settings: SrtConfig,
    /// The addresses that may call; empty means all.
    pub senders: Vec<IpAddr>,
    /// The URI for display, without the passphrase.
    pub shown: String,
}

/// Which end of an SRT connection this server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a connection has two ends")]
pub enum SrtMode {
    /// It calls.
    Caller,
    /// It waits for a caller.
    Listener,
}

impl SourceKind for SrtSource {
    fn scheme(&self) -> &'static str {
        "srt"
    }

    fn server(&self) -> Option<Endpoint> {
        (self.mode == SrtMode::Caller).then(|| self.address.clone())
    }

    fn display_uri(&self) -> Option<String> {
        Some(self.shown.clone())
    }

    fn password_mut(&mut self) -> Option<PasswordSlot<'_>> {
        Some(PasswordSlot::Passphrase(&mut self.settings.passphrase))
    }
}

impl NamedEnum for SrtMode {
    fn values() -> Vec<(&'static str, Self)> {
        vec![("caller", Self::Caller), ("listener", Self::Listener)]
    }
}

/// The length of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyBytes(usize);

impl NamedEnum for KeyBytes {
    fn values() -> Vec<(&'static str, Self)> {
        vec![("16", Self(16)), ("24", Self(24)), ("32", Self(32))]
    }
}

keys! {
    /// Parameters of `srt:`.
    pub(crate) struct SrtParams {
        /// `caller` connects, `listener` waits for one caller at a time.
        mode: Option<SrtMode>, default_doc "`caller`; `listener` without a host";
        /// Time in which lost packets are sent again; the larger one of both sides counts.
        latency: u32 = 120, range SRT_LATENCY_MS, "milliseconds";
        /// Encrypts the stream, 10 to 79 bytes; `password` and `password_file` of the source's
        /// table keep it out of the URI.
        passphrase: Option<String>;
        /// Bytes of the key that a caller makes.
        pbkeylen: KeyBytes = KeyBytes(16);
        /// A caller sends it, a listener refuses callers with another one.
        streamid: Option<String>, default_doc "none is sent, and all are accepted";
        /// Addresses of the accepted callers, separated by commas.
        source: Senders, default_doc "all";
    }
}

pub(crate) fn parse(query: &Query<'_>) -> Parsed<SrtSource> {
    let params: SrtParams = query.params();
    let SrtParams { mode, latency, passphrase, pbkeylen, streamid: stream_id, source, .. } = params;
    let authority = query.uri.authority();
    let is_open = authority.is_empty() || authority.starts_with(':');
    let mode = mode.unwrap_or(if is_open { SrtMode::Listener } else { SrtMode::Caller });
    let host = (mode == SrtMode::Listener).then_some("0.0.0.0");
    let address = endpoint(&authority, host, None).filter(|address| address.port != 0);
    let Some(address) = address else {
        let hint = "as in srt://studio.example:9000, or srt://0.0.0.0:9000?mode=listener";
        return query.refuse(format!("\"{authority}\" is not HOST:PORT"), hint);
    };
    if stream_id.as_ref().is_some_and(|id| id.is_empty() || id.len() > MAX_STREAM_ID) {
        return query.refuse("`streamid` is not valid", &format!("1 to {MAX_STREAM_ID} bytes"));
    }
    if mode == SrtMode::Caller && source != Senders::default() {
        return query.refuse("`source` is for a listener", "leave it out: a caller names its peer");
    }
    let shown = without_passphrase(&query.uri.raw);
    let passphrase = match passphrase.map(SrtPassphrase::new).transpose() {
        Ok(passphrase) => passphrase,
        Err(error) => return query.refuse(error.to_string(), "the same text on both sides"),
    };
    let latency = Span::from_millis(latency.into());
    let settings = SrtConfig { latency, passphrase, key_bytes: pbkeylen.0, stream_id };
    let senders = source.addresses();
    Some(vec![SrtSource { mode, address, settings, senders, shown }])
}

/// Sets a passphrase that is not in the URI; without one, that of the URI stays.
pub(crate) fn set_passphrase(
    slot: &mut Option<SrtPassphrase>,
    text: Option<String>,
    at: ConfigLocation,
    problems: &Problems,
) {
    match text.map(SrtPassphrase::new).transpose() {
        Ok(None) => {}
        Ok(passphrase) => *slot = passphrase,
        Err(error) => problems.add(at, error.to_string()),
    }
}

/// The URI with the value of `passphrase` left out.
fn without_passphrase(uri: &str) -> String {
    let Some((head, query)) = uri.split_once('?') else { return uri.to_owned() };
    let shown = query.split('&').map(|pair| match pair.split_once('=') {
        Some((key, _)) if percent_decode(key) == "passphrase" => format!("{key}=..."),
        _ => pair.to_owned(),
    });
    format!("{head}?{}", shown.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceConfig;
    use crate::tests::{first_problem, load_text, station};

    fn source(uri: &str) -> SrtSource {
        let loaded = load_text(&station(&format!("sources = [\"{uri}\"]")), &[]).unwrap();
        let SourceConfig::Srt(source) = loaded.stations[0].sources[0].config.clone() else {
            panic!()
        };
        source
    }

    #[test]
    fn the_host_decides_on_the_mode_unless_it_is_given() {
        let caller = source("srt://studio.example:9000?latency=600&streamid=live");
        assert_eq!((caller.mode, caller.address.port), (SrtMode::Caller, 9_000));
        assert_eq!(caller.settings.latency, Span::from_millis(600));
        assert_eq!(caller.settings.stream_id.as_deref(), Some("live"));
        assert_eq!(source("srt://:9000").mode, SrtMode::Listener);
        let listener = source("srt://127.0.0.1:9000?mode=listener&source=192.0.2.1,192.0.2.2");
        assert_eq!((listener.mode, listener.senders.len()), (SrtMode::Listener, 2));
        assert_eq!(listener.settings.latency, Span::from_millis(120));
    }

    #[test]
    fn a_passphrase_is_a_secret_wherever_it_comes_from() {
        let uri = "srt://:9000?passphrase=correct-horse&latency=200";
        let text = station(&format!("sources = [\"{uri}\"]"));
        let loaded = load_text(&text, &[]).unwrap();
        let source = &loaded.stations[0].sources[0];
        assert_eq!(source.uri, "srt://:9000?passphrase=...&latency=200");
        assert!(!format!("{loaded:?}").contains("correct-horse"));
        let spelt = station("sources = [\"srt://:9000?pass%70hrase=correct-horse\"]");
        let loaded = load_text(&spelt, &[]).unwrap();
        assert!(!format!("{loaded:?}").contains("correct-horse"), "{loaded:?}");
        let table = station("sources = [{ uri = \"srt://:9000\", password = \"correct-horse\" }]");
        let loaded = load_text(&table, &[]).unwrap();
        let SourceConfig::Srt(source) = &loaded.stations[0].sources[0].config else { panic!() };
        assert!(source.settings.passphrase.is_some());
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_reason() {
        for (uri, reason) in [
            ("srt://:9000?passphrase=short", "10 to 79 bytes"),
            ("srt://studio", "is not HOST:PORT"),
            ("srt://studio:0", "is not HOST:PORT"),
            ("srt://:9000?streamid=", "`streamid` is not valid"),
            ("srt://studio:9000?source=192.0.2.1", "is for a listener"),
            ("srt://studio:9000?latency=1", "20 to 8000"),
            ("srt://studio:9000?mode=rendezvous", "caller"),
        ] {
            let problem = first_problem(&station(&format!("sources = [\"{uri}\"]")), &[]);
            assert!(problem.contains(reason), "{uri}: {problem}");
        }
    }
}
