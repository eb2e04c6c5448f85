//! The pipe: bytes of one stream from one thread to one other, with everything that a stream needs
//! and a ring lacks: frames, silence, thresholds, time, and an end.
//!
//! One core, three layers. [`PipeWriter`] and [`PipeReader`] are wait-free: they never wait and
//! never wake anybody, so they may live in an audio callback. [`BlockingWriter`] and
//! [`BlockingReader`] sleep, and call the system only then or when the peer sleeps. [`AsyncWriter`]
//! and [`AsyncReader`] do the same as tasks. Any pair works together.
//!
//! Sizes in calls are bytes, because that is what slices have; sizes in [`PipeConfig`] are frames,
//! because that is what people think in; [`Fill`] has both and time as well.
//!
//! # Thresholds
//! A writer that waits is paused when `pause` is reached and goes on when the fill is down to
//! `resume`. What counts is what the reader has not *consumed*: the memory is bounded, so what was
//! examined and not consumed still takes its place. A reader that waits for more than is there lifts
//! the pause up to its demand, so that the two cannot wait for each other; a demand above the
//! capacity is an error at once.
//!
//! # Memory
//! Going round, a ring touches all of its memory, however little waits in it. A writer that finds the
//! pipe empty begins at the front again, so that a pipe whose reader keeps up lives in a few
//! kilobytes of the caches, whatever its capacity: in and out of 64 KiB then takes two thirds of the
//! time of two plain copies that go round in as much. (Not with [`Overflow::DropOldest`].)
//!
//! # Rejected
//! A list of segments (as .NET's `Pipe` has it): it allocates, and every parser pays for the seams.
//! A lock (as the `BufferedWaveProvider` of .NET audio has it): the callback would wait for a reader that was
//! preempted. One slice with a gap at the end (bip buffer): a grant can fail though there is room.
//! Here the memory is mapped twice in a row, so any range is one slice; where that cannot be had, a
//! range across the end goes through a scratch buffer, and nothing else changes.

mod blocking;
mod clear;
mod conceal;
mod format;
mod future;
pub(crate) mod memory;
mod monitor;
mod reader;
mod shared;
mod shared_head;
mod writer;

use std::fmt;
use std::time::Duration;

pub use blocking::{BlockingReader, BlockingWriter};
pub use format::SampleEncoding;
pub use future::{AsyncReader, AsyncWriter};
pub use monitor::PipeMonitor;
pub use reader::PipeReader;
pub use writer::PipeWriter;

use self::conceal::Concealer;
use self::memory::Memory;
use self::shared::Core;
use self::shared_head::SharedHead;
use crate::latest::latest;
use crate::spsc::{CachePadded, Positions};
use crate::sync::Arc;

/// Makes a pipe and gives out its two ends.
///
/// Not for a real-time thread: allocates, and touches every page, so that no later access faults.
/// Whoever drops the last end or monitor frees the memory.
///
/// # Errors
/// [`ConfigError`], which says what cannot be.
///
/// # Examples
/// A sound card that must not fall silent in the wrong way:
/// ```
/// use aulos_rt::pipe::{PipeConfig, Sample, Underrun, pipe};
///
/// let config = PipeConfig { underrun: Underrun::Silence, ..PipeConfig::audio(48_000, 2, Sample::U8, 480) };
/// let (mut writer, mut reader) = pipe(&config).unwrap();
/// writer.write(&[1, 2, 3, 4]).unwrap();
/// let mut period = [0; 8];
/// let read = reader.read(&mut period);
/// assert_eq!(period, [1, 2, 3, 4, 0x80, 0x80, 0x80, 0x80]);
/// assert_eq!((read.bytes, read.padded), (4, 4));
/// ```
pub fn pipe(config: &PipeConfig) -> Result<(PipeWriter, PipeReader), PipeConfigError> {
    starting_at(config, 0)
}

