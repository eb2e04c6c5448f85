//! Byte records of many threads for one writing thread.
//!
//! Each producer has its own ring of bytes, and all rings of a consumer share one
//! [`ConsumerWaker`], on which its thread sleeps. A record is stored whole or not at all, so the
//! bytes taken from a ring end where a record ends: the consumer can concatenate the bytes of many
//! rings, straight from their memory, without finding the record boundaries.
//!
//! Neither one queue for all producers nor the pipe has these properties
//! (`docs/decisions/file-writer.md`). The closed mark is a bit of the position itself: either the
//! record came before it and will be taken, or the push fails.
//!
//! The server does not use it: it is for `aulos_io::file_writer`, and for other programs that write
//! by themselves; the example of [`writer_ring()`] shows it.
#![allow(unsafe_code)]

use std::fmt;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::pipe::memory::Memory;
use crate::spsc::CachePadded;
use crate::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::wake::WaitCell;

/// Creates a ring for `capacity` bytes, whose consumer sleeps on `waker`.
///
/// Not for a real-time thread: allocates. `None` if there is not enough memory.
///
/// # Examples
/// ```
/// use aulos_rt::writer_ring::{ConsumerWaker, WriterRingError, writer_ring};
///
/// let (mut producer, mut consumer) = writer_ring(8, &ConsumerWaker::default()).unwrap();
/// assert_eq!(producer.push(b"one\n"), Ok(()));
/// assert_eq!(producer.push(b"three\n"), Err(WriterRingError::Full));
/// assert_eq!(consumer.available(), 4);
/// assert_eq!(consumer.slices(4).0, b"one\n");
/// consumer.release(4);
/// assert_eq!(producer.push(b"much too long\n"), Err(WriterRingError::TooLong));
/// consumer.watch().close();
/// assert_eq!(producer.push(b"two\n"), Err(WriterRingError::Closed));
/// ```
#[must_use]
pub fn writer_ring(
    capacity: usize,
    waker: &ConsumerWaker,
) -> Option<(RecordProducer, RecordConsumer)> {
    let core = Arc::new(Core {
        memory: Memory::new(capacity, true)?,
        capacity,
        waker: waker.clone(),
        word: CachePadded(AtomicU64::new(0)),
        head: CachePadded(AtomicU64::new(0)),
        producer_wait: CachePadded(ProducerWait::default()),
    });
    let producer = RecordProducer { core: core.clone(), tail: 0, head: 0 };
    Some((producer, RecordConsumer { core, head: 0, tail: 0 }))
}

/// Error: a record was not accepted. Nothing of it is in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriterRingError {
    /// There is not enough space at the moment.
    Full,
    /// The record is longer than the ring.
    TooLong,
    /// The ring is closed.
    Closed,
}

/// The end that pushes records. It can move to another thread but is used by one at a time.
#[derive(Debug)]
pub struct RecordProducer {
    core: Arc<Core>,
    tail: u64,
    /// The consumer's position as last seen.
    head: u64,
}

impl RecordProducer {
    /// Pushes one record without waking the consumer: see [`RecordProducer::wake_consumer`]. An
    /// empty record has no effect.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call; the time is that of the copy.
    ///
    /// # Errors
    /// [`WriterRingError`]: nothing of the record is in the ring. `Ok` means that the consumer will find
    /// it, whatever happens at the same time.
    #[inline]
    pub fn push(&mut self, record: &[u8]) -> Result<(), WriterRingError> {
        let n = record.len();
        if self.free(n) < n {
            return Err(self.push_error(n));
        }
        // SAFETY: that many bytes are free, so they are the producer's until they are published.
        unsafe { self.core.memory.copy_in(memory_position(self.tail), record) };
        let next = self.tail + n as u64;
        // Only a close can change the word concurrently, so one attempt is enough. Release: a
        // thread that sees the position sees the bytes below it.
        let word = &self.core.word.0;
        word.compare_exchange(self.tail << 1, next << 1, Ordering::AcqRel, Ordering::Relaxed)
            .map_err(|_| WriterRingError::Closed)?;
        self.tail = next;
        Ok(())
    }

    /// Wakes the consumer's thread if it sleeps and the ring holds enough; see
    /// [`ConsumerWaker::sleep`]. Not for a real-time thread: may make a system call.
    #[inline]
    pub fn wake_consumer(&self) {
        let consumer = &*self.core.waker.0;
        consumer.wait.wake(|| self.core.is_wake_due(consumer.wake_at.load(Ordering::Relaxed)));
    }

    /// After [`WriterRingError::Full`]: sleeps until the ring is half empty and a record of `n`
    /// bytes fits, until it is closed, or until `limit` is over. May return early: push again.
    pub fn wait(&mut self, n: usize, limit: Option<Duration>) {
        let Some(goal) = self.resume_position(n) else { return };
        let core = &*self.core;
        core.producer_wait.0.resume_at.store(goal, Ordering::Relaxed);
        core.producer_wait.0.wait.sleep(limit, || core.can_resume(goal));
    }

