//! Raw samples over TCP: `tcp://`.

use aulos_core::{SampleSpec, Span};

use crate::keys::{NamedEnum, keys};
use crate::names::{Endpoint, endpoint};
use crate::source::data_timeout::DataTimeout;
use crate::source::kind::SourceKind;
use crate::source::query::{Parsed, Query};

/// Raw samples over TCP.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpSource {
    /// Which end of the connection the source is.
    pub mode: TcpMode,
    /// The address to listen on, or to connect to; that port is never 0.
    pub address: Endpoint,
    /// The incoming spec.
    pub spec: SampleSpec,
    /// Time without a sample after which the connection is closed.
    pub timeout: Option<Span>,
}

/// Which end of a TCP connection a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpMode {
    /// It waits for a sender.
    Server,
    /// It connects to a server.
    Client,
}

impl SourceKind for TcpSource {
    fn scheme(&self) -> &'static str {
        "tcp"
    }

    fn spec(&self) -> Option<SampleSpec> {
        Some(self.spec)
    }

    fn needs_server(&self) -> bool {
        false
    }

    fn listen_address(&self) -> Option<&Endpoint> {
        (self.mode == TcpMode::Server).then_some(&self.address)
    }

    fn server(&self) -> Option<Endpoint> {
        (self.mode == TcpMode::Client).then(|| self.address.clone())
    }
}

impl NamedEnum for TcpMode {
    fn values() -> Vec<(&'static str, Self)> {
        vec![("server", Self::Server), ("client", Self::Client)]
    }
}

keys! {
    /// Parameters of `tcp:`.
    pub(crate) struct TcpParams {
        /// `server` waits for a connection, `client` connects.
        mode: TcpMode = TcpMode::Server;
        /// Time without a sample after which the connection is closed; a number is seconds, `off`
        /// waits for ever.
        timeout: DataTimeout = DataTimeout::CONNECTION;
        /// Sample spec: `RATE:BITS:CHANNELS`.
        sampleformat: SampleSpec = SampleSpec::DEFAULT;
    }
}

pub(crate) fn parse(query: &Query<'_>) -> Parsed<TcpSource> {
    let TcpParams { mode, timeout: DataTimeout(timeout), sampleformat: spec, .. } = query.params();
    let client = mode == TcpMode::Client;
    let host = if client { None } else { Some("0.0.0.0") };
    let authority = query.uri.authority();
    let Some(address) = endpoint(&authority, host, Some(TCP_PORT)) else {
        let hint = "as in tcp://0.0.0.0:4953, or tcp://HOST:4953?mode=client";
        return query.refuse(format!("\"{authority}\" is not HOST:PORT"), hint);
    };
    if client && address.port == 0 {
        return query.refuse("a client cannot connect to port 0", "a port from 1 to 65535");
    }
    Some(vec![TcpSource { mode, address, spec, timeout }])
}

/// Snapcast's default port of TCP sources.
const TCP_PORT: u16 = 4953;
