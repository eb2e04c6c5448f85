//! Replacement for uploads in a build without the feature `s3`, so that callers need no conditions.

use std::io;
use std::path::Path;

use aulos_config::UploadTarget;
use aulos_control::backend::{BackgroundTask, UploadEvent, UploadState};

/// Uploads the files of a recording. Not available in this build, which lacks the feature `s3`.
#[derive(Clone, Debug)]
pub enum Uploader {}

impl Uploader {
    /// Always fails.
    ///
    /// # Errors
    /// Always: [`io::ErrorKind::Unsupported`].
    pub fn new(_: &UploadTarget, _: &Path, _: &Path) -> io::Result<(Self, BackgroundTask)> {
        let why = "uploads are not available in this build; build with --features s3";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    /// Never called.
    ///
    /// # Errors
    /// Never.
    pub fn add(&self, _: &Path, _: Option<&Path>) -> io::Result<()> {
        match *self {}
    }

    /// Never called.
    #[must_use]
    pub fn is_waiting(&self, _: &Path) -> bool {
        match *self {}
    }

    /// Never called.
    #[must_use]
    pub fn state(&self) -> UploadState {
        match *self {}
    }

    /// Never called.
    #[must_use]
    pub fn take_events(&self) -> Vec<UploadEvent> {
        match *self {}
    }

    /// Never called.
    pub async fn end(&self) {
        match *self {}
    }
}
