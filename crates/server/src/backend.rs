//! The seam between the control plane and the running audio: plain values, two bounded queues and
//! one snapshot.
//!
//! ```text
//!  control (tokio) --- House::command(Command) ---> reactors, stations
//!                  <-- mpsc::Sender<AudioEvent> --------
//!                  <-- House::status(station) -----  (a copy of what was last published)
//!                  --- ListenSink::accept ---------> reactor (GET /listen/...)
//!                  --- ListenSink::stream ---------> reactor (WebSocket /stream)
//! ```
//!
//! Neither side waits for the other. A reactor that finds the event queue full keeps its event and
//! tries again; the control plane does the same with commands, of which it keeps the newest of each
//! kind per session. Sessions, not client ids, are the currency: two sessions can carry the same
//! id (a client that comes back before its dead socket is noticed), and a reactor finds a session
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
use aulos_io::decode::StreamInfo;
pub use aulos_io::feed::{DjEndReason, DjMountPermit};
pub use aulos_io::reactor::{ListenPolicy, MediaSocket};
use aulos_io::record::MarkerRequest;
use aulos_io::rtp::{RtpInputStatus, RtpOutputStatus};

pub use aulos_engine::loudness::Loudness;
pub use aulos_engine::loudness_processor::NormalizerStatus;
use aulos_proto::titles::TrackMetadata;

use crate::access::Credentials;
pub use crate::push::PushState;
pub use crate::radio::{BackgroundTask, RadioState};
pub use crate::recording::{Recorded, RecorderState};

/// One connection of a client, never used twice in the life of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// What a client says of itself; every text is as it was sent.
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
    /// `ID`; empty where it was not sent.
    pub id: String,
    /// `Instance`, 1 where it was not sent.
    pub instance: u32,
    /// `SnapStreamProtocolVersion`, 1 where it was not sent.
    pub protocol: u32,
    /// `Auth`: what it shows to say who it is.
    pub auth: Option<Credentials>,
    /// Somebody else than itself says that it may listen: HTTP, or a certificate that was good.
    pub preauthenticated: bool,
}

/// What the audio tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AudioEvent {
    /// A session said Hello. What it has not been told already it is told by
    /// [`Command::SetSettings`] and [`Command::MoveClient`], in that order, or it is ended by
    /// [`Command::Kick`]; the client waits 2 s.
    Hello {
        /// The session.
        session: SessionId,
        /// Where it comes from.
        peer: IpAddr,
        /// What it said.
        hello: Box<Hello>,
        /// What it has been told already, from [`House::greet`].
        greeting_sent: Option<Greeting>,
    },
    /// A session is gone, for whatever reason; it is the session's last event.
    Left {
        /// The session.
        session: SessionId,
    },
    /// How a client does; comes every few seconds, and changes nothing else.
    Health {
        /// The session.
        session: SessionId,
        /// How.
        health: ClientHealth,
    },
    /// The volume was changed at the client.
    ClientInfo {
        /// The session.
        session: SessionId,
        /// 0 to 100; absent is unchanged.
        volume: Option<u8>,
        /// Whether it is muted there; absent is unchanged.
        muted: Option<bool>,
    },
}

/// What can be known of a client's connection from this end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientHealth {
    /// Milliseconds that it can play with what it has been sent; none before its first chunk.
    pub ahead_ms: Option<i64>,
    /// Microseconds from a segment to its acknowledgement, smoothed.
    pub round_trip_us: u64,
    /// Microseconds by which that varies on average.
    pub jitter_us: u64,
    /// Bytes that wait in this machine.
    pub unsent_bytes: u64,
    /// Segments that had to be sent again.
    pub retransmitted: u64,
    /// Chunks that were left out because it was too slow for them.
    pub skipped_chunks: u64,
    /// Seconds since the last of them.
    pub skipped_s_ago: Option<u64>,
}

