//! The status of an RTP source.

use core::fmt;
use core::net::SocketAddr;

use aulos_core::Span;

/// The counters of an RTP source, over all senders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RtpInputCounts {
    /// Packets of the source, without duplicates.
    pub received: u64,
    /// Packets known to be lost.
    pub lost: u64,
    /// Lost packets that were recovered from RED.
    pub recovered_red: u64,
    /// Lost packets that were recovered from Opus FEC.
    pub recovered_fec: u64,
    /// Packets that arrived after they had been concealed.
    pub late: u64,
    /// Packets that arrived twice.
    pub duplicates: u64,
    /// Packets that arrived after a later one.
    pub reordered: u64,
    /// Frames that were concealed.
    pub concealed: u64,
    /// Frames that the sender omitted as silence.
    pub left_out: u64,
    /// Concealed frames that made the playout delay longer.
    pub stretched: u64,
    /// Packets that were skipped because more arrived than could be played in time.
    pub skipped: u64,
    /// Gaps that were too long to be concealed.
    pub gaps: u64,
    /// Packets of this source that are not valid payloads of its codec.
    pub undecodable: u64,
    /// Panics of the codec's library. Each time a new decoder went on.
    pub codec_panics: u64,
    /// Packets for which the jitter buffer had no room.
    pub no_room: u64,
    /// Frames that the station did not take in time.
    pub overflown: u64,
    /// How often another sender took over, or the same one restarted.
    pub changes: u64,
    /// Datagrams that are not RTP.
    pub refused: u64,
    /// Packets of other payload types.
    pub other_types: u64,
    /// Packets of other senders while the sender is active, and from addresses that are not
    /// allowed.
    pub other_senders: u64,
    /// RTCP that was malformed or not for this source.
    pub other_rtcp: u64,
    /// BYEs after which the sender continued.
    pub forged_byes: u64,
}

/// The status of an RTP source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RtpInputStatus {
    /// The address of the sender, while there is one.
    pub from: Option<SocketAddr>,
    /// Its SSRC.
    pub ssrc: Option<u32>,
    /// The counters.
    pub counts: RtpInputCounts,
    /// The interarrival jitter of RFC 3550.
    pub jitter: Span,
    /// The current wait for late packets; with a playout delay, that delay.
    pub wait: Span,
    /// Packets that are queued behind a missing one.
    pub held: usize,
    /// What arrives, while only packets of other payload types do.
    pub unexpected_type: Option<UnexpectedPayloadType>,
}

/// Packets of another payload type arrive in place of the source's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a fact")]
pub struct UnexpectedPayloadType {
    /// The payload type that arrives.
    pub arrives: u8,
    /// The source's payload type; `None` for any of the dynamic ones.
    pub expected: Option<u8>,
}

impl fmt::Display for UnexpectedPayloadType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "payload type {} arrives, ", self.arrives)?;
        match self.expected {
            Some(expected) => write!(f, "{expected} is expected"),
            None => f.write_str("one of 96 to 127 is expected"),
        }
    }
}
