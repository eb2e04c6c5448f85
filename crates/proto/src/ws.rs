//! WebSocket frames (RFC 6455) of the stream endpoint (`/stream`), and its client.
//!
//! Every client gets the same bytes of a chunk, so the server writes the frame header once into the
//! headroom in front of the chunk. A library would copy every message
//! (`docs/decisions/chunk-log.md`). The control endpoint (`/jsonrpc`) uses such a library; the
//! player for small machines has no room for one.

mod accept;
mod client;
mod sha1;
mod writer;

use core::fmt;

use crate::snap::wire;

pub use accept::accept;
pub use client::{MAX_RESPONSE_HEAD, WsClient, WsClientError, WsClientEvent};
pub use writer::WsWriter;

/// Maximum size of a client's message in bytes: the largest message that a session accepts, with
/// its header.
pub const MAX_MESSAGE: usize = crate::snap::session::MAX_READ + 64;

/// Maximum size of a server's message in bytes: the largest message of the protocol, with its
/// header.
pub const MAX_SERVER_MESSAGE: usize = wire::MAX_MESSAGE + wire::HEADER_LEN;

/// Maximum length of a frame header that the server writes: unmasked, with a 64-bit length.
pub const MAX_HEADER_LEN: usize = 10;

/// Length of the frame header for `payload` bytes (section 5.2).
#[must_use]
pub const fn header_len(payload: usize) -> usize {
    match payload {
        0..=125 => 2,
        126..=0xffff => 4,
        _ => MAX_HEADER_LEN,
    }
}

/// Kinds of frames that are sent; each is a complete message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameKind {
    /// Text message.
    Text,
    /// Binary message.
    Binary,
    /// Close frame.
    Close,
    /// Ping, which the peer answers.
    Ping,
    /// Pong, the answer to a ping.
    Pong,
}

impl FrameKind {
    /// The first byte of a frame that is a whole message.
    const fn first_byte(self) -> u8 {
        FIN | match self {
            Self::Text => TEXT,
            Self::Binary => BINARY,
            Self::Close => CLOSE,
            Self::Ping => PING,
            Self::Pong => PONG,
        }
    }
}

/// Unmasked frame header, as a server sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WsFrameHeader {
    bytes: [u8; MAX_HEADER_LEN],
    len: usize,
}

impl WsFrameHeader {
    /// Creates the header for `payload` bytes.
    #[must_use]
    pub const fn new(kind: FrameKind, payload: usize) -> Self {
        let first = kind.first_byte();
        let [.., g, h] = (payload as u64).to_be_bytes();
        let mut bytes = [0; MAX_HEADER_LEN];
        match header_len(payload) {
            2 => [bytes[0], bytes[1]] = [first, h],
            4 => [bytes[0], bytes[1], bytes[2], bytes[3]] = [first, 126, g, h],
            _ => {
                let long = (payload as u64).to_be_bytes();
                let [a, b, c, d, e, f, g, h] = long;
                bytes = [first, 127, a, b, c, d, e, f, g, h];
            }
        }
        Self { bytes, len: header_len(payload) }
    }

