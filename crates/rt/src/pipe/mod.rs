//! The pipe: a byte stream from one thread to another, with what a stream needs beyond a ring:
//! frames, silence, thresholds, timestamps, and an end.
//!
//! One core, three kinds of ends. [`PipeWriter`] and [`PipeReader`] are wait-free: they never wait
//! and never wake a thread, so they can be used in an audio callback. [`BlockingWriter`] and
//! [`BlockingReader`] sleep, and make system calls only for that or if the peer sleeps.
//! [`AsyncWriter`] and [`AsyncReader`] do the same as tasks. Any two kinds work together.
//!
//! Sizes in calls are in bytes, as those of slices; sizes in [`PipeConfig`] are in frames;
//! [`PipeAmount`] has both and the duration.
//!
//! The server does not use it: it is for other programs, and for the lanes of `aulos_engine::graph`.
//! The examples `c_callback`, `fft_blocks` and `network_to_card` show it.
//!
//! # Thresholds
//! A waiting writer is paused when `pause` is reached and resumes when the fill is down to
//! `resume`. The fill is what the reader has not *consumed*: the memory is bounded, so data that
//! was examined and not consumed still occupies it. A reader that waits for more than is stored
//! lifts the pause up to its demand, so that the two cannot wait for each other; a demand above the
//! capacity is an error at once.
//!
//! # Memory
//! A ring that wraps around touches all of its memory, however small its fill. A writer that finds
//! the pipe empty continues at the front, so that a pipe whose reader keeps up stays in a few
//! kilobytes of the caches, whatever its capacity. (Not with [`OverflowPolicy::DropOldest`].)
//!
//! The memory is mapped twice in a row (`docs/decisions/pipe.md`), so any range is one slice;
//! without that, a range across the end goes through a scratch buffer, and nothing else changes.

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

/// Creates a pipe and returns its two ends.
///
/// Not for a real-time thread: allocates, and touches every page, so that no later access faults.
/// Dropping the last end or monitor frees the memory.
///
/// # Errors
/// [`PipeConfigError`] for an invalid configuration.
///
/// # Examples
/// Output to a sound card, with the silence of its sample format:
/// ```
/// use aulos_rt::pipe::{PipeConfig, SampleEncoding, UnderrunPolicy, pipe};
///
/// let audio = PipeConfig::audio(48_000, 2, SampleEncoding::U8, 480);
/// let config = PipeConfig { underrun: UnderrunPolicy::Silence, ..audio };
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

/// A pipe whose positions begin at `start`, so that a test can start just before the wrap-around.
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

/// Configuration of a pipe. Start from [`PipeConfig::bytes`] or [`PipeConfig::audio`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipeConfig {
    /// Capacity in frames.
    pub capacity_frames: usize,
    /// Encoding of a sample.
    pub sample: SampleEncoding,
    /// Samples per frame.
    pub channels: usize,
    /// Frames per second; 0 if unknown, then durations are 0.
    pub rate: u32,
    /// Handling of frames that do not fit.
    pub overflow: OverflowPolicy,
    /// Handling of missing frames in wait-free reads.
    pub underrun: UnderrunPolicy,
    /// Thresholds at which a waiting writer pauses and resumes.
    pub backpressure: Backpressure,
    /// Whether to map the memory twice in a row if the system supports it. Off for comparisons.
    pub mirrored: bool,
}

impl PipeConfig {
    /// A byte stream: a waiting writer blocks, a reader gets what there is.
    #[must_use]
    pub fn bytes(capacity: usize) -> Self {
        Self::audio(0, 1, SampleEncoding::Bytes, capacity)
    }

    /// An audio stream with `capacity` frames: a waiting writer blocks, a reader gets what there
    /// is.
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

/// Handling of frames that do not fit. Dropped frames are counted and reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverflowPolicy {
    /// A waiting end waits; a wait-free end stores what fits and leaves the rest to the caller.
    #[default]
    Block,
    /// All or nothing: a write that does not fit as a whole is an error and stores nothing.
    Error,
    /// What fits is stored, the rest is dropped.
    DropNewest,
    /// The oldest frames are dropped to make space. While the reader accesses them in place (from
    /// `peek` to `advance`) they cannot be dropped, and the newest are dropped.
    DropOldest,
}

