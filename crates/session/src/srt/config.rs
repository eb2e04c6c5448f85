//! The settings of an endpoint.

use core::net::IpAddr;

use aulos_core::Span;

use super::secret::SrtPassphrase;

/// What both roles need.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "settings")]
pub struct SrtConfig {
    /// The delay between sending and play-out; the larger one of both sides counts. At most
    /// 65.535 s.
    pub latency: Span,
    /// Encrypts the stream. The other side must have the same one.
    pub passphrase: Option<SrtPassphrase>,
    /// Bytes of the key that a caller makes: 16, 24 or 32.
    pub key_bytes: usize,
    /// A caller sends it; a listener accepts no other one. Without it a listener accepts any.
    pub stream_id: Option<String>,
}

impl Default for SrtConfig {
    fn default() -> Self {
        Self { latency: DEFAULT_LATENCY, passphrase: None, key_bytes: 16, stream_id: None }
    }
}

/// What a listener needs besides.
#[derive(Clone, Debug, Default)]
#[allow(clippy::exhaustive_structs, reason = "settings")]
pub struct SrtListenerConfig {
    /// The addresses that may call; empty means all.
    pub senders: Vec<IpAddr>,
}

impl SrtConfig {
    /// The latency on the wire.
    pub(super) fn latency_ms(&self) -> u16 {
        u16::try_from(self.latency.as_millis()).unwrap_or(u16::MAX)
    }
}

/// libsrt's default.
const DEFAULT_LATENCY: Span = Span::from_millis(120);
