//! Why a file could not be measured, or not all of it.

use core::fmt;
use std::io;

use crate::decode::{DecodeError, OpenError};

/// Why a file could not be measured, or not all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScanError {
    /// It cannot be opened as sound.
    Open(OpenError),
    /// It could be opened, but not read to its end; what came before has been measured.
    Decode(DecodeError),
    /// So many packets of it were damaged and passed over; a cut end counts as one. The rest has
    /// been measured.
    Damaged(u64),
    /// It is over before the first gating block of 400 ms, so it has peaks but no loudness.
    Short,
    /// A folder cannot be looked through.
    Folder(io::ErrorKind),
    /// A folder in which nothing has the name of a sound file.
    NothingInFolder,
    /// A fault of ours or of a codec, caught at the edge of the file.
    Internal,
}

impl ScanError {
    /// Whether there was nothing to read, rather than something that is not right.
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
                f.write_str("the file is damaged or cut off: what can be read has been measured")
            }
            Self::Damaged(n) => {
                write!(f, "the file is damaged in {n} places: what can be read has been measured")
            }
            Self::Short => f.write_str("the file is shorter than 400 ms, so it has no loudness"),
            Self::Folder(kind) => write!(f, "the folder cannot be read: {kind}"),
            Self::NothingInFolder => f.write_str("there is no sound file in the folder"),
            Self::Internal => f.write_str("decoding failed by a fault of this program"),
        }
    }
}

impl core::error::Error for ScanError {}
