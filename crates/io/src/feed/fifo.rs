//! A named pipe that anyone can play into.
//!
//! A FIFO that was opened stays the same FIFO when its name is deleted: its reader would wait for ever,
//! and the next writer would make a regular file in its place. So once a second the name is looked at.
//! Watching it with inotify was rejected: it does not say what happens on network file systems, and
//! needs a watch on every directory above, because those can be moved too.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aulos_core::{Instant, Span};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::{Backoff, ByteFeed, FeedState, Feeder, NextPoll};
use crate::SourcePath;

/// Reads a FIFO for ever, whoever writes to it.
///
/// The reading end stays open when a writer goes, so the next one finds the same pipe and never
/// gets a broken-pipe signal in between. When the FIFO is deleted, it is made again, and when another
/// one has its name, that is opened; what is still being written to the old one is played first.
#[derive(Debug)]
pub struct FifoFeeder {
    path: SourcePath,
    mode: FifoMode,
    open_fifo: Option<OpenFifo>,
    /// One has been opened before.
    was_open: bool,
    check_at: Instant,
    backoff: Backoff,
    feed: ByteFeed,
    scratch: Vec<u8>,
    counters: Arc<FifoCounters>,
}

/// A FIFO that is open.
#[derive(Debug)]
struct OpenFifo {
    file: File,
    id: FileId,
    /// Its name means something else now, or nothing.
    is_replaced: bool,
    /// When bytes came last.
    active_at: Instant,
}

/// Device and inode: the same while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId(u64, u64);

/// What became of FIFOs while they were read; never counts down. All FIFOs of a server may share one.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct FifoCounters {
    /// FIFOs that had been deleted and were made again.
    pub recreated: AtomicU64,
    /// Times that a FIFO was opened in the place of the last one, made here or not.
    pub reopened: AtomicU64,
    /// Times that something else was found in the place of a FIFO.
    pub blocked: AtomicU64,
}

/// Whether the FIFO is ours to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FifoMode {
    /// Make it if it is not there, readable and writable by its owner only.
    Create,
    /// It must be there.
    Read,
}

impl FifoFeeder {
    /// A feeder for the FIFO at `path`; it is opened at the first tick.
    #[must_use]
    pub fn new(path: impl Into<SourcePath>, mode: FifoMode, feed: ByteFeed) -> Self {
        Self {
            path: path.into(),
            mode,
            open_fifo: None,
            was_open: false,
            check_at: Instant::ZERO,
            backoff: feed.backoff(),
            feed,
            scratch: vec![0; READ_BYTES],
            counters: Arc::default(),
        }
    }

    /// Counts what becomes of the FIFO here.
    #[must_use]
    pub fn with_counters(self, counters: Arc<FifoCounters>) -> Self {
        Self { counters, ..self }
    }

    fn open(&mut self, now: Instant) -> Result<(), FifoError> {
        if self.mode == FifoMode::Create {
            self.create()?;
        }
        let file = self.path.open().map_err(FifoError::Io)?;
        let found = file.metadata().map_err(FifoError::Io)?;
        let kind = found.file_type();
        let is_device = self.mode == FifoMode::Read && kind.is_char_device();
        if !kind.is_fifo() && !is_device {
            return Err(FifoError::NotAFifo);
        }
        if std::mem::replace(&mut self.was_open, true) {
            count(&self.counters.reopened);
        }
        let id = FileId(found.dev(), found.ino());
        self.check_at = now + CHECK_INTERVAL;
        self.open_fifo = Some(OpenFifo { file, id, is_replaced: false, active_at: now });
        Ok(())
    }

    /// Makes the FIFO where there is nothing.
    fn create(&self) -> Result<(), FifoError> {
        if self.path.make_fifo().map_err(FifoError::Io)? && self.was_open {
            count(&self.counters.recreated);
        }
        Ok(())
    }