    /// Like [`RecordProducer::wait`], for a task: registers its waker, or returns ready if it need
    /// not wait.
    pub fn poll_room(&mut self, context: &Context<'_>, n: usize) -> Poll<()> {
        let Some(goal) = self.resume_position(n) else { return Poll::Ready(()) };
        let core = &*self.core;
        core.producer_wait.0.resume_at.store(goal, Ordering::Relaxed);
        let ready = core.producer_wait.0.wait.register_waker(context, || core.can_resume(goal));
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Capacity in bytes, as requested at construction.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.core.capacity
    }

    /// A monitor of the ring.
    #[must_use]
    pub fn watch(&self) -> RingMonitor {
        RingMonitor { core: self.core.clone() }
    }

    /// Number of bytes that fit; reads the consumer's position only if fewer than `want` are known
    /// to fit.
    #[inline]
    fn free(&mut self, want: usize) -> usize {
        let free = self.core.capacity - distance(self.head, self.tail);
        if free >= want {
            return free;
        }
        // Acquire: the consumer has finished with the bytes below.
        self.head = self.core.head.0.load(Ordering::Acquire);
        self.core.capacity - distance(self.head, self.tail)
    }

    #[cold]
    fn push_error(&self, n: usize) -> WriterRingError {
        if n > self.core.capacity {
            WriterRingError::TooLong
        } else if self.core.is_closed() {
            WriterRingError::Closed
        } else {
            WriterRingError::Full
        }
    }

    /// The consumer's position at which a record of `n` bytes can be pushed; `None` if it can never
    /// fit.
    fn resume_position(&self, n: usize) -> Option<u64> {
        let most = (self.core.capacity / 2).min(self.core.capacity.checked_sub(n)?);
        Some(self.tail.saturating_sub(most as u64))
    }
}

impl Drop for RecordProducer {
    /// The remaining records can still be taken.
    fn drop(&mut self) {
        self.core.producer_wait.0.gone.store(true, Ordering::Release);
        self.core.waker.wake();
    }
}

/// The end that takes bytes. It can move to another thread but is used by one at a time.
#[derive(Debug)]
pub struct RecordConsumer {
    core: Arc<Core>,
    head: u64,
    /// The producer's position as last seen.
    tail: u64,
}

impl RecordConsumer {
    /// Number of available bytes, in whole records. Only this end decreases it.
    ///
    /// # Real-time
    /// Wait-free.
    pub fn available(&mut self) -> usize {
        self.tail = self.core.tail();
        distance(self.head, self.tail)
    }

    /// The oldest `n` bytes; the second slice continues where the first ends, and is empty if the
    /// memory is mapped twice in a row.
    ///
    /// # Real-time
    /// Wait-free.
    ///
    /// # Panics
    /// If `n` is more than the last [`RecordConsumer::available`] returned.
    #[must_use]
    pub fn slices(&self, n: usize) -> (&[u8], &[u8]) {
        assert!(n <= distance(self.head, self.tail), "{n} bytes are more than wait");
        let memory = &self.core.memory;
        let run = memory.run(memory_position(self.head), n);
        // SAFETY: the run is contiguous, and published bytes are the consumer's until released.
        let one = unsafe { memory.slice(memory_position(self.head), run) };
        // SAFETY: as above; what is left begins where the memory does.
        (one, unsafe { memory.slice(memory_position(self.head).wrapping_add(run), n - run) })
    }

    /// Returns the oldest `n` bytes to the producer, and wakes it if it waits for space and now has
    /// enough.
    ///
    /// # Panics
    /// If `n` is more than the last [`RecordConsumer::available`] returned.
    pub fn release(&mut self, n: usize) {
        assert!(n <= distance(self.head, self.tail), "{n} bytes are more than wait");
        self.head += n as u64;
        // Release: reads of these bytes happened before they may be overwritten.
        self.core.head.0.store(self.head, Ordering::Release);
        let (room, head) = (&self.core.producer_wait.0, self.head);
        room.wait.wake(|| head >= room.resume_at.load(Ordering::Relaxed));
    }

    /// Whether the producer is gone. If this is checked before [`RecordConsumer::available`],
    /// nothing can follow what that returns.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.core.producer_wait.0.gone.load(Ordering::Acquire)
    }

    /// Whether the fill suffices to wake a thread that sleeps with this `wake_at`: that many bytes,
    /// or half of the ring, or any if the producer waits for space.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn is_wake_due(&self, wake_at: usize) -> bool {
        self.core.is_wake_due(wake_at)
            || (self.core.producer_wait.0.wait.is_asleep() && self.core.is_wake_due(1))
    }

    /// A monitor of the ring.
    #[must_use]
    pub fn watch(&self) -> RingMonitor {
        RingMonitor { core: self.core.clone() }
    }
}

