//! The 26-byte header of every message, and splitting a byte stream into messages.

use core::fmt;
use core::ops::Range;

use super::WireTime;

/// Length of the base header in bytes.
pub const HEADER_LEN: usize = 26;

/// Maximum payload of a message; Snapcast's own peers disconnect above it.
pub const MAX_MESSAGE: usize = 1_000_000;

/// Type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
#[allow(clippy::exhaustive_enums, reason = "the wire has these nine and no others")]
pub enum MessageKind {
    /// Never sent by itself.
    Base = 0,
    /// Server to client: codec name and codec header.
    CodecHeader = 1,
    /// Server to client: encoded sound.
    WireChunk = 2,
    /// Server to client: buffer, latency, volume, mute.
    ServerSettings = 3,
    /// Both directions: clock comparison.
    Time = 4,
    /// Client to server: identification.
    Hello = 5,
    /// Retired.
    StreamTags = 6,
    /// Client to server: the client's own volume and mute.
    ClientInfo = 7,
    /// Server to client: reason for a refusal.
    Error = 8,
}

impl MessageKind {
    /// The type with this number, if it exists.
    #[must_use]
    pub const fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            0 => Self::Base,
            1 => Self::CodecHeader,
            2 => Self::WireChunk,
            3 => Self::ServerSettings,
            4 => Self::Time,
            5 => Self::Hello,
            6 => Self::StreamTags,
            7 => Self::ClientInfo,
            8 => Self::Error,
            _ => return None,
        })
    }

    /// Number on the wire.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }
}

/// View of an encoded base header; its fields are not validated.
#[derive(Clone, Copy, Debug)]
pub struct MessageHeaderView<'a>(&'a [u8; HEADER_LEN]);

impl<'a> MessageHeaderView<'a> {
    /// View of the header at the front of `bytes`; `None` when they are fewer than [`HEADER_LEN`].
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        bytes.first_chunk().map(Self)
    }

    /// Number of the type, possibly not one of [`MessageKind`].
    #[must_use]
    pub fn kind(self) -> u16 {
        u16::from_le_bytes(self.field(field::KIND))
    }

    /// Id of a request; 0 is none.
    #[must_use]
    pub fn id(self) -> u16 {
        u16::from_le_bytes(self.field(field::ID))
    }

    /// Id of the request that this answers; 0 is none.
    #[must_use]
    pub fn refers_to(self) -> u16 {
        u16::from_le_bytes(self.field(field::REFERS_TO))
    }

    /// Send time, on the sender's clock.
    #[must_use]
    pub fn sent(self) -> WireTime {
        WireTime::from_le_bytes(self.field(field::SENT))
    }

    /// Receive time of the answered message, on the sender's clock.
    #[must_use]
    pub fn received(self) -> WireTime {
        WireTime::from_le_bytes(self.field(field::RECEIVED))
    }

    /// Length of the payload according to the sender. Snapweb includes the header.
    #[must_use]
    pub fn size(self) -> u32 {
        u32::from_le_bytes(self.field(field::SIZE))
    }

    fn field<const N: usize>(self, range: Range<usize>) -> [u8; N] {
        self.0.get(range).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }
}

/// Ids and times of a message: its header without type and size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageStamp {
    /// Id of a request; 0 is none.
    pub id: u16,
    /// Id of the request that this answers. Clients would take a message with another value than 0
    /// for the answer to a pending request.
    pub refers_to: u16,
    /// Send time, on the sender's monotonic clock.
    pub sent: WireTime,
    /// Receive time of the answered message, on the sender's monotonic clock.
    pub received: WireTime,
}

/// A base header with a known type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageHeader {
    /// Type of the message.
    pub kind: MessageKind,
    /// Ids and times.
    pub stamp: MessageStamp,
    /// Length of the payload in bytes.
    pub size: u32,
}

