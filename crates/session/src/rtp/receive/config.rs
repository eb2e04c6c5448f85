//! What is accepted as a packet of a stream.

use aulos_core::Span;
use aulos_proto::rtp::payload::DYNAMIC_TYPES;
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

/// The packets of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RtpReceiveConfig {
    /// Their format.
    pub media: RtpPayloadFormat,
    /// The payload type of telephone events; without it they count as an unknown payload type.
    pub dtmf_type: Option<u8>,
    /// The payload type of RED (RFC 2198); missing packets are recovered from it.
    pub red_type: Option<u8>,
    /// How long a packet waits for an earlier one, 0 to 1 s.
    pub reorder_delay: Span,
}

impl RtpReceiveConfig {
    /// Without telephone events and RED.
    #[must_use]
    pub const fn new(media: RtpPayloadFormat, reorder_delay: Span) -> Self {
        Self { media, dtmf_type: None, red_type: None, reorder_delay }
    }

    /// The most packets that are held: those of a fifth of a second, or of the reorder delay if
    /// that is longer.
    pub(super) fn slots(&self) -> usize {
        let shortest = match self.media.encoding.codec {
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

const MIN_HELD: Span = Span::from_millis(160);

const MAX_SLOTS: usize = 1_024;
