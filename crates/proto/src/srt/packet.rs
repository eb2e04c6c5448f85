//! Datagrams: the header, data, and control packets.

use super::handshake::Handshake;
use super::sequence::Sequence;
use super::words::{put, word};

/// A datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "the first bit has two values")]
pub enum SrtPacket<'a> {
    /// A piece of the stream.
    Data(DataPacket<'a>),
    /// Anything else.
    Control(SrtControl<'a>),
}

/// A piece of the stream. In live mode each is a message of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the fields of the standard")]
pub struct DataPacket<'a> {
    /// Its number.
    pub sequence: Sequence,
    /// The number of its message, 26 bits.
    pub message: u32,
    /// Which key its payload is encrypted with: 0 none, 1 the even one, 2 the odd one.
    pub key: u8,
    /// Whether it was sent before.
    pub is_retransmitted: bool,
    /// Microseconds since the sender's connection began; wraps after 71.6 minutes.
    pub timestamp: u32,
    /// The socket id of the receiver.
    pub destination: u32,
    /// At most [`MAX_PAYLOAD`] bytes when it is sent.
    pub payload: &'a [u8],
}

/// A control packet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the fields of the standard")]
pub struct SrtControl<'a> {
    /// Microseconds since the sender's connection began.
    pub timestamp: u32,
    /// The socket id of the receiver; 0 in the first packet of a caller.
    pub destination: u32,
    /// What it says.
    pub kind: ControlKind<'a>,
}

/// What a control packet says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControlKind<'a> {
    /// Part of the handshake.
    Handshake(Box<Handshake>),
    /// The sender is there.
    KeepAlive,
    /// What has arrived.
    Ack(Acknowledgement),
    /// What is missing.
    Nak(LossRanges<'a>),
    /// The sender ends the connection.
    Shutdown,
    /// The answer to the ACK of this number.
    AckAck(u32),
    /// The sender will not send these numbers again, from the first to the last.
    DropRequest(Sequence, Sequence),
    /// A new key ([`KeyMaterial`](super::KeyMaterial)).
    KeyRequest(&'a [u8]),
    /// The answer to a new key: the same bytes, or four bytes if it was refused.
    KeyResponse(&'a [u8]),
    /// Another type or subtype, of which nothing is needed.
    Other(u16),
}

/// What an ACK says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the fields of the standard")]
pub struct Acknowledgement {
    /// Its number, which the answer repeats; 0 in a light ACK, which has no answer.
    pub number: u32,
    /// The first number that has not arrived.
    pub next: Sequence,
    /// The round-trip time and its variance in microseconds; 0 in a light ACK.
    pub round_trip: (u32, u32),
    /// Packets for which the receiver has room; 0 in a light ACK.
    pub room: u32,
    /// Packets per second, the estimated capacity of the link, and bytes per second.
    pub rates: (u32, u32, u32),
}

/// Missing numbers, from the first to the last.
pub type LossRange = (Sequence, Sequence);

/// The list of a NAK. Ranges are given as they come; those in reverse order are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossRanges<'a>(&'a [u8]);

impl<'a> SrtPacket<'a> {
    /// Reads a datagram; `None` if it is no well-formed packet.
    #[must_use]
    pub fn parse(datagram: &'a [u8]) -> Option<Self> {
        let (header, body) = datagram.split_first_chunk::<HEADER_BYTES>()?;
        let [first, second, timestamp, destination] = words(*header);
        if first & CONTROL_BIT == 0 {
            return Some(Self::Data(DataPacket {
                sequence: Sequence::new(first),
                message: second & MESSAGE_MASK,
                key: field::key(second),
                is_retransmitted: second & RETRANSMITTED_BIT != 0,
                timestamp,
                destination,
                payload: body,
            }));
        }
        let kind = parse_kind(field::kind(first), field::subtype(first), second, body)?;
        Some(Self::Control(SrtControl { timestamp, destination, kind }))
    }

    /// Appends the datagram to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Data(data) => {
                let flags = MESSAGE_ALONE
                    | u32::from(data.key & 3) << 27
                    | if data.is_retransmitted { RETRANSMITTED_BIT } else { 0 };
                let second = flags | (data.message & MESSAGE_MASK);
                put(out, [data.sequence.number(), second, data.timestamp, data.destination]);
                out.extend_from_slice(data.payload);
            }
            Self::Control(control) => control.emit(out),
        }
    }
}

