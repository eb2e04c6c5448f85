//! Messages of the server before they are encoded.

use std::sync::Arc;

use aulos_core::Instant;

use crate::snap::wire::{
    MessageKind, MessageStamp, ServerMessage, ServerSettings, WireTime, write_message,
};

/// Message to send, encoded at the time of the write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerOutgoing {
    /// Playback settings.
    Settings {
        /// Id of the Hello that this answers; 0 for a later change.
        refers_to: u16,
        /// The settings.
        settings: ServerSettings,
    },
    /// A stream begins; shared by all clients of a station.
    CodecHeader(Arc<[u8]>),
    /// Reply to a Time request.
    Time {
        /// Id of the request.
        id: u16,
        /// When the client sent the request, on its own clock.
        requested: WireTime,
        /// When the server received the request.
        received: Instant,
    },
    /// The client is refused.
    Error {
        /// Id of the Hello that this answers.
        refers_to: u16,
        /// Reason.
        refusal: Refusal,
    },
}

impl ServerOutgoing {
    /// Appends the encoded message. `sent` must be the instant directly before the write.
    ///
    /// Snapweb swaps `sent` and `received` of a Time reply, so both are always set and should be
    /// close to each other.
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

/// Reason why a client is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Missing or wrong credentials.
    Unauthorized,
    /// Known client without permission.
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
