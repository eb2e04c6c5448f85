//! Messages as values, one enum per direction.

use core::fmt;

use super::{
    ClientInfo, HEADER_LEN, Hello, JsonError, MessageFrame, MessageHeader, MessageKind,
    MessageStamp, ServerSettings, WireTime,
};
use crate::bytes::{Reader, put_blob};

/// How messages are told apart on the way, which decides whom to believe about a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "the protocol has two transports")]
pub enum Transport {
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
    Ignored(MessageKind),
}

impl ClientMessage {
    /// Reads what a client sent.
    ///
    /// # Errors
    /// [`BodyError`].
    pub fn parse(frame: &MessageFrame<'_>, framing: Transport) -> Result<Self, PayloadError> {
        let text = || json_body(frame.payload, framing).ok_or(PayloadError::Truncated);
        Ok(match frame.header.kind {
            MessageKind::Hello => Self::Hello(Box::new(Hello::parse(text()?)?)),
            MessageKind::Time => Self::Time,
            MessageKind::ClientInfo => Self::ClientInfo(ClientInfo::parse(text()?)?),
            kind => Self::Ignored(kind),
        })
    }

    /// Appends the message. [`ClientMessage::Ignored`] is written as a header alone.
    pub fn write(&self, stamp: MessageStamp, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => {
                write_message(MessageKind::Hello, stamp, out, |out| {
                    put_blob(out, &hello.to_json())
                });
            }
            Self::Time => write_message(MessageKind::Time, stamp, out, |out| {
                out.extend_from_slice(&WireTime::ZERO.to_le_bytes());
            }),
            Self::ClientInfo(info) => {
                write_message(MessageKind::ClientInfo, stamp, out, |out| {
                    put_blob(out, &info.to_json())
                });
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
    Ignored(MessageKind),
}

impl<'a> ServerMessage<'a> {
    /// Reads what a server sent.
    ///
    /// # Errors
    /// [`BodyError`].
    pub fn parse(frame: &MessageFrame<'a>) -> Result<Self, PayloadError> {
        Self::read(frame.header.kind, Reader::new(frame.payload)).ok_or(PayloadError::Truncated)?
    }

    /// Appends the message. [`ServerMessage::Ignored`] is written as a header alone.
    pub fn write(&self, stamp: MessageStamp, out: &mut Vec<u8>) {
        match *self {
            Self::CodecHeader { codec, header } => {
                write_message(MessageKind::CodecHeader, stamp, out, |out| {
                    put_blob(out, codec);
                    put_blob(out, header);
                });
            }
            Self::WireChunk { timestamp, payload } => {
                write_message(MessageKind::WireChunk, stamp, out, |out| {
                    out.extend_from_slice(&timestamp.to_le_bytes());
                    put_blob(out, payload);
                });
            }
            Self::Settings(settings) => {
                write_message(MessageKind::ServerSettings, stamp, out, |out| {
                    put_blob(out, &settings.to_json());
                });
            }
            Self::Time { latency } => write_message(MessageKind::Time, stamp, out, |out| {
                out.extend_from_slice(&latency.to_le_bytes());
            }),
            Self::Error { code, error, detail } => {
                write_message(MessageKind::Error, stamp, out, |out| {
                    out.extend_from_slice(&code.to_le_bytes());
                    put_blob(out, error);
                    put_blob(out, detail);
                })
            }
            Self::Ignored(kind) => write_message(kind, stamp, out, |_| ()),
        }
    }

    fn read(kind: MessageKind, mut reader: Reader<'a>) -> Option<Result<Self, PayloadError>> {
        Some(Ok(match kind {
            MessageKind::CodecHeader => {
                Self::CodecHeader { codec: reader.blob()?, header: reader.blob()? }
            }
            MessageKind::WireChunk => Self::WireChunk {
                timestamp: reader.array().map(WireTime::from_le_bytes)?,
                payload: reader.blob()?,
            },
            MessageKind::ServerSettings => match ServerSettings::parse(reader.blob()?) {
                Ok(settings) => Self::Settings(settings),
                Err(error) => return Some(Err(error)),
            },
            MessageKind::Time => {
                Self::Time { latency: reader.array().map(WireTime::from_le_bytes)? }
            }
            MessageKind::Error => {
                Self::Error { code: reader.u32()?, error: reader.blob()?, detail: reader.blob()? }
            }
            kind => Self::Ignored(kind),
        }))
    }
}

/// Appends a header, whatever `body` writes, and puts the size of that into the header.
pub(crate) fn write_message(
    kind: MessageKind,
    stamp: MessageStamp,
    out: &mut Vec<u8>,
    body: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_LEN]);
    body(out);
    let size = u32::try_from(out.len() - start - HEADER_LEN).unwrap_or(u32::MAX);
    if let Some(place) = out.get_mut(start..start + HEADER_LEN) {
        place.copy_from_slice(&MessageHeader { kind, stamp, size }.to_bytes());
    }
}

fn json_body(payload: &[u8], framing: Transport) -> Option<&[u8]> {
    match framing {
        Transport::Stream => Reader::new(payload).blob(),
        Transport::WebSocket => payload.get(4..),
    }
}

/// Why a payload makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PayloadError {
    /// An inner length points behind the end, or a field is missing.
    Truncated,
    /// The JSON cannot be read.
    Json(JsonError),
    /// A greeting that says neither `ID` nor `MAC`.
    NoIdentity,
    /// An `ID` above [`MAX_ID`](super::MAX_ID).
    IdTooLong,
}

impl From<JsonError> for PayloadError {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

impl fmt::Display for PayloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("a length points behind the end of the message"),
            Self::Json(error) => error.fmt(f),
            Self::NoIdentity => f.write_str("a greeting without ID and MAC"),
            Self::IdTooLong => write!(f, "an ID longer than {} bytes", super::MAX_ID),
        }
    }
}

impl core::error::Error for PayloadError {}