/// What a client is to do with its sound; the body of Snapcast's `ServerSettings`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaybackSettings {
    /// 0 to 100.
    pub volume: u8,
    /// The client's mute, or its group's.
    pub muted: bool,
    /// Milliseconds by which this device is late.
    pub latency_ms: i32,
    /// Milliseconds from capture to play-out.
    pub buffer_ms: u32,
}

/// How a client plays, and what: the answer to its Hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// How.
    pub settings: PlaybackSettings,
    /// The station's index in `Resolved::stations`.
    pub station: usize,
}

impl Greeting {
    /// In place of a station: whoever says Hello is answered by the control plane, because what it
    /// plays has to be made first.
    pub const DEFER_TO_CONTROL: usize = usize::MAX;
}

/// What the audio is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionCommand {
    /// Send the settings; the first ones answer the Hello.
    SetSettings {
        /// The session.
        session: SessionId,
        /// The settings.
        settings: PlaybackSettings,
    },
    /// Let the session play this station from now on; the first one starts its sound.
    MoveClient {
        /// The session.
        session: SessionId,
        /// The station's number: its index in `Resolved::stations`, or what
        /// [`House::add_station`] gave.
        station: usize,
        /// What its speakers play of it.
        map: ChannelMap,
    },
    /// End the session.
    Kick {
        /// The session.
        session: SessionId,
        /// Why, for the counters.
        cause: KickReason,
    },
}

impl SessionCommand {
    /// The session that it is for.
    #[must_use]
    pub const fn session(&self) -> SessionId {
        match self {
            Self::SetSettings { session, .. }
            | Self::MoveClient { session, .. }
            | Self::Kick { session, .. } => *session,
        }
    }
}

/// Why a session is ended by us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KickReason {
    /// The same client has a newer session.
    Replaced,
    /// Somebody deleted the client.
    Deleted,
    /// There is no place for another client.
    Full,
    /// It did not say who it is.
    Unidentified,
    /// It did not show that it may listen.
    Unauthorized,
    /// Its address has been wrong too often to be asked now, or has sent too many new clients.
    RateLimited,
}

/// Something that is to be said over a station's programme.
#[derive(Clone, Debug, PartialEq)]
pub struct Announcement {
    /// A number that is never used twice in the life of a server.
    pub id: u64,
    /// A file that ends.
    pub source: SourceConfig,
    /// What the programme is lowered by while it is heard.
    pub duck: Db,
    /// What it is changed by, on top of what brings it to the station's loudness.
    pub gain: Db,
    /// Whether it is brought to the loudness that its station is normalized to, if that is.
    pub normalize: bool,
}

/// What happens to an announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnouncementEvent {
    /// The programme goes down for it.
    Started,
    /// It is over, and why.
    Ended(AnnouncementOutcome),
}

/// Why an announcement is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnouncementOutcome {
    /// It has been heard to its end.
    Played,
    /// Somebody ended it.
    Cancelled,
    /// It was longer than an announcement may be.
    TooLong,
    /// Its station has been changed or removed.
    StationGone,
    /// It cannot be heard, and why.
    Failed(String),
}

/// The queue was full; the command comes back and is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandQueueFull(pub SessionCommand);

/// The running audio, as the control plane sees it.
pub trait AudioBackend: Send + Sync {
    /// Hands a command over, without waiting.
    ///
    /// Commands of one session are carried out in the order in which they were taken; one for a
    /// session that is gone is taken and forgotten.
    ///
    /// # Errors
    /// [`Full`] when the queue has no place now.
    fn command(&self, command: SessionCommand) -> Result<(), CommandQueueFull>;

    /// Says what a client is to be told when it says Hello, so that it need not wait for the control
    /// plane; `None`: what every newcomer is told. What is said may be late: the answer that was
    /// given comes with [`AudioEvent::Hello`]. False when it could not be taken, to be said again.
    fn set_greeting(&self, _client: &str, _greeting: Option<Greeting>) -> bool {
        true
    }

