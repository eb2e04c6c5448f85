//! The interface between the control plane and the running audio: plain values, two bounded queues
//! and one snapshot.
//!
//! ```text
//!  control (tokio) --- AudioBackend::command(SessionCommand) --> reactors, stations
//!                  <-- mpsc::Sender<AudioEvent> --------------
//!                  <-- AudioBackend::status(station) ---------  (a copy of the last snapshot)
//!                  --- ListenSink::accept_listener ----------> reactor (GET /listen/...)
//!                  --- ListenSink::accept_websocket ---------> reactor (WebSocket /stream)
//! ```
//!
//! Neither side waits for the other. A reactor that finds the event queue full keeps its event and
//! tries again; the control plane does the same with commands, of which it keeps the newest of each
//! kind per session. Both sides refer to sessions, not client ids: two sessions can have the same
//! id (a client that reconnects before its dead socket is noticed), and a reactor finds a session
//! without comparing text.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use aulos_config::{
    Endpoint, Mount, PushSettings, RecorderSettings, RtpOutputSettings, SoundSettings,
    SourceConfig, Station,
};

use aulos_core::{ChannelMap, Db, MediaTime, Span};
use aulos_engine::recorder::{self, CommandTime};
use aulos_files::record::MarkerRequest;
use aulos_io::feed::StreamInfo;
pub use aulos_io::feed::{DjEndReason, DjMountPermit};
pub use aulos_io::reactor::{ListenPolicy, MediaSocket};
use aulos_io::rtp::{RtpInputStatus, RtpOutputStatus};

pub use aulos_engine::loudness::Loudness;
pub use aulos_engine::loudness_processor::NormalizerStatus;
use aulos_proto::titles::TrackMetadata;

use crate::access::Credentials;
pub use crate::push::PushState;
pub use crate::radio::{BackgroundTask, RadioState};
pub use crate::recording::{RecorderState, StationRecorderEvent};

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
        /// The greeting it has received already, from [`AudioBackend::set_greeting`].
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
        /// [`AudioBackend::add_station`].
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

/// An announcement over a station's programme.
#[derive(Clone, Debug, PartialEq)]
pub struct Announcement {
    /// A number that is never reused in the lifetime of a server.
    pub id: u64,
    /// A finite file.
    pub source: SourceConfig,
    /// Gain of the programme while it plays.
    pub duck: Db,
    /// Additional gain of the announcement, on top of the one that matches the station's loudness.
    pub gain: Db,
    /// Whether to match the loudness of a normalized station.
    pub normalize: bool,
}

/// A state change of an announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnouncementEvent {
    /// The programme ramps down for it.
    Started,
    /// It has ended, with the outcome.
    Ended(AnnouncementOutcome),
}

/// How an announcement ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnouncementOutcome {
    /// It was played to its end.
    Played,
    /// It was cancelled.
    Cancelled,
    /// It exceeded the maximum length.
    TooLong,
    /// Its station was changed or removed.
    StationGone,
    /// It cannot be played, and why.
    Failed(String),
}

/// The command queue was full; the command is returned and should be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandQueueFull(pub SessionCommand);

/// The running audio, as the control plane sees it.
pub trait AudioBackend: Send + Sync {
    /// Queues a command, without waiting.
    ///
    /// Commands of one session are carried out in the order in which they were queued; one for a
    /// session that has ended is ignored.
    ///
    /// # Errors
    /// [`CommandQueueFull`] when the queue is full.
    fn command(&self, command: SessionCommand) -> Result<(), CommandQueueFull>;

    /// Sets the greeting for a client, so that its Hello is answered without the control plane;
    /// `None` restores the default greeting. The greeting may take effect late: the one that was
    /// sent comes with [`AudioEvent::Hello`]. Returns false when it was not taken: set it again.
    fn set_greeting(&self, _client: &str, _greeting: Option<Greeting>) -> bool {
        true
    }

    /// Sets the greeting for unknown clients. Before that, and after `None`, the audio side answers
    /// no unknown client by itself.
    fn set_default_greeting(&self, _greeting: Option<Greeting>) -> bool {
        true
    }

    /// Sets the policy for new connections; existing ones stay.
    fn set_listen_policy(&self, _door: &ListenPolicy) {}

    /// The last status of a station; called about ten times a second, without waiting.
    fn status(&self, station: usize) -> StationStatus;

    /// Restarts the loudness measurement of a station and its sources, without waiting.
    fn reset_loudness(&self, station: usize);

