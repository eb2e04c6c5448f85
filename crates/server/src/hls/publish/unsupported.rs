//! Replacement for storage in a build without the feature `s3`, so that callers need no conditions.

use std::io;
use std::sync::{Arc, Mutex};

use aulos_config::StorageTarget;
use aulos_session::hls::HlsWindow;

use super::reporter::PublishReporter;
use crate::upload::UploadWorker;

/// A storage that follows a window. Not available in this build, which lacks the feature `s3`.
#[derive(Debug)]
pub(super) enum StoragePublication {}

impl StoragePublication {
    /// Always fails.
    ///
    /// # Errors
    /// Always: [`io::ErrorKind::Unsupported`].
    pub(super) fn start(
        _: &str,
        _: &StorageTarget,
        _: &Arc<Mutex<HlsWindow>>,
        _: &mut UploadWorker,
    ) -> io::Result<Self> {
        let why = "uploads are not available in this build; build with --features s3";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    /// Never called.
    pub(super) const fn reporter(&self) -> &PublishReporter {
        match *self {}
    }
}
