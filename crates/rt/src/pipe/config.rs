//! What the user of a pipe chooses.

use std::fmt;

use super::format::SampleEncoding;

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

/// Thresholds of a waiting writer; the [rule](super#thresholds).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backpressure {
    /// The writer pauses at this fill; the capacity if absent.
    pub pause_frames: Option<usize>,
    /// The writer resumes at this fill or below; half of the pause threshold if absent.
    pub resume_frames: Option<usize>,
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