/// A pipe whose positions begin at `start`, so that a test can stand just before the wrap.
fn starting_at(
    config: &PipeConfig,
    start: usize,
) -> Result<(PipeWriter, PipeReader), PipeConfigError> {
    let frame = config.sample.bytes().checked_mul(config.channels).unwrap_or(0);
    if frame == 0 || config.capacity_frames == 0 {
        return Err(PipeConfigError::Empty);
    }
    let capacity = config.capacity_frames.checked_mul(frame).ok_or(PipeConfigError::OutOfMemory)?;
    let (pause, resume) = Core::thresholds(config.backpressure, frame, capacity);
    if pause == 0 || pause > capacity || resume >= pause {
        return Err(PipeConfigError::Thresholds);
    }
    if config.underrun == UnderrunPolicy::Repeat && !config.sample.can_fade() {
        return Err(PipeConfigError::CannotFade);
    }
    let core = Arc::new(Core {
        memory: Memory::new(capacity, config.mirrored).ok_or(PipeConfigError::OutOfMemory)?,
        positions: Positions::new(start),
        shared_head: (config.overflow == OverflowPolicy::DropOldest)
            .then(|| SharedHead::new(start)),
        capacity,
        frame,
        odd_frame: !frame.is_power_of_two(),
        rate: config.rate,
        pause,
        resume,
        writer: CachePadded::default(),
        reader: CachePadded::default(),
        clear: CachePadded::default(),
    });
    let conceal = match config.underrun {
        UnderrunPolicy::Repeat => Concealer::repeat(config.sample, frame, fade_frames(config.rate)),
        UnderrunPolicy::Silence | UnderrunPolicy::Short => Concealer::silence(config.sample, frame),
    };
    let (writer_stamps, writer_heard) = latest(None);
    let (reader_stamps, reader_heard) = latest(None);
    let gap = (config.underrun, conceal);
    let reader = PipeReader::new(core.clone(), start, gap, reader_stamps, writer_heard);
    Ok((PipeWriter::new(core, start, config.overflow, writer_stamps, reader_heard), reader))
}

/// 10 ms: long enough not to click, short enough not to be heard as a tone. 480 without a rate.
fn fade_frames(rate: u32) -> usize {
    if rate == 0 { 480 } else { usize::try_from(rate / 100).unwrap_or(480) }
}

/// What a pipe should be. Start from [`PipeConfig::bytes`] or [`PipeConfig::audio`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipeConfig {
    /// Frames that fit.
    pub capacity_frames: usize,
    /// Format of a sample.
    pub sample: SampleEncoding,
    /// Samples per frame.
    pub channels: usize,
    /// Frames per second; 0 if there is no such thing, then durations are 0.
    pub rate: u32,
    /// What happens to frames that do not fit.
    pub overflow: OverflowPolicy,
    /// What a reader gets in place of frames that are not there.
    pub underrun: UnderrunPolicy,
    /// When a waiting writer is held and let go.
    pub backpressure: Backpressure,
    /// Whether to map the memory twice in a row where the system can. Off is for comparison.
    pub mirrored: bool,
}

impl PipeConfig {
    /// A stream of bytes: a writer that waits blocks, a reader gets what there is.
    #[must_use]
    pub fn bytes(capacity: usize) -> Self {
        Self::audio(0, 1, SampleEncoding::Bytes, capacity)
    }

    /// A stream of sound with `capacity` frames: a writer that waits blocks, a reader gets what
    /// there is.
    #[must_use]
    pub fn audio(rate: u32, channels: usize, sample: SampleEncoding, capacity: usize) -> Self {
        Self {
            capacity_frames: capacity,
            sample,
            channels,
            rate,
            overflow: OverflowPolicy::default(),
            underrun: UnderrunPolicy::default(),
            backpressure: Backpressure::default(),
            mirrored: true,
        }
    }
}

/// What happens to frames that do not fit. Whatever is dropped is counted and returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverflowPolicy {
    /// An end that may wait waits; a wait-free end stores what fits and leaves the rest to the
    /// caller.
    #[default]
    Block,
    /// All or nothing: a write that does not fit as a whole is an error and stores nothing.
    Error,
    /// What fits is stored, the rest is dropped.
    DropNewest,
    /// The oldest frames make room. While the reader looks at them in place (from `peek` to
    /// `advance`) nobody can take them away from it, and the newest are dropped.
    DropOldest,
}

/// What a wait-free reader gets in place of frames that are not there. Whatever is made up is
/// counted and returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnderrunPolicy {
    /// Nothing: the rest of the caller's buffer stays as it was.
    #[default]
    Short,
    /// Silence, as the sample format writes it.
    Silence,
    /// The latest frames again, back and forth, fading out within 10 ms, then silence. Not for the
    /// G.711 laws and unknown bytes.
    Repeat,
}

