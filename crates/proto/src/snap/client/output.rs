//! Outputs of a client.

use aulos_core::Instant;

use crate::snap::wire::{ClientInfo, ClientMessage, Hello, MessageStamp, ServerSettings, WireTime};

/// Output of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientOutput<'a> {
    /// Message to send now.
    Send(ClientOutgoing),
    /// Playback settings, valid from now on.
    Settings(ServerSettings),
    /// A stream begins, possibly replacing another one.
    Codec {
        /// Name of the codec.
        codec: &'a [u8],
        /// Header of the codec, for the decoder.
        header: &'a [u8],
    },
    /// Chunk of the stream.
    Chunk {
        /// Recording time of the first frame, on the server's clock.
        timestamp: Instant,
        /// Encoded audio.
        payload: &'a [u8],
    },
    /// The connection ends. It is the last output.
    Close(DisconnectReason),
}

/// Message to send, encoded at the time of the write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientOutgoing {
    /// Hello message.
    Hello {
        /// Id, to which the answer refers.
        id: u16,
        /// The Hello.
        hello: Box<Hello>,
    },
    /// Time request.
    Time {
        /// Id, to which the answer refers.
        id: u16,
    },
    /// The client's own volume and mute.
    ClientInfo(ClientInfo),
}

impl ClientOutgoing {
    /// Appends the encoded message. `sent` must be the instant directly before the write, because
    /// the server's answer is relative to it.
    pub fn write(self, sent: Instant, out: &mut Vec<u8>) {
        let (id, message) = match self {
            Self::Hello { id, hello } => (id, ClientMessage::Hello(hello)),
            Self::Time { id } => (id, ClientMessage::Time),
            Self::ClientInfo(info) => (0, ClientMessage::ClientInfo(info)),
        };
        let sent = WireTime::from_instant(sent);
        message.write(MessageStamp { id, sent, ..MessageStamp::default() }, out);
    }
}

/// Reason for disconnecting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DisconnectReason {
    /// The server did not answer the Hello or a Time request within 2 s.
    NoAnswer,
    /// The server refused the client, with this code.
    Refused(u32),
    /// Unknown message type.
    BadType,
    /// Message larger than allowed.
    TooLarge,
    /// Invalid message.
    Malformed,
    /// Audio before its codec, a codec before the settings, or an answer without a request.
    OutOfOrder,
}
