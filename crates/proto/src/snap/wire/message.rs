//! Parsed messages, one enum per direction.

use super::{
    ClientInfo, HEADER_LEN, Hello, MessageFrame, MessageHeader, MessageKind, MessageStamp,
    PayloadError, ServerSettings, WireTime,
};
use crate::bytes::{Reader, put_blob};

/// Transport of the messages, which determines how inner lengths are validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "the protocol has two transports")]
pub enum Transport {
    /// TCP: inner lengths must be correct.
    Stream,
    /// WebSocket: the inner length of JSON may be too small, because Snapweb counts UTF-16 units;
    /// the JSON extends to the end of the message.
    WebSocket,
}

/// Message from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientMessage {
    /// Identification of the client.
    Hello(Box<Hello>),
    /// Time request.
    Time,
    /// The client's own volume and mute.
    ClientInfo(ClientInfo),
    /// Valid type that a server ignores.
    Ignored(MessageKind),
}

impl ClientMessage {
    /// Parses a message from a client.
    ///
    /// # Errors
    /// [`PayloadError`].
    pub fn parse(frame: &MessageFrame<'_>, framing: Transport) -> Result<Self, PayloadError> {
        let text = || json_body(frame.payload, framing).ok_or(PayloadError::Truncated);
        Ok(match frame.header.kind {
            MessageKind::Hello => Self::Hello(Box::new(Hello::parse(text()?)?)),
            MessageKind::Time => Self::Time,
            MessageKind::ClientInfo => Self::ClientInfo(ClientInfo::parse(text()?)?),
            kind => Self::Ignored(kind),
        })
    }

    /// Appends the encoded message; of [`ClientMessage::Ignored`], only the header.
    pub fn write(&self, stamp: MessageStamp, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => {
                write_message(MessageKind::Hello, stamp, out, |out| {
                    put_blob(out, &hello.to_json());
                });
            }
            Self::Time => write_message(MessageKind::Time, stamp, out, |out| {
                out.extend_from_slice(&WireTime::ZERO.to_le_bytes());
            }),
            Self::ClientInfo(info) => {
                write_message(MessageKind::ClientInfo, stamp, out, |out| {
                    put_blob(out, &info.to_json());
                });
            }
            Self::Ignored(kind) => write_message(*kind, stamp, out, |_| ()),
        }
    }
}

/// Message from a server; a view of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerMessage<'a> {
    /// A stream begins.
    CodecHeader {
        /// Name of the codec.
        codec: &'a [u8],
        /// Header for the decoder.
        header: &'a [u8],
    },
    /// Chunk of the stream.
    WireChunk {
        /// Recording time of the first frame, on the server's clock.
        timestamp: WireTime,
        /// Encoded audio.
        payload: &'a [u8],
    },
    /// Playback settings.
    Settings(ServerSettings),
    /// Reply to [`ClientMessage::Time`].
    Time {
        /// Receive time minus send time of the request, each on its own clock.
        latency: WireTime,
    },
    /// The client is refused.
    Error {
        /// 401 or 403.
        code: u32,
        /// Short text.
        error: &'a [u8],
        /// Details.
        detail: &'a [u8],
    },
    /// Valid type that a client ignores.
    Ignored(MessageKind),
}

impl<'a> ServerMessage<'a> {
    /// Parses a message from a server.
    ///
    /// # Errors
    /// [`PayloadError`].
    pub fn parse(frame: &MessageFrame<'a>) -> Result<Self, PayloadError> {
        Self::read(frame.header.kind, Reader::new(frame.payload)).ok_or(PayloadError::Truncated)?
    }

    /// Appends the encoded message; of [`ServerMessage::Ignored`], only the header.
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
                });
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

/// Appends a header and the output of `body`, and sets the size in the header.
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