    /// Changes the processing of a station's programme while it plays.
    ///
    /// # Errors
    /// The reason, for users to read; then nothing has changed.
    fn set_sound(&self, _station: usize, _sound: &SoundSettings) -> Result<(), String> {
        Ok(())
    }

    /// Sets the servers to which a station's stream is pushed, while it plays.
    fn set_pushes(&self, _station: usize, _pushes: &[PushSettings]) {}

    /// Sets the RTP outputs of a station, while it plays.
    fn set_rtp(&self, _station: usize, _outputs: &[RtpOutputSettings]) {}

    /// The SDP of an RTP output of a station, while it runs.
    fn sdp(&self, _station: usize, _output: usize) -> Option<String> {
        None
    }

    /// Sets the recorders of a station, while it plays.
    fn set_records(&self, _station: usize, _records: &[RecorderSettings]) {}

    /// Sends a command to a recorder, by its index in `Station::records`. Returns the exact frame
    /// of the station at which it applies; `None` if that is known only with the first audio. Does
    /// not wait.
    ///
    /// # Errors
    /// The reason, for users to read; then nothing has changed.
    fn record(
        &self,
        _station: usize,
        _recorder: usize,
        _command: recorder::RecorderCommand,
        _when: CommandTime,
    ) -> Result<Option<MediaTime>, String> {
        Err("recording is not available".to_owned())
    }

    /// Requests a marker from a recorder, by its index in `Station::records`, at a recorded frame.
    /// The result is known when the marker is on the disk. Does not wait.
    ///
    /// # Errors
    /// The reason, for users to read.
    fn mark(
        &self,
        _station: usize,
        _recorder: usize,
        _label: &str,
        _when: CommandTime,
    ) -> Result<Arc<MarkerRequest>, String> {
        Err("recording is not available".to_owned())
    }

    /// Recorder events since the last call; called about ten times a second.
    fn recorder_events(&self) -> Vec<StationRecorderEvent> {
        Vec::new()
    }

    /// Bypasses a station's normalizer at matched loudness, or ends the bypass.
    fn set_bypass(&self, _station: usize, _on: bool) {}

    /// Starts a station at run time; returns its number, which may be that of a removed station.
    ///
    /// # Errors
    /// When its encoder cannot be created.
    fn add_station(&self, station: &Station) -> io::Result<usize>;

    /// Replaces a running station under its number. Its clients get the new codec header and
    /// continue; web listeners reconnect.
    ///
    /// # Errors
    /// When its encoder cannot be created; then the old station continues.
    fn replace_station(&self, number: usize, station: &Station) -> io::Result<()>;

    /// Ends a station. Its clients must have been moved to another one before.
    fn remove_station(&self, number: usize);

    /// Flushes a station: discards what its clients and the server have buffered, without waiting,
    /// so that a pause is audible at once.
    fn flush(&self, _station: usize) {}

    /// Queues an announcement over a station's programme, without waiting.
    ///
    /// # Errors
    /// The reason, for users to read.
    fn announce(&self, _station: usize, _announcement: &Announcement) -> Result<(), String> {
        Err("announcements are not available".to_owned())
    }

    /// Cancels an announcement, queued or playing.
    fn cancel_announcement(&self, _station: usize, _id: u64) {}

    /// Announcement events since the last call, each with the announcement's number; called about
    /// ten times a second.
    fn announcement_events(&self) -> Vec<(u64, AnnouncementEvent)> {
        Vec::new()
    }

    /// Prefers a source of a station, as an index in `Station::sources`, for a while or until it
    /// fails. `None` lets the station choose by itself again. Does not wait.
    fn set_preferred_source(&self, _station: usize, _wish: Option<(usize, Option<Span>)>) {}

    /// Source changes since the last call, each with its station; called about ten times a second.
    fn switch_events(&self) -> Vec<(usize, SourceSwitch)> {
        Vec::new()
    }

    /// Keeps the channel-mapped renditions in use, by station and map; others are ended. Called
    /// about ten times a second.
    fn retain_channel_maps(&self, _wanted: &dyn Fn() -> Vec<(usize, ChannelMap)>) {}

    /// Tasks for the control runtime to run; called about ten times a second.
    fn take_background_tasks(&self) -> Vec<BackgroundTask> {
        Vec::new()
    }

