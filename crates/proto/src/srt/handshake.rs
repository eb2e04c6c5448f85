//! Handshakes of version 5, and the first one of a caller, which has version 4.

use core::fmt;
use core::net::IpAddr;

use super::sequence::Sequence;
use super::words::{put, word};

/// A handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the fields of the standard")]
pub struct Handshake {
    /// 4 in a caller's induction, otherwise 5.
    pub version: u32,
    /// The length of the key in units of 8 bytes; 0 without encryption.
    pub encryption: u16,
    /// 2 in a caller's induction, [`INDUCTION_MAGIC`] in the answer, and in a conclusion the set of
    /// its extensions, which is written by what `extensions` has.
    pub extension: u16,
    /// The number of the first data packet.
    pub initial: Sequence,
    /// Packets that may be under way.
    pub window: u32,
    /// What it is.
    pub kind: HandshakeKind,
    /// The sender's socket id.
    pub socket: u32,
    /// The listener's cookie.
    pub cookie: u32,
    /// The address of the receiver, as the sender sees it.
    pub peer: [u8; 16],
    /// What a conclusion carries besides.
    pub extensions: Extensions,
}

/// What a handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeKind {
    /// Asks for a cookie, or gives one.
    Induction,
    /// Connects.
    Conclusion,
    /// Refuses.
    Rejection(RejectCode),
    /// Of a connection without a listener, which is not supported.
    Other(u32),
}

/// Extensions of a conclusion. Unknown ones are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the extensions of live mode")]
pub struct Extensions {
    /// Version, flags and delays; a request of the caller, or the response of the listener.
    pub time: Option<HandshakeTime>,
    /// A key message, or the four bytes that refuse one.
    pub key: Option<Vec<u8>>,
    /// The stream id, at most [`MAX_STREAM_ID`] bytes.
    pub stream_id: Option<String>,
    /// A filter of packets, which is not supported: a conclusion with one is refused.
    pub has_filter: bool,
    /// A group of connections, which is not supported.
    pub has_group: bool,
    /// Whether they are those of a listener.
    pub is_response: bool,
}

/// The content of HSREQ and HSRSP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the fields of the standard")]
pub struct HandshakeTime {
    /// Of SRT: 1.5.1 is `0x01_05_01`.
    pub version: u32,
    /// What it can do.
    pub flags: SrtFlags,
    /// The delay of what it receives, in milliseconds.
    pub receive_delay: u16,
    /// The delay that it wants of what it sends, in milliseconds.
    pub send_delay: u16,
}

/// What a side can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the bits of the standard")]
pub struct SrtFlags(pub u32);

impl SrtFlags {
    /// Live mode: packets keep their times in both directions, encryption, drop of what is late,
    /// repeated NAKs, a mark of what is sent again.
    pub const LIVE: Self = Self(0x3F);

    /// Whether the data is a stream without messages, as files are sent.
    #[must_use]
    pub const fn is_file_mode(self) -> bool {
        self.0 & 0x40 != 0
    }
}

/// Why a connection was refused: 1000 and more; 1400 and more are HTTP's codes plus 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "a number of the standard")]
pub struct RejectCode(pub u32);

impl RejectCode {
    /// No room.
    pub const RESOURCE: Self = Self(1_003);
    /// A handshake with wrong contents.
    pub const ROGUE: Self = Self(1_004);
    /// The listener closes.
    pub const CLOSE: Self = Self(1_007);
    /// The version is too old.
    pub const VERSION: Self = Self(1_008);
    /// The passphrases differ.
    pub const BAD_SECRET: Self = Self(1_010);
    /// One side has a passphrase and the other one none.
    pub const UNPROTECTED: Self = Self(1_011);
    /// Files and live streams do not go together.
    pub const MESSAGE_API: Self = Self(1_012);
    /// A filter of packets that the other side has not got.
    pub const FILTER: Self = Self(1_014);
    /// A group of connections.
    pub const GROUP: Self = Self(1_015);
    /// This caller may not use the stream.
    pub const FORBIDDEN: Self = Self(1_403);
    /// There is no such stream.
    pub const NOT_FOUND: Self = Self(1_404);
    /// Somebody else is connected.
    pub const CONFLICT: Self = Self(1_409);
}

/// The reason, whichever side gives it.
impl fmt::Display for RejectCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::RESOURCE => "no room for another connection",
            Self::ROGUE => "an invalid handshake",
            Self::CLOSE => "the listener is closing",
            Self::VERSION => "another version of SRT",
            Self::BAD_SECRET => "the passphrases differ",
            Self::UNPROTECTED => "one side has a passphrase and the other one none",
            Self::MESSAGE_API => "a file and no live stream",
            Self::FILTER => "a packet filter",
            Self::GROUP => "a group of connections",
            Self::FORBIDDEN => "the address or the stream is not permitted",
            Self::NOT_FOUND => "no stream of this id",
            Self::CONFLICT => "somebody else is connected",
            Self(code) => return write!(f, "code {code}"),
        })
    }
}

