//! Configuration, commands, state and outputs of a recorder.

use aulos_core::{Frames, Instant, MediaTime, SampleRate, Span};

use super::wall_clock::{ClockAlignment, ClockChange, UnixTime};

/// Configuration of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderConfig {
    /// Audio kept while nothing is recorded, so that a recording can start in the past; up to
    /// [`MAX_PRE_ROLL`]. It costs memory: 3.8 MB for ten seconds of stereo at 48 kHz.
    pub pre_roll: Span,
    /// When a new segment starts.
    pub rotation: Rotation,
    /// How an interruption of the source is represented in the file.
    pub interruptions: PauseMode,
}

impl Default for RecorderConfig {
    fn default() -> Self {
        Self {
            pre_roll: DEFAULT_PRE_ROLL,
            rotation: Rotation::default(),
            interruptions: PauseMode::Silence,
        }
    }
}

/// When a segment ends and the next one starts: at whichever limit comes first. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Maximum duration of the audio in it, at least [`MIN_SEGMENT`].
    pub duration: Option<Span>,
    /// Maximum size in bytes, at least [`MIN_BYTES`]. A segment may exceed it by one step of the
    /// writer.
    pub bytes: Option<u64>,
    /// Alignment to the wall clock.
    pub clock: Option<ClockAlignment>,
}

/// When a command applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandTime {
    /// At the current frame.
    Now,
    /// This long ago.
    Ago(Span),
    /// At this frame of the station.
    Frame(MediaTime),
    /// At the frame that plays at a local instant. Recorders of several stations that get the same
    /// instant start at the same moment, each at the frame that contains it.
    Local(Instant),
}

/// How a pause, or an interruption of the source, is represented in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PauseMode {
    /// As silence of the same length: the file stays in time.
    #[default]
    Silence,
    /// Left out: the file continues directly after the pause.
    Closed,
}

/// A command to a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecorderCommand {
    /// Starts a recording.
    Start,
    /// Ends it, and cancels what was scheduled for later.
    Stop,
    /// Pauses until [`RecorderCommand::Resume`].
    Pause(PauseMode),
    /// Resumes after a pause.
    Resume,
    /// Ends the segment and starts the next one; no frame is lost or duplicated.
    Cut,
}

/// Why a recorder refused a command. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandError {
    /// It would already be recording at that moment.
    Recording,
    /// It would neither be recording at that moment nor have anything scheduled.
    Idle,
    /// It would already be paused at that moment, and cannot be paused or cut.
    Paused,
    /// It would not be paused at that moment.
    NotPaused,
    /// [`MAX_PLANNED`] commands are already scheduled.
    Busy,
    /// The marker is for a frame before the current segment.
    Skipped,
    /// The marker is for a frame in the future.
    Ahead,
}

impl core::fmt::Display for CommandError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Recording => "already recording; stop it first, or cut",
            Self::Idle => "not recording; start it first",
            Self::Paused => "already paused; resume it first",
            Self::NotPaused => "not paused, so it cannot resume",
            Self::Skipped => "the frame is before the start of the current file; set markers while it is recorded",
            Self::Ahead => "the frame is in the future; set the marker when it is recorded",
            Self::Busy => "too many scheduled commands; `stop` discards them",
        })
    }
}

impl core::error::Error for CommandError {}

/// State of a recorder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordingState {
    /// It keeps the pre-roll, and writes nothing.
    #[default]
    Idle,
    /// As idle, until a scheduled frame or the first frame at all.
    Waiting {
        /// The frame; `None` before the first frames.
        start: Option<MediaTime>,
    },
    /// It records.
    Recording {
        /// The first frame of the recording.
        since: MediaTime,
    },
    /// It is paused.
    Paused {
        /// The first paused frame.
        since: MediaTime,
        /// How the pause is represented in the file.
        mode: PauseMode,
    },
}

/// The next action, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecorderOutput {
    /// A segment starts; the following frames go into it.
    Open(SegmentStart),
    /// These received frames go into it; the driver still has them.
    Write {
        /// The first of them.
        from: MediaTime,
        /// Number of frames.
        frames: Frames,
    },
    /// This much silence goes into it.
    Silence {
        /// The first missing frame.
        from: MediaTime,
        /// Number of frames.
        frames: Frames,
        /// Why.
        cause: GapReason,
    },
    /// These frames are left out, and the segment continues after them.
    Skip {
        /// The first of them.
        from: MediaTime,
        /// Number of frames.
        frames: Frames,
        /// Why.
        cause: GapReason,
    },
    /// The station stood still before a frame, for as long as this many frames last. Silence
    /// replaces them, unless it was for so long that another segment begins.
    Stalled {
        /// The first frame afterwards.
        at: MediaTime,
        /// Frames that were never made.
        frames: Frames,
    },
    /// The wall clock was set, or the machine was suspended: from this frame on, times of the
    /// segment follow another reading of the clock.
    ClockChanged {
        /// The first frame that was received afterwards.
        at: MediaTime,
        /// What has happened.
        change: ClockChange,
    },
    /// The segment is complete.
    Close(SegmentEnd),
}

/// Why a segment contains silence that was not sent, or leaves frames out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapReason {
    /// The frames were lost: the disk was behind for longer than the ring lasts.
    Lost,
    /// The source was interrupted, and sent nothing.
    Interrupted,
    /// The recorder was paused.
    Paused,
    /// The station stood still, and made no frames: the silence is before the frame, and takes none
    /// of the station's media time.
    Stalled,
}

/// Start of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentStart {
    /// Its number, from 0 on for each recorder.
    pub number: u64,
    /// Its first frame.
    pub at: MediaTime,
    /// UTC of that frame.
    pub utc: UnixTime,
    /// Frames per second of the whole segment.
    pub rate: SampleRate,
    /// Why it starts.
    pub cause: SegmentReason,
}

/// End of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEnd {
    /// Its number.
    pub number: u64,
    /// The frame after its last one.
    pub end: MediaTime,
    /// Number of frames in it, silence included; zero is possible where two commands coincide.
    pub frames: Frames,
    /// Why it ends.
    pub cause: SegmentReason,
}

/// Why a segment starts or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SegmentReason {
    /// The recording started.
    Start,
    /// The recording ended.
    Stop,
    /// Maximum duration reached.
    Duration,
    /// Maximum size reached.
    Size,
    /// Clock alignment.
    Clock,
    /// A cut command.
    Command,
    /// The station restarted or a source changed its rate: these frames are on another timeline
    /// than those before.
    Break,
}

/// The pre-roll of [`RecorderConfig::default`].
pub const DEFAULT_PRE_ROLL: Span = Span::from_secs(10);

/// The longest pre-roll.
pub const MAX_PRE_ROLL: Span = Span::from_secs(600);

/// The shortest segment by [`Rotation::duration`].
pub const MIN_SEGMENT: Span = Span::from_secs(1);

/// The smallest segment by [`Rotation::bytes`].
pub const MIN_BYTES: u64 = 64 << 10;

/// A marker up to this long before a segment applies to its first frame: a cut may have come a
/// moment ago.
pub const MARKER_EARLY: Span = Span::from_secs(1);

/// Maximum distance of a marker ahead of the last received frame.
pub const MARKER_AHEAD: Span = Span::from_secs(1);

/// Maximum number of scheduled commands.
pub const MAX_PLANNED: usize = 16;
