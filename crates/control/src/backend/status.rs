//! The status of a station in typed values. The control plane turns them into JSON.

use std::net::{IpAddr, SocketAddr};

use aulos_core::{Instant, MediaTime, Span};
use aulos_engine::status::{InputState, MAX_SOURCES, StationOutput, StationStatus};
use aulos_engine::switch::{InputChange, InputHealth, Preference};
use aulos_files::playlist::PlaylistStatus;
use aulos_io::feed::{DjEndReason, RadioStreamInfo};
use aulos_io::srt::SrtFeederState;
use aulos_proto::titles::TrackMetadata;
use aulos_session::nats::LeaseState;
use aulos_session::rtp::{RtpInputStatus, RtpOutputStatus};
use aulos_session::sendspin::{SendspinInputCounts, SendspinInputStatus};

use super::announcement::AnnouncementEvent;
use super::hls::HlsTargetState;
use super::insert::InsertReport;
use super::{RadioState, RecorderState};
use aulos_session::push::PushState;

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

/// What the audio side reports of a station: the status of the machine, and of what surrounds it.
#[derive(Clone, Debug, PartialEq)]
pub struct StationReport {
    /// Its state.
    pub state: StationState,
    /// The machine's status; that before its first step while it does not run.
    pub machine: StationStatus,
    /// When it was read.
    pub at: Instant,
    /// State of each of `StationSettings::sources`; empty while it does not run.
    pub sources: Vec<SourceState>,
    /// Time until the next attempt, for those of `StationSettings::sources` that have failed.
    pub retries: Vec<Option<Span>>,
    /// Latency to a listener.
    pub latency: Latency,
    /// Web radio state, for those of `StationSettings::sources` that are web radio.
    pub radios: Vec<Option<RadioState>>,
    /// Live input state, for those of `StationSettings::sources` that are mounts for DJs.
    pub live_inputs: Vec<Option<DjStatus>>,
    /// Playlist state, for those of `StationSettings::sources` that are playlists.
    pub playlists: Vec<Option<PlaylistStatus>>,
    /// RTP state, for those of `StationSettings::sources` that arrive over RTP.
    pub rtp_inputs: Vec<Option<RtpInputStatus>>,
    /// SRT state, for those of `StationSettings::sources` that arrive over SRT.
    pub srt_inputs: Vec<Option<SrtFeederState>>,
    /// State of those of `StationSettings::sources` that are players of a Sendspin server.
    pub sendspin_inputs: Vec<Option<SendspinInputStatus>>,
    /// Whether chunks are passed, for those of `StationSettings::sources` that are to pass them.
    pub passes: Vec<Option<PassStatus>>,
    /// Which part this server has in the publication of the station; `None` if it is not published.
    pub publication: Option<LeaseState>,
    /// State of each of `StationSettings::rtp`.
    pub rtp_outputs: Vec<RtpDestinationStatus>,
    /// State of the insert, if there is one.
    pub insert: Option<InsertReport>,
    /// State of each folder and storage to which HLS is written.
    pub hls: Vec<HlsTargetState>,
    /// State of each of `StationSettings::pushes`.
    pub pushes: Vec<PushState>,
    /// State of each of `StationSettings::records`.
    pub recorders: Vec<RecorderState>,
}

impl Default for StationReport {
    /// The report of a station that does not run.
    fn default() -> Self {
        Self {
            state: StationState::Stopped,
            machine: StationStatus::new(Instant::ZERO),
            at: Instant::ZERO,
            sources: Vec::new(),
            retries: Vec::new(),
            latency: Latency::default(),
            radios: Vec::new(),
            live_inputs: Vec::new(),
            playlists: Vec::new(),
            rtp_inputs: Vec::new(),
            srt_inputs: Vec::new(),
            sendspin_inputs: Vec::new(),
            passes: Vec::new(),
            publication: None,
            rtp_outputs: Vec::new(),
            insert: None,
            hls: Vec::new(),
            pushes: Vec::new(),
            recorders: Vec::new(),
        }
    }
}

/// The state without its counters.
fn srt_at_rest(state: Option<SrtFeederState>) -> Option<SrtFeederState> {
    state.map(|state| {
        let mut rest = SrtFeederState { info: state.info, ..SrtFeederState::default() };
        (rest.link.problem, rest.link.refusal) = (state.link.problem, state.link.refusal);
        rest.link.srt.peer = state.link.srt.peer;
        rest
    })
}

