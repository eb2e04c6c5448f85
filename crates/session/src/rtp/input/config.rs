//! The configuration of an RTP source.

use core::net::IpAddr;

use aulos_core::Span;
use aulos_proto::rtp::jitter::DelayPolicy;

use crate::rtp::RtpPayloadFormat;

/// The configuration of an [`RtpInput`](super::RtpInput).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "wishes, made with new and changed")]
pub struct RtpInputConfig {
    /// The format of the packets.
    pub media: RtpPayloadFormat,
    /// How long a packet waits for an earlier one that is still under way; at most one second.
    pub max_wait: Span,
    /// The longest gap that is concealed. After a longer gap the audio starts anew.
    pub max_concealed: Span,
    /// Only packets from these addresses are accepted; all if it is empty.
    pub allowed_senders: Vec<IpAddr>,
    /// The channel count that Opus is decoded to, 1 or 2: its packets do not contain it.
    pub opus_channels: u8,
    /// The payload type of RED (RFC 2198), if packets are repeated that way.
    pub red_payload_type: Option<u8>,
    /// The playout delay. Without one, packets are decoded as soon as they are in order, and all
    /// buffering is in the station's input.
    pub delay: Option<PlayoutDelay>,
}

/// The adaptive playout delay after the fastest packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the ends of a range")]
pub struct PlayoutDelay {
    /// The lower limit.
    pub min: Span,
    /// The upper limit, [`MAX_PLAYOUT_DELAY`] at most. The delay is fixed if both limits are equal.
    pub max: Span,
}

impl PlayoutDelay {
    /// The jitter buffer's configuration; it starts in the middle of its usual range.
    pub(super) fn resolve(self) -> DelayPolicy {
        let max = self.max.clamp(Span::ZERO, MAX_PLAYOUT_DELAY);
        let min = self.min.clamp(Span::ZERO, max);
        if min == max {
            return DelayPolicy::Fixed(max);
        }
        let first = FIRST_DELAY.clamp(min, max);
        DelayPolicy::Adaptive { quantile: IN_TIME_RATIO, min, max, first }
    }
}

impl RtpInputConfig {
    /// Waits up to 100 ms for late packets, and conceals 400 ms at most.
    #[must_use]
    pub const fn new(media: RtpPayloadFormat) -> Self {
        Self {
            media,
            max_wait: Span::from_millis(100),
            max_concealed: Span::from_millis(400),
            allowed_senders: Vec::new(),
            opus_channels: 2,
            red_payload_type: None,
            delay: None,
        }
    }
}

/// The longest playout delay: with packets of a millisecond, the jitter buffer holds no more than
/// twice as much.
pub const MAX_PLAYOUT_DELAY: Span = Span::from_millis(500);

/// The initial delay, when the network is not known yet.
const FIRST_DELAY: Span = Span::from_millis(40);

/// The target share of packets that arrive in time.
const IN_TIME_RATIO: f32 = 0.995;
