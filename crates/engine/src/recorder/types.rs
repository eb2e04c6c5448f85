//! What somebody wants of a recorder, and what comes of it.

use aulos_core::{Frames, Instant, MediaTime, SampleRate, Span};

use super::wall_clock::{ClockAlignment, UnixTime};

/// The wishes of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderConfig {
    /// How much of what happened is kept while nothing is recorded, so that a recording can begin in
    /// the past; up to [`MAX_PRE_ROLL`]. It costs memory: 3.8 MB for ten seconds of stereo at
    /// 48 kHz.
    pub pre_roll: Span,
    /// When a new segment begins.
    pub rotation: Rotation,
}

impl Default for RecorderConfig {
    fn default() -> Self {
        Self { pre_roll: DEFAULT_PRE_ROLL, rotation: Rotation::default() }
    }
}

/// When a segment ends and the next one begins: at whatever comes first. None is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// After so much sound in it, [`MIN_SEGMENT`] at least.
    pub duration: Option<Span>,
    /// When it has so many bytes, [`MIN_BYTES`] at least. It may have some more: those that a
    /// step of the writer brings.
    pub bytes: Option<u64>,
    /// By the clock on the wall.
    pub clock: Option<ClockAlignment>,
}

/// When something is to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandTime {
    /// At the frame that sounds now.
    Now,
    /// So long ago.
    Ago(Span),
    /// At this frame of the station.
    Frame(MediaTime),
    /// At the frame that sounds at a local instant. Recorders of any stations that are given the
    /// same instant begin at the same moment, each at the frame into which that falls.
    Local(Instant),
}

/// What happens to the time that a pause lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PauseMode {
    /// It is silence of the same length: the file stays in time.
    #[default]
    Silence,
    /// It is left out: the file goes on as if it had not been.
    Closed,
}

/// What somebody can tell a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecorderCommand {
    /// Begins to record.
    Start,
    /// Ends, and forgets what was planned for later.
    Stop,
    /// Records nothing until [`Command::Resume`].
    Pause(PauseMode),
    /// Goes on after a pause.
    Resume,
    /// Ends the segment and begins the next one; no frame is lost, none is there twice.
    Cut,
}

/// Why a recorder does not do as it is told. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandError {
    /// It would be recording already at that moment.
    Recording,
    /// It would not be recording at that moment, nor anything be planned.
    Idle,
    /// It would be paused already at that moment, and cannot be paused or cut.
    Paused,
    /// It would not be paused at that moment.
    NotPaused,
    /// So many commands wait already: [`MAX_PLANNED`].
    Busy,
    /// A marker is for a frame before the segment that is written.
    Skipped,
    /// A marker is for a frame that is to come.
    Ahead,
}

impl core::fmt::Display for CommandError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Recording => "it is recording already: stop it first, or cut",
            Self::Idle => "it is not recording: start it first",
            Self::Paused => "it is paused already: resume it first",
            Self::NotPaused => "it is not paused: there is nothing to resume",
            Self::Skipped => "that frame is before the file that is written: mark it while it is",
            Self::Ahead => "that frame is still to come: mark it when it sounds",
            Self::Busy => "too many commands wait for their time: stop forgets them",
        })
    }
}

impl core::error::Error for CommandError {}

/// What a recorder does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordingState {
    /// It keeps the pre-roll, and writes nothing.
    Idle,
    /// The same, until a frame that is to come, or the first one at all.
    Waiting {
        /// The frame; none as long as nothing has been heard.
        start: Option<MediaTime>,
    },
    /// It records.
    Recording {
        /// The first frame of the recording.
        since: MediaTime,
    },
    /// It pauses.
    Paused {
        /// The first frame that is left out.
        since: MediaTime,
        /// What becomes of the pause.
        mode: PauseMode,
    },
}

/// What is to be done next, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecorderOutput {
    /// A segment begins; what follows goes into it.
    Open(SegmentStart),
    /// These frames go into it: they have been heard, and are still kept.
    Write {
        /// The first of them.
        from: MediaTime,
        /// How many.
        frames: Frames,
    },
    /// So much silence goes into it.
    Silence {
        /// The frame that is missing first.
        from: MediaTime,
        /// How many.
        frames: Frames,
        /// Why.
        cause: SilenceReason,
    },
    /// These frames are left out, and the segment goes on as if they had not been.
    Skip {
        /// The first of them.
        from: MediaTime,
        /// How many.
        frames: Frames,
    },
    /// The segment is complete.
    Close(SegmentEnd),
}

/// Why there is silence in a segment that nobody has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SilenceReason {
    /// The frames were lost: the disk was behind for longer than the ring is.
    Lost,
    /// The recorder was paused.
    Paused,
}

/// How a segment begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentStart {
    /// Its number, from 0 on for each recorder.
    pub number: u64,
    /// Its first frame.
    pub at: MediaTime,
    /// When that frame sounded.
    pub utc: UnixTime,
    /// Frames per second, in all of it.
    pub rate: SampleRate,
    /// Why it begins.
    pub cause: SegmentReason,
}

/// How a segment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEnd {
    /// Its number.
    pub number: u64,
    /// The frame behind its last one.
    pub end: MediaTime,
    /// The frames in it, silence included; none is possible where two commands meet.
    pub frames: Frames,
    /// Why it ends.
    pub cause: SegmentReason,
}

/// Why a segment begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SegmentReason {
    /// Recording has begun.
    Start,
    /// Recording is over.
    Stop,
    /// It is as long as it may be.
    Duration,
    /// It is as large as it may be.
    Size,
    /// The clock on the wall.
    Clock,
    /// Somebody has asked for a cut.
    Command,
    /// The station began anew, or a source has another rate: these frames are not of one line with
    /// those before.
    Break,
}

/// The pre-roll of [`Config::default`].
pub const DEFAULT_PRE_ROLL: Span = Span::from_secs(10);

/// The longest pre-roll.
pub const MAX_PRE_ROLL: Span = Span::from_secs(600);

/// The shortest segment by [`Rotation::duration`].
pub const MIN_SEGMENT: Span = Span::from_secs(1);

/// The smallest segment by [`Rotation::bytes`].
pub const MIN_BYTES: u64 = 64 << 10;

/// How far before the first frame of a segment a marker may be that is meant for that frame: what
/// sounds now may have been cut off a moment ago.
pub const MARKER_EARLY: Span = Span::from_secs(1);

/// How far ahead of the last frame heard a marker may be.
pub const MARKER_AHEAD: Span = Span::from_secs(1);

/// Commands that can wait for their time.
pub const MAX_PLANNED: usize = 16;
