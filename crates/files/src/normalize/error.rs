//! Errors of normalization.

use core::fmt;
use std::io;

use aulos_core::SampleRate;
use aulos_dsp::normalize::NormalizerError;
use aulos_io::replace::ReplaceError;

use crate::decode::{FileDecodeError, OpenError};
use crate::scan::ScanError;

/// Why there is no new file. The existing files are unchanged.
#[derive(Debug)]
#[non_exhaustive]
pub enum NormalizeError {
    /// The file was not found, or its directory cannot be read.
    Find(ScanError),
    /// The file cannot be opened as audio.
    Open(OpenError),
    /// The file cannot be decoded to its end.
    Decode(FileDecodeError),
    /// It is damaged in so many places, and would be replaced by its readable part.
    Damaged(u64),
    /// The settings are invalid.
    Settings(NormalizerError),
    /// The extension of the new name is not a supported output format.
    UnsupportedContainer,
    /// The file would be replaced by another format than its extension says.
    InPlace,
    /// The new file would be the same as the old one.
    SameFile,
    /// There is a file of the new name.
    Exists,
    /// The new name belongs to something that is not a regular file.
    NotAFile,
    /// Two files would get the same new name.
    SameName,
    /// The file to be replaced is read-only.
    ReadOnly,
    /// Another process is replacing the same file.
    Busy,
    /// The file was modified meanwhile.
    Changed,
    /// Opus cannot be produced from this sample rate.
    UnsupportedRate(SampleRate),
    /// Another file of its album failed, so the album has no gain.
    Album,
    /// The new file cannot be written.
    Save(io::Error),
    /// The progress callback requested a stop.
    Stopped,
    /// An internal error or a panic of a codec, caught for this file.
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
                return write!(
                    f,
                    "cannot convert {} Hz to the rate of Opus; write FLAC or WAVE",
                    rate.hz()
                );
            }
            Self::Damaged(places) => {
                return write!(
                    f,
                    "damaged at {places} position(s) and not replaced; --keep-going replaces it by \
                     its readable part"
                );
            }
            Self::Save(error) => return write!(f, "cannot be written: {error}"),
            Self::UnsupportedContainer => "the name must end in .wav, .flac or .opus",
            Self::InPlace => {
                "its format cannot be written, so it cannot be replaced; give IN and OUT"
            }
            Self::SameFile => {
                "input and output are the same file; give another name, or use --in-place"
            }
            Self::Exists => "the file already exists; give another name, or --force to replace it",
            Self::NotAFile => "not a regular file; give another name",
            Self::SameName => "another file gets the same new name; rename one of them",
            Self::ReadOnly => "read-only; check the mode of file and folder",
            Self::Busy => "another process is writing it",
            Self::Changed => "the file was changed meanwhile; run again",
            Self::Album => "another file of its folder failed, so the album has no gain",
            Self::Stopped => "stopped",
            Self::Internal => "internal error; please report it",
        })
    }
}

impl core::error::Error for NormalizeError {}
