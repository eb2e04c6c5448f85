//! Sessions of clients: their events and commands.

use std::net::IpAddr;

use aulos_core::ChannelMap;

use crate::access::Credentials;

/// One connection of a client; the number is never reused in the lifetime of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// The fields of a client's Hello; every text is as it was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// `MAC`.
    pub mac: String,
    /// `HostName`.
    pub host_name: String,
    /// `ClientName`: the program.
    pub client_name: String,
    /// `Version` of the program.
    pub version: String,
    /// `OS`.
    pub os: String,
    /// `Arch`.
    pub arch: String,
    /// `ID`; empty if it was not sent.
    pub id: String,
    /// `Instance`, 1 if it was not sent.
    pub instance: u32,
    /// `SnapStreamProtocolVersion`, 1 if it was not sent.
    pub protocol: u32,
    /// `Auth`: the client's credentials.
    pub auth: Option<Credentials>,
    /// The connection is already authorized to listen: by HTTP, or by a valid certificate.
    pub preauthenticated: bool,
}

/// Events from the audio side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AudioEvent {
    /// A session sent Hello. It gets its settings and its station by
    /// [`SessionCommand::SetSettings`] and [`SessionCommand::MoveClient`], in that order, unless it
    /// has them already, or is ended by [`SessionCommand::Kick`]; the client waits 2 s.
    Hello {
        /// The session.
        session: SessionId,
        /// Its address.
        peer: IpAddr,
        /// Its Hello.
        hello: Box<Hello>,
        /// The greeting it has received already, from
        /// [`GreetingSink::set_greeting`](super::GreetingSink::set_greeting).
        greeting_sent: Option<Greeting>,
    },
    /// A session has ended, for whatever reason; it is the session's last event.
    Left {
        /// The session.
        session: SessionId,
    },
    /// State of a client's connection; sent every few seconds, and changes nothing else.
    Health {
        /// The session.
        session: SessionId,
        /// The state.
        health: ClientHealth,
    },
    /// The volume was changed at the client.
    ClientInfo {
        /// The session.
        session: SessionId,
        /// 0 to 100; `None` is unchanged.
        volume: Option<u8>,
        /// Whether it is muted there; `None` is unchanged.
        muted: Option<bool>,
    },
}

/// State of a client's connection, as far as it is known on this side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientHealth {
    /// Milliseconds that the client can play with what it was sent; `None` before its first chunk.
    pub ahead_ms: Option<i64>,
    /// Smoothed round-trip time in microseconds.
    pub round_trip_us: u64,
    /// Its mean deviation in microseconds.
    pub jitter_us: u64,
    /// Unsent bytes in this machine.
    pub unsent_bytes: u64,
    /// Retransmitted segments.
    pub retransmitted: u64,
    /// Chunks skipped because the client was too slow.
    pub skipped_chunks: u64,
    /// Seconds since the last of them.
    pub skipped_s_ago: Option<u64>,
    /// Microseconds since the client's last Time request; clients send one every second.
    pub seen_us_ago: Option<u64>,
    /// How well it is in time, as it reports itself; `None` from players that do not.
    pub sync: Option<ClientSync>,
}

/// A player's own report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientSync {
    /// Microseconds that the sound is ahead of its time; `None` while it plays nothing.
    pub error_us: Option<i64>,
    /// Error of its estimate of this server's clock in microseconds, exceeded about once in twenty
    /// times.
    pub clock_error_us: Option<i64>,
    /// How much faster than this server's clock its device's clock runs, in parts per billion.
    pub drift_ppb: i32,
    /// Microseconds from writing a frame to the device until it sounds.
    pub device_delay_us: Option<i64>,
    /// Corrections at once.
    pub cuts: u64,
    /// Interruptions.
    pub underruns: u64,
    /// Interruptions that its device has counted.
    pub device_underruns: u64,
    /// Chunks that came too late or could not be decoded.
    pub lost: u64,
}

/// Playback settings of a client; the body of Snapcast's `ServerSettings`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaybackSettings {
    /// 0 to 100.
    pub volume: u8,
    /// Mute of the client or of its group.
    pub muted: bool,
    /// Additional latency of the device in milliseconds.
    pub latency_ms: i32,
    /// Milliseconds from capture to playout.
    pub buffer_ms: u32,
}

/// The answer to a client's Hello: its settings and its station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Playback settings.
    pub settings: PlaybackSettings,
    /// The station's index in `ResolvedConfig::stations`.
    pub station: usize,
}

impl Greeting {
    /// Instead of a station: the control plane answers the Hello, because the station has to be
    /// created first.
    pub const DEFER_TO_CONTROL: usize = usize::MAX;
}

/// Commands to the audio side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionCommand {
    /// Sends the settings; the first ones answer the Hello.
    SetSettings {
        /// The session.
        session: SessionId,
        /// The settings.
        settings: PlaybackSettings,
    },
    /// Moves the session to this station; the first one starts its audio.
    MoveClient {
        /// The session.
        session: SessionId,
        /// The station's number: its index in `ResolvedConfig::stations`, or the result of
        /// [`AudioBackend::add_station`](super::AudioBackend::add_station).
        station: usize,
        /// The channels that the client plays.
        map: ChannelMap,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandQueueFull(pub SessionCommand);
