//! A named pipe as a source.
//!
//! An open FIFO stays the same FIFO when its name is deleted: its reader would wait for ever, and
//! the next writer would create a regular file in its place. So the path is checked once a second.
//! Watching it with inotify was rejected: it does not work on network file systems, and needs a
//! watch on every parent directory, because those can be moved too.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, Read};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt as _, fchown};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aulos_core::{Backoff, Instant, Span};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::{ByteFeed, FEED_BLOCKS, FeedState, Feeder, FifoError, NextPoll};
use crate::SourcePath;
use crate::sys::CloseWatch;

/// Reads a FIFO for ever, through any number of writers.
///
/// The reading end stays open when a writer closes, so the next writer finds the same pipe and gets
/// no SIGPIPE in between. When the FIFO is deleted, it is created again. When another FIFO has its
/// name, that one is opened, after the data still being written to the old one has been played.
#[derive(Debug)]
pub struct FifoFeeder {
    path: SourcePath,
    mode: FifoMode,
    open_fifo: Option<OpenFifo>,
    /// A FIFO has been opened before.
    was_open: bool,
    check_at: Instant,
    backoff: Backoff,
    feed: ByteFeed,
    scratch: Vec<u8>,
    counters: Arc<FifoCounters>,
}

/// An open FIFO.
#[derive(Debug)]
struct OpenFifo {
    file: File,
    id: FileId,
    /// Its path is deleted, or refers to something else.
    is_replaced: bool,
    /// When bytes arrived last.
    active_at: Instant,
    /// None where the system has no such watch.
    close_watch: Option<CloseWatch>,
    /// A writer has closed it, and what it wrote is not read completely yet.
    writer_closed: bool,
}

impl OpenFifo {
    /// Reads what is there. A writer that closes while another process keeps the FIFO open is shown
    /// by the kernel's watch only.
    fn drain(
        &mut self,
        feed: &mut ByteFeed,
        scratch: &mut [u8],
        now: Instant,
    ) -> io::Result<DrainStatus> {
        self.writer_closed |= self.close_watch.as_mut().is_some_and(CloseWatch::take);
        let status = drain(&mut self.file, feed, scratch, now)?;
        if status != DrainStatus::Full && core::mem::take(&mut self.writer_closed) {
            feed.suspect_new_sender();
        }
        Ok(status)
    }
}

/// Device and inode; unique while the file is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId(u64, u64);

/// Counters of changes to FIFOs. All FIFOs of a server may share one.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct FifoCounters {
    /// Deleted FIFOs that were created again.
    pub recreated: AtomicU64,
    /// Times that a FIFO was opened in place of the previous one, created here or not.
    pub reopened: AtomicU64,
    /// Times that something else was found in place of a FIFO.
    pub blocked: AtomicU64,
}

/// Whether to create the FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "it is created, or not")]
pub enum FifoMode {
    /// Create it if it is missing.
    Create(FifoAccess),
    /// It must exist.
    Read,
}

/// Who may write into a FIFO that is created. It also applies to an existing FIFO of this user,
/// which an earlier run may have left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "permissions and group are all that a file has")]
pub struct FifoAccess {
    /// Permission bits, as in `0o660`; by default its owner alone may read and write.
    pub permissions: Option<u32>,
    /// Id of its group; by default that of this process.
    pub group: Option<u32>,
}

impl FifoAccess {
    fn apply(self, file: &File, found: &Metadata) -> io::Result<()> {
        if found.uid() != rustix::process::geteuid().as_raw() {
            return Ok(());
        }
        // Group before permissions: a change of the group may clear bits.
        if let Some(group) = self.group.filter(|group| *group != found.gid()) {
            fchown(file, None, Some(group))?;
        }
        match self.permissions.filter(|permissions| *permissions != found.mode() & PERMISSION_BITS)
        {
            Some(permissions) => file.set_permissions(Permissions::from_mode(permissions)),
            None => Ok(()),
        }
    }
}