/// When a writer that waits is held, and let go. See the module's text for the rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backpressure {
    /// Held at this fill; the capacity if absent.
    pub pause_frames: Option<usize>,
    /// Let go at this fill or below; half of the pause if absent.
    pub resume_frames: Option<usize>,
}

/// An amount of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PipeAmount {
    /// In bytes.
    pub bytes: usize,
    /// In frames.
    pub frames: usize,
    /// In time at the pipe's rate, rounded down; zero without a rate.
    pub duration: Duration,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what was not stored is lost, or still the caller's"]
#[non_exhaustive]
pub struct WriteOutcome {
    /// Bytes stored. With [`Overflow::DropOldest`] these are the last whole frames of the data.
    pub stored: usize,
    /// Bytes lost to make this fit or because it did not.
    pub dropped: usize,
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a read may be short"]
#[non_exhaustive]
pub struct ReadOutcome {
    /// Real bytes, at the front of the buffer.
    pub bytes: usize,
    /// Made-up bytes that follow them.
    pub padded: usize,
    /// Bytes that were lost in front of these: dropped as the oldest, or cleared by the writer.
    pub skipped: usize,
    /// How the pipe ended, when nothing is left in it. A wait-free read that filled the whole buffer
    /// does not look; the next one tells.
    pub end: Option<EndReason>,
}

/// How a pipe ended. It is told only after all data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndReason {
    /// The writer has said that it was all.
    Finished,
    /// The writer has failed, for a reason whose meaning is between the two ends.
    Failed(u32),
    /// The writer was dropped without a word: the stream may lack its end.
    Dropped,
}

/// Frames on a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameTimestamp {
    /// Number of a frame since the start of the pipe.
    pub frame: u64,
    /// Its instant, in nanoseconds on whatever clock both ends agree.
    pub nanos: u64,
}

/// A pipe that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PipeConfigError {
    /// No capacity, or a frame without bytes.
    Empty,
    /// The system has no such amount of memory.
    OutOfMemory,
    /// Not 0 <= resume < pause <= capacity.
    Thresholds,
    /// [`Underrun::Repeat`] for a format whose samples this crate cannot scale.
    CannotFade,
}

impl fmt::Display for PipeConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "a pipe needs a capacity and a frame of at least one byte",
            Self::OutOfMemory => "no memory for a pipe of that size",
            Self::Thresholds => "a pipe needs 0 <= resume < pause <= capacity",
            Self::CannotFade => "samples of this format cannot be faded",
        })
    }
}

impl std::error::Error for PipeConfigError {}

/// Why a write did not do what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PipeWriteError {
    /// [`Overflow::Error`], and there is less room than the data need: nothing was stored.
    Full {
        /// Bytes that would have fitted.
        free: usize,
    },
    /// The reader is gone; nothing was stored by this call, or nobody will read what was.
    ReaderGone,
    /// The wait was cancelled.
    Cancelled {
        /// Bytes of this call that were stored before.
        stored: usize,
    },
}

impl fmt::Display for PipeWriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { free } => write!(f, "the pipe has room for {free} bytes only"),
            Self::ReaderGone => f.write_str("the reader is gone"),
            Self::Cancelled { stored } => write!(f, "cancelled after {stored} bytes"),
        }
    }
}

impl std::error::Error for PipeWriteError {}

/// Why a wait for data did not bring any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PipeReadError {
    /// More was asked for than the pipe can hold.
    TooMuch {
        /// What it can hold, in bytes.
        capacity: usize,
    },
    /// The wait was cancelled.
    Cancelled,
}

impl fmt::Display for PipeReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMuch { capacity } => write!(f, "the pipe holds {capacity} bytes only"),
            Self::Cancelled => WaitCancelled.fmt(f),
        }
    }
}

impl std::error::Error for PipeReadError {}

impl From<WaitCancelled> for PipeReadError {
    fn from(_: WaitCancelled) -> Self {
        Self::Cancelled
    }
}

/// The wait was cancelled by a [`PipeMonitor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitCancelled;

impl fmt::Display for WaitCancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the wait was cancelled")
    }
}

impl std::error::Error for WaitCancelled {}

#[cfg(test)]
mod tests;