    /// The encoded header.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// A complete message, or a control frame between two fragments of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WsMessage<'a> {
    /// Binary message.
    Binary(&'a [u8]),
    /// Text message; not used by Snapcast's stream protocol.
    Text(&'a [u8]),
    /// Ping; must be answered with a pong with the same payload.
    Ping(&'a [u8]),
    /// Pong, the answer to a ping.
    Pong(&'a [u8]),
    /// The peer closes the connection; must be answered with the same payload.
    Close(&'a [u8]),
}

/// Protocol violation; the connection cannot be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WsError {
    /// Client frame without a mask (section 5.1).
    Unmasked,
    /// Server frame with a mask (section 5.1).
    Masked,
    /// Reserved bit set, or unknown opcode.
    Unknown,
    /// Control frame that is fragmented or longer than 125 bytes (section 5.5).
    BadControl,
    /// Continuation without a message, or a new message before the last one ended.
    BadFragment,
    /// Message larger than [`MAX_MESSAGE`], or than [`MAX_SERVER_MESSAGE`] from a server.
    TooLarge,
}

impl fmt::Display for WsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmasked => f.write_str("the frame is not masked"),
            Self::Masked => f.write_str("the frame is masked"),
            Self::Unknown => f.write_str("unknown frame type"),
            Self::BadControl => f.write_str("the control frame is too long or fragmented"),
            Self::BadFragment => f.write_str("fragments in wrong order"),
            Self::TooLarge => f.write_str("the message is too large"),
        }
    }
}

impl core::error::Error for WsError {}

/// Reassembles the peer's messages from bytes that are split anywhere. The default reads those of a
/// client.
///
/// Holds at most one message of [`MAX_MESSAGE`] or [`MAX_SERVER_MESSAGE`] and one control frame of
/// 125 bytes.
#[derive(Debug, Default)]
pub struct WsReader {
    /// Whether the peer is a server, which does not mask its frames.
    is_from_server: bool,
    /// Partial frame header: 2 bytes, an extended length, the mask.
    head: [u8; MAX_CLIENT_HEADER_LEN],
    head_len: usize,
    frame: Option<FrameState>,
    /// Payload of the message's fragments so far.
    message: Vec<u8>,
    /// Opcode of the message that is being reassembled.
    kind: Option<u8>,
    control: Vec<u8>,
    /// Which buffer the last call returned; the next call clears it.
    last_returned: LastReturned,
}

#[derive(Clone, Copy, Debug)]
struct FrameState {
    opcode: u8,
    fin: bool,
    mask: [u8; 4],
    /// Index of the next byte of the mask.
    mask_position: usize,
    rest: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LastReturned {
    #[default]
    Nothing,
    Message,
    Control,
}

impl WsReader {
    /// Reads the messages of a server.
    #[must_use]
    pub fn from_server() -> Self {
        Self { is_from_server: true, ..Self::default() }
    }

    const fn max_message(&self) -> usize {
        if self.is_from_server { MAX_SERVER_MESSAGE } else { MAX_MESSAGE }
    }

    /// Returns the next message and removes its bytes from `bytes`; `None` when all bytes are
    /// consumed.
    ///
    /// # Errors
    /// [`WsError`]; the connection cannot be read any further.
    pub fn next<'s>(&'s mut self, bytes: &mut &[u8]) -> Result<Option<WsMessage<'s>>, WsError> {
        match core::mem::take(&mut self.last_returned) {
            LastReturned::Nothing => {}
            LastReturned::Message if self.message.capacity() > IDLE_BYTES => {
                self.message = Vec::new();
            }
            LastReturned::Message => self.message.clear(),
            LastReturned::Control => self.control.clear(),
        }
        loop {
            let Some(mut frame) = self.frame.take() else {
                match self.read_head(bytes)? {
                    Some(frame) => self.frame = Some(frame),
                    None => return Ok(None),
                }
                continue;
            };
            self.read_payload(&mut frame, bytes);
            if frame.rest > 0 {
                self.frame = Some(frame);
                return Ok(None);
            }
            if frame.opcode >= CLOSE {
                self.last_returned = LastReturned::Control;
                return Ok(Some(match frame.opcode {
                    CLOSE => WsMessage::Close(&self.control),
                    PING => WsMessage::Ping(&self.control),
                    _ => WsMessage::Pong(&self.control),
                }));
            }
            if frame.fin {
                self.last_returned = LastReturned::Message;
                return Ok(Some(match self.kind.take() {
                    Some(TEXT) => WsMessage::Text(&self.message),
                    _ => WsMessage::Binary(&self.message),
                }));
            }
        }
    }