impl SrtControl<'_> {
    fn emit(&self, out: &mut Vec<u8>) {
        let (kind, subtype, info) = match &self.kind {
            ControlKind::Handshake(_) => (0, 0, 0),
            ControlKind::KeepAlive => (1, 0, 0),
            ControlKind::Ack(ack) => (2, 0, ack.number),
            ControlKind::Nak(_) => (3, 0, 0),
            ControlKind::Shutdown => (5, 0, 0),
            ControlKind::AckAck(number) => (6, 0, *number),
            ControlKind::DropRequest(..) => (7, 0, 0),
            ControlKind::KeyRequest(_) => (USER_KIND, KEY_REQUEST, 0),
            ControlKind::KeyResponse(_) => (USER_KIND, KEY_RESPONSE, 0),
            ControlKind::Other(kind) => (*kind & USER_KIND, 0, 0),
        };
        let first = CONTROL_BIT | u32::from(kind) << 16 | u32::from(subtype);
        put(out, [first, info, self.timestamp, self.destination]);
        match &self.kind {
            ControlKind::Handshake(handshake) => handshake.emit(out),
            ControlKind::Ack(ack) if ack.number == 0 => put(out, [ack.next.number()]),
            ControlKind::Ack(ack) => {
                let ((rtt, variance), (packets, capacity, bytes)) = (ack.round_trip, ack.rates);
                put(out, [ack.next.number(), rtt, variance, ack.room, packets, capacity, bytes]);
            }
            ControlKind::Nak(ranges) => out.extend_from_slice(ranges.0),
            ControlKind::DropRequest(first, last) => put(out, [first.number(), last.number()]),
            ControlKind::KeyRequest(key) | ControlKind::KeyResponse(key) => {
                out.extend_from_slice(key);
            }
            // libsrt sends four bytes where the standard has none, and Wireshark expects them.
            ControlKind::KeepAlive
            | ControlKind::Shutdown
            | ControlKind::AckAck(_)
            | ControlKind::Other(_) => put(out, [0]),
        }
    }
}

impl<'a> LossRanges<'a> {
    /// Writes the list of a NAK into `out`, which it clears, at most `limit` ranges of it.
    pub fn write(
        ranges: impl Iterator<Item = LossRange>,
        limit: usize,
        out: &'a mut Vec<u8>,
    ) -> Self {
        out.clear();
        for (first, last) in ranges.take(limit) {
            if first == last {
                put(out, [first.number()]);
            } else {
                put(out, [first.number() | CONTROL_BIT, last.number()]);
            }
        }
        Self(out)
    }

    /// The ranges.
    pub fn iter(&self) -> impl Iterator<Item = LossRange> + 'a {
        let mut words = self
            .0
            .chunks_exact(4)
            .map(|word| word.first_chunk().map_or(0, |word| u32::from_be_bytes(*word)));
        core::iter::from_fn(move || {
            let first = words.next()?;
            let last = if first & CONTROL_BIT == 0 { first } else { words.next()? };
            Some((Sequence::new(first), Sequence::new(last)))
        })
        .filter(|(first, last)| last.since(*first) >= 0)
    }
}

fn parse_kind(kind: u16, subtype: u16, info: u32, body: &[u8]) -> Option<ControlKind<'_>> {
    Some(match (kind, subtype) {
        (0, _) => ControlKind::Handshake(Box::new(Handshake::parse(body)?)),
        (1, _) => ControlKind::KeepAlive,
        (2, _) => ControlKind::Ack(parse_ack(info, body)?),
        (3, _) => ControlKind::Nak(LossRanges(body)),
        (5, _) => ControlKind::Shutdown,
        (6, _) => ControlKind::AckAck(info),
        (7, _) => {
            let (first, rest) = word(body)?;
            let (last, _) = word(rest)?;
            ControlKind::DropRequest(Sequence::new(first), Sequence::new(last))
        }
        (USER_KIND, KEY_REQUEST) => ControlKind::KeyRequest(body),
        (USER_KIND, KEY_RESPONSE) => ControlKind::KeyResponse(body),
        (other, _) => ControlKind::Other(other),
    })
}

/// A light ACK has the number alone, and other implementations leave fields at the end out.
fn parse_ack(number: u32, body: &[u8]) -> Option<Acknowledgement> {
    let (next, mut rest) = word(body)?;
    let mut field = || {
        let (value, behind) = word(rest)?;
        rest = behind;
        Some(value)
    };
    let round_trip = field().zip(field());
    let room = field().unwrap_or(0);
    let rates = field().zip(field()).zip(field());
    Some(Acknowledgement {
        number: if round_trip.is_some() { number } else { 0 },
        next: Sequence::new(next),
        round_trip: round_trip.unwrap_or_default(),
        room,
        rates: rates
            .map_or_else(Default::default, |((packets, link), bytes)| (packets, link, bytes)),
    })
}

fn words(header: [u8; HEADER_BYTES]) -> [u32; 4] {
    let bits = u128::from_be_bytes(header);
    #[allow(clippy::cast_possible_truncation, reason = "a word of the four")]
    [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
}

/// Fields of the first two words.
#[allow(clippy::cast_possible_truncation, reason = "the fields have these bits")]
mod field {
    pub(super) const fn key(second: u32) -> u8 {
        (second >> 27 & 3) as u8
    }

    pub(super) const fn kind(first: u32) -> u16 {
        (first >> 16 & 0x7FFF) as u16
    }

    pub(super) const fn subtype(first: u32) -> u16 {
        first as u16
    }
}

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 16;

/// The largest payload: an Ethernet frame without the headers of IP, UDP and SRT.
pub const MAX_PAYLOAD: usize = 1_456;

const CONTROL_BIT: u32 = 1 << 31;
const RETRANSMITTED_BIT: u32 = 1 << 26;
const MESSAGE_MASK: u32 = (1 << 26) - 1;

/// The first and the last packet of its message.
const MESSAGE_ALONE: u32 = 3 << 30;

const USER_KIND: u16 = 0x7FFF;
const KEY_REQUEST: u16 = 3;
const KEY_RESPONSE: u16 = 4;