    /// Says what newcomers are to be told. Before that, and after `None`, the audio answers nobody
    /// by itself.
    fn set_default_greeting(&self, _greeting: Option<Greeting>) -> bool {
        true
    }

    /// Says what connections have to be from now on; who is here already stays.
    fn set_listen_policy(&self, _door: &ListenPolicy) {}

    /// What a station last published; called some ten times a second, without waiting.
    fn status(&self, station: usize) -> StationStatus;

    /// Measures the loudness of a station and of its sources anew from now on, without waiting.
    fn reset_loudness(&self, station: usize);

    /// Does something else to a station's programme from now on, while it plays.
    ///
    /// # Errors
    /// Why it cannot, for people to read; then nothing has changed.
    fn set_sound(&self, _station: usize, _sound: &SoundSettings) -> Result<(), String> {
        Ok(())
    }

    /// Lets a station's stream go to these servers from now on, while it plays.
    fn set_pushes(&self, _station: usize, _pushes: &[PushSettings]) {}

    /// Lets a station go to these places over RTP from now on, while it plays.
    fn set_rtp(&self, _station: usize, _outputs: &[RtpOutputSettings]) {}

    /// The description (SDP) of an output of a station, while it runs.
    fn sdp(&self, _station: usize, _output: usize) -> Option<String> {
        None
    }

    /// Lets a station be recorded by these from now on, while it plays.
    fn set_records(&self, _station: usize, _records: &[RecorderSettings]) {}

    /// Tells a recorder, by its index in `Station::records`, to do something; gives the exact frame
    /// of the station at which it does, none where that is known only with its first sound. Without
    /// waiting.
    ///
    /// # Errors
    /// Why it does not, for people to read; then nothing has changed.
    fn record(
        &self,
        _station: usize,
        _recorder: usize,
        _command: recorder::RecorderCommand,
        _when: CommandTime,
    ) -> Result<Option<MediaTime>, String> {
        Err("nothing is recorded here".to_owned())
    }

    /// Asks a recorder, by its index in `Station::records`, for a marker at a frame that it records. What
    /// comes of it is known when it is on the disk. Without waiting.
    ///
    /// # Errors
    /// Why there will be none, for people to read.
    fn mark(
        &self,
        _station: usize,
        _recorder: usize,
        _label: &str,
        _when: CommandTime,
    ) -> Result<Arc<MarkerRequest>, String> {
        Err("nothing is recorded here".to_owned())
    }

    /// What has happened to recorders since the last time; called some ten times a second.
    fn recorder_events(&self) -> Vec<Recorded> {
        Vec::new()
    }

    /// Lets a station's programme be heard as it comes, as loud as it is normalised; or ends that.
    fn set_bypass(&self, _station: usize, _on: bool) {}

    /// Starts a station while the house runs; its number is the one of a station that was removed,
    /// or a new one.
    ///
    /// # Errors
    /// When its encoder cannot be made.
    fn add_station(&self, station: &Station) -> io::Result<usize>;

    /// Runs another station under the number of one that runs. Whoever plays it gets the new codec
    /// header and goes on; web listeners come again.
    ///
    /// # Errors
    /// When its encoder cannot be made; then the old one runs on.
    fn replace_station(&self, number: usize, station: &Station) -> io::Result<()>;

    /// Ends a station. Whoever plays it has been given another one before.
    fn remove_station(&self, number: usize);

    /// Lets clients hear at once that a station plays nothing more: what they have buffered of it and
    /// what waits here is thrown away, without waiting.
    fn flush(&self, _station: usize) {}

    /// Lets an announcement wait for its turn over a station's programme, without waiting.
    ///
    /// # Errors
    /// Why it cannot, for people to read.
    fn announce(&self, _station: usize, _announcement: &Announcement) -> Result<(), String> {
        Err("nothing is announced here".to_owned())
    }

    /// Ends an announcement, whether it is heard or waits.
    fn cancel_announcement(&self, _station: usize, _id: u64) {}

