//! The interface between the control plane and the running audio: plain values, two bounded queues
//! and one snapshot.
//!
//! ```text
//!  control (tokio) --- AudioBackend::command(SessionCommand) --> reactors, stations
//!                  <-- mpsc::Sender<ReactorEvent> ------------
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

mod announcement;
mod hls;
mod insert;
mod radio;
mod recording;
mod relay;
mod session;
mod status;
mod upload;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use aulos_config::{
    Endpoint, Mount, ProcessingSettings, PushSettings, RecorderSettings, RtpOutputSettings,
    StationSettings,
};
use aulos_core::{MediaTime, Span};
use aulos_engine::recorder::{self, CommandTime};
use aulos_engine::switch::SwitchSchedule;
use aulos_files::record::MarkerRequest;
use aulos_proto::sendspin::{ArtworkUpdate, RoomState, SupportedFormat, TransportCommand};
use aulos_proto::titles::TrackMetadata;
use aulos_session::hls::HlsWindow;

pub use announcement::{
    Announcement, AnnouncementEvent, AnnouncementLead, AnnouncementOutcome, AnnouncementSource,
    AnnouncementTarget, LiveSound, TargetSessions,
};
pub use aulos_engine::insert::{InsertFault, InsertStatus};
pub use aulos_engine::loudness::Loudness;
pub use aulos_engine::loudness_processor::NormalizerStatus;
pub use aulos_engine::standby::Standby;
pub use aulos_engine::status::{InputState, StationOutput, StationStatus};
pub use aulos_engine::switch::{FailureCounts, InputChange, InputFault, InputHealth, SwitchCause};
pub use aulos_io::feed::{DjEndReason, DjMountPermit, InsertFeedStatus};
pub use aulos_io::reactor::{
    ConnectionHealth, Greeting, ListenPolicy, ListenerSession, MediaSocket, ReactorEvent,
    SendspinSocket, SessionId,
};
pub use aulos_proto::snap::wire::{Hello, ServerSettings};
pub use aulos_session::push::PushState;
pub use hls::{HlsTargetKind, HlsTargetState};
pub use insert::{InsertReport, InsertState, LATE};
pub use radio::{HlsSourceState, RadioPhase, RadioState};
pub(crate) use recording::fault_text;
pub use recording::{LogHead, RecorderState, RecordingEventKind, StationRecorderEvent};
pub use relay::{RelayChanges, RelayControl};
#[cfg(test)]
pub(crate) use session::test_events;
pub use session::{ActiveSound, ClientSound, CommandQueueFull, KickReason, SessionCommand};
pub use status::{
    DjInfo, DjStatus, Latency, PassStatus, ProgrammeEvent, RtpDestinationStatus, SourceState,
    StationPosition, StationReport, StationState,
};
pub use upload::{UploadEvent, UploadPhase, UploadState};

/// A task for the control runtime to run.
pub type BackgroundTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes the greetings with which the audio side answers clients.
pub trait GreetingSink {
    /// Sets the greeting for a client, so that its Hello is answered without the control plane;
    /// `None` restores the default greeting. The greeting may take effect late: the one that was
    /// sent comes with [`ReactorEvent::Hello`]. Returns false when it was not taken: set it again.
    fn set_greeting(&self, client: &str, greeting: Option<Greeting>) -> bool;

    /// Sets the greeting for unknown clients. Before that, and after `None`, the audio side answers
    /// no unknown client by itself.
    fn set_default_greeting(&self, greeting: Option<Greeting>) -> bool;
}

/// The running audio, as the control plane sees it.
pub trait AudioBackend: GreetingSink + Send + Sync {
    /// Queues a command, without waiting.
    ///
    /// Commands of one session are carried out in the order in which they were queued; one for a
    /// session that has ended is ignored.
    ///
    /// # Errors
    /// [`CommandQueueFull`] when the queue is full.
    fn command(&self, command: SessionCommand) -> Result<(), CommandQueueFull>;

    /// Sets the policy for new connections; existing ones stay.
    fn set_listen_policy(&self, policy: &ListenPolicy);

