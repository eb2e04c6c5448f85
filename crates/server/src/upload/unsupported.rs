//! What stands in place of the uploads in a build without the feature `s3`, so that nobody else has
//! to ask whether it is there.

use std::io;
use std::path::Path;

use aulos_config::Upload;

use super::{UploadEvent, UploadState};
use crate::radio::Chore;

/// Uploads the files of a recording, in a build with the feature `s3`. Here there is none.
#[derive(Clone, Debug)]
pub enum Uploader {}

impl Uploader {
    /// Says that it cannot be had.
    ///
    /// # Errors
    /// Always: [`io::ErrorKind::Unsupported`].
    pub fn new(_: &Upload, _: &Path, _: &Path) -> io::Result<(Self, Chore)> {
        let why = "this build has no s3: build with --features s3";
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
