//! What every device can do.

use core::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use aulos_core::{Frames, Instant, SampleSpec};
use aulos_session::player::DevicePosition;
use rustix::event::PollFlags;

/// A device.
///
/// It is open or closed; what is not about opening is asked only while it is open.
pub(crate) trait Output: fmt::Debug + Send {
    /// Begins to play frames of `spec`. A sound device that cannot be opened is no error: it is
    /// opened again by [`progress`](Self::progress) until it [is ready](Self::is_ready).
    fn open(&mut self, spec: SampleSpec, now: Instant) -> Result<(), OutputError>;

    /// Frames that it takes now.
    fn writable_frames(&mut self, now: Instant) -> Frames;

    /// The most frames that are rendered at once.
    fn period(&self) -> Frames;

    /// Takes interleaved samples: whole frames, at most those of [`room`](Self::room).
    fn write(&mut self, samples: &[f32]) -> Result<(), OutputError>;

    /// Does what is due: passes on what could not be written before, opens a lost device again.
    /// Called at each wake-up.
    fn progress(&mut self, _now: Instant) -> Result<(), OutputError> {
        Ok(())
    }

    /// Whether the device takes frames. Each time it becomes ready, it counts them from zero.
    fn is_ready(&self) -> bool {
        true
    }

    /// How often the device had nothing to play, although it is open, since this output exists.
    fn underruns(&self) -> u64 {
        0
    }

    /// What has happened to the device.
    #[cfg(feature = "device")]
    fn poll_event(&mut self) -> Option<DeviceEvent> {
        None
    }

    /// How far it has played.
    fn position(&self, now: Instant) -> DevicePosition;

    /// Waits until everything that was written has sounded.
    fn drain(&mut self) {}

    /// When it has room again, or [`progress`](Self::progress) is due.
    fn poll_timeout(&self) -> Option<Instant>;

    /// What to wait for. Without flags it is the end of its reader.
    fn descriptor(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        None
    }

    /// Ends the play-out.
    fn close(&mut self) -> Result<(), OutputError>;
}

/// A sound device of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a line of a list")]
pub struct DeviceInfo {
    /// As `--output` names it.
    pub output: String,
    /// In the words of the sound server or library.
    pub description: String,
}

/// What has happened to a sound device.
#[cfg(feature = "device")]
#[derive(Debug)]
pub(crate) enum DeviceEvent {
    /// This one plays.
    Playing(String),
    /// It cannot be opened, or is lost; it is tried again.
    Failed(OutputError),
}

/// Why a device cannot play.
#[derive(Debug)]
#[non_exhaustive]
pub enum OutputError {
    /// It cannot be opened or created.
    Open {
        /// What it is, with its path.
        name: String,
        /// The system's error.
        error: io::Error,
    },
    /// It cannot be written to.
    Write {
        /// What it is, with its path.
        name: String,
        /// The system's error.
        error: io::Error,
    },
    /// A sound device cannot play, or is lost.
    Device {
        /// As `--output` names it.
        name: String,
        /// The reason.
        error: io::Error,
    },
    /// A file has begun with another sample spec.
    SpecChanged {
        /// The file.
        name: String,
        /// The spec of the file.
        from: SampleSpec,
        /// The spec of the stream.
        to: SampleSpec,
    },
    /// The reader of a pipe has closed it.
    ReaderGone,
}

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { name, error } => write!(f, "cannot open {name}: {error}"),
            Self::Write { name, error } => write!(f, "cannot write to {name}: {error}"),
            Self::Device { name, error } => write!(f, "{name}: {error}"),
            Self::SpecChanged { name, from, to } => write!(
                f,
                "the stream has changed from {from} to {to}, which does not fit into {name}"
            ),
            Self::ReaderGone => write!(f, "the reader of the output is gone"),
        }
    }
}

impl core::error::Error for OutputError {}
