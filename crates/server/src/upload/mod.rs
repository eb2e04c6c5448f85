//! Uploads of a recording's closed files to S3-compatible storage.
//!
//! ```text
//!  recorder: a file is closed -> Uploader::add -> journal (one small file for each, synced)
//!                                                     |
//!  thread (UploadWorker): queue -> HEAD, PUT, HEAD -> confirmed -> deleted, if configured
//! ```
//!
//! Recording to the server directly was the alternative: an unreachable server would then block the
//! recorder, and lose what it had not received. Here files wait on the disk as long as necessary,
//! even across restarts, and none is deleted before the server has compared its checksum and a
//! second request has shown the object.
//!
//! A build without the feature `s3` has the same names, and an [`Uploader`] that cannot be created.

#[cfg(feature = "s3")]
mod error;
#[cfg(feature = "s3")]
mod journal;
#[cfg(feature = "s3")]
mod objects;
#[cfg(feature = "s3")]
mod queue;
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
#[cfg(feature = "s3")]
mod uploader;
mod worker;

#[cfg(feature = "s3")]
pub(crate) use error::UploadError;
#[cfg(feature = "s3")]
pub(crate) use objects::ObjectStorage;
#[cfg(not(feature = "s3"))]
pub use unsupported::Uploader;
#[cfg(feature = "s3")]
pub use uploader::Uploader;
pub use worker::UploadWorker;

use std::time::Duration;

#[cfg(feature = "s3")]
use aulos_core::Span;

/// Pauses and time-outs.
#[cfg(feature = "s3")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct UploadTiming {
    /// Upper limit of the first pause.
    pub(crate) first_pause: Span,
    /// Upper limit of all pauses.
    pub(crate) longest_pause: Span,
    /// Pause after a failure that concerns one file only.
    pub(crate) file_pause: Span,
    /// Time-out of a connection without progress.
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

/// Time for transfers in progress at shutdown; then they are aborted, and resumed after the next
/// start. A server ends within a second.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of unread events; the oldest is dropped.
pub const MAX_EVENTS: usize = 256;
