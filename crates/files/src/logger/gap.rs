//! Times of which a log does not have the sound, and why.

use std::fmt;

use aulos_core::Span;
use aulos_engine::recorder::UnixTime;

/// A time of which the log does not have the sound.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogGap {
    /// Its start.
    pub from: UnixTime,
    /// Its end.
    pub to: UnixTime,
    /// Its cause.
    pub cause: LogGapCause,
    /// A file has silence in its place.
    pub is_silence: bool,
}

impl LogGap {
    /// A gap from `from` to `to` that no file fills with silence.
    #[must_use]
    pub const fn new(from: UnixTime, to: UnixTime, cause: LogGapCause) -> Self {
        Self { from, to, cause, is_silence: false }
    }

    /// Its length.
    #[must_use]
    pub const fn length(&self) -> Span {
        Span::from_nanos(self.to.as_nanos().saturating_sub(self.from.as_nanos()))
    }
}

/// The cause of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogGapCause {
    /// The program did not run, or the station was restarted.
    ServerDown,
    /// The recording was stopped or paused by a call.
    Stopped,
    /// The disk was too slow, full or missing.
    Disk,
    /// The program or its machine stood still.
    Stalled,
    /// The source sent nothing.
    Source,
    /// The clock was set forward.
    ClockSet,
    /// Retention has deleted the file.
    Deleted,
    /// The file is missing although it was not deleted by retention.
    FileMissing,
    /// Before the first and after the last complete file.
    NotRecorded,
}

impl fmt::Display for LogGapCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ServerDown => "server down",
            Self::Stopped => "recording stopped",
            Self::Disk => "disk",
            Self::Stalled => "machine stood still",
            Self::Source => "source sent nothing",
            Self::ClockSet => "clock set",
            Self::Deleted => "deleted by retention",
            Self::FileMissing => "file missing",
            Self::NotRecorded => "no complete file",
        })
    }
}
