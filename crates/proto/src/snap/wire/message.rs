//! Messages as values, one enum per direction.

use core::fmt;

use super::{
    ClientInfo, Frame, HEADER_LEN, Header, Hello, JsonError, Kind, ServerSettings, Stamp, WireTime,
};
use crate::bytes::{Reader, put_blob};

/// How messages are told apart on the way, which decides whom to believe about a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "the protocol has two transports")]
pub enum Framing {
    /// TCP: lengths are bytes and must be right.
    Stream,
    /// One WebSocket message each: the inner length of JSON may be short (Snapweb counts UTF-16
    /// units), so JSON goes to the end of the message.
    WebSocket,
}

/// What a client sends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientMessage {
    /// Who it is.
    Hello(Box<Hello>),
    /// What time is it?
    Time,
    /// Its own volume and mute.
    ClientInfo(ClientInfo),
    /// Legal, and none of a server's business.
    Ignored(Kind),
}

impl ClientMessage {
    /// Reads what a client sent.
    ///
    /// # Errors
    /// [`BodyError`].
    pub fn parse(frame: &Frame<'_>, framing: Framing) -> Result<Self, BodyError> {
        let text = || json_body(frame.payload, framing).ok_or(BodyError::Truncated);
        Ok(match frame.header.kind {
            Kind::Hello => Self::Hello(Box::new(Hello::parse(text()?)?)),
            Kind::Time => Self::Time,
            Kind::ClientInfo => Self::ClientInfo(ClientInfo::parse(text()?)?),
            kind => Self::Ignored(kind),
        })
    }

    /// Appends the message. [`ClientMessage::Ignored`] is written as a header alone.
    pub fn write(&self, stamp: Stamp, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => {
                write_message(Kind::Hello, stamp, out, |out| put_blob(out, &hello.to_json()));
            }
            Self::Time => write_message(Kind::Time, stamp, out, |out| {
                out.extend_from_slice(&WireTime::ZERO.to_le_bytes());
            }),
            Self::ClientInfo(info) => {
                write_message(Kind::ClientInfo, stamp, out, |out| put_blob(out, &info.to_json()));
            }
            Self::Ignored(kind) => write_message(*kind, stamp, out, |_| ()),
        }
    }
}

/// What a server sends; a view on its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerMessage<'a> {
    /// A stream begins: what it is encoded with.
    CodecHeader {
        /// The codec's name as it stands there.
        codec: &'a [u8],
        /// What its decoder needs first.
        header: &'a [u8],
    },
    /// A piece of the stream.
    WireChunk {
        /// When its first frame was recorded, on the server's clock.
        timestamp: WireTime,
        /// The encoded sound.
        payload: &'a [u8],
    },
    /// How to play.
    Settings(ServerSettings),
    /// The answer to [`ClientMessage::Time`]: the way there took so long by both clocks.
    Time {
        /// Received minus sent.
        latency: WireTime,
    },
    /// Go away.
    Error {
        /// 401 or 403.
        code: u32,
        /// In one word.
        error: &'a [u8],
        /// In a sentence.
        detail: &'a [u8],
    },
    /// Legal, and none of a client's business.
    Ignored(Kind),
}

impl<'a> ServerMessage<'a> {
    /// Reads what a server sent.
    ///
    /// # Errors
    /// [`BodyError`].
    pub fn parse(frame: &Frame<'a>) -> Result<Self, BodyError> {
        Self::read(frame.header.kind, Reader::new(frame.payload)).ok_or(BodyError::Truncated)?
    }

    /// Appends the message. [`ServerMessage::Ignored`] is written as a header alone.
    pub fn write(&self, stamp: Stamp, out: &mut Vec<u8>) {
        match *self {
            Self::CodecHeader { codec, header } => {
                write_message(Kind::CodecHeader, stamp, out, |out| {
                    put_blob(out, codec);
                    put_blob(out, header);
                });
            }
            Self::WireChunk { timestamp, payload } => {
                write_message(Kind::WireChunk, stamp, out, |out| {
                    out.extend_from_slice(&timestamp.to_le_bytes());
                    put_blob(out, payload);
                });
            }
            Self::Settings(settings) => {
                write_message(Kind::ServerSettings, stamp, out, |out| {
                    put_blob(out, &settings.to_json());
                });
            }
            Self::Time { latency } => write_message(Kind::Time, stamp, out, |out| {
                out.extend_from_slice(&latency.to_le_bytes());
            }),
            Self::Error { code, error, detail } => write_message(Kind::Error, stamp, out, |out| {
                out.extend_from_slice(&code.to_le_bytes());
                put_blob(out, error);
                put_blob(out, detail);
            }),
            Self::Ignored(kind) => write_message(kind, stamp, out, |_| ()),
        }
    }

    fn read(kind: Kind, mut reader: Reader<'a>) -> Option<Result<Self, BodyError>> {
        Some(Ok(match kind {
            Kind::CodecHeader => {
                Self::CodecHeader { codec: reader.blob()?, header: reader.blob()? }
            }
            Kind::WireChunk => Self::WireChunk {
                timestamp: reader.array().map(WireTime::from_le_bytes)?,
                payload: reader.blob()?,
            },
            Kind::ServerSettings => match ServerSettings::parse(reader.blob()?) {
                Ok(settings) => Self::Settings(settings),
                Err(error) => return Some(Err(error)),
            },
            Kind::Time => Self::Time { latency: reader.array().map(WireTime::from_le_bytes)? },
            Kind::Error => {
                Self::Error { code: reader.u32()?, error: reader.blob()?, detail: reader.blob()? }
            }
            kind => Self::Ignored(kind),
        }))
    }
}

/// Appends a header, whatever `body` writes, and puts the size of that into the header.
pub(crate) fn write_message(
    kind: Kind,
    stamp: Stamp,
    out: &mut Vec<u8>,
    body: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_LEN]);
    body(out);
    let size = u32::try_from(out.len() - start - HEADER_LEN).unwrap_or(u32::MAX);
    if let Some(place) = out.get_mut(start..start + HEADER_LEN) {
        place.copy_from_slice(&Header { kind, stamp, size }.emit());
    }
}

fn json_body(payload: &[u8], framing: Framing) -> Option<&[u8]> {
    match framing {
        Framing::Stream => Reader::new(payload).blob(),
        Framing::WebSocket => payload.get(4..),
    }
}

/// Why a payload makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyError {
    /// An inner length points behind the end, or a field is missing.
    Truncated,
    /// The JSON cannot be read.
    Json(JsonError),
    /// A greeting that says neither `ID` nor `MAC`.
    NoIdentity,
    /// An `ID` above [`MAX_ID`](super::MAX_ID).
    IdTooLong,
}

impl From<JsonError> for BodyError {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("a length points behind the end of the message"),
            Self::Json(error) => error.fmt(f),
            Self::NoIdentity => f.write_str("a greeting without ID and MAC"),
            Self::IdTooLong => write!(f, "an ID longer than {} bytes", super::MAX_ID),
        }
    }
}

impl core::error::Error for BodyError {}
