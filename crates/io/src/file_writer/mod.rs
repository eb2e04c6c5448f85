//! Many threads append records to one file, and none of them waits for the disk.
//!
//! The plain ways are a lock around the file, which makes a system call per record and lets every
//! thread wait for every other; a lock around a buffer, which makes one thread now and then do the
//! disk's work for all; and a bounded queue of allocated records. Here every producer has memory of
//! its own, or shares a buffer with others that come and go. One thread per device takes whatever is
//! there straight out of that memory to the file, in one call for many records of many producers;
//! another one waits for the disk to make it last, so that the first goes on.
//!
//! ```text
//!  Producer          --ring--+
//!  RealtimeProducer  --ring--+--> "aulos-disk", one per device --writev--> Medium (a file)
//!  SharedProducer    --swap--+                 |
//!  SharedProducer    ---^                      +--> "aulos-sync" --fdatasync--> the same file
//!
//!  FileWriter: flush, sync, close --orders--> "aulos-disk" --answers--> Ticket (thread or task)
//! ```
//!
//! # An example
//! ```
//! use aulos_io::file_writer::{Disks, Settings};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = aulos_blackbox::scratch::Scratch::new("writer-doc")?;
//! # let path = folder.join("log");
//! let disks = Disks::default();
//! let writer = disks.create(&path, &Settings::default())?;
//! std::thread::scope(|scope| {
//!     for name in ["left", "right"] {
//!         let mut producer = writer.producer(64 * 1024)?;
//!         scope.spawn(move || {
//!             for i in 0..1000 {
//!                 producer.add(format!("{name} {i}\n").as_bytes()).expect("the disk has room");
//!             }
//!         });
//!     }
//!     Ok::<_, Box<dyn std::error::Error>>(())
//! })?;
//! writer.flush().wait()?; // now it is in the file
//! writer.sync().wait()?; //  now it would survive a loss of power
//! writer.close().wait()?;
//! assert_eq!(std::fs::read_to_string(&path)?.lines().count(), 2000);
//! # Ok(()) }
//! ```
//!
//! # What it promises
//! * **A record is whole**: its bytes stand together in the file, once, or not at all. A system that
//!   writes half of what it was given gets the rest next, before anything else.
//! * **Order**: the records of a producer are in the file in the order in which it added them. There
//!   is one order over all [`SharedProducer`]s of a file; between others there is none.
//! * **Nothing accepted is lost** as long as the process lives and the file can be written: not by
//!   [`FileWriter::cancel`], not by closing, not by a producer that panics. "Accepted" is `Ok` from
//!   an `add`, and exact even when the file is closed at that very moment.
//! * **Three watermarks** ([`Status`]): accepted, written (a killed process does not lose it), synced
//!   (a loss of power does not).
//! * **The first error is kept**, and given to every producer and to whoever asked for something.
//!   What was accepted and not yet written is then lost, and the watermarks say how much that is.
//! * **A full disk is no error** (nor is a quota): what was accepted is kept, producers wait or are
//!   refused when their memory is full, and writing goes on when there is room. [`State::DiskFull`]
//!   shows it.
//! * **A real-time producer** never waits, allocates, locks or calls the system.
//! * A lonely record is in the file 5 ms after it was added, if the disk does not hang.
//!
//! A disk that hangs holds up all files on it, and no others: [`Disks`] has a thread for each device.
//!
//! # How much memory
//! Whole bursts should fit, so that nobody waits: a producer in full flow wants 64 KiB or more (with
//! 4 KiB everything takes several times as long), a real-time producer as many seconds of its flow as
//! the disk may hang, say ten.
//!
//! # In tasks
//! [`Producer::add_async`], [`SharedProducer::add_async`] and every [`Ticket`] are futures that need
//! no runtime of ours.
//!
//! ```
//! use std::io::{self, IoSlice};
//! use aulos_io::disk::{Lasting, Medium};
//! use aulos_io::file_writer::{Disk, Settings};
//!
//! /// Anything that can be appended to will do.
//! struct Nowhere;
//!
//! impl Medium for Nowhere {
//!     fn append(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
//!         Ok(parts.iter().map(|part| part.len()).sum())
//!     }
//!     fn patch(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
//!         Ok(())
//!     }
//!     fn lasting(&self) -> io::Result<Box<dyn Lasting>> {
//!         Ok(Box::new(Nowhere))
//!     }
//! }
//!
//! impl Lasting for Nowhere {
//!     fn sync(&self) -> io::Result<()> {
//!         Ok(())
//!     }
//! }
//!
//! # async fn task() -> Result<(), Box<dyn std::error::Error>> {
//! let writer = Disk::start()?.writer("nowhere", Box::new(Nowhere), &Settings::default())?;
//! let producer = writer.shared_producer();
//! producer.add_async(b"a record").await?;
//! writer.close().await?;
//! # Ok(()) }
//! ```

