//! The configuration of a relay.

use std::sync::Arc;

use aulos_core::{Instant, Span};
use aulos_proto::rtp::payload::DYNAMIC_TYPES;
use aulos_proto::rtp::rtcp::NtpTime;
use aulos_proto::rtp::{Encoding, RtpCodec};

/// The format of a stream on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtpPayloadFormat {
    /// The encoding of its payloads.
    pub encoding: Encoding,
    /// The payload type, 0 to 127. Without one it is that of RFC 3551; for other encodings any
    /// dynamic type is accepted and [`RtpPayloadFormat::DYNAMIC_TYPE`] is sent.
    pub payload_type: Option<u8>,
}

impl RtpPayloadFormat {
    /// The payload type that is sent for an encoding without a static one.
    pub const DYNAMIC_TYPE: u8 = *DYNAMIC_TYPES.start();

    /// An encoding with its default payload type.
    #[must_use]
    pub const fn new(encoding: Encoding) -> Self {
        Self { encoding, payload_type: None }
    }

    /// The payload type that is sent.
    #[must_use]
    pub fn outgoing_payload_type(&self) -> u8 {
        self.expected_payload_type().unwrap_or(Self::DYNAMIC_TYPE)
    }

    /// The payload type that is accepted; `None` for any dynamic one.
    pub(crate) fn expected_payload_type(&self) -> Option<u8> {
        self.payload_type.or_else(|| self.encoding.static_type())
    }

    pub(crate) fn accepts(&self, payload_type: u8) -> bool {
        match self.expected_payload_type() {
            Some(wanted) => payload_type == wanted,
            None => DYNAMIC_TYPES.contains(&payload_type),
        }
    }
}

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
    /// The incoming format.
    pub from: RtpPayloadFormat,
    /// The outgoing format.
    pub to: RtpPayloadFormat,
    /// The payload types of telephone events; without them they count as unknown payload types.
    pub dtmf: Option<DtmfPayloadTypes>,
    /// The payload type of incoming RED; missing packets are recovered from it.
    pub red_in: Option<u8>,
    /// Sends RED.
    pub red_out: Option<RedConfig>,
    /// Whether the stream arrives over two networks ([`Packet::is_second`](crate::datagram::Packet::is_second)).
    /// The first of each pair of packets is used.
    pub redundant: bool,
    /// How long a packet waits for an earlier one, 0 to 1 s.
    pub reorder_delay: Span,
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
            from,
            to,
            dtmf: None,
            red_in: None,
            red_out: None,
            redundant: false,
            reorder_delay: Span::from_millis(60),
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

    /// The most packets that are held: those of a fifth of a second, or of the reorder delay if
    /// that is longer.
    pub(super) fn slots(&self) -> usize {
        let shortest = match self.from.encoding.codec {
            // AES67 allows packets of 125 us; one millisecond is usual.
            RtpCodec::L16 | RtpCodec::L24 => Span::from_millis(1),
            _ => Span::from_millis(10),
        };
        let span = self.reorder_delay.max(MIN_HELD);
        usize::try_from(span.as_nanos() / shortest.as_nanos()).unwrap_or(MAX_SLOTS).min(MAX_SLOTS)
    }
}

/// The longest reorder delay.
pub const MAX_REORDER_DELAY: Span = Span::from_secs(1);

/// The default silence after which another address may take over a stream: longer than the pause
/// between two comfort noise packets, and short enough for a call that has moved to another
/// machine.
pub const TAKEOVER: Span = Span::from_secs(2);

const MIN_HELD: Span = Span::from_millis(160);

const MAX_SLOTS: usize = 1_024;
