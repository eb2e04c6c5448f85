//! The files of a playlist, as one piece of memory.

use core::fmt;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use aulos_proto::http::PlaylistError;

use crate::decode::OpenError;

/// The most files of a playlist; the rest is not played, which is reported.
pub const MAX_PLAYLIST_FILES: usize = 1_000_000;

/// The most bytes of all names: 200 for each of the files.
const MAX_NAME_BYTES: usize = 200 * MAX_PLAYLIST_FILES;

/// Why a list cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListError {
    /// The folder or list cannot be opened.
    Open(OpenError),
    /// The list file has no entry, or is no list.
    List(PlaylistError),
    /// It has no audio file.
    Empty,
    /// It has more files than a playlist can have.
    TooMany,
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(OpenError::NoSuchFile) => f.write_str("no such folder or playlist file"),
            Self::Open(error) => error.fmt(f),
            Self::List(PlaylistError::Hls) => {
                f.write_str("an HLS playlist; this source plays files of this machine")
            }
            Self::List(_) => f.write_str("the playlist file has no entry"),
            Self::Empty => f.write_str("the folder has no audio file"),
            Self::TooMany => {
                write!(f, "more than {MAX_PLAYLIST_FILES} files; the others are not played")
            }
        }
    }
}

/// Paths in their order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FileList {
    names: Vec<u8>,
    /// The end of each name.
    ends: Vec<u32>,
}

impl FileList {
    /// # Errors
    /// [`ListError::TooMany`]: the list is full.
    pub(super) fn push(&mut self, path: &Path) -> Result<(), ListError> {
        let name = path.as_os_str().as_bytes();
        let end = self.names.len() + name.len();
        if self.ends.len() >= MAX_PLAYLIST_FILES || end > MAX_NAME_BYTES {
            return Err(ListError::TooMany);
        }
        self.names.extend_from_slice(name);
        self.ends.push(u32::try_from(end).map_err(|_| ListError::TooMany)?);
        Ok(())
    }

    /// The number of files.
    #[allow(clippy::cast_possible_truncation, reason = "limited")]
    pub(super) const fn len(&self) -> u32 {
        self.ends.len() as u32
    }

    pub(super) fn get(&self, number: u32) -> Option<&Path> {
        let number = number as usize;
        let end = *self.ends.get(number)? as usize;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        self.names.get(start..end).map(|name| Path::new(OsStr::from_bytes(name)))
    }

    /// The numbers of this list's files in a newer one. A file that is named twice is two files.
    pub(super) fn renumbered(&self, newer: &Self) -> Vec<Option<u32>> {
        let mut numbers: HashMap<&Path, Vec<u32>> = HashMap::with_capacity(newer.ends.len());
        for number in (0..newer.len()).rev() {
            if let Some(path) = newer.get(number) {
                numbers.entry(path).or_default().push(number);
            }
        }
        let paths = (0..self.len()).map(|number| self.get(number));
        paths.map(|path| numbers.get_mut(path?).and_then(Vec::pop)).collect()
    }

    /// The memory of the names.
    #[cfg(test)]
    pub(super) const fn bytes(&self) -> usize {
        self.names.capacity() + self.ends.capacity() * size_of::<u32>()
    }

    /// Gives back memory that was allocated ahead.
    pub(super) fn shrink(&mut self) {
        self.names.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}