    /// Looks whether the name still means the FIFO that is open. A writer must find a FIFO at once,
    /// and not make a file in its place; so one is made even while the old one is played to its end.
    fn check_path(&mut self, now: Instant) {
        let Some(opened) = &mut self.open_fifo else { return };
        if now < self.check_at {
            return;
        }
        self.check_at = now + CHECK_INTERVAL;
        match std::fs::metadata(&*self.path) {
            Ok(found) => opened.is_replaced = opened.id != FileId(found.dev(), found.ino()),
            Err(error) if is_missing(&error) => {
                opened.is_replaced = true;
                if self.mode == FifoMode::Create {
                    // Whatever is in the way now is told when it is to be opened.
                    self.create().ok();
                }
            }
            // The file system does not say: it stays as it is.
            Err(_) => {}
        }
    }

    fn fail(&mut self, now: Instant, error: &FifoError) -> NextPoll {
        self.open_fifo = None;
        self.feed.mark_ended();
        self.feed.report(match error {
            FifoError::NotAFifo => {
                count(&self.counters.blocked);
                FeedState::Failed(libc::EEXIST)
            }
            FifoError::Io(error) => FeedState::Failed(error.raw_os_error().unwrap_or(0)),
        });
        self.backoff.failed(now);
        NextPoll::Later
    }
}

impl Feeder for FifoFeeder {
    fn tick(&mut self, now: Instant) -> NextPoll {
        if self.feed.is_abandoned() {
            return NextPoll::Never;
        }
        // Whether it is needed or not, it stays open for whoever writes.
        self.feed.poll_demand();
        self.check_path(now);
        if self.open_fifo.is_none() {
            if !self.backoff.is_due(now) {
                return NextPoll::Later;
            }
            if let Err(error) = self.open(now) {
                return self.fail(now, &error);
            }
            self.backoff.succeeded(now);
            self.feed.report(FeedState::Waiting);
        }
        let Some(opened) = &mut self.open_fifo else { return NextPoll::Later };
        match drain(&mut opened.file, &mut self.feed, &mut self.scratch, now) {
            // No writer has the pipe open: what was sent is complete.
            Ok(DrainStatus::End) => {
                self.feed.mark_ended();
                if opened.is_replaced {
                    self.open_fifo = None;
                    return NextPoll::Soon;
                }
                self.feed.report(FeedState::Waiting);
                NextPoll::Later
            }
            // A writer that says nothing does not keep those from being read that come by the name.
            Ok(DrainStatus::Empty)
                if opened.is_replaced && now.since(opened.active_at) >= CHECK_INTERVAL =>
            {
                self.open_fifo = None;
                self.feed.mark_ended();
                NextPoll::Soon
            }
            Ok(DrainStatus::Empty) => {
                if self.feed.is_in_stream() {
                    NextPoll::Soon
                } else {
                    NextPoll::Later
                }
            }
            Ok(DrainStatus::Full | DrainStatus::Some) => {
                opened.active_at = now;
                self.feed.report(FeedState::Running);
                NextPoll::Soon
            }
            Err(error) => self.fail(now, &FifoError::Io(error)),
        }
    }
}

/// Whether a name means nothing any more.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// How often the name is looked at: a writer that comes back is as a rule started by a person or a
/// supervisor, who take about as long.
const CHECK_INTERVAL: Span = Span::from_secs(1);

/// How a look at a descriptor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrainStatus {
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
) -> io::Result<DrainStatus> {
    let mut taken = false;
    loop {
        let room = feed.room().min(scratch.len());
        if room == 0 {
            return Ok(DrainStatus::Full);
        }
        match from.read(&mut scratch[..room]) {
            Ok(0) => return Ok(DrainStatus::End),
            Ok(count) => {
                taken = true;
                feed.push(now, &scratch[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                feed.flush();
                return Ok(if taken { DrainStatus::Some } else { DrainStatus::Empty });
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