    /// What has happened to announcements since the last time, each with its number; called some
    /// ten times a second.
    fn announcement_events(&self) -> Vec<(u64, AnnouncementEvent)> {
        Vec::new()
    }

    /// Lets a station play a source, as an index in `Station::sources`: for a while, or until it
    /// fails. With none the station chooses by itself again. Without waiting.
    fn set_preferred_source(&self, _station: usize, _wish: Option<(usize, Option<Span>)>) {}

    /// Every change of a source that is heard since the last time, each with its station; called
    /// some ten times a second.
    fn switch_events(&self) -> Vec<(usize, SourceSwitch)> {
        Vec::new()
    }

    /// Says of which stations somebody plays which channels, but for all of them; what is not here
    /// any more is not made any more. Called some ten times a second.
    fn retain_channel_maps(&self, _wanted: &dyn Fn() -> Vec<(usize, ChannelMap)>) {}

    /// What the control runtime is to run from now on; called some ten times a second.
    fn take_background_tasks(&self) -> Vec<BackgroundTask> {
        Vec::new()
    }

    /// Says where the DJs of this address can come to, or why they cannot.
    fn set_dj_address(&self, _address: &Endpoint, _opened: Result<SocketAddr, &io::Error>) {}

    /// Says what a station plays, in one line; empty where that is not known.
    fn set_title(&self, _station: usize, _title: &str) {}

    /// Frees what has ended; called some ten times a second.
    fn tidy(&self) {}

    /// How far each station that runs has come. It advances whatever its sources do.
    fn positions(&self) -> Vec<StationPosition> {
        Vec::new()
    }

    /// Counters for the status page, each with a name that never changes; sums over the house.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

/// How far a station has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StationPosition {
    /// A number that no other station ever has; one that begins anew has another one.
    pub instance: u64,
    /// What it is called.
    pub name: String,
    /// The media time of its next chunk.
    pub position: MediaTime,
}

/// Takes listeners over from the HTTP listener.
pub trait ListenSink: Send + Sync {
    /// Takes a connection whose request begins with `GET /listen/`, without waiting.
    ///
    /// The socket does not block. `read` holds what has been read from it: at least the request
    /// line, at most 8 KiB, perhaps more than the line.
    fn accept_listener(&self, socket: MediaSocket, read: Vec<u8>);

    /// Takes a Snapcast client behind a WebSocket whose handshake has been answered, without
    /// waiting.
    ///
    /// The socket does not block. `read` holds what has been read behind the request, often
    /// nothing.
    fn accept_websocket(&self, socket: MediaSocket, read: Vec<u8>);

    /// The right to go on air at a station's mount, without waiting; none where somebody has it, or
    /// where there is no such mount any more.
    fn acquire_mount(&self, _station: &str, _mount: &Mount, _who: DjInfo) -> Option<DjMountPermit> {
        None
    }

    /// Takes over what the DJ says that he plays; false when nobody is on air there.
    fn set_live_title(&self, _station: &str, _mount: &Mount, _title: TrackMetadata) -> bool {
        false
    }
}

/// What a station publishes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StationStatus {
    /// What it does.
    pub state: StationState,
    /// The source that is heard, as an index in `Station::sources`.
    pub active: Option<usize>,
    /// One for each of `Station::sources`.
    pub sources: Vec<SourceState>,
    /// The peak of each channel since the last snapshot, relative to full scale.
    pub levels: Vec<Db>,
    /// The loudness of what goes out, since the start or since the last reset.
    pub loudness: Loudness,
    /// The loudness of what comes in, one for each of `Station::sources`.
    pub source_loudness: Vec<Loudness>,
    /// What its normaliser does; none while there is none.
    pub normalizer: Option<NormalizerStatus>,
    /// How they do, one for each of `Station::sources`.
    pub source_conditions: Vec<SourceCondition>,
    /// What is heard, and why.
    pub on_air: OnAir,
    /// What a listener is late by.
    pub latency: Latency,
    /// What is known of those of `Station::sources` that are web radio.
    pub radios: Vec<Option<RadioState>>,
    /// What is known of those of `Station::sources` that are places for DJs.
    pub live_inputs: Vec<Option<DjStatus>>,
    /// What is known of those of `Station::sources` that come over RTP.
    pub rtp_inputs: Vec<Option<RtpSourceStatus>>,
    /// One for each of `Station::rtp`.
    pub rtp_outputs: Vec<RtpDestinationStatus>,
    /// One for each of `Station::pushes`.
    pub pushes: Vec<PushState>,
    /// One for each of `Station::records`.
    pub recorders: Vec<RecorderState>,
    /// Web listeners (`/listen/...`).
    pub listeners: u32,
}

