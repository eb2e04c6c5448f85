//! Records of many threads on their way to the one that writes them down.
//!
//! Each producer has a ring of bytes of its own, and all rings of one consumer have one [`Door`],
//! behind which its thread sleeps. A record is there whole or not at all, so what is taken out of a
//! ring ends where a record ends: the consumer can put the bytes of many rings behind one another,
//! straight from their memory, without knowing where in them a record begins.
//!
//! One queue for all producers was rejected: they would fight for its end, and a thread that was
//! interrupted in the middle of its record would hold up all others. The pipe was rejected: its end
//! is a word beside the position, so that a record could be published while the ring is being
//! closed, and nobody would know whether it was taken. Here "closed" is a bit of the position
//! itself: either the record came before it and will be taken, or the producer is told.
#![allow(unsafe_code)]

use std::fmt;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::pipe::memory::Memory;
use crate::spsc::CachePadded;
use crate::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::wake::WaitCell;

/// Makes a ring for `capacity` bytes, whose consumer sleeps behind `door`.
///
/// Not for a real-time thread: asks the system for memory. `None` when there is no such amount.
///
/// # Examples
/// ```
/// use aulos_rt::writer_ring::{Door, Refused, writer_ring};
///
/// let (mut producer, mut consumer) = writer_ring(8, &Door::default()).unwrap();
/// assert_eq!(producer.push(b"one\n"), Ok(()));
/// assert_eq!(producer.push(b"three\n"), Err(Refused::Full));
/// assert_eq!(consumer.look(), 4);
/// assert_eq!(consumer.slices(4).0, b"one\n");
/// consumer.release(4);
/// assert_eq!(producer.push(b"much too long\n"), Err(Refused::TooLong));
/// consumer.watch().close();
/// assert_eq!(producer.push(b"two\n"), Err(Refused::Closed));
/// ```
#[must_use]
pub fn writer_ring(
    capacity: usize,
    door: &ConsumerWaker,
) -> Option<(RecordProducer, RecordConsumer)> {
    let core = Arc::new(Core {
        memory: Memory::new(capacity, true)?,
        capacity,
        waker: door.clone(),
        word: CachePadded(AtomicU64::new(0)),
        head: CachePadded(AtomicU64::new(0)),
        producer_wait: CachePadded(ProducerWait::default()),
    });
    let producer = RecordProducer { core: core.clone(), tail: 0, head: 0 };
    Some((producer, RecordConsumer { core, head: 0, tail: 0 }))
}

/// Why a record was not taken. Nothing of it is in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushError {
    /// There is no room now.
    Full,
    /// It is longer than the ring: there never will be room.
    TooLong,
    /// Nothing is taken any more.
    Closed,
}

/// The end that puts records in. It can move to another thread but serves one at a time.
#[derive(Debug)]
pub struct RecordProducer {
    core: Arc<Core>,
    tail: u64,
    /// Where the consumer was when it was last looked at.
    head: u64,
}

impl RecordProducer {
    /// Puts one record in, and wakes nobody: see [`Producer::announce`]. An empty record is taken
    /// and leaves no trace.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call; the time is that of the copy.
    ///
    /// # Errors
    /// [`Refused`]: nothing of the record is in the ring. `Ok` means that the consumer will find it,
    /// whatever happens at the same time.
    #[inline]
    pub fn push(&mut self, record: &[u8]) -> Result<(), PushError> {
        let n = record.len();
        if self.free(n) < n {
            return Err(self.push_error(n));
        }
        // SAFETY: that many bytes are free, so they are the producer's until they are published.
        unsafe { self.core.memory.copy_in(memory_position(self.tail), record) };
        let next = self.tail + n as u64;
        // Only a close can change the word under our hands, so one try is enough. Release: who sees
        // the position sees the bytes below it.
        let word = &self.core.word.0;
        word.compare_exchange(self.tail << 1, next << 1, Ordering::AcqRel, Ordering::Relaxed)
            .map_err(|_| PushError::Closed)?;
        self.tail = next;
        Ok(())
    }

    /// Wakes the consumer's thread if it sleeps and what is in the ring is worth it; see
    /// [`Door::sleep`]. Not for a real-time thread: may call the system.
    #[inline]
    pub fn wake_consumer(&self) {
        let door = &*self.core.waker.0;
        door.bell.wake(|| self.core.is_wake_due(door.wake_at.load(Ordering::Relaxed)));
    }

