//! What a server says, before it has become bytes.

use std::sync::Arc;

use aulos_core::Instant;

use crate::snap::wire::{
    MessageKind, MessageStamp, ServerMessage, ServerSettings, WireTime, write_message,
};

/// A message on its way out, small enough to be held until the moment of the write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerOutgoing {
    /// How to play.
    Settings {
        /// The greeting that this answers, 0 for a change later on.
        refers_to: u16,
        /// How.
        settings: ServerSettings,
    },
    /// A stream begins; shared by all clients of a station.
    CodecHeader(Arc<[u8]>),
    /// What time it is here.
    Time {
        /// The request's number.
        id: u16,
        /// When the client sent its request, on its own clock.
        requested: WireTime,
        /// When the request was read here.
        received: Instant,
    },
    /// The client is not welcome.
    Error {
        /// The greeting that this answers.
        refers_to: u16,
        /// Why.
        refusal: Refusal,
    },
}

impl ServerOutgoing {
    /// Appends the message as bytes. `sent` is to be the moment right before the write.
    ///
    /// Snapweb reads `sent` and `received` of a Time reply in each other's place, so both are always
    /// filled in, and the nearer they are to each other the better.
    ///
    /// # Real-time
    /// A Time reply does not allocate when `out` has room for 34 bytes.
    pub fn write(&self, sent: Instant, out: &mut Vec<u8>) {
        let stamp = |refers_to| MessageStamp {
            refers_to,
            sent: WireTime::from_instant(sent),
            ..MessageStamp::default()
        };
        match self {
            Self::Settings { refers_to, settings } => {
                ServerMessage::Settings(*settings).write(stamp(*refers_to), out);
            }
            Self::CodecHeader(payload) => {
                write_message(MessageKind::CodecHeader, stamp(0), out, |out| {
                    out.extend_from_slice(payload);
                });
            }
            Self::Time { id, requested, received } => {
                let sent = WireTime::from_instant(sent.max(*received));
                let received = WireTime::from_instant(*received);
                let latency = WireTime::from_micros(received.as_micros() - requested.as_micros());
                let stamp = MessageStamp { id: *id, refers_to: *id, sent, received };
                ServerMessage::Time { latency }.write(stamp, out);
            }
            Self::Error { refers_to, refusal } => {
                let (code, error) = refusal.code_and_message();
                let message = ServerMessage::Error { code, error: error.as_bytes(), detail: &[] };
                message.write(stamp(*refers_to), out);
            }
        }
    }
}

/// Why a client is not welcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It did not say who vouches for it, or lied.
    Unauthorized,
    /// It is known and may not listen.
    Forbidden,
}

impl Refusal {
    const fn code_and_message(self) -> (u32, &'static str) {
        match self {
            Self::Unauthorized => (401, "Unauthorized"),
            Self::Forbidden => (403, "Forbidden"),
        }
    }
}