    /// The last status of a station; called about ten times a second, without waiting.
    fn status(&self, station: usize) -> StationReport;

    /// Restarts the loudness measurement of a station and its sources, without waiting.
    fn reset_loudness(&self, station: usize);

    /// Changes the processing of a station's programme while it plays.
    ///
    /// # Errors
    /// The reason, for users to read; then nothing has changed.
    fn set_sound(&self, station: usize, sound: &ProcessingSettings) -> Result<(), String>;

    /// Sets the servers to which a station's stream is pushed, while it plays.
    fn set_pushes(&self, station: usize, pushes: &[PushSettings]);

    /// Sets the RTP outputs of a station, while it plays.
    fn set_rtp(&self, station: usize, outputs: &[RtpOutputSettings]);

    /// The SDP of an RTP output of a station, while it runs.
    fn sdp(&self, station: usize, output: usize) -> Option<String>;

    /// Sets the recorders of a station, while it plays.
    fn set_records(&self, station: usize, records: &[RecorderSettings]);

    /// Sends a command to a recorder, by its index in `StationSettings::records`. Returns the exact
    /// frame of the station at which it applies; `None` if that is known only with the first audio.
    /// Does not wait.
    ///
    /// # Errors
    /// The reason, for users to read; then nothing has changed.
    fn record(
        &self,
        station: usize,
        recorder: usize,
        command: recorder::RecorderCommand,
        when: CommandTime,
    ) -> Result<Option<MediaTime>, String>;

    /// Requests a marker from a recorder, by its index in `StationSettings::records`, at a recorded
    /// frame. The result is known when the marker is on the disk. Does not wait.
    ///
    /// # Errors
    /// The reason, for users to read.
    fn mark(
        &self,
        station: usize,
        recorder: usize,
        label: &str,
        when: CommandTime,
    ) -> Result<Arc<MarkerRequest>, String>;

    /// Recorder events since the last call; called about ten times a second.
    fn recorder_events(&self) -> Vec<StationRecorderEvent>;

    /// Bypasses a station's normalizer at matched loudness, or ends the bypass.
    fn set_bypass(&self, station: usize, on: bool);

    /// Starts a station at run time; returns its number, which may be that of a removed station.
    ///
    /// # Errors
    /// When its encoder cannot be created.
    fn add_station(&self, station: &StationSettings) -> io::Result<usize>;

    /// Replaces a running station under its number. Its clients get the new codec header and
    /// continue; web listeners reconnect.
    ///
    /// # Errors
    /// When its encoder cannot be created; then the old station continues.
    fn replace_station(&self, number: usize, station: &StationSettings) -> io::Result<()>;

    /// Ends a station. Its clients must have been moved to another one before.
    fn remove_station(&self, number: usize);

    /// Flushes a station: discards what its clients and the server have buffered, without waiting,
    /// so that a pause is audible at once.
    fn flush(&self, station: usize);

    /// Queues an announcement over a station's programme, without waiting.
    ///
    /// # Errors
    /// The reason, for users to read.
    fn announce(
        &self,
        station: usize,
        announcement: &Announcement,
        sessions: &TargetSessions<'_>,
    ) -> Result<(), String>;

