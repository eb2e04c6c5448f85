//! What a handshake leads to.

use core::net::SocketAddr;

use aulos_core::{Instant, Span};
use aulos_proto::srt::{RejectCode, Sequence, SrtControl};

use super::encryption::Encryption;
use super::output::SrtCloseReason;

/// What a handshake leads to.
#[derive(Debug)]
pub(super) enum Decision {
    /// It is not for this end, or out of place.
    Ignore,
    /// This is the answer.
    Answer(SrtControl<'static>),
    /// There is a connection; the answer, and the caller's stream id.
    Connect(Box<Agreement>, Option<SrtControl<'static>>, Option<String>),
    /// The caller is refused with this answer.
    Refuse(RejectCode, SrtControl<'static>),
    /// The listener has refused, or is none.
    Fail(SrtCloseReason),
}

/// Who is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) peer: SocketAddr,
    pub(super) local_id: u32,
    pub(super) remote_id: u32,
}

/// What two ends have agreed on.
#[derive(Debug)]
pub(super) struct Agreement {
    pub(super) ends: Ends,
    /// The number of the first packet in both directions.
    pub(super) initial: (Sequence, Sequence),
    /// When this end's clock was zero, and what the peer's says now.
    pub(super) clocks: (Instant, u32),
    /// The delay of what is received, and of what is sent.
    pub(super) latencies: (Span, Span),
    pub(super) encryption: Option<Encryption>,
}

/// Microseconds since `started`, which wrap.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the lower bits")]
pub(super) fn wire_time(now: Instant, started: Instant) -> u32 {
    now.since(started).as_micros() as u32
}

/// The version of SRT whose behaviour this is.
pub(super) const SRT_VERSION: u32 = 0x01_05_01;