    /// Reads and validates the next frame header; `None` while it is incomplete.
    fn read_head(&mut self, bytes: &mut &[u8]) -> Result<Option<FrameState>, WsError> {
        loop {
            let wanted = self.header_bytes_needed()?;
            if self.head_len == wanted {
                self.head_len = 0;
                return self.begin(wanted).map(Some);
            }
            let Some((&byte, rest)) = bytes.split_first() else { return Ok(None) };
            *bytes = rest;
            if let Some(place) = self.head.get_mut(self.head_len) {
                *place = byte;
            }
            self.head_len += 1;
        }
    }

    /// Length of the current header as far as it is known. Errors in the first two bytes are
    /// reported as soon as they are read.
    fn header_bytes_needed(&self) -> Result<usize, WsError> {
        let [first, second, ..] = self.head;
        if self.head_len < 2 {
            return Ok(2);
        }
        if first & RESERVED != 0 || !matches!(first & OPCODE, 0..=BINARY | CLOSE..=PONG) {
            return Err(WsError::Unknown);
        }
        match (self.is_from_server, second & MASKED != 0) {
            (false, false) => return Err(WsError::Unmasked),
            (true, true) => return Err(WsError::Masked),
            (false, true) | (true, false) => {}
        }
        let length = second & !MASKED;
        if first & OPCODE >= CLOSE && (first & FIN == 0 || length > 125) {
            return Err(WsError::BadControl);
        }
        let mask = if self.is_from_server { 0 } else { MASK_LEN };
        Ok(mask
            + match length {
                126 => 2 + 2,
                127 => 2 + 8,
                _ => 2,
            })
    }

    fn begin(&mut self, head: usize) -> Result<FrameState, WsError> {
        let [first, second, a, b, c, d, e, f, g, h, ..] = self.head;
        let length = match second & !MASKED {
            126 => u64::from(u16::from_be_bytes([a, b])),
            127 => u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            short => u64::from(short),
        };
        let rest = usize::try_from(length).unwrap_or(usize::MAX);
        let (opcode, fin) = (first & OPCODE, first & FIN != 0);
        // A mask of zeros changes nothing.
        let mask = match self.is_from_server {
            true => None,
            false => self.head.get(head - MASK_LEN..head).and_then(|mask| mask.try_into().ok()),
        };
        let frame =
            FrameState { opcode, fin, mask: mask.unwrap_or_default(), mask_position: 0, rest };
        if opcode >= CLOSE {
            return Ok(frame);
        }
        match (opcode, self.kind) {
            (CONTINUED, Some(_)) => {}
            (CONTINUED, None) | (_, Some(_)) => return Err(WsError::BadFragment),
            (kind, None) => self.kind = Some(kind),
        }
        if self.message.len().saturating_add(rest) > self.max_message() {
            return Err(WsError::TooLarge);
        }
        Ok(frame)
    }

    fn read_payload(&mut self, frame: &mut FrameState, bytes: &mut &[u8]) {
        let (now, later) = bytes.split_at(frame.rest.min(bytes.len()));
        *bytes = later;
        frame.rest -= now.len();
        let into = if frame.opcode >= CLOSE { &mut self.control } else { &mut self.message };
        let mask = frame.mask.iter().cycle().skip(frame.mask_position);
        into.extend(now.iter().zip(mask).map(|(byte, mask)| byte ^ mask));
        frame.mask_position = (frame.mask_position + now.len()) % 4;
    }
}

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0f;
const MASKED: u8 = 0x80;
const CONTINUED: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

const MASK_LEN: usize = 4;

/// Maximum length of a client's frame header.
const MAX_CLIENT_HEADER_LEN: usize = MAX_HEADER_LEN + MASK_LEN;

