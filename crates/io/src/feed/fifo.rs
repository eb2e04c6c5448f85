//! A named pipe that anyone can play into.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aulos_core::Instant;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use super::{Backoff, ByteFeed, FeedState, Feeder, Next};

/// Reads a FIFO for ever, whoever writes to it.
///
/// The reading end stays open when a writer goes, so the next one finds the same pipe and never
/// gets a broken-pipe signal in between.
#[derive(Debug)]
pub struct Fifo {
    path: PathBuf,
    mode: FifoMode,
    file: Option<File>,
    backoff: Backoff,
    feed: ByteFeed,
    scratch: Vec<u8>,
}

/// Whether the FIFO is ours to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FifoMode {
    /// Make it if it is not there, readable and writable by its owner only.
    Create,
    /// It must be there.
    Read,
}

impl Fifo {
    /// A feeder for the FIFO at `path`; it is opened at the first tick.
    #[must_use]
    pub fn new(path: PathBuf, mode: FifoMode, feed: ByteFeed) -> Self {
        let scratch = vec![0; READ_BYTES];
        Self { path, mode, file: None, backoff: feed.backoff(), feed, scratch }
    }

    fn open(&self) -> io::Result<File> {
        if self.mode == FifoMode::Create {
            make_fifo(&self.path).map_err(|error| error.io())?;
        }
        // Without O_NONBLOCK the open itself would wait for a writer.
        let flags = OFlags::NONBLOCK.bits();
        #[allow(clippy::cast_possible_wrap, reason = "flags are a C int")]
        OpenOptions::new().read(true).custom_flags(flags as i32).open(&self.path)
    }

    fn fail(&mut self, now: Instant, error: &io::Error) -> Next {
        self.file = None;
        self.feed.end();
        self.feed.report(FeedState::Failed(error.raw_os_error().unwrap_or(0)));
        self.backoff.failed(now);
        Next::Later
    }
}

impl Feeder for Fifo {
    fn tick(&mut self, now: Instant) -> Next {
        if self.feed.is_abandoned() {
            return Next::Never;
        }
        // Whether it is needed or not, it stays open for whoever writes.
        self.feed.wish();
        let file = match &mut self.file {
            Some(file) => file,
            None if !self.backoff.is_due(now) => return Next::Later,
            None => match self.open() {
                Ok(file) => {
                    self.backoff.succeeded(now);
                    self.feed.report(FeedState::Waiting);
                    self.file.insert(file)
                }
                Err(error) => return self.fail(now, &error),
            },
        };
        match drain(file, &mut self.feed, &mut self.scratch, now) {
            // No writer has the pipe open: what was sent is complete.
            Ok(Drained::End) => {
                self.feed.end();
                self.feed.report(FeedState::Waiting);
                Next::Later
            }
            Ok(Drained::Empty) => {
                if self.feed.is_in_stream() {
                    Next::Soon
                } else {
                    Next::Later
                }
            }
            Ok(Drained::Full | Drained::Some) => {
                self.feed.report(FeedState::Running);
                Next::Soon
            }
            Err(error) => self.fail(now, &error),
        }
    }
}

/// How a look at a descriptor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drained {
    /// The sender has closed.
    End,
    /// Nothing was there.
    Empty,
    /// Something came, and no more is there.
    Some,
    /// There is no room for more.
    Full,
}

/// Reads what is there, as far as there is room, from a descriptor that does not block.
pub(super) fn drain(
    from: &mut impl Read,
    feed: &mut ByteFeed,
    scratch: &mut [u8],
    now: Instant,
) -> io::Result<Drained> {
    let mut taken = false;
    loop {
        let room = feed.room().min(scratch.len());
        if room == 0 {
            return Ok(Drained::Full);
        }
        match from.read(&mut scratch[..room]) {
            Ok(0) => return Ok(Drained::End),
            Ok(count) => {
                taken = true;
                feed.push(now, &scratch[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                feed.flush();
                return Ok(if taken { Drained::Some } else { Drained::Empty });
            }
            Err(error) => return Err(error),
        }
    }
}

/// Makes the FIFO at `path` unless it is there already, for its owner only.
///
/// # Errors
/// [`FifoError`] when something else is in the way or the system refuses.
pub fn make_fifo(path: &Path) -> Result<(), FifoError> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_fifo() => return Ok(()),
        Ok(_) => return Err(FifoError::NotAFifo),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(FifoError::Io(error)),
    }
    let mode = Mode::RUSR | Mode::WUSR;
    match mknodat(CWD, path, FileType::Fifo, mode, 0) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(FifoError::Io(error.into())),
    }
}

/// Why there is no FIFO.
#[derive(Debug)]
#[non_exhaustive]
pub enum FifoError {
    /// A file, folder or link of another kind has the name: choose another path or remove it.
    NotAFifo,
    /// The system refused.
    Io(io::Error),
}

impl FifoError {
    pub(super) fn io(self) -> io::Error {
        match self {
            Self::NotAFifo => io::Error::from(io::ErrorKind::AlreadyExists),
            Self::Io(error) => error,
        }
    }
}

impl core::fmt::Display for FifoError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotAFifo => f.write_str("something that is not a FIFO has this name"),
            Self::Io(error) => core::fmt::Display::fmt(error, f),
        }
    }
}

impl core::error::Error for FifoError {}

/// One read takes at most what a Linux pipe holds.
pub(super) const READ_BYTES: usize = 65_536;
