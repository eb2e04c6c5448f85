//! State and events of a recording's uploads.

use std::path::PathBuf;

use aulos_core::Span;

/// State of a recording's uploads, for users to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadState {
    /// What they are doing.
    pub phase: UploadPhase,
    /// Files that wait, including those in transfer.
    pub waiting: u64,
    /// Their size in bytes when they were added.
    pub waiting_bytes: u64,
    /// Files in transfer.
    pub uploading: usize,
    /// Files uploaded since the start of this server.
    pub done: u64,
    /// Their size in bytes.
    pub done_bytes: u64,
    /// Failed attempts.
    pub failures: u64,
    /// Files that were deleted before they were uploaded.
    pub missing: u64,
    /// Unreadable journal entries, which were put aside.
    pub broken_entries: u64,
    /// The last error and its remedy; cleared by a successful upload.
    pub error: Option<String>,
    /// Duration of the current problem.
    pub since: Option<Span>,
    /// Time until the next attempt.
    pub retry_in: Option<Span>,
}

impl UploadState {
    /// The state without values that change all the time.
    #[must_use]
    pub fn without_live_figures(self) -> Self {
        let (since, retry_in) = (None, None);
        Self { waiting_bytes: 0, done_bytes: 0, since, retry_in, ..self }
    }
}

/// Phase of the uploads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UploadPhase {
    /// No file waits.
    #[default]
    Idle,
    /// A file is in transfer.
    Uploading,
    /// The last attempt failed, and is repeated.
    Waiting,
    /// The server refuses, which needs a change of configuration; it is tried again, but rarely.
    Refused,
}

impl UploadPhase {
    /// Its name.
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

/// An event of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UploadEvent {
    /// The file is on the server, and verified.
    Uploaded {
        /// Its local path, which may be deleted.
        file: PathBuf,
        /// `s3://BUCKET/NAME` of its object; the name may differ from the intended one if that was
        /// in use.
        url: String,
        /// Its size in bytes.
        bytes: u64,
        /// Number of failed attempts before.
        tries: u64,
    },
    /// An attempt has failed. Sent once per distinct error, not for each attempt.
    Failed {
        /// Its local path.
        file: PathBuf,
        /// The error and its remedy.
        text: String,
        /// Whether a user has to fix it.
        permanent: bool,
    },
    /// The file was deleted before it was uploaded.
    Missing {
        /// Its former path.
        file: PathBuf,
    },
}
