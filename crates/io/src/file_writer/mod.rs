//! Many threads append records to one file without waiting for the disk.
//!
//! Every producer has a ring of its own, or shares a buffer with others. One thread per device
//! writes directly from those buffers to the file, with one call for many records of many
//! producers. Another thread syncs, so that writing continues meanwhile
//! (`docs/decisions/file-writer.md`).
//!
//! ```text
//!  FileWriterProducer          --ring--+
//!  RealtimeProducer  --ring--+--> "aulos-disk", one per device --writev--> AppendFile
//!  SharedProducer    --swap--+                 |
//!  SharedProducer    ---^                      +--> "aulos-sync" --fdatasync--> the same file
//!
//!  FileWriter: flush, sync, close --commands--> "aulos-disk" --answers--> Ticket (thread or task)
//! ```
//!
//! The server does not use it: recordings have a few large streams, and `record` writes them. It is
//! for other programs with many small writers, logs for example.
//!
//! # Example
//! ```
//! use aulos_io::file_writer::{DiskWriters, FileWriterConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = aulos_blackbox::scratch::ScratchDir::new("writer-doc")?;
//! # let path = folder.join("log");
//! let disks = DiskWriters::default();
//! let writer = disks.create(&path, &FileWriterConfig::default())?;
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
//! writer.sync().wait()?; //  now it would survive a power failure
//! writer.close().wait()?;
//! assert_eq!(std::fs::read_to_string(&path)?.lines().count(), 2000);
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//! * **Records are atomic**: the bytes of a record are contiguous in the file, once, or not at all.
//!   After a short write the rest comes next, before anything else.
//! * **Order**: the records of a producer are in the file in the order in which they were added.
//!   All [`SharedProducer`]s of a file have one common order; between others there is none.
//! * **Accepted records are not lost** as long as the process lives and the file can be written:
//!   not by [`FileWriter::cancel`], not by closing, not by a producer that panics. "Accepted" means
//!   that `add` returned `Ok`, and is exact even while the file is being closed.
//! * **Three watermarks** ([`FileWriterStatus`]): accepted, written (survives a kill of the
//!   process), synced (survives a power failure).
//! * **The first error is kept** and returned to every producer and every pending request. Accepted
//!   bytes that were not yet written are then lost; the watermarks say how many.
//! * **A full disk is no error** (nor is a quota): accepted data is kept, producers with full
//!   buffers wait or are refused, and writing continues when there is room.
//!   [`FileWriterState::DiskFull`] reports it.
//! * **A real-time producer** never waits, allocates, locks or makes a system call.
//! * A single record is in the file 5 ms after it was added, unless the disk hangs.
//!
//! A disk that hangs delays all files on it, and no others: [`DiskWriters`] has a thread for each
//! device.
//!
//! # Buffer sizes
//! A buffer should hold a whole burst, so that producers need not wait: 64 KiB or more for a
//! producer at full rate (with 4 KiB everything takes several times as long), and for a real-time
//! producer as many seconds of its data as the disk may hang, for example ten.
//!
//! # In tasks
//! [`FileWriterProducer::add_async`], [`SharedProducer::add_async`] and every [`Ticket`] are
//! futures that work with any executor.
//!
//! ```
//! use std::io::{self, IoSlice};
//! use aulos_io::disk::{AppendFile, SyncHandle};
//! use aulos_io::file_writer::{DiskWriter, FileWriterConfig};
//!
//! /// Discards everything; any implementation of `AppendFile` will do.
//! struct Nowhere;
//!
//! impl AppendFile for Nowhere {
//!     fn append(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
//!         Ok(parts.iter().map(|part| part.len()).sum())
//!     }
//!     fn patch(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
//!         Ok(())
//!     }
//!     fn sync_handle(&self) -> io::Result<Box<dyn SyncHandle>> {
//!         Ok(Box::new(Nowhere))
//!     }
//! }
//!
//! impl SyncHandle for Nowhere {
//!     fn sync(&self) -> io::Result<()> {
//!         Ok(())
//!     }
//! }
//!
//! # async fn task() -> Result<(), Box<dyn std::error::Error>> {
//! let disk = DiskWriter::start()?;
//! let writer = disk.writer("nowhere", Box::new(Nowhere), &FileWriterConfig::default())?;
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
mod status;
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
pub use producer::{FileWriterProducer, RealtimeProducer, SharedProducer};
pub use status::{FileWriterState, FileWriterStatus};
pub use ticket::Ticket;

use crate::disk::{self, AppendFile};
use shared::SharedState;
use sink::{FileSink, RequestKind};
use thread::{ThreadGuard, WriterCommand};

/// The configuration of one file.
#[derive(Clone, Debug)]
pub struct FileWriterConfig {
    /// Bytes that all [`SharedProducer`]s together may be ahead of the disk; also the length of
    /// their longest record. Two buffers of this size are allocated on first use.
    pub shared_bytes: usize,
    /// Whether closing a file syncs it first.
    pub sync_at_end: bool,
    /// How long dropping a [`FileWriter`] waits for pending writes. After that the thread continues
    /// in the background, for as long as the process lives.
    pub drop_limit: Duration,
}

