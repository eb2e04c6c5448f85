//! The state that the producers, the writer and the thread of a file share.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use aulos_rt::writer_ring::{ConsumerWaker, RingMonitor, WriterRingError};

use super::swap::SwapBuffer;
use super::{AddError, FileWriteError, FileWriterState, FileWriterStatus};

#[derive(Debug)]
pub(super) struct SharedState {
    name: Arc<str>,
    pub(super) swap: SwapBuffer,
    rings: Mutex<RingTable>,
    failure: OnceLock<FileWriteError>,
    pub(super) written: AtomicU64,
    pub(super) synced: AtomicU64,
    pub(super) is_full: AtomicBool,
    is_closed: AtomicBool,
    /// By real-time producers.
    pub(super) dropped_records: AtomicU64,
    pub(super) dropped_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct RingTable {
    /// No more records are accepted.
    is_closing: bool,
    open: Vec<(u64, RingMonitor)>,
    next: u64,
    /// Bytes accepted by rings that have ended.
    accepted_by_ended: u64,
}

impl SharedState {
    pub(super) fn new(place: &str, shared_bytes: usize, consumer_waker: ConsumerWaker) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            name: place.into(),
            swap: SwapBuffer::new(shared_bytes, consumer_waker),
            rings: Mutex::default(),
            failure: OnceLock::new(),
            written: zero(),
            synced: zero(),
            is_full: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            dropped_records: zero(),
            dropped_bytes: zero(),
        }
    }

    /// Registers a ring and passes its number to `attach`, before the file can be closed.
    pub(super) fn register_ring(
        &self,
        watch: RingMonitor,
        attach: impl FnOnce(u64),
    ) -> Result<(), AddError> {
        let mut rings = self.rings();
        if rings.is_closing {
            return Err(self.closed_error());
        }
        let number = rings.next;
        rings.next += 1;
        rings.open.push((number, watch));
        attach(number);
        Ok(())
    }

    /// Removes a ring that has ended, when all of its bytes are written.
    pub(super) fn remove_ring(&self, number: u64) {
        let mut rings = self.rings();
        if let Some(at) = rings.open.iter().position(|(other, _)| *other == number) {
            let (_, watch) = rings.open.swap_remove(at);
            rings.accepted_by_ended += watch.accepted();
        }
    }

    /// Stops accepting records, and ends all waits for room.
    pub(super) fn begin_close(&self) {
        let mut rings = self.rings();
        rings.is_closing = true;
        let open: Vec<_> = rings.open.iter().map(|(_, watch)| watch.clone()).collect();
        drop(rings);
        // Not under the lock, because it may run wakers.
        open.iter().for_each(RingMonitor::close);
        self.swap.close();
    }

    /// Keeps the first error and stops accepting records.
    pub(super) fn fail(&self, error: io::Error) {
        self.failure.get_or_init(|| FileWriteError::new(self.name.clone(), error));
        self.is_full.store(false, Ordering::Release);
        self.begin_close();
    }

    /// Everything is written, and the file is closed.
    pub(super) fn finish(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_closed.load(Ordering::Acquire) || self.failure.get().is_some()
    }

    /// The answer to a request whose reply was dropped.
    pub(super) fn result(&self) -> Result<(), FileWriteError> {
        match self.failure.get() {
            Some(failure) => Err(failure.clone()),
            None if self.is_closed.load(Ordering::Acquire) => Ok(()),
            None => Err(FileWriteError::new(self.name.clone(), thread_ended_error())),
        }
    }

    pub(super) fn closed_error(&self) -> AddError {
        self.failure.get().map_or(AddError::Closed, |failure| AddError::Failed(failure.clone()))
    }

    /// Converts a refusal of a ring or of the shared buffer.
    #[cold]
    pub(super) fn add_error(
        &self,
        refused: WriterRingError,
        length: usize,
        capacity: usize,
    ) -> AddError {
        match refused {
            WriterRingError::TooLong => AddError::TooLong { length, capacity },
            WriterRingError::Closed => self.closed_error(),
            _ => AddError::Full,
        }
    }

    pub(super) fn status(&self) -> FileWriterStatus {
        // In this order, so that each figure is at most the next.
        let synced = self.synced.load(Ordering::Acquire);
        let written = self.written.load(Ordering::Acquire);
        let rings = self.rings();
        let open: u64 = rings.open.iter().map(|(_, watch)| watch.accepted()).sum();
        let accepted = rings.accepted_by_ended + open + self.swap.accepted();
        let state = match self.failure.get() {
            Some(failure) => FileWriterState::Failed(failure.clone()),
            None if self.is_closed.load(Ordering::Acquire) => FileWriterState::Closed,
            None if self.is_full.load(Ordering::Acquire) => FileWriterState::DiskFull,
            None if rings.is_closing => FileWriterState::Closing,
            None => FileWriterState::Open,
        };
        drop(rings);
        FileWriterStatus {
            accepted,
            written,
            synced,
            dropped_records: self.dropped_records.load(Ordering::Relaxed),
            dropped_bytes: self.dropped_bytes.load(Ordering::Relaxed),
            state,
        }
    }

    fn rings(&self) -> MutexGuard<'_, RingTable> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn thread_ended_error() -> io::Error {
    io::Error::other("the thread that writes this file has ended")
}