/// The permission bits of a file's mode.
const PERMISSION_BITS: u32 = 0o7777;

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

    /// Counts changes of the FIFO in `counters`.
    #[must_use]
    pub fn with_counters(self, counters: Arc<FifoCounters>) -> Self {
        Self { counters, ..self }
    }

    fn open(&mut self, now: Instant) -> Result<(), FifoError> {
        if matches!(self.mode, FifoMode::Create(_)) {
            self.create()?;
        }
        let file = self.path.open().map_err(FifoError::Io)?;
        let found = file.metadata().map_err(FifoError::Io)?;
        let kind = found.file_type();
        let is_device = self.mode == FifoMode::Read && kind.is_char_device();
        if !kind.is_fifo() && !is_device {
            return Err(FifoError::NotAFifo);
        }
        if let FifoMode::Create(access) = self.mode {
            access.apply(&file, &found).map_err(FifoError::Io)?;
        }
        if std::mem::replace(&mut self.was_open, true) {
            count(&self.counters.reopened);
        }
        let id = FileId(found.dev(), found.ino());
        self.check_at = now + CHECK_INTERVAL;
        self.open_fifo = Some(OpenFifo {
            close_watch: CloseWatch::new(file.as_fd()).ok(),
            file,
            id,
            is_replaced: false,
            active_at: now,
            writer_closed: false,
        });
        Ok(())
    }

    /// Creates the FIFO if nothing is there.
    fn create(&self) -> Result<(), FifoError> {
        if self.path.make_fifo().map_err(FifoError::Io)? && self.was_open {
            count(&self.counters.recreated);
        }
        Ok(())
    }

    /// Checks whether the path still refers to the open FIFO. A writer must find a FIFO at once and
    /// not create a file in its place, so a new one is created even while the old one is played to
    /// its end.
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
                if matches!(self.mode, FifoMode::Create(_)) {
                    // An obstacle is reported when the FIFO is opened.
                    self.create().ok();
                }
            }
            // Unknown; the FIFO stays as it is.
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
        self.feed.will_retry(self.backoff.retry_at());
        NextPoll::Later
    }
}

impl Feeder for FifoFeeder {
    fn tick(&mut self, now: Instant) -> NextPoll {
        if self.feed.is_abandoned() {
            return NextPoll::Never;
        }
        // It stays open for writers, needed or not.
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
        match opened.drain(&mut self.feed, &mut self.scratch, now) {
            // No writer has the pipe open: the data was complete.
            Ok(DrainStatus::End) => {
                self.feed.mark_ended();
                if opened.is_replaced {
                    self.open_fifo = None;
                    return NextPoll::Soon;
                }
                self.feed.report(FeedState::Waiting);
                NextPoll::Later
            }
            // A silent writer of the old FIFO must not block the writers of the new one.
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

/// Whether the path does not exist.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The interval of path checks. Writers are usually started by a person or a supervisor, which
/// takes about as long.
const CHECK_INTERVAL: Span = Span::from_secs(1);

/// The result of draining a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrainStatus {
    /// The writer has closed.
    End,
    /// No data.
    Empty,
    /// Data, and no more is available.
    Some,
    /// The feed is full.
    Full,
}

/// Reads what is available and fits, from a non-blocking descriptor, in at most [`MAX_READS`]
/// reads: a feed on stand-by always has room, and a writer that is never out of data (`/dev/zero`)
/// would keep the thread from its other sources.
pub(super) fn drain(
    from: &mut impl Read,
    feed: &mut ByteFeed,
    scratch: &mut [u8],
    now: Instant,
) -> io::Result<DrainStatus> {
    let mut taken = false;
    for _ in 0..MAX_READS {
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
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    feed.flush();
    Ok(if taken { DrainStatus::Some } else { DrainStatus::Empty })
}

/// Reads of one [`drain`]: more than a feed holds, in the smallest pieces that it takes.
const MAX_READS: usize = 2 * FEED_BLOCKS;

/// Creates the FIFO at `path`, for its owner only, unless it exists.
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

/// The capacity of a Linux pipe.
pub(super) const READ_BYTES: usize = 65_536;

#[cfg(test)]
mod tests {
    use aulos_engine::standby::{Standby, standby_channel};

    use super::*;

    #[test]
    fn a_writer_that_is_never_out_of_data_holds_a_source_on_stand_by_for_a_bounded_time() {
        let (state, _reader) = aulos_rt::latest(FeedState::Waiting);
        let (feed, _items) = ByteFeed::new("48000:16:2".parse().unwrap(), state, 0);
        let (_gate, standby) = standby_channel(Standby::Warm);
        let mut feed = feed.with_standby(standby);
        feed.poll_demand();
        let mut reads = 0;
        let mut endless = Counted(io::repeat(1), &mut reads);
        let drained = drain(&mut endless, &mut feed, &mut [0; READ_BYTES], Instant::ZERO);
        assert_eq!(drained.unwrap(), DrainStatus::Some);
        assert_eq!(reads, MAX_READS);
    }

    /// Counts reads.
    struct Counted<'a, T>(T, &'a mut usize);

    impl<T: Read> Read for Counted<'_, T> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            *self.1 += 1;
            assert!(*self.1 <= 10 * MAX_READS, "it does not end");
            self.0.read(buffer)
        }
    }
}
