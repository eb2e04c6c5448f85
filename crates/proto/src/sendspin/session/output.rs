//! What a session wants of its driver.

use aulos_core::Instant;
use serde_json::{Value, json};

use crate::sendspin::artwork::ArtworkRequest;
use crate::sendspin::dialect::Dialect;
use crate::sendspin::frame::micros;
use crate::sendspin::message::{ControllerCommand, Goodbye};
use crate::sendspin::room::TrackInfo;
use crate::snap::session::CloseReason;
use crate::snap::wire::ClientInfo;

/// Output of a session.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ClientSessionOutput {
    /// Event for the driver.
    Event(ClientSessionEvent),
    /// Message to encode with [`ClientSession::write`](super::ClientSession::write) and to send now.
    Send(SessionMessage),
    /// The connection ends after everything sent so far. It is the last output.
    Close(CloseReason),
}

/// Event of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientSessionEvent {
    /// It is there, with the volume and mute that it has, as far as it says so. The first event.
    Introduced(ClientInfo),
    /// The client's own volume or mute has changed.
    Volume(ClientInfo),
    /// A command for its group.
    Command(ControllerCommand),
    /// The pictures that it wants, for
    /// [`ClientSession::set_artwork`](super::ClientSession::set_artwork).
    Artwork(ArtworkRequest),
    /// It ends the connection.
    Goodbye(Goodbye),
}

/// A message to a client.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SessionMessage {
    /// The answer to a request for the time.
    Time {
        /// The client's clock when it asked, in microseconds.
        transmitted: i64,
        /// When the request came.
        received: Instant,
    },
    /// A stream begins for this role, with its object.
    StreamStart(&'static str, Value),
    /// What is buffered is to be dropped.
    StreamClear,
    /// What plays.
    Track(TrackInfo),
    /// A text of this type with this payload.
    Text(&'static str, Value),
    /// A binary message.
    Binary(Vec<u8>),
    /// A ping of the WebSocket.
    Ping,
}

impl SessionMessage {
    /// The text that is sent at `now`.
    pub(super) fn to_json(&self, dialect: Dialect, now: Instant) -> Value {
        let sent = micros(now);
        let (kind, payload) = match self {
            Self::Time { transmitted, received } => {
                let received = micros(*received);
                let payload = json!({
                    "client_transmitted": transmitted,
                    "server_received": received,
                    "server_transmitted": sent,
                });
                ("server/time", payload)
            }
            Self::StreamStart(role, object) => {
                ("stream/start", json!({ "server_transmitted": sent, *role: object }))
            }
            Self::StreamClear => {
                ("stream/clear", json!({ "server_transmitted": sent, "roles": ["player"] }))
            }
            Self::Track(track) => {
                ("server/state", json!({ "metadata": track.to_json(dialect, now) }))
            }
            Self::Text(kind, payload) => (*kind, payload.clone()),
            Self::Binary(_) | Self::Ping => ("", Value::Null),
        };
        json!({ "type": kind, "payload": payload })
    }
}
