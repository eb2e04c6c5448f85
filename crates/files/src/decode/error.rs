//! Errors of audio files, classified by what the user can do about them.

use core::fmt;
use std::io;

use aulos_engine::codec_guard::CodecPanic;
use aulos_io::confined_open::{OUTSIDE_ROOTS, is_outside_root};

/// Why a file cannot be opened as audio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The file does not exist: correct the path.
    NoSuchFile,
    /// Permission denied: change its mode or owner.
    Permission,
    /// The path, or a link in it, leads out of the allowed directories.
    OutsideRoots,
    /// It is a directory, a device, a FIFO or a socket. A FIFO needs another kind of source.
    NotAFile,
    /// The file has no byte: get it again.
    Empty,
    /// The headers are those of audio, and no frame follows.
    NoFrames,
    /// The content is no known container or codec.
    NotAudio,
    /// It is of a kind that is known, and not supported: convert the file. Holds the kind.
    UnsupportedKind(&'static str),
    /// It is MP4 whose index is missing, because its recording or download was not completed.
    NoIndex,
    /// It is something else, as a list of files or an archive. Holds the kind, and what to do.
    NotSound(&'static str),
    /// The container is supported, but its codec or this use of it is not: convert the file.
    UnsupportedCodec,
    /// It is AAC of a kind that is not supported: convert the file. Holds the kind.
    UnsupportedAac(&'static str),
    /// It is encrypted (DRM): use a version without encryption.
    Protected,
    /// It begins like audio but is damaged or truncated before the first frame: get it again.
    Torn,
    /// The disk or the network file system failed: see the system's log.
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

/// The library could not read what the file has.
impl From<CodecPanic> for OpenError {
    fn from(_: CodecPanic) -> Self {
        Self::Torn
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchFile => f.write_str("no such file"),
            Self::Permission => f.write_str(
                "permission denied; check the owner and mode of the file and its folders",
            ),
            Self::OutsideRoots => f.write_str(OUTSIDE_ROOTS),
            Self::NotAFile => f.write_str("not a regular file; use pipe:// for a FIFO"),
            Self::NotAudio => f.write_str("not an audio file of a supported format"),
            Self::Empty => f.write_str("the file is empty"),
            Self::NoFrames => f.write_str("the file has headers but no sound"),
            Self::UnsupportedKind(kind) => {
                write!(f, "{kind} is not supported; convert the file, for example to FLAC")
            }
            Self::NoIndex => f.write_str(
                "the file has no index (`moov`): its recording or download was not completed",
            ),
            Self::NotSound(kind) => write!(f, "not a sound file but {kind}"),
            Self::UnsupportedCodec => f.write_str(
                "the codec of the file is not supported; convert it, for example to FLAC",
            ),
            Self::UnsupportedAac(kind) => {
                write!(f, "{kind} is not supported; convert the file, for example to FLAC")
            }
            Self::Protected => {
                f.write_str("the file is copy-protected (DRM) and cannot be decoded")
            }
            Self::Torn => f.write_str("the file is damaged or truncated before its first frame"),
            Self::Io(kind) => write!(f, "the file cannot be read: {kind}"),
        }
    }
}

impl core::error::Error for OpenError {}

/// Why an open file returns no more frames. The decoder cannot be used any more; the file may be
/// opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileDecodeError {
    /// Only damage for too long, or the file was replaced by something else: get it again.
    Torn,
    /// The codec is supported, but not what the file uses of it: convert the file.
    Unsupported,
    /// The disk or the network file system failed: see the system's log.
    Io(io::ErrorKind),
}

impl From<io::Error> for FileDecodeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error.kind())
    }
}

/// The library cannot go on in the container.
impl From<CodecPanic> for FileDecodeError {
    fn from(_: CodecPanic) -> Self {
        Self::Torn
    }
}

impl fmt::Display for FileDecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Torn => f.write_str("too much of the file is damaged"),
            Self::Unsupported => f.write_str(
                "the codec of the file is not supported; convert it, for example to FLAC",
            ),
            Self::Io(kind) => write!(f, "reading the file failed: {kind}"),
        }
    }
}

impl core::error::Error for FileDecodeError {}