    /// Sleeps after [`Refused::Full`], until the ring is half empty and a record of `n` bytes fits,
    /// it is closed, or `limit` is over. May wake early: push again.
    pub fn wait(&mut self, n: usize, limit: Option<Duration>) {
        let Some(goal) = self.resume_position(n) else { return };
        let core = &*self.core;
        core.producer_wait.0.resume_at.store(goal, Ordering::Relaxed);
        core.producer_wait.0.bell.sleep(limit, || core.can_resume(goal));
    }

    /// Like [`Producer::wait`], for a task: leaves its waker, or says that it need not wait.
    pub fn poll_room(&mut self, context: &Context<'_>, n: usize) -> Poll<()> {
        let Some(goal) = self.resume_position(n) else { return Poll::Ready(()) };
        let core = &*self.core;
        core.producer_wait.0.resume_at.store(goal, Ordering::Relaxed);
        let ready = core.producer_wait.0.bell.register_waker(context, || core.can_resume(goal));
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Bytes that fit into the empty ring: what was asked for at construction.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.core.capacity
    }

    /// What anybody may know of the ring.
    #[must_use]
    pub fn watch(&self) -> RingMonitor {
        RingMonitor { core: self.core.clone() }
    }

    /// How many bytes fit; looks at the consumer only when fewer than `want` are known to fit.
    #[inline]
    fn free(&mut self, want: usize) -> usize {
        let free = self.core.capacity - distance(self.head, self.tail);
        if free >= want {
            return free;
        }
        // Acquire: the consumer has done with the bytes below.
        self.head = self.core.head.0.load(Ordering::Acquire);
        self.core.capacity - distance(self.head, self.tail)
    }

    #[cold]
    fn push_error(&self, n: usize) -> PushError {
        if n > self.core.capacity {
            PushError::TooLong
        } else if self.core.is_closed() {
            PushError::Closed
        } else {
            PushError::Full
        }
    }

    /// Where the consumer has to be for a record of `n` bytes to go on; none when waiting is in vain.
    fn resume_position(&self, n: usize) -> Option<u64> {
        let most = (self.core.capacity / 2).min(self.core.capacity.checked_sub(n)?);
        Some(self.tail.saturating_sub(most as u64))
    }
}

impl Drop for RecordProducer {
    /// What is in the ring can still be taken.
    fn drop(&mut self) {
        self.core.producer_wait.0.gone.store(true, Ordering::Release);
        self.core.waker.wake();
    }
}

/// The end that takes bytes out. It can move to another thread but serves one at a time.
#[derive(Debug)]
pub struct RecordConsumer {
    core: Arc<Core>,
    head: u64,
    /// Up to where it was last looked.
    tail: u64,
}

impl RecordConsumer {
    /// How many bytes wait now: whole records. Nobody makes it less.
    ///
    /// # Real-time
    /// Wait-free.
    pub fn available(&mut self) -> usize {
        self.tail = self.core.tail();
        distance(self.head, self.tail)
    }

    /// The oldest `n` bytes; the second slice goes on where the first ends, and is empty where
    /// memory is mapped twice in a row.
    ///
    /// # Real-time
    /// Wait-free.
    ///
    /// # Panics
    /// When `n` is more than the last [`Consumer::look`] found.
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

    /// Gives the oldest `n` bytes back, and wakes the producer if it waits for room and now has
    /// enough.
    ///
    /// # Panics
    /// When `n` is more than the last [`Consumer::look`] found.
    pub fn release(&mut self, n: usize) {
        assert!(n <= distance(self.head, self.tail), "{n} bytes are more than wait");
        self.head += n as u64;
        // Release: whatever was read of these bytes happened before they may be overwritten.
        self.core.head.0.store(self.head, Ordering::Release);
        let (room, head) = (&self.core.producer_wait.0, self.head);
        room.bell.wake(|| head >= room.resume_at.load(Ordering::Relaxed));
    }

