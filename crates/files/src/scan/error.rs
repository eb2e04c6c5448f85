//! Errors of scans.

use core::fmt;
use std::io;

use crate::decode::{FileDecodeError, OpenError};

/// Why a file could not be measured, or only in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScanError {
    /// It cannot be opened as audio.
    Open(OpenError),
    /// It could be opened, but not decoded to its end; the part before the error has been measured.
    Decode(FileDecodeError),
    /// The number of damaged packets that were skipped; a truncated end counts as one. The rest has
    /// been measured.
    Damaged(u64),
    /// It is shorter than a gating block of 400 ms, so it has peaks but no loudness.
    Short,
    /// A directory cannot be read.
    Folder(io::ErrorKind),
    /// A directory without audio files.
    NothingInFolder,
    /// An internal error or a panic of a codec, caught for this file.
    Internal,
}

impl ScanError {
    /// Whether there was nothing to measure, as opposed to a defect.
    #[must_use]
    pub const fn is_no_input(self) -> bool {
        match self {
            Self::Open(error) => matches!(
                error,
                OpenError::NoSuchFile
                    | OpenError::Permission
                    | OpenError::NotAFile
                    | OpenError::Io(_)
            ),
            Self::Folder(_) | Self::NothingInFolder => true,
            Self::Decode(_) | Self::Damaged(_) | Self::Short | Self::Internal => false,
        }
    }
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Decode(error) => error.fmt(f),
            Self::Damaged(1) => {
                f.write_str("the file is damaged or truncated; only its readable part was measured")
            }
            Self::Damaged(n) => {
                write!(f, "the file is damaged in {n} places; only its readable part was measured")
            }
            Self::Short => f.write_str("the file is shorter than 400 ms, so it has no loudness"),
            Self::Folder(kind) => write!(f, "cannot read the folder: {kind}"),
            Self::NothingInFolder => f.write_str("no audio file in the folder"),
            Self::Internal => f.write_str("internal error in the decoder; please report it"),
        }
    }
}

impl core::error::Error for ScanError {}
