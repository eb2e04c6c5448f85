//! Commands for the sessions of clients.

use std::sync::Arc;

use aulos_core::ChannelMap;
use aulos_dsp::sound::SoundChain;
use aulos_io::reactor::SessionId;
use aulos_proto::snap::wire::ServerSettings;

/// What a client plays of its station. Clients of a station with equal ones share an encoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "it is there to be compared")]
pub struct ClientSound {
    /// The channels.
    pub map: ChannelMap,
    /// Their processing.
    pub chain: Option<Arc<SoundChain>>,
}

impl ClientSound {
    /// Whether these are the station's own chunks.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.map == ChannelMap::Stereo && self.chain.is_none()
    }
}

/// A session that plays something else than its station's own chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "it is there to be taken apart")]
pub struct ActiveSound {
    /// The session.
    pub session: SessionId,
    /// The station's number.
    pub station: usize,
    /// What it plays.
    pub sound: ClientSound,
}

/// Commands to the audio side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionCommand {
    /// Sends the settings; the first ones answer the Hello.
    SetSettings {
        /// The session.
        session: SessionId,
        /// The settings.
        settings: ServerSettings,
    },
    /// Moves the session to this station; the first one starts its audio.
    MoveClient {
        /// The session.
        session: SessionId,
        /// The station's number: its index in `ResolvedConfig::stations`, or the result of
        /// [`AudioBackend::add_station`](super::AudioBackend::add_station).
        station: usize,
        /// What the client plays of it.
        sound: ClientSound,
        /// Whether it plays the station and the same channels of it already, and continues without
        /// a gap.
        continues: bool,
    },
    /// Ends the session.
    Kick {
        /// The session.
        session: SessionId,
        /// The reason, for the counters.
        cause: KickReason,
    },
}

impl SessionCommand {
    /// The session that it applies to.
    #[must_use]
    pub const fn session(&self) -> SessionId {
        match self {
            Self::SetSettings { session, .. }
            | Self::MoveClient { session, .. }
            | Self::Kick { session, .. } => *session,
        }
    }
}

/// Why the server ends a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KickReason {
    /// The same client has a newer session.
    Replaced,
    /// The client was deleted.
    Deleted,
    /// The maximum number of clients is reached.
    Full,
    /// The Hello has no id.
    Unidentified,
    /// Its credentials do not allow listening.
    Unauthorized,
    /// Its address is rate-limited, after too many wrong logins or new clients.
    RateLimited,
}

/// The command queue was full; the command is returned and should be tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandQueueFull(pub SessionCommand);

/// Events of sessions, for tests.
#[cfg(test)]
pub(crate) mod test_events {
    use std::net::IpAddr;

    use aulos_io::reactor::{ReactorEvent, SessionEndCause};
    use aulos_proto::snap::wire::{ClientInfo, Hello};

    use super::SessionId;

    /// The Hello of a client without a MAC address that reports only its id.
    pub(crate) fn hello_of(id: &str) -> Hello {
        Hello { mac: String::new(), client_name: String::new(), ..Hello::new(id) }
    }

    pub(crate) fn arrival(session: SessionId, peer: IpAddr, hello: Hello) -> ReactorEvent {
        let (address, hello) = ((peer, 0).into(), Box::new(hello));
        let volume = ClientInfo::default();
        ReactorEvent::Hello { session, hello, address, authorized: false, answered: None, volume }
    }

    pub(crate) const fn departure(session: SessionId) -> ReactorEvent {
        ReactorEvent::SessionEnded { session, cause: SessionEndCause::Closed }
    }

    pub(crate) const fn volume_change(
        session: SessionId,
        volume: Option<u8>,
        muted: Option<bool>,
    ) -> ReactorEvent {
        let info = ClientInfo { volume, muted, report: None };
        ReactorEvent::ClientInfo { session, info }
    }
}