    /// Reports the address on which DJs of this endpoint can connect, or why they cannot.
    fn set_dj_address(&self, _address: &Endpoint, _opened: Result<SocketAddr, &io::Error>) {}

    /// Sets a station's current title, in one line; empty if unknown.
    fn set_title(&self, _station: usize, _title: &str) {}

    /// Frees what has ended; called about ten times a second.
    fn tidy(&self) {}

    /// Media position of each running station. It advances whatever its sources do.
    fn positions(&self) -> Vec<StationPosition> {
        Vec::new()
    }

    /// Counters for the status page, under stable names; sums over all stations.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

/// Media position of a station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StationPosition {
    /// A number unique to this run of a station; a restarted one has another.
    pub instance: u64,
    /// The station's name.
    pub name: String,
    /// Media time of its next chunk.
    pub position: MediaTime,
}

/// Takes over connections from the HTTP listener.
pub trait ListenSink: Send + Sync {
    /// Takes a connection whose request starts with `GET /listen/`, without waiting.
    ///
    /// The socket is non-blocking. `read` holds what has been read from it: at least the request
    /// line, at most 8 KiB, possibly more than the line.
    fn accept_listener(&self, socket: MediaSocket, read: Vec<u8>);

    /// Takes a Snapcast client behind a WebSocket whose handshake is complete, without waiting.
    ///
    /// The socket is non-blocking. `read` holds what has been read after the request, often
    /// nothing.
    fn accept_websocket(&self, socket: MediaSocket, read: Vec<u8>);

    /// Acquires a station's mount for a source client, without waiting; `None` if it is in use or
    /// no longer exists.
    fn acquire_mount(&self, _station: &str, _mount: &Mount, _who: DjInfo) -> Option<DjMountPermit> {
        None
    }

    /// Sets the title sent by a source client; false if none is on air there.
    fn set_live_title(&self, _station: &str, _mount: &Mount, _title: TrackMetadata) -> bool {
        false
    }
}

/// The status of a station.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StationStatus {
    /// Its state.
    pub state: StationState,
    /// The active source, as an index in `Station::sources`.
    pub active: Option<usize>,
    /// State of each of `Station::sources`.
    pub sources: Vec<SourceState>,
    /// Peak of each channel since the last snapshot, relative to full scale.
    pub levels: Vec<Db>,
    /// Loudness of the output, since the start or the last reset.
    pub loudness: Loudness,
    /// Loudness of the input, one for each of `Station::sources`.
    pub source_loudness: Vec<Loudness>,
    /// Status of its normalizer; `None` without one.
    pub normalizer: Option<NormalizerStatus>,
    /// Condition of each of `Station::sources`.
    pub source_conditions: Vec<SourceCondition>,
    /// What is on air, and why.
    pub on_air: OnAir,
    /// Latency to a listener.
    pub latency: Latency,
    /// Web radio state, for those of `Station::sources` that are web radio.
    pub radios: Vec<Option<RadioState>>,
    /// Live input state, for those of `Station::sources` that are mounts for DJs.
    pub live_inputs: Vec<Option<DjStatus>>,
    /// RTP state, for those of `Station::sources` that arrive over RTP.
    pub rtp_inputs: Vec<Option<RtpSourceStatus>>,
    /// State of each of `Station::rtp`.
    pub rtp_outputs: Vec<RtpDestinationStatus>,
    /// State of each of `Station::pushes`.
    pub pushes: Vec<PushState>,
    /// State of each of `Station::records`.
    pub recorders: Vec<RecorderState>,
    /// Web listeners (`/listen/...`).
    pub listeners: u32,
}

/// Status of an RTP source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RtpSourceStatus(pub RtpInputStatus);

/// Status of an RTP output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RtpDestinationStatus {
    /// Its counters; `None` if it could not be opened.
    pub state: Option<RtpOutputStatus>,
    /// Why it could not be opened.
    pub problem: Option<String>,
}

/// What a source client sent about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DjInfo {
    /// Its address.
    pub from: Option<IpAddr>,
    /// Its user agent.
    pub agent: Option<String>,
    /// The name of its programme.
    pub name: Option<String>,
    /// Its content type; empty if not sent.
    pub content_type: String,
    /// Whether it connected over TLS.
    pub tls: bool,
}