mod batch;
mod error;
mod producer;
mod shared;
mod sink;
mod swap;
#[cfg(test)]
mod tests;
mod thread;
mod ticket;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aulos_rt::writer_ring::{self, writer_ring};

pub use error::{AddError, FileWriteError};
pub use producer::{Producer, RealtimeProducer, SharedProducer};
pub use ticket::Ticket;

use crate::disk::{self, AppendFile};
use shared::SharedState;
use sink::{FileSink, RequestKind};
use thread::{ThreadGuard, WriterCommand};

/// Wishes for one file.
#[derive(Clone, Debug)]
pub struct FileWriterConfig {
    /// Bytes that [`SharedProducer`]s may be ahead of the disk, together; also their longest record.
    /// There are two buffers of this size, made when the first of them is used.
    pub shared_bytes: usize,
    /// Whether a file that is closed is made to last first.
    pub sync_at_end: bool,
    /// How long dropping a [`FileWriter`] waits until all is written. After that the thread goes on
    /// by itself, for as long as the process lives.
    pub drop_limit: Duration,
}

impl Default for FileWriterConfig {
    /// 256 KiB, yes, two seconds.
    fn default() -> Self {
        Self { shared_bytes: 256 * 1024, sync_at_end: true, drop_limit: Duration::from_secs(2) }
    }
}

/// How a file does. Bytes are counted from the moment it was opened here.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileWriterStatus {
    /// Bytes of all records that were accepted.
    pub accepted: u64,
    /// Of these: in the file. Never more than `accepted`.
    pub written: u64,
    /// Of these: would survive a loss of power. Never more than `written`.
    pub synced: u64,
    /// Records that [`RealtimeProducer::add_or_drop`] dropped.
    pub dropped_records: u64,
    /// Bytes of these.
    pub dropped_bytes: u64,
    /// What it is at.
    pub state: FileWriterState,
}

/// What a file is at.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FileWriterState {
    /// It takes records and writes them.
    Open,
    /// There is no room on the disk, or in somebody's quota. What was accepted is kept; it tries
    /// again, less and less often, at least once in a second.
    DiskFull,
    /// It accepts nothing any more, and writes what it has.
    Closing,
    /// All is written.
    Closed,
    /// It cannot be written any more.
    Failed(FileWriteError),
}

/// The threads of all devices that are written to: one that writes and one that syncs for each,
/// started with its first file, ended with its last when this is gone.
#[derive(Debug, Default)]
pub struct DiskWriters {
    disks: Mutex<HashMap<u64, DiskWriter>>,
}

impl DiskWriters {
    /// Makes a new file at `path` and opens it for producers; one that is there already is left
    /// alone.
    ///
    /// # Errors
    /// `AlreadyExists`, or as the system gives them.
    pub fn create(&self, path: &Path, settings: &FileWriterConfig) -> io::Result<FileWriter> {
        self.open(&path.display().to_string(), disk::create_new(path)?, settings)
    }

    /// Opens a file for producers: they go on where it stands. `place` is what errors call it.
    ///
    /// # Errors
    /// When the system has no more threads or descriptors.
    pub fn open(
        &self,
        place: &str,
        file: File,
        settings: &FileWriterConfig,
    ) -> io::Result<FileWriter> {
        let device = file.metadata()?.dev();
        let mut disks = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
        let disk = match disks.get(&device) {
            Some(disk) => disk.clone(),
            None => disks.entry(device).or_insert(DiskWriter::start()?).clone(),
        };
        drop(disks);
        disk.writer(place, Box::new(file), settings)
    }
}

/// One writing and one syncing thread, for any number of files. [`Disks`] has one for each device.
#[derive(Clone)]
pub struct DiskWriter {
    thread_guard: Arc<ThreadGuard>,
    files: Arc<AtomicU64>,
}

impl DiskWriter {
    /// Starts the threads. They end when the last file and the last clone of this are gone.
    ///
    /// # Errors
    /// When the system has no more threads.
    pub fn start() -> io::Result<Self> {
        Ok(Self { thread_guard: Arc::new(ThreadGuard(thread::start()?)), files: Arc::default() })
    }

