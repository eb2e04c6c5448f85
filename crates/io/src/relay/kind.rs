//! What a payload is: sound, or one of the small things that telephones send in its place.

use aulos_proto::rtp::red::Blocks;
use aulos_proto::rtp::{self, Encoding};

use super::Wishes;

/// What becomes of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It is transcoded.
    Sound,
    /// A key that was pressed (RFC 4733): it goes on as it is.
    Event,
    /// What is heard while nobody speaks (RFC 3389).
    Noise,
}

/// A packet, as far as a stream looks into it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming<'a> {
    pub(crate) sequence: u16,
    pub(crate) timestamp: u32,
    pub(crate) marker: bool,
    pub(crate) kind: Kind,
    pub(crate) payload: &'a [u8],
    /// It carries what others carried.
    pub(crate) red: Option<Blocks<'a>>,
}

/// Why a packet is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// Nobody said what its payload type is.
    Type,
    /// It is no RED, and says that it is.
    Red,
}

impl Wishes {
    /// # Real-time
    /// Neither allocates nor waits.
    pub(crate) fn read<'a>(&self, packet: &rtp::Packet<'a>) -> Result<Incoming<'a>, Unread> {
        let mut incoming = Incoming {
            sequence: packet.sequence(),
            timestamp: packet.timestamp(),
            marker: packet.marker(),
            kind: Kind::Sound,
            payload: packet.payload(),
            red: None,
        };
        let mut payload_type = packet.payload_type();
        if self.red_from == Some(payload_type) {
            let blocks = Blocks::parse(packet.payload()).map_err(|_| Unread::Red)?;
            let own = blocks.own();
            (payload_type, incoming.payload) = (own.payload_type, own.data);
            incoming.red = Some(blocks);
        }
        incoming.kind = self.kind(payload_type).ok_or(Unread::Type)?;
        Ok(incoming)
    }

    fn kind(&self, payload_type: u8) -> Option<Kind> {
        if self.events.is_some_and(|events| events.from == payload_type) {
            return Some(Kind::Event);
        }
        if payload_type == COMFORT_NOISE && self.from.encoding.clock_rate == COMFORT_HZ {
            return Some(Kind::Noise);
        }
        let is_red = self.red_from == Some(payload_type);
        (!is_red && self.from.takes(payload_type)).then_some(Kind::Sound)
    }
}

/// How many ticks an event had lasted when its packet was sent (RFC 4733, 2.3: the last two of its
/// four bytes). Its timestamp says when it began.
pub(crate) fn event_duration(payload: &[u8]) -> u16 {
    match *payload {
        [_, _, high, low, ..] => u16::from_be_bytes([high, low]),
        _ => 0,
    }
}

/// Writes an event for a listener whose clock has another rate.
pub(crate) fn write_event(from: Encoding, to: Encoding, payload: &[u8], out: &mut [u8]) -> bool {
    let Some(out) = out.get_mut(..payload.len()) else { return false };
    out.copy_from_slice(payload);
    if let ([_, _, high, low, ..], true) = (out, from.clock_rate != to.clock_rate) {
        let ticks = u64::from(u16::from_be_bytes([*high, *low]));
        let ticks = ticks * u64::from(to.clock_rate) / u64::from(from.clock_rate.max(1));
        [*high, *low] = u16::try_from(ticks).unwrap_or(u16::MAX).to_be_bytes();
    }
    true
}

/// The payload type of comfort noise, and the only clock that it has there (RFC 3551, 6).
pub(crate) const COMFORT_NOISE: u8 = 13;
pub(crate) const COMFORT_HZ: u32 = 8_000;