impl Handshake {
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        let (fixed, rest) = body.split_first_chunk::<FIXED_BYTES>()?;
        let at = |index: usize| word(fixed.get(4 * index..)?).map(|(word, _)| word);
        let (version, fields) = (at(0)?, at(1)?);
        let kind = HandshakeKind::from_wire(at(5)?);
        #[allow(clippy::cast_possible_truncation, reason = "the two halves of a word")]
        let (encryption, extension) = ((fields >> 16) as u16, fields as u16);
        let is_conclusion = version >= 5 && kind == HandshakeKind::Conclusion;
        let extensions =
            if is_conclusion { Extensions::parse(rest)? } else { Extensions::default() };
        Some(Self {
            version,
            encryption,
            extension,
            initial: Sequence::new(at(2)?),
            window: at(4)?,
            kind,
            socket: at(6)?,
            cookie: at(7)?,
            peer: *fixed.last_chunk()?,
            extensions,
        })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let is_conclusion = self.version >= 5 && self.kind == HandshakeKind::Conclusion;
        let extension = if is_conclusion { self.extensions.set() } else { self.extension };
        let fields = u32::from(self.encryption) << 16 | u32::from(extension);
        put(out, [self.version, fields, self.initial.number(), MTU, self.window]);
        put(out, [self.kind.to_wire(), self.socket, self.cookie]);
        out.extend_from_slice(&self.peer);
        if is_conclusion {
            self.extensions.emit(out);
        }
    }

    /// The field for an address: IPv4 in the first four bytes.
    #[must_use]
    pub fn peer_field(address: IpAddr) -> [u8; 16] {
        match address {
            IpAddr::V4(address) => {
                let mut field = [0; 16];
                // As libsrt does: the number in the byte order of a little-endian machine.
                let number = u32::from(address).to_le_bytes();
                field.iter_mut().zip(number).for_each(|(to, from)| *to = from);
                field
            }
            IpAddr::V6(address) => address.octets(),
        }
    }
}

impl HandshakeKind {
    const fn from_wire(number: u32) -> Self {
        match number {
            1 => Self::Induction,
            CONCLUSION => Self::Conclusion,
            // Waves and agreements of rendezvous have 0 and the numbers that are negative.
            code if code >= 1_000 && code.cast_signed() > 0 => Self::Rejection(RejectCode(code)),
            other => Self::Other(other),
        }
    }

    const fn to_wire(self) -> u32 {
        match self {
            Self::Induction => 1,
            Self::Conclusion => CONCLUSION,
            Self::Rejection(RejectCode(code)) | Self::Other(code) => code,
        }
    }
}

impl Extensions {
    fn parse(mut bytes: &[u8]) -> Option<Self> {
        let mut found = Self::default();
        while let Some((head, rest)) = word(bytes) {
            let words = usize::try_from(head & 0xFFFF).ok()?;
            let (content, behind) = rest.split_at_checked(4 * words)?;
            match head >> 16 {
                kind @ (REQUEST | RESPONSE) => {
                    found.is_response = kind == RESPONSE;
                    found.time = Some(HandshakeTime::parse(content)?);
                }
                KEY_REQUEST | KEY_RESPONSE => found.key = Some(content.to_vec()),
                STREAM_ID => found.stream_id = Some(parse_stream_id(content)?),
                FILTER => found.has_filter = true,
                GROUP => found.has_group = true,
                _ => {}
            }
            bytes = behind;
        }
        Some(found)
    }

    /// Flags: 1 times, 2 keys, 4 anything else.
    fn set(&self) -> u16 {
        u16::from(self.time.is_some())
            | u16::from(self.key.is_some()) << 1
            | u16::from(self.stream_id.is_some()) << 2
    }

    fn emit(&self, out: &mut Vec<u8>) {
        let response = u32::from(self.is_response);
        if let Some(time) = self.time {
            let delays = u32::from(time.receive_delay) << 16 | u32::from(time.send_delay);
            put(out, [(REQUEST + response) << 16 | 3, time.version, time.flags.0, delays]);
        }
        if let Some(key) = &self.key {
            put_extension(out, KEY_REQUEST + response, key);
        }
        if let Some(id) = &self.stream_id {
            let mut bytes = id.as_bytes().to_vec();
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes.chunks_exact_mut(4).for_each(<[u8]>::reverse);
            put_extension(out, STREAM_ID, &bytes);
        }
    }
}

impl HandshakeTime {
    fn parse(content: &[u8]) -> Option<Self> {
        let (version, rest) = word(content)?;
        let (flags, rest) = word(rest)?;
        let (delays, _) = word(rest)?;
        #[allow(clippy::cast_possible_truncation, reason = "the two halves of a word")]
        let (receive_delay, send_delay) = ((delays >> 16) as u16, delays as u16);
        Some(Self { version, flags: SrtFlags(flags), receive_delay, send_delay })
    }
}

/// Each group of four bytes is in reverse order; zeros fill the last one.
fn parse_stream_id(content: &[u8]) -> Option<String> {
    if content.len() > MAX_STREAM_ID {
        return None;
    }
    let mut bytes = content.to_vec();
    bytes.chunks_exact_mut(4).for_each(<[u8]>::reverse);
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(length);
    String::from_utf8(bytes).ok()
}

/// `content` has whole words.
fn put_extension(out: &mut Vec<u8>, kind: u32, content: &[u8]) {
    let words = u32::try_from(content.len() / 4).unwrap_or(0);
    put(out, [kind << 16 | words & 0xFFFF]);
    out.extend_from_slice(content);
}

/// The extension field of a listener's answer to an induction.
pub const INDUCTION_MAGIC: u16 = 0x4A17;

/// The longest stream id in bytes.
pub const MAX_STREAM_ID: usize = 512;

const FIXED_BYTES: usize = 48;
const MTU: u32 = 1_500;
const CONCLUSION: u32 = 0xFFFF_FFFF;

const REQUEST: u32 = 1;
const RESPONSE: u32 = 2;
const KEY_REQUEST: u32 = 3;
const KEY_RESPONSE: u32 = 4;
const STREAM_ID: u32 = 5;
const FILTER: u32 = 7;
const GROUP: u32 = 8;