    /// The producer is gone. Asked before [`Consumer::look`], it tells that nothing can follow what
    /// is found then.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.core.producer_wait.0.gone.load(Ordering::Acquire)
    }

    /// Whether there is enough to call a thread that sleeps with this `wake_at`: so many bytes, or
    /// half of the ring, or the producer waits for room.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn is_wake_due(&self, wake_at: usize) -> bool {
        self.core.is_wake_due(wake_at)
            || (self.core.producer_wait.0.bell.is_asleep() && self.core.is_wake_due(1))
    }

    /// What anybody may know of the ring.
    #[must_use]
    pub fn watch(&self) -> RingMonitor {
        RingMonitor { core: self.core.clone() }
    }
}

impl Drop for RecordConsumer {
    /// Closes the ring: what is in it is lost.
    fn drop(&mut self) {
        self.core.close();
    }
}

/// What anybody may know of a ring, and the right to close it.
#[derive(Clone, Debug)]
pub struct RingMonitor {
    core: Arc<Core>,
}

impl RingMonitor {
    /// Bytes that were put in since the beginning.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.core.tail()
    }

    /// Bytes that were taken out since the beginning.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.core.head.0.load(Ordering::Acquire)
    }

    /// Lets nothing more in, and sends a producer away that waits for room. What was accepted
    /// before can still be taken.
    pub fn close(&self) {
        self.core.close();
    }
}

/// Where the thread of the consumers sleeps: one for any number of rings.
#[derive(Clone, Debug, Default)]
pub struct ConsumerWaker(Arc<ConsumerWait>);

impl ConsumerWaker {
    /// Sleeps until a ring holds `wake_at` bytes or half of what it can and its producer says so,
    /// somebody knocks, or `limit` is over; unless `ready`, which must ask the rings
    /// ([`Consumer::calls`]). May wake early. One thread at a time.
    pub fn sleep(&self, wake_at: usize, limit: Option<Duration>, ready: impl FnOnce() -> bool) {
        // Relaxed: the bell's mark carries it.
        self.0.wake_at.store(wake_at, Ordering::Relaxed);
        self.0.bell.sleep(limit, ready);
    }

    /// Wakes the thread if it sleeps and calls for so many bytes, or half of `capacity`: for bytes
    /// that wait elsewhere than in a ring.
    pub fn wake_if_due(&self, waiting: usize, capacity: usize) {
        self.0.bell.wake(|| is_wake_due(waiting, self.0.wake_at.load(Ordering::Relaxed), capacity));
    }

    /// Wakes the thread if it sleeps. Whatever it is to see must be there before.
    pub fn wake(&self) {
        self.0.bell.wake(|| true);
    }
}

#[derive(Debug, Default)]
struct ConsumerWait {
    bell: WaitCell,
    wake_at: AtomicUsize,
}

struct Core {
    memory: Memory,
    /// The memory may be more.
    capacity: usize,
    waker: ConsumerWaker,
    /// Twice the producer's position, and the mark [`CLOSED`]. 64 bits on every machine: they do not
    /// wrap in a lifetime, so a position also is the number of bytes ever accepted.
    word: CachePadded<AtomicU64>,
    /// The consumer's position.
    head: CachePadded<AtomicU64>,
    producer_wait: CachePadded<ProducerWait>,
}

/// Where the producer sleeps.
#[derive(Debug, Default)]
struct ProducerWait {
    bell: WaitCell,
    /// The consumer's position from which on it is to be woken.
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

    /// The head first: it can only have grown when the tail is loaded.
    fn is_wake_due(&self, wake_at: usize) -> bool {
        let head = self.head.0.load(Ordering::Acquire);
        is_wake_due(distance(head, self.tail()), wake_at, self.capacity)
    }

    /// For a producer that is about to sleep: it has said so already, so the consumer sees it when
    /// it looks next.
    fn can_resume(&self, goal: u64) -> bool {
        self.waker.wake();
        self.head.0.load(Ordering::Acquire) >= goal || self.is_closed()
    }

    fn close(&self) {
        self.word.0.fetch_or(CLOSED, Ordering::AcqRel);
        self.producer_wait.0.bell.wake(|| true);
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

/// How far `to` is ahead: never more than a ring has.
fn distance(from: u64, to: u64) -> usize {
    memory_position(to.saturating_sub(from))
}

#[cfg(test)]
mod tests;
