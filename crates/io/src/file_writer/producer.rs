//! The producers of records.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use aulos_rt::writer_ring::{self, WriterRingError};

use super::AddError;
use super::shared::SharedState;

/// A producer with a ring of its own, for a thread or task that adds often. Its records are in the
/// file in the order in which they were added.
///
/// It may outlive its writer; adding then returns an error. Dropping it, even by a panic, leaves
/// all added records to be written, and no part of an unfinished one.
#[derive(Debug)]
pub struct FileWriterProducer {
    ring: writer_ring::RecordProducer,
    shared: Arc<SharedState>,
}

impl FileWriterProducer {
    pub(super) fn new(ring: writer_ring::RecordProducer, shared: Arc<SharedState>) -> Self {
        Self { ring, shared }
    }

    /// Adds a record. Without room it sleeps until half of the buffer is free, which may take long
    /// while the disk is full or hangs; [`FileWriter::cancel`] and every end of the writer end the
    /// wait. An empty record is accepted without effect.
    ///
    /// [`FileWriter::cancel`]: super::FileWriter::cancel
    ///
    /// # Errors
    /// All of [`AddError`] except `Full`.
    #[inline]
    pub fn add(&mut self, record: &[u8]) -> Result<(), AddError> {
        loop {
            match self.ring.push(record) {
                Ok(()) => {
                    self.ring.wake_consumer();
                    return Ok(());
                }
                Err(WriterRingError::Full) => self.ring.wait(record.len(), None),
                Err(refused) => return Err(self.error(refused, record)),
            }
        }
    }

    /// Like [`FileWriterProducer::add`] without waiting.
    ///
    /// # Errors
    /// [`AddError`].
    #[inline]
    pub fn try_add(&mut self, record: &[u8]) -> Result<(), AddError> {
        self.ring.push(record).map_err(|refused| self.error(refused, record))?;
        self.ring.wake_consumer();
        Ok(())
    }

    /// Like [`FileWriterProducer::add`] for a task, under any executor. A dropped future has added
    /// nothing.
    ///
    /// # Errors
    /// All of [`AddError`] except `Full`.
    pub async fn add_async(&mut self, record: &[u8]) -> Result<(), AddError> {
        poll_fn(|context| {
            loop {
                match self.try_add(record) {
                    Err(AddError::Full) => {}
                    done => return Poll::Ready(done),
                }
                if self.ring.poll_room(context, record.len()).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// The size of its buffer, and of its longest record.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    fn error(&self, refused: WriterRingError, record: &[u8]) -> AddError {
        self.shared.add_error(refused, record.len(), self.ring.capacity())
    }
}

/// A producer for a real-time thread: it never waits, and wakes no thread; the writer's thread
/// polls it at least every five milliseconds. Its buffer should cover that interval and the time
/// for which the disk may hang.
#[derive(Debug)]
pub struct RealtimeProducer {
    ring: writer_ring::RecordProducer,
    shared: Arc<SharedState>,
}

impl RealtimeProducer {
    pub(super) fn new(ring: writer_ring::RecordProducer, shared: Arc<SharedState>) -> Self {
        Self { ring, shared }
    }

    /// Adds a record, or returns the reason for a refusal. A refused record is not counted as
    /// dropped, because the caller still has it.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no lock, no system call; the time is that of the copy. An error
    /// may hold the file's [`FileWriteError`](super::FileWriteError), a counted reference: drop it
    /// elsewhere if this end could outlive the writer.
    ///
    /// # Errors
    /// [`AddError`].
    #[inline]
    pub fn add(&mut self, record: &[u8]) -> Result<(), AddError> {
        let capacity = self.ring.capacity();
        self.ring
            .push(record)
            .map_err(|refused| self.shared.add_error(refused, record.len(), capacity))
    }

    /// Adds a record, or drops and counts it in [`FileWriterStatus`](super::FileWriterStatus).
    /// Returns whether it was added.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no lock, no system call; the time is that of the copy.
    #[inline]
    pub fn add_or_drop(&mut self, record: &[u8]) -> bool {
        let is_accepted = self.ring.push(record).is_ok();
        if !is_accepted {
            self.shared.dropped_records.fetch_add(1, Ordering::Relaxed);
            self.shared.dropped_bytes.fetch_add(record.len() as u64, Ordering::Relaxed);
        }
        is_accepted
    }

    /// The size of its buffer, and of its longest record.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }
}

/// A producer without a buffer of its own: all clones of it, and all others of the same file, share
/// one buffer. For threads and tasks that are short-lived or add rarely.
///
/// Records of shared producers are in the file in the order in which they were accepted, which
/// provides one order over all threads.
#[derive(Clone, Debug)]
pub struct SharedProducer {
    shared: Arc<SharedState>,
}

impl SharedProducer {
    pub(super) fn new(shared: Arc<SharedState>) -> Self {
        Self { shared }
    }

    /// Adds a record, and sleeps until there is room; see [`FileWriterProducer::add`].
    ///
    /// # Errors
    /// All of [`AddError`] except `Full`.
    pub fn add(&self, record: &[u8]) -> Result<(), AddError> {
        self.shared.swap.push_waiting(record).map_err(|refused| self.error(refused, record))
    }

    /// Like [`SharedProducer::add`] without waiting for room.
    ///
    /// # Errors
    /// [`AddError`].
    pub fn try_add(&self, record: &[u8]) -> Result<(), AddError> {
        self.shared.swap.push(record).map_err(|refused| self.error(refused, record))
    }

    /// Like [`SharedProducer::add`] for a task, under any executor. A dropped future has added
    /// nothing.
    ///
    /// # Errors
    /// All of [`AddError`] except `Full`.
    pub async fn add_async(&self, record: &[u8]) -> Result<(), AddError> {
        poll_fn(|context| match self.shared.swap.push_or_register(record, context.waker()) {
            Err(WriterRingError::Full) => Poll::Pending,
            done => Poll::Ready(done.map_err(|refused| self.error(refused, record))),
        })
        .await
    }

    fn error(&self, refused: WriterRingError, record: &[u8]) -> AddError {
        self.shared.add_error(refused, record.len(), self.shared.swap.capacity())
    }
}
