//! Uploads: the closed files of a recording go to S3-compatible storage, in their own time.
//!
//! ```text
//!  recorder: a file is closed -> Uploader::add -> journal (one small file for each, synced)
//!                                                     |
//!  a thread of its own (Porter): line -> look, send, look again -> confirmed -> deleted, if wished
//! ```
//!
//! Recording to the server directly was the alternative: a server that cannot be reached would then
//! stand in the recorder's way, and what it had not taken would be lost. Here files wait on the disk
//! as long as it takes, whatever happens to the process, and none is deleted before the server has
//! compared its checksum and has shown it to us again.
//!
//! A build without the feature `s3` has the same names, and an [`Uploader`] that cannot be made.

#[cfg(feature = "s3")]
mod error;
#[cfg(feature = "s3")]
mod journal;
#[cfg(feature = "s3")]
mod queue;
#[cfg(feature = "s3")]
mod run;
#[cfg(feature = "s3")]
mod store;
#[cfg(all(test, feature = "s3"))]
mod tests;
#[cfg(feature = "s3")]
mod transfer;
#[cfg(feature = "s3")]
mod transport;
#[cfg(not(feature = "s3"))]
mod unsupported;
mod worker;

#[cfg(feature = "s3")]
pub use run::Uploader;
#[cfg(not(feature = "s3"))]
pub use unsupported::Uploader;
pub use worker::UploadWorker;

use std::path::PathBuf;
use std::time::Duration;

use aulos_core::Span;

/// How the uploads of a recording do, for people to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadState {
    /// What they do.
    pub phase: UploadPhase,
    /// Files that wait, those that are under way among them.
    pub waiting: u64,
    /// Bytes of them, as they were when they were added.
    pub waiting_bytes: u64,
    /// Files that are under way.
    pub uploading: usize,
    /// Files that the server has, since the start of this server.
    pub done: u64,
    /// Bytes of them.
    pub done_bytes: u64,
    /// Tries that failed.
    pub failures: u64,
    /// Files that had been deleted before the server had them.
    pub missing: u64,
    /// Entries of the journal that could not be read, and were put aside.
    pub broken_entries: u64,
    /// What was wrong last, and what to do about it; none since something was uploaded.
    pub error: Option<String>,
    /// For how long something has been wrong without a break.
    pub since: Option<Span>,
    /// When the server is asked again.
    pub retry_in: Option<Span>,
}

impl UploadState {
    /// Without what changes all the time.
    #[must_use]
    pub fn without_live_figures(self) -> Self {
        let (since, retry_in) = (None, None);
        Self { waiting_bytes: 0, done_bytes: 0, since, retry_in, ..self }
    }
}

/// What uploads do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UploadPhase {
    /// Nothing waits.
    #[default]
    Idle,
    /// Something is under way.
    Uploading,
    /// The last try failed, and is made again.
    Waiting,
    /// The server says no, which somebody has to mend; it is tried again, but seldom.
    Refused,
}

impl UploadPhase {
    /// In one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Uploading => "uploading",
            Self::Waiting => "waiting",
            Self::Refused => "refused",
        }
    }
}

/// What has happened to an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UploadEvent {
    /// The server has the file, and has shown that it has it.
    Uploaded {
        /// Where it is, or was.
        file: PathBuf,
        /// `s3://BUCKET/NAME` of its object; another one than the first that was thought of, if
        /// that was taken.
        url: String,
        /// Its size.
        bytes: u64,
        /// Tries that had failed before.
        tries: u64,
    },
    /// A try has failed. It is told once for each thing that is wrong, not for each try.
    Failed {
        /// Where the file is.
        file: PathBuf,
        /// What is wrong, and what to do about it.
        text: String,
        /// Whether somebody has to mend something.
        lasting: bool,
    },
    /// The file was deleted by somebody before the server had it.
    Missing {
        /// Where it was.
        file: PathBuf,
    },
}

/// How long to wait for what.
#[cfg(feature = "s3")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct UploadTiming {
    /// The first pause is at most so long.
    pub(crate) first_pause: Span,
    /// The longest, too.
    pub(crate) longest_pause: Span,
    /// How long a file is left alone that failed for its own sake.
    pub(crate) file_pause: Span,
    /// For how long a connection may stand still.
    pub(crate) stall_timeout: Duration,
}

#[cfg(feature = "s3")]
impl Default for UploadTiming {
    fn default() -> Self {
        Self {
            first_pause: Span::from_secs(1),
            longest_pause: Span::from_secs(300),
            file_pause: Span::from_secs(300),
            stall_timeout: Duration::from_secs(60),
        }
    }
}

/// What is under way at the end has so long; then it is cut off, and goes on in the next life. A
/// server ends within a second.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);
/// Events that wait to be taken; beyond that the oldest is forgotten.
pub const MAX_EVENTS: usize = 256;
