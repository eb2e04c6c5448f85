//! What can go wrong with a file, cut by what the user can do about it.

use core::fmt;
use std::io;

use crate::beneath::is_outside_root;

/// Why a file cannot be opened as sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// Nothing has this name: correct the path.
    NoSuchFile,
    /// We may not read it: change its mode or owner.
    Permission,
    /// It is to lie below certain directories, and a link in its path leads out of them.
    OutsideRoots,
    /// It is a directory, a device, a FIFO or a socket: a FIFO is a source of another kind.
    NotAFile,
    /// No container or codec that we know begins like this, or nothing at all is in it.
    NotAudio,
    /// The container is known but its codec, or its use of the codec, is not: convert the file.
    UnsupportedCodec,
    /// It is encrypted for somebody's player: get it without.
    Protected,
    /// It begins like sound but is damaged or cut off before the first frame: get it again.
    Torn,
    /// The disk or the network file system failed: look at the system's log.
    Io(io::ErrorKind),
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            _ if is_outside_root(&error) => Self::OutsideRoots,
            io::ErrorKind::NotFound => Self::NoSuchFile,
            io::ErrorKind::PermissionDenied => Self::Permission,
            io::ErrorKind::UnexpectedEof => Self::Torn,
            kind => Self::Io(kind),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchFile => f.write_str("there is no such file"),
            Self::Permission => f.write_str("the file may not be read: check its owner and mode"),
            Self::OutsideRoots => f.write_str(OUTSIDE_ROOTS),
            Self::NotAFile => f.write_str("it is not a regular file (for a FIFO use pipe://)"),
            Self::NotAudio => f.write_str("the file is not sound in a format that is known here"),
            Self::UnsupportedCodec => f.write_str("the file's codec is not supported: convert it"),
            Self::Protected => {
                f.write_str("the file is copy-protected (DRM): it cannot be decoded")
            }
            Self::Torn => f.write_str("the file is damaged or cut off before its first frame"),
            Self::Io(kind) => write!(f, "the file cannot be read: {kind}"),
        }
    }
}

impl core::error::Error for OpenError {}

/// What is said of a path that leads out of the directories below which it has to lie.
pub const OUTSIDE_ROOTS: &str = "it does not lie below one of the directories of `[streams] roots`";

/// Why an open file gives no more frames. The decoder is of no further use; it may be opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// Nothing but damage for too long, or the file was replaced by something else: get it again.
    Torn,
    /// The disk or the network file system failed: look at the system's log.
    Io(io::ErrorKind),
}

impl From<io::Error> for DecodeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error.kind())
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Torn => f.write_str("the file is damaged for too long to go on"),
            Self::Io(kind) => write!(f, "the file cannot be read on: {kind}"),
        }
    }
}

impl core::error::Error for DecodeError {}
