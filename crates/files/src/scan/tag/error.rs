//! Errors of tags.

use core::fmt;
use std::io;

use aulos_io::replace::ReplaceError;

/// Why the tags of a file could not be read or written. The file is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TagError {
    /// Tags of this format cannot be written: convert the file, or store the figures elsewhere.
    Unsupported,
    /// The sizes in its header are wrong, and tags behind the audio would be lost: convert the
    /// file.
    WrongSizes,
    /// Its tags are damaged, or placed where they cannot be changed: repair them with a tag editor.
    Damaged,
    /// The mode of the file or of its directory forbids writing.
    ReadOnly,
    /// Another process is replacing the same file.
    Busy,
    /// The file was modified meanwhile: run again.
    Changed,
    /// The written copy could not be verified, and was deleted.
    VerifyFailed,
    /// The disk is full or failing.
    Io(io::ErrorKind),
}

impl From<io::Error> for TagError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly,
            kind => Self::Io(kind),
        }
    }
}

impl From<ReplaceError> for TagError {
    fn from(error: ReplaceError) -> Self {
        match error {
            ReplaceError::ReadOnly => Self::ReadOnly,
            ReplaceError::Busy => Self::Busy,
            ReplaceError::Changed => Self::Changed,
            ReplaceError::Io(error) => Self::Io(error.kind()),
        }
    }
}

impl TagError {
    /// Maps an error of the library.
    pub(super) fn from_library(error: &(dyn core::error::Error + 'static)) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<io::Error>() {
                return match error.kind() {
                    // Data is missing in the file; this is no failure of the disk.
                    io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::InvalidData
                    | io::ErrorKind::InvalidInput => Self::Damaged,
                    io::ErrorKind::PermissionDenied => Self::ReadOnly,
                    kind => Self::Io(kind),
                };
            }
            cause = error.source();
        }
        Self::Damaged
    }
}

impl fmt::Display for TagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str("tags cannot be written in this format"),
            Self::WrongSizes => f.write_str(
                "tags cannot be written, as the sizes in its header are wrong; convert it first, \
                 for example with `ffmpeg -i IN -c copy OUT`",
            ),
            Self::Damaged => f.write_str("its tags are damaged or cannot be changed in place"),
            Self::ReadOnly => f.write_str("it is read-only: check the mode of file and folder"),
            Self::Busy => f.write_str("another process is writing its tags"),
            Self::Changed => f.write_str("it was changed meanwhile: run again"),
            Self::VerifyFailed => f.write_str("the new file failed verification and was discarded"),
            Self::Io(kind) => write!(f, "tags cannot be written: {kind}"),
        }
    }
}

impl core::error::Error for TagError {}
