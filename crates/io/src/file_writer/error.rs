//! Errors of records and of files.

use std::fmt;
use std::io;
use std::sync::Arc;

/// The first error of a file. It is kept, and returned by every later call. Cheap to clone.
///
/// Accepted bytes that are not included in
/// [`FileWriterStatus::written`](super::FileWriterStatus::written) are lost.
#[derive(Clone, Debug)]
pub struct FileWriteError {
    name: Arc<str>,
    error: Arc<io::Error>,
}

impl FileWriteError {
    pub(super) fn new(name: Arc<str>, error: io::Error) -> Self {
        Self { name, error: Arc::new(error) }
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.error.kind()
    }

    /// The system's error.
    #[must_use]
    pub fn error(&self) -> &io::Error {
        &self.error
    }
}

impl fmt::Display for FileWriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.error)
    }
}

impl std::error::Error for FileWriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.error)
    }
}

/// Why a record was refused. No part of it gets into the file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AddError {
    /// There is no room now: try again, wait, or drop the record.
    Full,
    /// It is longer than the producer's buffer, so waiting is useless: use a larger buffer.
    TooLong {
        /// Bytes of the record.
        length: usize,
        /// Bytes that the producer can hold.
        capacity: usize,
    },
    /// The writer was closed, cancelled or dropped.
    Closed,
    /// The file cannot be written any more.
    Failed(FileWriteError),
}

impl fmt::Display for AddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the queue is full because the disk is too slow"),
            Self::TooLong { length, capacity } => write!(
                f,
                "a record of {length} bytes exceeds the queue of {capacity} bytes; give its producer more memory"
            ),
            Self::Closed => f.write_str("the writer of the file is closed"),
            Self::Failed(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for AddError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed(failure) => Some(failure),
            _ => None,
        }
    }
}