impl MessageHeader {
    /// Validates the type of a header. The size is not validated.
    ///
    /// # Errors
    /// [`FrameError::BadType`].
    pub fn parse(view: MessageHeaderView<'_>) -> Result<Self, FrameError> {
        let number = view.kind();
        let kind = MessageKind::from_number(number).ok_or(FrameError::BadType(number))?;
        let stamp = MessageStamp {
            id: view.id(),
            refers_to: view.refers_to(),
            sent: view.sent(),
            received: view.received(),
        };
        Ok(Self { kind, stamp, size: view.size() })
    }

    /// Encodes the header; the inverse of [`MessageHeader::parse`].
    ///
    /// # Real-time
    /// Does not allocate.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let mut put = |range: Range<usize>, value: &[u8]| {
            if let Some(place) = bytes.get_mut(range) {
                place.copy_from_slice(value);
            }
        };
        put(field::KIND, &self.kind.number().to_le_bytes());
        put(field::ID, &self.stamp.id.to_le_bytes());
        put(field::REFERS_TO, &self.stamp.refers_to.to_le_bytes());
        put(field::SENT, &self.stamp.sent.to_le_bytes());
        put(field::RECEIVED, &self.stamp.received.to_le_bytes());
        put(field::SIZE, &self.size.to_le_bytes());
        bytes
    }
}

/// View of a complete message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageFrame<'a> {
    /// Header.
    pub header: MessageHeader,
    /// Payload.
    pub payload: &'a [u8],
}

/// Result of parsing the front of a byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "there is no third answer")]
pub enum ParsedMessage<'a> {
    /// The message is incomplete.
    Incomplete {
        /// Number of bytes that the buffer must hold for the next attempt: the header, or the
        /// complete message once its size is known.
        needed: usize,
        /// The header, if it is complete.
        header: Option<MessageHeader>,
    },
    /// A complete message, of `HEADER_LEN + payload.len()` bytes.
    Message(MessageFrame<'a>),
}

/// Parses the first message of a byte stream.
///
/// `limit` is the maximum payload to accept, at most [`MAX_MESSAGE`]. An unknown type is reported
/// after two bytes, an excessive size with the header, so that no caller waits for the rest of an
/// invalid message.
///
/// # Errors
/// [`FrameError`]; the stream cannot be read any further.
pub fn parse_message(bytes: &[u8], limit: usize) -> Result<ParsedMessage<'_>, FrameError> {
    let Some(view) = MessageHeaderView::new(bytes) else {
        if let Some(kind) = bytes.get(field::KIND).and_then(|kind| kind.try_into().ok()) {
            let number = u16::from_le_bytes(kind);
            MessageKind::from_number(number).ok_or(FrameError::BadType(number))?;
        }
        return Ok(ParsedMessage::Incomplete { needed: HEADER_LEN, header: None });
    };
    let header = MessageHeader::parse(view)?;
    let size = header.size as usize;
    if size > limit.min(MAX_MESSAGE) {
        return Err(FrameError::TooLarge(header.size));
    }
    let needed = HEADER_LEN + size;
    Ok(match bytes.get(HEADER_LEN..needed) {
        Some(payload) => ParsedMessage::Message(MessageFrame { header, payload }),
        None => ParsedMessage::Incomplete { needed, header: Some(header) },
    })
}

/// Parses the content of a WebSocket message. The size in the header is ignored, because Snapweb
/// includes the header in it.
///
/// # Errors
/// [`FrameError`]; the next WebSocket message may be valid.
pub fn parse_framed(bytes: &[u8]) -> Result<MessageFrame<'_>, FrameError> {
    let view = MessageHeaderView::new(bytes).ok_or(FrameError::Truncated)?;
    let payload = bytes.get(HEADER_LEN..).unwrap_or_default();
    if payload.len() > MAX_MESSAGE {
        return Err(FrameError::TooLarge(u32::try_from(payload.len()).unwrap_or(u32::MAX)));
    }
    Ok(MessageFrame { header: MessageHeader::parse(view)?, payload })
}

