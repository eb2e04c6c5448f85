//! What a client wants, has, and says.

use aulos_core::Instant;

use crate::snap::wire::{ClientInfo, ClientMessage, Hello, MessageStamp, ServerSettings, WireTime};

/// What a client wants or has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientOutput<'a> {
    /// To be written now.
    Send(ClientOutgoing),
    /// How to play, from now on.
    Settings(ServerSettings),
    /// A stream begins, perhaps in place of another.
    Codec {
        /// The codec's name.
        codec: &'a [u8],
        /// What its decoder needs first.
        header: &'a [u8],
    },
    /// A piece of the stream.
    Chunk {
        /// When its first frame was recorded, on the server's clock.
        timestamp: Instant,
        /// The encoded sound.
        payload: &'a [u8],
    },
    /// The connection ends. Nothing comes after it.
    Close(DisconnectReason),
}

/// A message on its way out, held until the moment of the write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientOutgoing {
    /// Who the client is.
    Hello {
        /// The number that the answer refers to.
        id: u16,
        /// Who.
        hello: Box<Hello>,
    },
    /// What time is it?
    Time {
        /// The number that the answer refers to.
        id: u16,
    },
    /// Its own volume and mute.
    ClientInfo(ClientInfo),
}

impl ClientOutgoing {
    /// Appends the message as bytes. `sent` is to be the moment right before the write: the
    /// server's answer is relative to it.
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

/// Why a client hangs up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DisconnectReason {
    /// The server did not answer the greeting or a Time request within 2 s.
    NoAnswer,
    /// The server refused, with this code.
    Refused(u32),
    /// A message type that does not exist.
    BadType,
    /// More bytes than a message may have.
    TooLarge,
    /// A message that cannot be read.
    Malformed,
    /// Sound before its codec, a codec before the settings, or an answer that is none.
    OutOfOrder,
}