/// Status of a mount for source clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DjStatus {
    /// The address it listens on; `None` while it is closed.
    pub address: Option<SocketAddr>,
    /// A source client is sending.
    pub on_air: bool,
    /// The current source client, or the last one.
    pub client_info: DjInfo,
    /// Duration of its connection.
    pub since: Option<Span>,
    /// Bytes of audio received from it.
    pub bytes: u64,
    /// Format of the audio, once it is known.
    pub info: Option<StreamInfo>,
    /// The current title.
    pub title: Option<TrackMetadata>,
    /// How the last connection ended.
    pub left: Option<DjEndReason>,
}

impl StationStatus {
    /// The status without values that change all the time: levels, loudness, times.
    #[must_use]
    pub fn without_live_figures(self) -> Self {
        let loudness = Loudness::NONE;
        let on_air = OnAir {
            preferred_for: None,
            since_ms: 0,
            dead_air_ms: 0,
            last_resort_ms: 0,
            ..self.on_air
        };
        let (levels, source_loudness, steadiness) = (Vec::new(), Vec::new(), None);
        let latency = Latency::default();
        let djs = self
            .live_inputs
            .into_iter()
            .map(|dj| dj.map(|dj| DjStatus { since: None, bytes: 0, ..dj }));
        let djs = djs.collect();
        let pushes = self.pushes.into_iter().map(|push| PushState {
            since: None,
            bytes: 0,
            retry_in: None,
            ..push
        });
        let pushes = pushes.collect();
        let rest = |one: Option<RtpSourceStatus>| {
            one.map(|RtpSourceStatus(state)| {
                let mut rest = RtpInputStatus::default();
                (rest.from, rest.ssrc) = (state.from, state.ssrc);
                RtpSourceStatus(rest)
            })
        };
        let received = self.rtp_inputs.into_iter().map(rest).collect();
        let sent = self.rtp_outputs.into_iter().map(|one| RtpDestinationStatus {
            state: one.state.map(|_| RtpOutputStatus::default()),
            ..one
        });
        let sent = sent.collect();
        let recorders = self.recorders.into_iter().map(RecorderState::at_rest).collect();
        Self {
            levels,
            loudness,
            source_loudness,
            normalizer: steadiness,
            on_air,
            latency,
            live_inputs: djs,
            rtp_inputs: received,
            rtp_outputs: sent,
            pushes,
            recorders,
            ..self
        }
    }
}

/// What a station plays, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnAir {
    /// `active`, `fade` or `last resort`.
    pub output: &'static str,
    /// The reason for the current output.
    pub cause: Option<&'static str>,
    /// The preferred source.
    pub preferred: Option<usize>,
    /// Remaining time of the preference.
    pub preferred_for: Option<Span>,
    /// Milliseconds since the last change.
    pub since_ms: i64,
    /// Milliseconds of silence that no source has sent.
    pub dead_air_ms: i64,
    /// Milliseconds of the last resort's sound.
    pub last_resort_ms: i64,
    /// Changes by cause.
    pub switches: Vec<(&'static str, u64)>,
}

/// Condition of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceCondition {
    /// Its health, as the switch judges it.
    pub health: &'static str,
    /// The reason, if something is wrong.
    pub reason: Option<&'static str>,
    /// Readiness while it is not needed.
    pub standby: &'static str,
    /// Failures, by reason.
    pub failures: Vec<(&'static str, u64)>,
    /// The last failure.
    pub last_failure: Option<&'static str>,
}

/// Milliseconds from a source to a listener; the total latency is their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Audio in the buffer of the active input.
    pub input_ms: i64,
    /// Look-ahead of the station's processing.
    pub look_ahead_ms: i64,
    /// Buffer of the clients.
    pub client_ms: i64,
}

/// A change of the source on air; `None` is the last resort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceSwitch {
    /// The previous source, as an index in `Station::sources`.
    pub from: Option<usize>,
    /// The new source.
    pub to: Option<usize>,
    /// The cause.
    pub cause: &'static str,
}

/// State of a station.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StationState {
    /// It is not running.
    #[default]
    Stopped,
    /// It runs and sends silence: no source has audio, or it is inaudible.
    Silent,
    /// It plays a source.
    Playing,
}

/// State of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SourceState {
    /// Nothing has arrived for its time-out.
    #[default]
    Waiting,
    /// It has audio.
    Ready,
    /// It sends, but its audio is inaudible.
    Silent,
    /// It cannot be opened, and why; it is tried again.
    Failed(String),
}

/// Capacity of the event queue: two events for each session of a full server.
pub const EVENT_QUEUE: usize = 8_192;
