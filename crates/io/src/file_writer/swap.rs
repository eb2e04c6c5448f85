//! One buffer for all who have no ring of their own. The writer's thread takes the full one away and
//! leaves an empty one, so that the lock is held for a copy of one record, never for the disk.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use aulos_rt::writer_ring::{Door, Refused};

#[derive(Debug)]
pub(super) struct Swap {
    door: Door,
    capacity: usize,
    inner: Mutex<Inner>,
    room: Condvar,
    /// What is in the buffer and whether somebody waits, for the writer's thread to look at. Written
    /// under the lock; the door's fences order them against its sleep.
    fill: AtomicUsize,
    is_awaited: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    filling: Vec<u8>,
    accepted: u64,
    is_closed: bool,
    wakers: Vec<Waker>,
}

impl Swap {
    pub(super) fn new(capacity: usize, door: Door) -> Self {
        let (inner, room) = (Mutex::default(), Condvar::new());
        let (fill, is_awaited) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { door, capacity, inner, room, fill, is_awaited }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Puts a record in, or says why not.
    pub(super) fn push(&self, record: &[u8]) -> Result<(), Refused> {
        let mut inner = self.lock();
        self.put(&mut inner, record)?;
        drop(inner);
        self.announce();
        Ok(())
    }

    /// Like [`Swap::push`], but sleeps until there is room.
    pub(super) fn push_waiting(&self, record: &[u8]) -> Result<(), Refused> {
        let mut inner = self.lock();
        loop {
            match self.put(&mut inner, record) {
                Err(Refused::Full) => {}
                done => {
                    drop(inner);
                    self.announce();
                    return done;
                }
            }
            self.call_for_room();
            inner = self.room.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Like [`Swap::push`], but leaves a waker when there is no room.
    pub(super) fn push_or_leave(&self, record: &[u8], waker: &Waker) -> Result<(), Refused> {
        let mut inner = self.lock();
        let done = self.put(&mut inner, record);
        if done == Err(Refused::Full) {
            if !inner.wakers.iter().any(|other| other.will_wake(waker)) {
                inner.wakers.push(waker.clone());
            }
            self.call_for_room();
        }
        drop(inner);
        self.announce();
        done
    }

    /// Takes all that is there, and leaves `empty` in its place.
    pub(super) fn take(&self, empty: &mut Vec<u8>) {
        if self.fill() == 0 && !self.is_awaited.load(Ordering::Acquire) {
            return;
        }
        let mut inner = self.lock();
        std::mem::swap(&mut inner.filling, empty);
        self.fill.store(inner.filling.len(), Ordering::Release);
        self.wake_all(inner);
    }

    /// Lets nothing more in, and sends those away who wait for room.
    pub(super) fn close(&self) {
        let mut inner = self.lock();
        inner.is_closed = true;
        self.wake_all(inner);
    }

    /// Bytes accepted since the beginning.
    pub(super) fn accepted(&self) -> u64 {
        self.lock().accepted
    }

    pub(super) fn fill(&self) -> usize {
        self.fill.load(Ordering::Acquire)
    }

    /// Whether it is time to take it: see `Consumer::calls` of the rings.
    pub(super) fn calls(&self, wake_at: usize) -> bool {
        let fill = self.fill();
        fill >= wake_at.min(self.capacity / 2).max(1)
            || (fill > 0 && self.is_awaited.load(Ordering::Acquire))
    }

    fn put(&self, inner: &mut Inner, record: &[u8]) -> Result<(), Refused> {
        if record.len() > self.capacity {
            return Err(Refused::TooLong);
        }
        if inner.is_closed {
            return Err(Refused::Closed);
        }
        if record.len() > self.capacity - inner.filling.len() {
            return Err(Refused::Full);
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

    fn announce(&self) {
        self.door.call(self.fill(), self.capacity);
    }

    fn call_for_room(&self) {
        self.is_awaited.store(true, Ordering::Release);
        self.door.knock();
    }

    fn wake_all(&self, mut inner: MutexGuard<'_, Inner>) {
        self.is_awaited.store(false, Ordering::Release);
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        self.room.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
