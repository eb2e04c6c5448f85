//! The status of a station in typed values. The control plane turns them into JSON.

use std::net::{IpAddr, SocketAddr};

use aulos_core::{Db, MediaTime, Span};
use aulos_engine::loudness::Loudness;
use aulos_engine::loudness_processor::NormalizerStatus;
use aulos_engine::standby::Standby;
use aulos_engine::status::StepTimes;
use aulos_engine::switch::{FailureCounts, InputFault, SwitchCause};
use aulos_io::feed::{DjEndReason, RadioStreamInfo};
use aulos_proto::titles::TrackMetadata;
use aulos_session::nats::LeaseState;
use aulos_session::rtp::{RtpInputStatus, RtpOutputStatus};

use super::announcement::AnnouncementEvent;
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

/// The status of a station.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StationStatus {
    /// Its state.
    pub state: StationState,
    /// The active source, as an index in `Station::sources`.
    pub active: Option<usize>,
    /// State of each of `Station::sources`.
    pub sources: Vec<SourceState>,
    /// Time until the next attempt, for those of `Station::sources` that have failed.
    pub retries: Vec<Option<Span>>,
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
    /// Whether chunks are passed, for those of `Station::sources` that are to pass them.
    pub passes: Vec<Option<PassStatus>>,
    /// Which part this server has in the publication of the station; `None` if it is not published.
    pub publication: Option<LeaseState>,
    /// State of each of `Station::rtp`.
    pub rtp_outputs: Vec<RtpDestinationStatus>,
    /// State of each of `Station::pushes`.
    pub pushes: Vec<PushState>,
    /// State of each of `Station::records`.
    pub recorders: Vec<RecorderState>,
    /// Media time of its next chunk. It advances whatever its sources do.
    pub position: MediaTime,
    /// What it has counted since its start.
    pub counters: StationCounters,
    /// How long its steps took.
    pub steps: StepTimes,
}

/// What a station has counted since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StationCounters {
    /// Chunks sent.
    pub chunks: u64,
    /// Payload bytes of these chunks.
    pub payload_bytes: u64,
    /// Underruns of the input on air.
    pub underruns: u64,
    /// Blocks of the programme that stations playing this one missed, because they read too late.
    pub tap_blocks_lost: u64,
    /// Stalls of the whole process that were so long that the timeline had to move.
    pub timeline_stalls: u64,
    /// Chunks not produced because every buffer was in use.
    pub pool_exhausted: u64,
    /// Chunks not produced because the codec refused.
    pub encode_errors: u64,
    /// Panics of codec libraries; a new encoder went on each time.
    pub codec_panics: u64,
    /// Chunks that a reactor did not take in time.
    pub fanout_full: u64,
}

/// Whether the chunks of a source go to clients as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PassStatus {
    /// They do; nothing is encoded.
    Passed,
    /// The station encodes, for this reason.
    Encoded(String),
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
    pub info: Option<RadioStreamInfo>,
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
        let (levels, source_loudness, normalizer) = (Vec::new(), Vec::new(), None);
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
            normalizer,
            on_air,
            latency,
            live_inputs: djs,
            rtp_inputs: received,
            rtp_outputs: sent,
            pushes,
            recorders,
            position: MediaTime::default(),
            counters: StationCounters::default(),
            steps: StepTimes::default(),
            ..self
        }
    }
}

/// What a station plays, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnAir {
    /// The current output; `None` while the station does not run.
    pub output: Option<StationOutput>,
    /// The cause of the last change.
    pub cause: Option<SwitchCause>,
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
    /// Changes by cause, in the order of [`SwitchCause::ALL`].
    pub switches: [u64; SwitchCause::ALL.len()],
}

/// What a station's output consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StationOutput {
    /// The active source.
    Active,
    /// Two sources during a cross-fade.
    Fade,
    /// The sound of the last resort.
    LastResort,
}

/// Condition of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceCondition {
    /// Its health, as the switch judges it.
    pub health: SourceHealth,
    /// Readiness while it is not needed.
    pub standby: Standby,
    /// Failures, and the last one.
    pub failures: FailureCounts,
    /// Whether it has been ready to go on air since the station began.
    pub has_started: bool,
}

/// Health of a source, as the switch judges it, without times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceHealth {
    /// It is not needed, and does not play until it is.
    Disabled,
    /// Nothing has arrived, or everything that arrived has been played.
    Connecting,
    /// Audio arrives, but not enough or not for long enough yet.
    Priming,
    /// It may go on air.
    Healthy,
    /// It has audio, but also a fault that favours another source.
    Suspect(InputFault),
    /// It stopped, and its buffer is empty.
    Failed(InputFault),
    /// It failed, and is opened again after a pause.
    Backoff,
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

/// What happened on a station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StationEvent {
    /// Another source of the station with this number is on air.
    Switched(usize, SourceSwitch),
    /// The announcement with this number began or ended.
    Announcement(u64, AnnouncementEvent),
}

/// A change of the source on air; `None` is the last resort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceSwitch {
    /// The previous source, as an index in `Station::sources`.
    pub from: Option<usize>,
    /// The new source.
    pub to: Option<usize>,
    /// The cause.
    pub cause: SwitchCause,
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