    /// Moves the clients for which announcements are to where these play, and back afterwards.
    /// Cancels announcements whose target does not play the station any more. Called about ten
    /// times a second.
    fn move_announced(&self, sessions: &TargetSessions<'_>);

    /// Cancels an announcement, queued or playing.
    fn cancel_announcement(&self, station: usize, id: u64);

    /// Prefers a source of a station, as an index in `StationSettings::sources`, for a while or until
    /// it fails. `None` lets the station choose by itself again. Does not wait.
    fn set_preferred_source(&self, station: usize, request: Option<(usize, Option<Span>)>);

    /// Skips the file that a source of a station plays, as an index in `StationSettings::sources`.
    /// False if the station does not run or the source has no files. Does not wait.
    fn skip_track(&self, station: usize, source: usize) -> bool;

    /// Tells the programme of a source, as an index in `StationSettings::sources`, to play, pause or
    /// skip. False if the station does not run or the source cannot be told. Does not wait.
    fn control_source(&self, _station: usize, _source: usize, _command: TransportCommand) -> bool {
        false
    }

    /// Replaces the schedule of a station, with sources as indices in `StationSettings::sources`. Does
    /// not wait.
    fn set_schedule(&self, station: usize, schedule: SwitchSchedule);

    /// What happened on all stations since the last call; called about ten times a second.
    fn programme_events(&self) -> Vec<ProgrammeEvent>;

    /// Keeps the renditions of client sounds in use; others are ended. Called about ten times a
    /// second.
    fn retain_sounds(&self, wanted: &dyn Fn() -> Vec<ActiveSound>);

    /// Tasks for the control runtime to run; called about ten times a second.
    fn take_background_tasks(&self) -> Vec<BackgroundTask>;

    /// Reports the address on which DJs of this endpoint can connect, or why they cannot.
    fn set_dj_address(&self, address: &Endpoint, opened: Result<SocketAddr, &io::Error>);

    /// Sets a station's current title, in one line; empty if unknown.
    fn set_title(&self, station: usize, title: &str);

    /// The formats that the Sendspin client of a session can play; `None` when it has ended. Comes
    /// before its first command.
    fn set_player_formats(&self, session: SessionId, formats: Option<&Arc<[SupportedFormat]>>);

    /// Tells a Sendspin client of its group. False when it was not taken: call again.
    fn set_room(&self, session: SessionId, room: &Arc<RoomState>) -> bool;

    /// Tells a Sendspin client what its channels of pictures are to show. False when it was not
    /// taken: call again.
    fn set_artwork(&self, session: SessionId, update: &Arc<ArtworkUpdate>) -> bool;

    /// Frees what has ended; called about ten times a second.
    fn reap_ended(&self);

    /// Media position of each running station. It advances whatever its sources do.
    fn positions(&self) -> Vec<StationPosition>;

    /// Counters for the status page, under stable names; sums over all stations.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

/// The request of a web listener.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "it is there to be taken apart")]
pub struct ListenerRequest {
    /// What has been read from its socket: the head, at most 8 KiB, possibly more.
    pub head: Vec<u8>,
    /// Its entry in the table of listeners, kept as long as it is served.
    pub session: Arc<ListenerSession>,
    /// The value of `Access-Control-Allow-Origin` in the response.
    pub allow_origin: Option<Arc<str>>,
}

/// Takes over connections from the HTTP listener.
pub trait ListenSink: Send + Sync {
    /// Takes a connection whose request starts with `GET /listen/`, without waiting.
    ///
    /// The socket is non-blocking.
    fn accept_listener(&self, socket: MediaSocket, request: ListenerRequest);

    /// Takes a Snapcast client behind a WebSocket whose handshake is complete, without waiting.
    ///
    /// The socket is non-blocking. `read` holds what has been read after the request, often
    /// nothing.
    fn accept_websocket(&self, socket: MediaSocket, read: Vec<u8>);

    /// Takes a Sendspin client that has been let in, without waiting.
    fn accept_sendspin(&self, client: SendspinSocket);

    /// The window of a station's HLS, if it has one.
    fn hls_window(&self, _station: &str) -> Option<Arc<Mutex<HlsWindow>>> {
        None
    }

    /// Acquires a station's mount for a source client, without waiting; `None` if it is in use or
    /// no longer exists.
    fn acquire_mount(&self, station: &str, mount: &Mount, info: DjInfo) -> Option<DjMountPermit>;

    /// Sets the title sent by a source client; false if none is on air there.
    fn set_live_title(&self, station: &str, mount: &Mount, title: TrackMetadata) -> bool;

    /// Disconnects the source client of a mount; false if none is on air there.
    fn disconnect_source(&self, station: &str, mount: &Mount) -> bool;

    /// Moves the listeners of one mount to another one; false if their formats differ.
    fn move_listeners(&self, _from: &str, _to: &str) -> bool {
        false
    }
}

/// Capacity of the event queue: two events for each session of a full server.
pub const EVENT_QUEUE: usize = 8_192;
