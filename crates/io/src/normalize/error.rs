//! Why there is no new file.

use core::fmt;
use std::io;

use aulos_core::SampleRate;
use aulos_dsp::normalize::CannotNormalise;

use crate::decode::{DecodeError, OpenError};
use crate::replace::ReplaceError;
use crate::scan::ScanError;

/// Why there is no new file; what was there is as it was.
#[derive(Debug)]
#[non_exhaustive]
pub enum NormalizeError {
    /// It was not found, or its folder cannot be looked through.
    Find(ScanError),
    /// The file cannot be read as sound.
    Open(OpenError),
    /// The file is sound at first, but not to its end.
    Decode(DecodeError),
    /// Its rate or its channels change in the middle: cut it there.
    FormatChanges,
    /// What is wanted cannot be.
    Settings(CannotNormalise),
    /// The new name says a format that is not written here.
    UnsupportedContainer,
    /// It would be replaced by a file of a kind that its name does not say.
    InPlace,
    /// The new file would be the old one.
    SameFile,
    /// What has the name is no regular file.
    NotAFile,
    /// Two files would get the same new name.
    SameName,
    /// What is to be replaced is read-only.
    ReadOnly,
    /// Another run is at it.
    Busy,
    /// It was written to meanwhile.
    Changed,
    /// Opus has one rate, to which this one cannot be brought.
    UnsupportedRate(SampleRate),
    /// Another file of its album failed, so that the album has no gain.
    Album,
    /// The new file cannot be written.
    Save(io::Error),
    /// Whoever hears of the progress wanted no more.
    Stopped,
    /// A fault of ours or of a codec, caught at the edge of the file.
    Internal,
}

impl From<ReplaceError> for NormalizeError {
    fn from(error: ReplaceError) -> Self {
        match error {
            ReplaceError::ReadOnly => Self::ReadOnly,
            ReplaceError::Busy => Self::Busy,
            ReplaceError::Changed => Self::Changed,
            ReplaceError::Io(error) => Self::Save(error),
        }
    }
}

impl fmt::Display for NormalizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Find(error) => return error.fmt(f),
            Self::Open(error) => return error.fmt(f),
            Self::Decode(error) => return error.fmt(f),
            Self::Settings(error) => return error.fmt(f),
            Self::UnsupportedRate(rate) => {
                return write!(f, "Opus cannot be made from {} Hz: write FLAC or WAVE", rate.hz());
            }
            Self::Save(error) => return write!(f, "cannot be written: {error}"),
            Self::FormatChanges => "its rate or its channels change in the middle: cut it there",
            Self::UnsupportedContainer => "the name must end in .wav, .flac or .opus",
            Self::InPlace => {
                "its format is not written here, so it cannot be replaced: give IN and OUT"
            }
            Self::SameFile => {
                "it is the file that is read: give it another name, or use --in-place"
            }
            Self::NotAFile => "it is not a regular file: give another name",
            Self::SameName => "another file gets the same new name: rename one of them",
            Self::ReadOnly => "it is read-only: check the mode of file and folder",
            Self::Busy => "another run is writing it",
            Self::Changed => "it was changed meanwhile: run again",
            Self::Album => "another file of its folder failed, so the album has no gain",
            Self::Stopped => "stopped",
            Self::Internal => "it failed by a fault of this program",
        })
    }
}

impl core::error::Error for NormalizeError {}
