//! A buffer shared by all producers without a ring. The writer's thread takes the full buffer and
//! leaves an empty one, so the lock is held for the copy of one record and never for the disk.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use aulos_rt::writer_ring::{ConsumerWaker, WriterRingError};

#[derive(Debug)]
pub(super) struct SwapBuffer {
    consumer_waker: ConsumerWaker,
    capacity: usize,
    inner: Mutex<SwapState>,
    room: Condvar,
    /// The fill level, and whether a producer waits for room, as seen by the writer's thread.
    /// Written under the lock; the fences of the waker order them against the thread's sleep.
    fill: AtomicUsize,
    has_waiters: AtomicBool,
}

#[derive(Debug, Default)]
struct SwapState {
    filling: Vec<u8>,
    accepted: u64,
    is_closed: bool,
    wakers: Vec<Waker>,
}

impl SwapBuffer {
    pub(super) fn new(capacity: usize, consumer_waker: ConsumerWaker) -> Self {
        let (inner, room) = (Mutex::default(), Condvar::new());
        let (fill, has_waiters) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { consumer_waker, capacity, inner, room, fill, has_waiters }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Appends a record, or returns why it is refused.
    pub(super) fn push(&self, record: &[u8]) -> Result<(), WriterRingError> {
        let mut inner = self.lock();
        self.append(&mut inner, record)?;
        drop(inner);
        self.notify_writer();
        Ok(())
    }

    /// Like [`SwapBuffer::push`], but sleeps until there is room.
    pub(super) fn push_waiting(&self, record: &[u8]) -> Result<(), WriterRingError> {
        let mut inner = self.lock();
        loop {
            match self.append(&mut inner, record) {
                Err(WriterRingError::Full) => {}
                done => {
                    drop(inner);
                    self.notify_writer();
                    return done;
                }
            }
            self.request_room();
            inner = self.room.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Like [`SwapBuffer::push`], but registers a waker when there is no room.
    pub(super) fn push_or_register(
        &self,
        record: &[u8],
        waker: &Waker,
    ) -> Result<(), WriterRingError> {
        let mut inner = self.lock();
        let done = self.append(&mut inner, record);
        if done == Err(WriterRingError::Full) {
            if !inner.wakers.iter().any(|other| other.will_wake(waker)) {
                inner.wakers.push(waker.clone());
            }
            self.request_room();
        }
        drop(inner);
        self.notify_writer();
        done
    }

    /// Takes all data, and leaves `empty` in its place.
    pub(super) fn take(&self, empty: &mut Vec<u8>) {
        if self.fill() == 0 && !self.has_waiters.load(Ordering::Acquire) {
            return;
        }
        let mut inner = self.lock();
        std::mem::swap(&mut inner.filling, empty);
        self.fill.store(inner.filling.len(), Ordering::Release);
        self.wake_all(inner);
    }

    /// Accepts no more records, and ends all waits for room.
    pub(super) fn close(&self) {
        let mut inner = self.lock();
        inner.is_closed = true;
        self.wake_all(inner);
    }

    /// Bytes accepted so far.
    pub(super) fn accepted(&self) -> u64 {
        self.lock().accepted
    }

    pub(super) fn fill(&self) -> usize {
        self.fill.load(Ordering::Acquire)
    }

    /// Whether it is time to take the data, with the same rule as for rings.
    pub(super) fn needs_write(&self, wake_at: usize) -> bool {
        let fill = self.fill();
        fill >= wake_at.min(self.capacity / 2).max(1)
            || (fill > 0 && self.has_waiters.load(Ordering::Acquire))
    }

    fn append(&self, inner: &mut SwapState, record: &[u8]) -> Result<(), WriterRingError> {
        if record.len() > self.capacity {
            return Err(WriterRingError::TooLong);
        }
        if inner.is_closed {
            return Err(WriterRingError::Closed);
        }
        if record.len() > self.capacity - inner.filling.len() {
            return Err(WriterRingError::Full);
        }
        if inner.filling.capacity() == 0 {
            // Once for each of the two buffers.
            inner.filling.reserve_exact(self.capacity);
        }
        inner.filling.extend_from_slice(record);
        inner.accepted += record.len() as u64;
        self.fill.store(inner.filling.len(), Ordering::Release);
        Ok(())
    }

    fn notify_writer(&self) {
        self.consumer_waker.wake_if_due(self.fill(), self.capacity);
    }

    fn request_room(&self) {
        self.has_waiters.store(true, Ordering::Release);
        self.consumer_waker.wake();
    }

    fn wake_all(&self, mut inner: MutexGuard<'_, SwapState>) {
        self.has_waiters.store(false, Ordering::Release);
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        self.room.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, SwapState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
