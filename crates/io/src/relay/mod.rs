//! RTP in, RTP out: one stream, from a port to a place.
//!
//! ```text
//!  datagram -> Packet -> Receiver -> JitterBuffer -> Transcoder -> datagram
//!           -> RTCP of the sender's side             RTCP of the listener's side
//! ```
//!
//! A relay has no card and no clock of its own, so it does not play out: one packet goes out for each
//! one that came in, as soon as its turn has come, with the sequence number and the time that its
//! sender gave it. What is missing stays missing, and whoever listens conceals it as he likes best.
//! To conceal here would mean to wait for what is late, for all who listen.
//!
//! [`Relay`] is a machine for [`crate::udp`]: it waits for nothing and allocates nothing for a packet.

mod egress;
pub(crate) mod ingress;
mod latch;
pub(crate) mod payload;
mod red;
pub(crate) mod store;
mod stream;
#[cfg(test)]
mod tests;
mod transcode;

use std::sync::Arc;

use aulos_core::{Instant, Span};
use aulos_proto::rtp::payload::DYNAMIC_TYPES;
use aulos_proto::rtp::rtcp::NtpTime;
use aulos_proto::rtp::{Encoding, RtpCodec};

pub use red::MAX_RED_DISTANCE;
pub use stream::{RelayCounts, RelayReport, RelayStream, RelayStreamLabel};
pub use transcode::TranscodeError;

use transcode::Transcoder;

/// What a stream is made of on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtpPayloadFormat {
    /// How its sound is put into payloads.
    pub encoding: Encoding,
    /// The payload type, 0 to 127; absent, the one of RFC 3551, or else any dynamic one is taken and
    /// [`Media::DYNAMIC_TYPE`] is sent.
    pub payload_type: Option<u8>,
}

impl RtpPayloadFormat {
    /// What is sent for an encoding without a payload type of its own.
    pub const DYNAMIC_TYPE: u8 = *DYNAMIC_TYPES.start();

    /// That encoding with its usual payload type.
    #[must_use]
    pub const fn new(encoding: Encoding) -> Self {
        Self { encoding, payload_type: None }
    }

    /// The payload type that is sent.
    #[must_use]
    pub fn outgoing_payload_type(&self) -> u8 {
        self.payload_type.or_else(|| self.encoding.static_type()).unwrap_or(Self::DYNAMIC_TYPE)
    }

    pub(crate) fn accepts(&self, payload_type: u8) -> bool {
        match self.payload_type.or_else(|| self.encoding.static_type()) {
            Some(wanted) => payload_type == wanted,
            None => DYNAMIC_TYPES.contains(&payload_type),
        }
    }
}

/// The payload types of keys that are pressed (RFC 4733), on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "there are two sides")]
pub struct DtmfPayloadTypes {
    /// Of those that come.
    pub from: u8,
    /// Of those that go.
    pub to: u8,
}

/// Packets that carry the ones before them again (RFC 2198).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what there is to say of it")]
pub struct RedConfig {
    /// Their payload type.
    pub payload_type: u8,
    /// How many of the packets before, 1 to [`MAX_DISTANCE`].
    pub distance: u8,
}

/// The wishes of streams that are relayed alike.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RelayStreamConfig {
    /// What comes.
    pub from: RtpPayloadFormat,
    /// What goes.
    pub to: RtpPayloadFormat,
    /// What is no sound and goes on as it is; absent, it is of an unknown payload type.
    pub dtmf: Option<DtmfPayloadTypes>,
    /// The payload type of what comes as RED: what is lost is taken from the packets behind it.
    pub red_in: Option<u8>,
    /// What goes, goes as RED.
    pub red_out: Option<RedConfig>,
    /// The stream comes over two ways ([`crate::udp::Context::add_two`]): of each two packets the
    /// first is taken.
    pub redundant: bool,
    /// How long a packet waits for one before it, 0 to 1 s.
    pub reorder_delay: Span,
    /// A stream of which nothing has come for so long has ended.
    pub idle_timeout: Span,
    /// A sender who sends is not replaced by one at another address before he has been silent for so
    /// long.
    pub takeover: Span,
    /// Send from the port that the stream comes to, so that whoever listens can answer there.
    /// Dearer: the datagrams of many streams then do not go in one call.
    pub symmetric: bool,
    /// Our name in RTCP; absent, none is sent, on either side.
    pub cname: Option<Arc<str>>,
    /// A moment, and the time of day that it was, for reports.
    pub clock: (Instant, NtpTime),
    /// Bits per second of Opus, 6,000 to 510,000.
    pub opus_bitrate: u32,
    /// 0 (cheapest) to 10.
    pub opus_complexity: u8,
    /// Whether each packet of Opus carries the one before again, in low quality. Costs a fifth of the
    /// bits; a listener who has lost one can make something of it.
    pub opus_fec: bool,
}

/// Wishes that can be fulfilled, for all streams that have them.
#[derive(Debug)]
pub struct RelayPlan {
    config: RelayStreamConfig,
    /// What each stream begins with.
    transcoder: Transcoder,
}

impl RelayPlan {
    /// Checks the wishes. Takes some milliseconds and a megabyte when the rate has to change.
    ///
    /// # Errors
    /// [`CannotTranscode`] when there is no way from the one encoding to the other.
    pub fn new(wishes: RelayStreamConfig) -> Result<Self, TranscodeError> {
        let transcoder = Transcoder::new(&wishes)?;
        Ok(Self { config: wishes, transcoder })
    }
}

impl RelayStreamConfig {
    /// A relay that waits up to 60 ms for what is late, with RTCP.
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

    /// How many packets are held at most: those of a fifth of a second, and as many as may be waited
    /// for.
    fn slots(&self) -> usize {
        let shortest = match self.from.encoding.codec {
            // AES67 has packets of 125 us, and a millisecond is what is usual.
            RtpCodec::L16 | RtpCodec::L24 => Span::from_millis(1),
            _ => Span::from_millis(10),
        };
        let span = self.reorder_delay.max(LEAST_HELD);
        usize::try_from(span.as_nanos() / shortest.as_nanos()).unwrap_or(MAX_SLOTS).min(MAX_SLOTS)
    }
}

/// The longest that a packet may wait for one before it.
pub const MAX_REORDER_DELAY: Span = Span::from_secs(1);

/// The silence after which another address may take a stream over, unless told otherwise: longer than
/// what a sender who says nothing lets pass between two packets of comfort noise, and no longer than a
/// call can bear that has been moved to another machine.
pub const TAKEOVER: Span = Span::from_secs(2);

const LEAST_HELD: Span = Span::from_millis(160);

const MAX_SLOTS: usize = 1_024;