/// Reason why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// Type above 8: another protocol.
    BadType(u16),
    /// Payload above the limit.
    TooLarge(u32),
    /// WebSocket message shorter than a header.
    Truncated,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadType(number) => write!(f, "unknown message type {number}"),
            Self::TooLarge(size) => write!(f, "a message of {size} bytes is too large"),
            Self::Truncated => write!(f, "a message shorter than its header of {HEADER_LEN} bytes"),
        }
    }
}

impl core::error::Error for FrameError {}

mod field {
    use core::ops::Range;

    pub(super) const KIND: Range<usize> = 0..2;
    pub(super) const ID: Range<usize> = 2..4;
    pub(super) const REFERS_TO: Range<usize> = 4..6;
    pub(super) const SENT: Range<usize> = 6..14;
    pub(super) const RECEIVED: Range<usize> = 14..22;
    pub(super) const SIZE: Range<usize> = 22..super::HEADER_LEN;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(kind: MessageKind, size: u32) -> MessageHeader {
        MessageHeader { kind, stamp: MessageStamp::default(), size }
    }

    #[test]
    fn an_http_request_is_turned_away_after_two_bytes() {
        assert_eq!(parse_message(b"G", MAX_MESSAGE).map(|_| ()), Ok(()));
        assert_eq!(parse_message(b"GE", MAX_MESSAGE), Err(FrameError::BadType(0x4547)));
    }

    #[test]
    fn a_lie_about_the_size_is_seen_with_the_header() {
        let bytes = header(MessageKind::Hello, u32::MAX).to_bytes();
        assert_eq!(parse_message(&bytes, MAX_MESSAGE), Err(FrameError::TooLarge(u32::MAX)));
        let bytes = header(MessageKind::Hello, 1_000_000).to_bytes();
        let wanted = ParsedMessage::Incomplete {
            needed: 1_000_026,
            header: Some(header(MessageKind::Hello, 1_000_000)),
        };
        assert_eq!(parse_message(&bytes, usize::MAX), Ok(wanted));
        assert_eq!(parse_message(&bytes, 65_536), Err(FrameError::TooLarge(1_000_000)));
        let bytes = header(MessageKind::Hello, 1_000_001).to_bytes();
        assert_eq!(parse_message(&bytes, usize::MAX), Err(FrameError::TooLarge(1_000_001)));
    }

    #[test]
    fn snapwebs_size_counts_the_header_and_does_no_harm() {
        let mut bytes = header(MessageKind::Time, 34).to_bytes().to_vec();
        bytes.extend_from_slice(&[0; 8]);
        assert_eq!(parse_framed(&bytes).map(|frame| frame.payload.len()), Ok(8));
        assert_eq!(parse_framed(&bytes[..25]), Err(FrameError::Truncated));
    }

    proptest! {
        #[test]
        fn headers_round_trip(
            number in 0..9_u16, id: u16, refers_to: u16,
            times: [i32; 4], size in 0..=1_000_000_u32,
        ) {
            let [a, b, c, d] = times;
            let header = MessageHeader {
                kind: MessageKind::from_number(number).unwrap(),
                stamp: MessageStamp {
                    id,
                    refers_to,
                    sent: WireTime { sec: a, usec: b },
                    received: WireTime { sec: c, usec: d },
                },
                size,
            };
            let bytes = header.to_bytes();
            prop_assert_eq!(MessageHeader::parse(MessageHeaderView::new(&bytes).unwrap()), Ok(header));
        }

        #[test]
        fn any_bytes_give_an_answer(bytes: Vec<u8>, limit: usize) {
            if let Ok(ParsedMessage::Message(frame)) = parse_message(&bytes, limit) {
                prop_assert!(HEADER_LEN + frame.payload.len() <= bytes.len());
                prop_assert!(frame.payload.len() <= limit);
            }
            let _ = parse_framed(&bytes);
        }
    }
}