impl OverflowPolicy {
    /// Every policy.
    pub const ALL: [Self; 4] = [Self::Block, Self::Error, Self::DropNewest, Self::DropOldest];
}

/// Handling of missing frames in a wait-free read. Inserted frames are counted and reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnderrunPolicy {
    /// Nothing is inserted: the rest of the caller's buffer stays as it was.
    #[default]
    Short,
    /// Silence in the sample encoding.
    Silence,
    /// The latest frames again, back and forth, fading out within 10 ms, then silence. Not for the
    /// G.711 laws and unknown bytes.
    Repeat,
}

impl UnderrunPolicy {
    /// Every policy.
    pub const ALL: [Self; 3] = [Self::Short, Self::Silence, Self::Repeat];
}

/// Thresholds of a waiting writer. The module documentation has the rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backpressure {
    /// The writer pauses at this fill; the capacity if absent.
    pub pause_frames: Option<usize>,
    /// The writer resumes at this fill or below; half of the pause threshold if absent.
    pub resume_frames: Option<usize>,
}

/// An amount of data in a stream.
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

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what was not stored is lost, or still the caller's"]
#[non_exhaustive]
pub struct WriteOutcome {
    /// Bytes stored. With [`OverflowPolicy::DropOldest`] these are the last whole frames of the
    /// data.
    pub stored: usize,
    /// Bytes dropped to make space, or because they did not fit.
    pub dropped: usize,
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a read may be short"]
#[non_exhaustive]
pub struct ReadOutcome {
    /// Real bytes, at the front of the buffer.
    pub bytes: usize,
    /// Inserted bytes that follow them.
    pub padded: usize,
    /// Bytes that were lost before these: dropped as the oldest, or cleared by the writer.
    pub skipped: usize,
    /// Reason of the pipe's end, once it is empty. A wait-free read that filled the whole buffer
    /// does not check it; the next one does.
    pub end: Option<EndReason>,
}

/// Why a pipe ended. Reported only after all data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndReason {
    /// The writer has finished the stream.
    Finished,
    /// The writer has failed, with a code that the two ends agree on.
    Failed(u32),
    /// The writer was dropped without finishing: the end of the stream may be missing.
    Dropped,
}

/// A frame number with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameTimestamp {
    /// Number of a frame since the start of the pipe.
    pub frame: u64,
    /// Time of the frame, in nanoseconds on a clock that both ends agree on.
    pub nanos: u64,
}

/// Error: invalid pipe configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PipeConfigError {
    /// No capacity, or frames of zero bytes.
    Empty,
    /// The system has not enough memory.
    OutOfMemory,
    /// The thresholds violate 0 <= resume < pause <= capacity.
    Thresholds,
    /// [`UnderrunPolicy::Repeat`] with a sample encoding that cannot be scaled.
    CannotFade,
}

impl fmt::Display for PipeConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "a pipe needs a capacity and a frame of at least one byte",
            Self::OutOfMemory => "not enough memory for a pipe of this size",
            Self::Thresholds => "a pipe needs 0 <= resume < pause <= capacity",
            Self::CannotFade => "samples of this format cannot be faded",
        })
    }
}

impl std::error::Error for PipeConfigError {}

/// Error of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PipeWriteError {
    /// [`OverflowPolicy::Error`], and there is less space than the data need: nothing was stored.
    Full {
        /// Bytes that would have fitted.
        free: usize,
    },
    /// The reader is gone; nothing was stored by this call, or what was stored will not be read.
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
            Self::Full { free } => write!(f, "the pipe has room for only {free} bytes"),
            Self::ReaderGone => f.write_str("the reader has been dropped"),
            Self::Cancelled { stored } => write!(f, "cancelled after {stored} bytes"),
        }
    }
}

impl std::error::Error for PipeWriteError {}

/// Error of a waiting read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PipeReadError {
    /// The demand exceeds the capacity.
    TooMuch {
        /// Capacity in bytes.
        capacity: usize,
    },
    /// The wait was cancelled.
    Cancelled,
}

impl fmt::Display for PipeReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMuch { capacity } => write!(f, "the pipe holds only {capacity} bytes"),
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

/// Error: the wait was cancelled by a [`PipeMonitor`].
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