/// How a source does that comes over RTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RtpSourceStatus(pub RtpInputStatus);

/// How an output over RTP does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RtpDestinationStatus {
    /// What it has sent; none while it could not be opened.
    pub state: Option<RtpOutputStatus>,
    /// Why it could not.
    pub problem: Option<String>,
}

/// What a DJ said of himself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DjInfo {
    /// Where he comes from.
    pub from: Option<IpAddr>,
    /// His program.
    pub agent: Option<String>,
    /// What he calls his programme.
    pub name: Option<String>,
    /// What he calls his stream; empty where he does not say it.
    pub content_type: String,
    /// Whether he came through TLS.
    pub tls: bool,
}

/// How a place for DJs does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DjStatus {
    /// Where it is open; none while it is not.
    pub address: Option<SocketAddr>,
    /// Somebody sends.
    pub on_air: bool,
    /// Who does, or did last.
    pub client_info: DjInfo,
    /// For how long.
    pub since: Option<Span>,
    /// Bytes of sound that he has sent.
    pub bytes: u64,
    /// What they are, once that is known.
    pub info: Option<StreamInfo>,
    /// What he plays.
    pub title: Option<TrackMetadata>,
    /// How the last one left.
    pub left: Option<DjEndReason>,
}

impl StationStatus {
    /// Without what changes all the time: levels, loudness, times.
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

/// What a station gives out, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnAir {
    /// `active`, `fade` or `last resort`.
    pub output: &'static str,
    /// Why it is what it is.
    pub cause: Option<&'static str>,
    /// The source that somebody wished.
    pub preferred: Option<usize>,
    /// For how long it still is.
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

/// How a source does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceCondition {
    /// What the switch thinks of it.
    pub health: &'static str,
    /// Why, where something is wrong.
    pub reason: Option<&'static str>,
    /// How ready it is kept while it is not needed.
    pub standby: &'static str,
    /// What has gone wrong with it, by reason.
    pub failures: Vec<(&'static str, u64)>,
    /// What was the last of it.
    pub last_failure: Option<&'static str>,
}

/// Milliseconds from a source to a listener's ear; their sum is what he is late by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// What waits in the input on air.
    pub input_ms: i64,
    /// What a stage of the station has to know in advance.
    pub look_ahead_ms: i64,
    /// What clients buffer.
    pub client_ms: i64,
}

/// Another source is heard; none is the last resort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceSwitch {
    /// Who was heard, as an index in `Station::sources`.
    pub from: Option<usize>,
    /// Who is heard now.
    pub to: Option<usize>,
    /// Why.
    pub cause: &'static str,
}

/// What a station does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StationState {
    /// It does not run.
    #[default]
    Stopped,
    /// It runs and sends silence: no source has anything, or nothing that can be heard.
    Silent,
    /// A source is heard.
    Playing,
}

/// What a source does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SourceState {
    /// Nothing has come from it for its time-out.
    #[default]
    Waiting,
    /// It has sound.
    Ready,
    /// It sends, but nothing that can be heard.
    Silent,
    /// It cannot be opened, and why; it is tried again.
    Failed(String),
}

/// Events that may wait for the control plane: every session of a full house at once, twice.
pub const EVENT_QUEUE: usize = 8_192;
