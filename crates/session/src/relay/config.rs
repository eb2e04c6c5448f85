//! The configuration of a relay.

use std::sync::Arc;

use aulos_core::{Instant, Span};
use aulos_proto::rtp::rtcp::NtpTime;

use crate::rtp::{RtpPayloadFormat, RtpReceiveConfig};

/// The payload types of telephone events (RFC 4733) on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "there are two sides")]
pub struct DtmfPayloadTypes {
    /// The incoming payload type.
    pub from: u8,
    /// The outgoing payload type.
    pub to: u8,
}

/// Redundant packets, which repeat the ones before (RED, RFC 2198).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what there is to say of it")]
pub struct RedConfig {
    /// Their payload type.
    pub payload_type: u8,
    /// The number of repeated packets, 1 to [`MAX_RED_DISTANCE`](super::MAX_RED_DISTANCE).
    pub distance: u8,
}

/// The configuration of a relay, shared by its streams.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RelayStreamConfig {
    /// The incoming packets.
    pub receive: RtpReceiveConfig,
    /// The outgoing format.
    pub to: RtpPayloadFormat,
    /// The outgoing payload type of telephone events.
    pub dtmf_to: Option<u8>,
    /// Sends RED.
    pub red_out: Option<RedConfig>,
    /// Whether the stream arrives over two networks
    /// ([`Packet::is_second`](crate::datagram::Packet::is_second)). The first of each pair of
    /// packets is used.
    pub redundant: bool,
    /// A stream ends after a silence of this length.
    pub idle_timeout: Span,
    /// An active sender is replaced by one at another address only after a silence of this length.
    pub takeover: Span,
    /// Sends from the port at which the stream arrives, so that the receiver can answer there. It
    /// costs more, because datagrams of several streams cannot share a call.
    pub symmetric: bool,
    /// The RTCP CNAME; without one no RTCP is sent on either side.
    pub cname: Option<Arc<str>>,
    /// A moment and its wall clock time, for RTCP.
    pub clock: (Instant, NtpTime),
    /// The Opus bit rate in bits per second, 6,000 to 510,000.
    pub opus_bitrate: u32,
    /// The Opus complexity, 0 (cheapest) to 10.
    pub opus_complexity: u8,
    /// Whether Opus packets repeat the one before in low quality (in-band FEC). Costs a fifth of
    /// the bits; a receiver can decode a lost packet from it.
    pub opus_fec: bool,
}

impl RelayStreamConfig {
    /// A relay with RTCP that waits up to 60 ms for late packets.
    #[must_use]
    pub fn new(from: RtpPayloadFormat, to: RtpPayloadFormat) -> Self {
        Self {
            receive: RtpReceiveConfig::new(from, Span::from_millis(60)),
            to,
            dtmf_to: None,
            red_out: None,
            redundant: false,
            idle_timeout: Span::from_secs(30),
            takeover: TAKEOVER,
            symmetric: false,
            cname: Some(Arc::from("aulos")),
            clock: (Instant::ZERO, NtpTime::default()),
            opus_bitrate: 24_000,
            opus_complexity: 5,
            opus_fec: false,
        }
    }
}

/// The default silence after which another address may take over a stream: longer than the pause
/// between two comfort noise packets, and short enough for a call that has moved to another
/// machine.
pub const TAKEOVER: Span = Span::from_secs(2);