impl Default for FileWriterConfig {
    /// 256 KiB, with sync, two seconds.
    fn default() -> Self {
        Self { shared_bytes: 256 * 1024, sync_at_end: true, drop_limit: Duration::from_secs(2) }
    }
}

/// The threads of all devices: for each device one that writes and one that syncs. They start with
/// its first file, and end with its last one after this is dropped.
#[derive(Debug, Default)]
pub struct DiskWriters {
    disks: Mutex<HashMap<u64, DiskWriter>>,
}

impl DiskWriters {
    /// Creates a new file at `path` and opens it for producers; an existing one is left alone.
    ///
    /// # Errors
    /// `AlreadyExists`, or errors of the system.
    pub fn create(&self, path: &Path, settings: &FileWriterConfig) -> io::Result<FileWriter> {
        self.open(&path.display().to_string(), disk::create_new(path)?, settings)
    }

    /// Opens a file for producers, which append at its current position. `place` is its name in
    /// errors.
    ///
    /// # Errors
    /// When the system has no threads or descriptors left.
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

/// A writing and a syncing thread for any number of files. [`DiskWriters`] has one for each device.
#[derive(Clone)]
pub struct DiskWriter {
    thread_guard: Arc<ThreadGuard>,
    files: Arc<AtomicU64>,
}

impl DiskWriter {
    /// Starts the threads. They end when the last file and the last clone of this are dropped.
    ///
    /// # Errors
    /// When the system has no threads left.
    pub fn start() -> io::Result<Self> {
        Ok(Self { thread_guard: Arc::new(ThreadGuard(thread::start()?)), files: Arc::default() })
    }

    /// Opens any [`AppendFile`] for producers. `place` is its name in errors.
    ///
    /// # Errors
    /// Errors of [`AppendFile::sync_handle`].
    pub fn writer(
        &self,
        place: &str,
        medium: Box<dyn AppendFile>,
        settings: &FileWriterConfig,
    ) -> io::Result<FileWriter> {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let consumer_waker = self.thread_guard.0.consumer_waker().clone();
        let shared = Arc::new(SharedState::new(place, settings.shared_bytes, consumer_waker));
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

/// A file with many writers. It creates the producers, and reports when records are written or
/// synced. It can be shared between threads.
///
/// Dropping it closes the file and waits for that, at most for [`FileWriterConfig::drop_limit`].
/// [`FileWriter::close`] waits without a limit and returns the result.
#[derive(Debug)]
pub struct FileWriter {
    disk: DiskWriter,
    number: u64,
    shared: Arc<SharedState>,
    settings: FileWriterConfig,
    is_closed: bool,
}

impl FileWriter {
    /// A producer with a buffer of `bytes`, which also limits its longest record.
    ///
    /// # Errors
    /// [`AddError::Closed`] or [`AddError::Failed`]; [`AddError::Full`] when that much memory is
    /// not available.
    pub fn producer(&self, bytes: usize) -> Result<FileWriterProducer, AddError> {
        Ok(FileWriterProducer::new(self.ring(bytes, false)?, self.shared.clone()))
    }

    /// A producer for a real-time thread, with a buffer of `bytes`.
    ///
    /// # Errors
    /// Like [`FileWriter::producer`].
    pub fn realtime_producer(&self, bytes: usize) -> Result<RealtimeProducer, AddError> {
        Ok(RealtimeProducer::new(self.ring(bytes, true)?, self.shared.clone()))
    }

    /// A producer that shares one buffer with all others of its kind. It is cheap to create and to
    /// drop.
    #[must_use]
    pub fn shared_producer(&self) -> SharedProducer {
        SharedProducer::new(self.shared.clone())
    }

    /// Completes when everything accepted before this call is in the file.
    pub fn flush(&self) -> Ticket {
        self.request(RequestKind::Flush)
    }

    /// Completes when everything accepted before this call would survive a power failure. Requests
    /// during a sync share the next one.
    pub fn sync(&self) -> Ticket {
        self.request(RequestKind::Sync)
    }

    /// Stops accepting records: waiting producers return with an error at once, even while the disk
    /// hangs. Accepted records will be written; [`FileWriter::flush`] and [`FileWriter::sync`]
    /// still work.
    pub fn cancel(&self) {
        self.shared.begin_close();
        self.disk.thread_guard.0.consumer_waker().wake();
    }

    /// Stops accepting records, writes everything accepted, syncs if configured, and closes the
    /// file. All of that happens even if the ticket is dropped.
    pub fn close(mut self) -> Ticket {
        self.begin_close()
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> FileWriterStatus {
        self.shared.status()
    }

    fn ring(
        &self,
        bytes: usize,
        is_realtime: bool,
    ) -> Result<writer_ring::RecordProducer, AddError> {
        let handle = &self.disk.thread_guard.0;
        let (producer, ring) = writer_ring(bytes, handle.consumer_waker()).ok_or(AddError::Full)?;
        self.shared.register_ring(producer.watch(), |number| {
            handle.send(WriterCommand::Attach { file: self.number, number, ring, is_realtime });
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
            // The result is lost; a caller that needs it uses `close`.
            drop(self.begin_close().wait_timeout(self.settings.drop_limit));
        }
    }
}