impl Drop for RecordConsumer {
    /// Closes the ring: the remaining records are lost.
    fn drop(&mut self) {
        self.core.close();
    }
}

/// Reports a ring's state to any thread, and can close the ring.
#[derive(Clone, Debug)]
pub struct RingMonitor {
    core: Arc<Core>,
}

impl RingMonitor {
    /// Bytes pushed since the start.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.core.tail()
    }

    /// Bytes taken since the start.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.core.head.0.load(Ordering::Acquire)
    }

    /// Closes the ring, and wakes a producer that waits for space. Records accepted before can
    /// still be taken.
    pub fn close(&self) {
        self.core.close();
    }
}

/// The consumer's thread sleeps here: one for any number of rings.
#[derive(Clone, Debug, Default)]
pub struct ConsumerWaker(Arc<ConsumerWait>);

impl ConsumerWaker {
    /// Sleeps until a ring holds `wake_at` bytes or half of its capacity and its producer calls
    /// [`RecordProducer::wake_consumer`], until [`ConsumerWaker::wake`], or until `limit` is over;
    /// unless `ready`, which must check the rings ([`RecordConsumer::is_wake_due`]). May return
    /// early. One thread at a time.
    pub fn sleep(&self, wake_at: usize, limit: Option<Duration>, ready: impl FnOnce() -> bool) {
        // Relaxed: ordered by the swap of the sleep mark.
        self.0.wake_at.store(wake_at, Ordering::Relaxed);
        self.0.wait.sleep(limit, ready);
    }

    /// Wakes the thread if it sleeps with a threshold that `waiting` bytes reach, or half of
    /// `capacity`: for bytes that are stored elsewhere than in a ring.
    pub fn wake_if_due(&self, waiting: usize, capacity: usize) {
        self.0.wait.wake(|| is_wake_due(waiting, self.0.wake_at.load(Ordering::Relaxed), capacity));
    }

    /// Wakes the thread if it sleeps. Everything it is to find must be stored before.
    pub fn wake(&self) {
        self.0.wait.wake(|| true);
    }
}

#[derive(Debug, Default)]
struct ConsumerWait {
    wait: WaitCell,
    wake_at: AtomicUsize,
}

struct Core {
    memory: Memory,
    /// The memory may be larger.
    capacity: usize,
    waker: ConsumerWaker,
    /// Twice the producer's position, and the mark [`CLOSED`]. 64 bits on every machine: positions
    /// do not wrap in a lifetime, so a position also is the number of bytes ever accepted.
    word: CachePadded<AtomicU64>,
    /// The consumer's position.
    head: CachePadded<AtomicU64>,
    producer_wait: CachePadded<ProducerWait>,
}

/// The producer sleeps here.
#[derive(Debug, Default)]
struct ProducerWait {
    wait: WaitCell,
    /// The consumer's position from which on the producer is to be woken.
    resume_at: AtomicU64,
    gone: AtomicBool,
}

impl Core {
    /// Acquire: the bytes below are visible.
    fn tail(&self) -> u64 {
        self.word.0.load(Ordering::Acquire) >> 1
    }

    fn is_closed(&self) -> bool {
        self.word.0.load(Ordering::Acquire) & CLOSED != 0
    }

    /// The head is read first: it can only have grown when the tail is loaded.
    fn is_wake_due(&self, wake_at: usize) -> bool {
        let head = self.head.0.load(Ordering::Acquire);
        is_wake_due(distance(head, self.tail()), wake_at, self.capacity)
    }

    /// For a producer that is about to sleep: its mark is set already, so the consumer sees it at
    /// its next check.
    fn can_resume(&self, goal: u64) -> bool {
        self.waker.wake();
        self.head.0.load(Ordering::Acquire) >= goal || self.is_closed()
    }

    fn close(&self) {
        self.word.0.fetch_or(CLOSED, Ordering::AcqRel);
        self.producer_wait.0.wait.wake(|| true);
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("capacity", &self.capacity)
            .field("head", &self.head)
            .field("word", &self.word)
            .finish_non_exhaustive()
    }
}

const CLOSED: u64 = 1;

fn is_wake_due(waiting: usize, wake_at: usize, capacity: usize) -> bool {
    waiting >= wake_at.min(capacity / 2).max(1)
}

#[allow(clippy::cast_possible_truncation, reason = "memory goes around within a usize")]
fn memory_position(position: u64) -> usize {
    position as usize
}

/// How far `to` is ahead: at most the capacity of a ring.
fn distance(from: u64, to: u64) -> usize {
    memory_position(to.saturating_sub(from))
}

#[cfg(test)]
mod tests;
