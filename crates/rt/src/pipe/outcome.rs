//! What the calls of a pipe's ends return.

use std::fmt;
use std::time::Duration;

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
    /// Bytes stored. With [`OverflowPolicy::DropOldest`](super::OverflowPolicy::DropOldest) these
    /// are the last whole frames of the data.
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

/// Error of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PipeWriteError {
    /// [`OverflowPolicy::Error`](super::OverflowPolicy::Error), and there is less space than the
    /// data need: nothing was stored.
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

/// Error: the wait was cancelled by a [`PipeMonitor`](super::PipeMonitor).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitCancelled;

impl fmt::Display for WaitCancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the wait was cancelled")
    }
}

impl std::error::Error for WaitCancelled {}