    /// Opens whatever can be appended to for producers. `place` is what errors call it.
    ///
    /// # Errors
    /// Of [`Medium::lasting`].
    pub fn writer(
        &self,
        place: &str,
        medium: Box<dyn AppendFile>,
        settings: &FileWriterConfig,
    ) -> io::Result<FileWriter> {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let door = self.thread_guard.0.door().clone();
        let shared = Arc::new(SharedState::new(place, settings.shared_bytes, door));
        let sink = FileSink::new(number, medium, shared.clone())?;
        self.thread_guard.0.send(WriterCommand::Open(Box::new(sink)));
        let settings = settings.clone();
        Ok(FileWriter { disk: self.clone(), number, shared, settings, is_closed: false })
    }
}

impl std::fmt::Debug for DiskWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").finish_non_exhaustive()
    }
}

/// A file that many append to. It makes the producers, and says when what they added is safe; it can
/// be used from several threads at once.
///
/// Dropping it closes the file and waits for that, but not longer than [`Settings::drop_limit`].
/// [`FileWriter::close`] waits as long as it takes, and tells what became of it.
#[derive(Debug)]
pub struct FileWriter {
    disk: DiskWriter,
    number: u64,
    shared: Arc<SharedState>,
    settings: FileWriterConfig,
    is_closed: bool,
}

impl FileWriter {
    /// A producer with `bytes` of memory of its own, which also is its longest record.
    ///
    /// # Errors
    /// [`AddError::Closed`] or [`AddError::Failed`]; [`AddError::Full`] when there is no such amount
    /// of memory.
    pub fn producer(&self, bytes: usize) -> Result<Producer, AddError> {
        Ok(Producer::new(self.ring(bytes, false)?, self.shared.clone()))
    }

    /// A producer for a real-time thread, with `bytes` of memory of its own.
    ///
    /// # Errors
    /// Like [`FileWriter::producer`].
    pub fn realtime_producer(&self, bytes: usize) -> Result<RealtimeProducer, AddError> {
        Ok(RealtimeProducer::new(self.ring(bytes, true)?, self.shared.clone()))
    }

    /// A producer that shares one buffer with all others of its kind: nothing to make, nothing to
    /// give back.
    #[must_use]
    pub fn shared_producer(&self) -> SharedProducer {
        SharedProducer::new(self.shared.clone())
    }

    /// Done when all that was accepted before this call is in the file.
    pub fn flush(&self) -> Ticket {
        self.request(RequestKind::Flush)
    }

    /// Done when all that was accepted before this call would survive a loss of power. Those who ask
    /// while the disk is at it share the next go.
    pub fn sync(&self) -> Ticket {
        self.request(RequestKind::Sync)
    }

    /// Accepts nothing any more: producers that wait for room are sent away, at once, even while the
    /// disk hangs. All that was accepted will be written; [`FileWriter::flush`] and
    /// [`FileWriter::sync`] work as before.
    pub fn cancel(&self) {
        self.shared.begin_close();
        self.disk.thread_guard.0.door().wake();
    }

    /// Accepts nothing any more, writes all that was accepted, makes it last if the settings say so,
    /// and closes the file. All of that is done even when the ticket is dropped.
    pub fn close(mut self) -> Ticket {
        self.begin_close()
    }

    /// How it does.
    #[must_use]
    pub fn status(&self) -> FileWriterStatus {
        self.shared.status()
    }

    fn ring(
        &self,
        bytes: usize,
        is_realtime: bool,
    ) -> Result<writer_ring::RecordProducer, AddError> {
        let tell = &self.disk.thread_guard.0;
        let (producer, ring) = writer_ring(bytes, tell.door()).ok_or(AddError::Full)?;
        self.shared.register_ring(producer.watch(), |number| {
            tell.send(WriterCommand::Attach { file: self.number, number, ring, is_realtime });
        })?;
        Ok(producer)
    }

    fn request(&self, want: RequestKind) -> Ticket {
        let (ticket, reply) = Ticket::new(&self.shared);
        self.disk.thread_guard.0.send(WriterCommand::Ask { file: self.number, want, reply });
        ticket
    }

    fn begin_close(&mut self) -> Ticket {
        self.is_closed = true;
        self.shared.begin_close();
        self.request(RequestKind::Close { sync: self.settings.sync_at_end })
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if !self.is_closed {
            // Whoever wants to know what became of it closes it.
            drop(self.begin_close().wait_timeout(self.settings.drop_limit));
        }
    }
}
