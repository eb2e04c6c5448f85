//! Classifies payloads: audio, telephone events, or comfort noise.

use aulos_proto::rtp;
use aulos_proto::rtp::red::RedBlocks;

use super::RtpReceiveConfig;

/// The kind of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PayloadKind {
    /// Audio, which is transcoded.
    Audio,
    /// A telephone event (RFC 4733), which is forwarded as it is.
    TelephoneEvent,
    /// Comfort noise (RFC 3389).
    ComfortNoise,
}

/// The fields of a packet that a stream uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IncomingPacket<'a> {
    pub(crate) sequence: u16,
    pub(crate) timestamp: u32,
    pub(crate) marker: bool,
    pub(crate) kind: PayloadKind,
    pub(crate) payload: &'a [u8],
    /// The redundant blocks, if it is a RED packet.
    pub(crate) red: Option<RedBlocks<'a>>,
}

/// Why a packet is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IgnoreReason {
    /// Its payload type is not configured.
    UnknownPayloadType,
    /// It has the payload type of RED but is not valid RED.
    InvalidRed,
}

impl RtpReceiveConfig {
    /// Classifies a packet and finds its payload.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub(crate) fn parse<'a>(
        &self,
        packet: &rtp::RtpPacket<'a>,
    ) -> Result<IncomingPacket<'a>, IgnoreReason> {
        let mut incoming = IncomingPacket {
            sequence: packet.sequence(),
            timestamp: packet.timestamp(),
            marker: packet.marker(),
            kind: PayloadKind::Audio,
            payload: packet.payload(),
            red: None,
        };
        let mut payload_type = packet.payload_type();
        if self.red_type == Some(payload_type) {
            let blocks =
                RedBlocks::parse(packet.payload()).map_err(|_| IgnoreReason::InvalidRed)?;
            let own = blocks.primary();
            (payload_type, incoming.payload) = (own.payload_type, own.data);
            incoming.red = Some(blocks);
        }
        incoming.kind = self.payload_kind(payload_type).ok_or(IgnoreReason::UnknownPayloadType)?;
        Ok(incoming)
    }

    fn payload_kind(&self, payload_type: u8) -> Option<PayloadKind> {
        if self.dtmf_type == Some(payload_type) {
            return Some(PayloadKind::TelephoneEvent);
        }
        if payload_type == COMFORT_NOISE && self.media.encoding.clock_rate == COMFORT_HZ {
            return Some(PayloadKind::ComfortNoise);
        }
        let is_red = self.red_type == Some(payload_type);
        (!is_red && self.media.accepts(payload_type)).then_some(PayloadKind::Audio)
    }
}

/// The duration of a telephone event so far, in ticks (RFC 4733, 2.3: the last two of its four
/// bytes). Its timestamp is the time of its beginning.
pub(crate) fn event_duration(payload: &[u8]) -> u16 {
    match *payload {
        [_, _, high, low, ..] => u16::from_be_bytes([high, low]),
        _ => 0,
    }
}

/// The payload type of comfort noise, and its only clock rate (RFC 3551, 6).
pub(crate) const COMFORT_NOISE: u8 = 13;
pub(crate) const COMFORT_HZ: u32 = 8_000;