/// Whether the chunks of a source go to clients as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PassStatus {
    /// They do; nothing is encoded.
    Passed,
    /// The station encodes, for this reason.
    Encoded(String),
}

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
    pub info: Option<RadioStreamInfo>,
    /// The current title.
    pub title: Option<TrackMetadata>,
    /// How the last connection ended.
    pub left: Option<DjEndReason>,
}

impl StationReport {
    /// The status of each input in `StationSettings::sources`; none while it does not run.
    #[must_use]
    pub fn inputs(&self) -> &[InputState] {
        &self.machine.inputs[..self.sources.len().min(MAX_SOURCES)]
    }

    /// Whether the last resort is on air.
    #[must_use]
    pub fn is_on_last_resort(&self) -> bool {
        self.state != StationState::Stopped && self.machine.output == StationOutput::LastResort
    }

    /// The report without values that change all the time: levels, loudness, times.
    #[must_use]
    pub fn without_live_figures(self) -> Self {
        let live_inputs = self
            .live_inputs
            .into_iter()
            .map(|dj| dj.map(|dj| DjStatus { since: None, bytes: 0, ..dj }));
        let live_inputs = live_inputs.collect();
        let still = |one: Option<PlaylistStatus>| {
            one.map(|status| PlaylistStatus {
                current: status.current.map(|(track, _)| (track, Span::ZERO)),
                ..status
            })
        };
        let playlists = self.playlists.into_iter().map(still).collect();
        let pushes = self.pushes.into_iter().map(|push| PushState {
            since: None,
            bytes: 0,
            retry_in: None,
            link: None,
            ..push
        });
        let pushes = pushes.collect();
        let rest = |one: Option<RtpInputStatus>| {
            one.map(|status| {
                let mut rest = RtpInputStatus::default();
                (rest.from, rest.ssrc) = (status.from, status.ssrc);
                rest
            })
        };
        let rtp_inputs = self.rtp_inputs.into_iter().map(rest).collect();
        let srt_inputs = self.srt_inputs.into_iter().map(srt_at_rest).collect();
        let uncounted = |one: Option<SendspinInputStatus>| {
            one.map(|mut status| {
                (status.counts, status.retry_at) = (SendspinInputCounts::default(), None);
                status
            })
        };
        let sendspin_inputs = self.sendspin_inputs.into_iter().map(uncounted).collect();
        let rtp_outputs = self.rtp_outputs.into_iter().map(|one| RtpDestinationStatus {
            state: one.state.map(|_| RtpOutputStatus::default()),
            ..one
        });
        let rtp_outputs = rtp_outputs.collect();
        let recorders = self.recorders.into_iter().map(RecorderState::at_rest).collect();
        Self {
            machine: machine_at_rest(&self.machine),
            at: Instant::ZERO,
            latency: Latency::default(),
            live_inputs,
            playlists,
            rtp_inputs,
            srt_inputs,
            sendspin_inputs,
            rtp_outputs,
            insert: self.insert.map(InsertReport::at_rest),
            hls: self.hls.into_iter().map(HlsTargetState::at_rest).collect(),
            pushes,
            recorders,
            ..self
        }
    }
}

/// What is on air and why, and the condition of the inputs; without levels, times and counts of
/// chunks.
fn machine_at_rest(machine: &StationStatus) -> StationStatus {
    let StationStatus { active, cause, output, switches_by, scheduled, .. } = *machine;
    let preference = machine.preference.map(|one| Preference { until: None, ..one });
    let inputs = machine.inputs.map(|input| InputState {
        health: match input.health {
            InputHealth::Priming { .. } => InputHealth::Priming { since: Instant::ZERO },
            InputHealth::Healthy { .. } => InputHealth::Healthy { since: Instant::ZERO },
            timeless => timeless,
        },
        failures: input.failures,
        has_started: input.has_started,
        standby: input.standby,
        ..InputState::NEW
    });
    let rest = StationStatus::new(Instant::ZERO);
    StationStatus { active, cause, output, switches_by, preference, scheduled, inputs, ..rest }
}

/// Milliseconds from a source to a listener; the total latency is their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Audio in the buffer of the active input.
    pub input_ms: i64,
    /// Latency of the insert.
    pub insert_ms: i64,
    /// Look-ahead of the station's processing.
    pub look_ahead_ms: i64,
    /// Buffer of the clients.
    pub client_ms: i64,
}

/// What happened to the programme of a station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgrammeEvent {
    /// Another source of the station with this number is on air.
    Switched(usize, InputChange),
    /// The announcement with this number began or ended.
    Announcement(u64, AnnouncementEvent),
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