/// Buffer capacity that an idle connection keeps; a Hello message has about 300 bytes.
const IDLE_BYTES: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    /// A masked client frame.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [0x37, 0xfa, 0x21, 0x3d];
        let mut bytes = vec![first];
        match payload.len() {
            short @ 0..=125 => bytes.push(MASKED | u8::try_from(short).unwrap()),
            middle @ 126..=0xffff => {
                bytes.push(MASKED | 126);
                bytes.extend(u16::try_from(middle).unwrap().to_be_bytes());
            }
            long => {
                bytes.push(MASKED | 127);
                bytes.extend((long as u64).to_be_bytes());
            }
        }
        bytes.extend(mask);
        bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        bytes
    }

    /// The messages in `bytes`, which are passed in pieces of `size`.
    fn read(bytes: &[u8], size: usize) -> Result<Vec<String>, WsError> {
        let (mut reader, mut found) = (WsReader::default(), Vec::new());
        for mut piece in bytes.chunks(size) {
            while let Some(message) = reader.next(&mut piece)? {
                found.push(match message {
                    WsMessage::Binary(bytes) if bytes.len() > 20 => format!("{}", bytes.len()),
                    WsMessage::Binary(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                    other => format!("{other:?}"),
                });
            }
        }
        Ok(found)
    }

    #[test]
    fn the_standards_example_of_a_masked_frame() {
        // Section 5.7: a masked text "Hello".
        let bytes = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        let mut piece = &bytes[..];
        assert_eq!(WsReader::default().next(&mut piece), Ok(Some(WsMessage::Text(b"Hello"))));
        assert!(piece.is_empty());
    }

    #[test]
    fn messages_are_assembled_from_any_segmentation_with_control_frames_between() {
        let bytes = [
            frame(BINARY, b"one "),
            frame(FIN | PING, b"?"),
            frame(CONTINUED, b"mess"),
            frame(FIN | CONTINUED, b"age"),
            frame(FIN | BINARY, b""),
            frame(FIN | BINARY, &[7; 300]),
            frame(FIN | BINARY, &[7; 65_590]),
            frame(FIN | CLOSE, &[3, 232]),
        ]
        .concat();
        let wanted = ["Ping([63])", "one message", "", "300", "65590", "Close([3, 232])"];
        for size in [1, 2, 3, 7, 64, 1_000, bytes.len()] {
            assert_eq!(read(&bytes, size).unwrap(), wanted, "pieces of {size}");
        }
    }

    #[test]
    fn each_protocol_violation_has_its_close_code() {
        let cases = [
            (vec![FIN | BINARY, 1], WsError::Unmasked),
            (vec![FIN | 3, MASKED], WsError::Unknown),
            (vec![FIN | 0x40 | BINARY, MASKED], WsError::Unknown),
            (vec![PING, MASKED | 1], WsError::BadControl),
            (vec![FIN | PING, MASKED | 126], WsError::BadControl),
            (frame(FIN | CONTINUED, b"x"), WsError::BadFragment),
            ([frame(BINARY, b"x"), frame(FIN | BINARY, b"y")].concat(), WsError::BadFragment),
            ([vec![FIN | BINARY, MASKED | 127], vec![0xff; 12]].concat(), WsError::TooLarge),
        ];
        for (bytes, error) in cases {
            assert_eq!(read(&bytes, bytes.len()), Err(error), "{bytes:?}");
        }
        let pieces: Vec<u8> = (0..400)
            .flat_map(|at| frame(if at == 0 { BINARY } else { CONTINUED }, &[0; 1_000]))
            .collect();
        assert_eq!(read(&pieces, pieces.len()), Err(WsError::TooLarge));
    }

    #[test]
    fn heads_have_the_three_lengths() {
        let head = |len| WsFrameHeader::new(FrameKind::Binary, len).as_bytes().to_vec();
        assert_eq!(head(125), [0x82, 125]);
        assert_eq!(head(126), [0x82, 126, 0, 126]);
        assert_eq!(head(65_535), [0x82, 126, 255, 255]);
        assert_eq!(head(65_536), [0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
        for len in [0, 125, 126, 65_535, 65_536] {
            assert_eq!(head(len).len(), header_len(len));
        }
        assert_eq!(WsFrameHeader::new(FrameKind::Pong, 1).as_bytes(), [0x8a, 1]);
    }
}
