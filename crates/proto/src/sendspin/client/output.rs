//! What a client gives its driver.

use std::sync::Arc;

use aulos_core::Instant;

use super::error::SendspinClientError;
use super::message::{ServerActivity, TransportCommands};
use crate::sendspin::format::SupportedFormat;
use crate::sendspin::noise::NoiseCipher;
use crate::sendspin::room::{PlaybackState, TrackInfo};

/// Output of a client.
#[derive(Debug)]
#[non_exhaustive]
pub enum SendspinClientOutput<'a> {
    /// Send this message; [`SendspinClient::write`](super::SendspinClient::write) encodes it.
    Send(SendspinOutgoing),
    /// Something has happened.
    Event(SendspinClientEvent),
    /// Sound.
    Chunk {
        /// When its first frame is to sound, on the server's clock.
        timestamp: Instant,
        /// The encoded sound: whole frames of PCM, FLAC frames or an Opus packet.
        payload: &'a [u8],
    },
}

/// A message for the server, encoded at the moment of the write.
#[derive(Debug)]
pub struct SendspinOutgoing(pub(super) Outgoing);

#[derive(Debug)]
pub(super) enum Outgoing {
    /// Before the keys are known.
    Text(String),
    Json(String),
    /// A question for the server's time.
    Time,
    /// The last message with the old keys.
    Rekey(String, Box<NoiseCipher>),
}

impl SendspinOutgoing {
    pub(super) const fn text(text: String) -> Self {
        Self(Outgoing::Text(text))
    }

    pub(super) const fn json(text: String) -> Self {
        Self(Outgoing::Json(text))
    }

    pub(super) const fn time() -> Self {
        Self(Outgoing::Time)
    }

    pub(super) fn rekey(text: String, cipher: NoiseCipher) -> Self {
        Self(Outgoing::Rekey(text, Box::new(cipher)))
    }
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendspinClientEvent {
    /// The server has said its name.
    Server(String),
    /// The server has said what it wants.
    Active {
        /// What it wants.
        activity: ServerActivity,
        /// Whether it uses a role of this client.
        has_roles: bool,
    },
    /// A stream begins, or goes on in another format.
    Stream(SupportedFormat),
    /// What has been received of the stream is not to be played.
    StreamCleared,
    /// The stream is over.
    StreamEnded,
    /// What plays from a time of the server's clock on.
    Track(Instant, TrackInfo),
    /// The picture from a time of the server's clock on, JPEG as a rule, at most 1 MiB; `None` for
    /// none.
    Artwork(Instant, Option<Arc<[u8]>>),
    /// A picture whose time has not come is not to be shown.
    ArtworkDropped,
    /// There is no picture any more.
    ArtworkEnded,
    /// What the server can be told.
    Commands(TransportCommands),
    /// Whether the server's group plays.
    Playback(PlaybackState),
    /// The connection ends after everything sent so far.
    Closed(SendspinClientError),
}
