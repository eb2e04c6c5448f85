//! The positions of a single-producer single-consumer ring, shared by all such rings of this crate.
//!
//! Positions count items since the start and wrap with `usize`; they are not reduced to an index
//! before use. So full and empty differ without a spare slot, and 32-bit machines need no 64-bit
//! atomics. Each side caches the peer's last known position and reads the shared one again only if
//! the cached one does not suffice: in steady flow a call touches one foreign cache line per lap,
//! not per item. (Known from rtrb and similar rings; an index ring with a spare slot was rejected:
//! it cannot count wraps.)

use std::cell::Cell;

use crate::sync::{AtomicU32, AtomicUsize, Ordering};

/// Keeps a value off its neighbours' cache lines.
///
/// 128 bytes: x86-64 prefetches lines in pairs, and big 64-bit Arm cores have lines that long.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

/// State that both ends see.
#[derive(Debug)]
pub(crate) struct Positions {
    write: CachePadded<WriteSide>,
    read: CachePadded<AtomicUsize>,
    /// Written once, so reading it costs nothing: it stays in every core's cache.
    exits: CachePadded<[AtomicU32; 2]>,
}

/// On one cache line, so that both are fetched together.
#[derive(Debug)]
struct WriteSide {
    tail: AtomicUsize,
    /// Added to a position to get its place in memory. Changes only while the ring is empty.
    shift: AtomicUsize,
}

/// Exit code of an end that was dropped. 0 means that the end still exists.
pub(crate) const DROPPED: u32 = 1;

impl Positions {
    /// Both positions at `start`, both ends present.
    pub(crate) fn new(start: usize) -> Self {
        let write = WriteSide { tail: AtomicUsize::new(start), shift: AtomicUsize::new(0) };
        let exits = CachePadded([AtomicU32::new(0), AtomicU32::new(0)]);
        Self { write: CachePadded(write), read: CachePadded(AtomicUsize::new(start)), exits }
    }

    /// The reader's position. Acquire: it has finished with every item below.
    #[inline]
    pub(crate) fn head(&self) -> usize {
        self.read.0.load(Ordering::Acquire)
    }

    /// The writer's position. Acquire: the items below it are visible.
    #[inline]
    pub(crate) fn tail(&self) -> usize {
        self.write.0.tail.load(Ordering::Acquire)
    }

    /// The writer's exit code, or 0. A thread that sees it sees everything published before.
    #[inline]
    pub(crate) fn writer_exit(&self) -> u32 {
        self.exits.0[0].load(Ordering::Acquire)
    }

    /// The reader's exit code, or 0.
    #[inline]
    pub(crate) fn reader_exit(&self) -> u32 {
        self.exits.0[1].load(Ordering::Acquire)
    }

    /// Stores the writer's exit code; called by the writer's thread after its last item.
    pub(crate) fn set_writer_exit(&self, how: u32) {
        self.exits.0[0].store(how, Ordering::Release);
    }

    /// Stores the reader's exit code.
    pub(crate) fn set_reader_exit(&self, how: u32) {
        self.exits.0[1].store(how, Ordering::Release);
    }
}

/// The producer's view: its own position, and the consumer's as last seen.
#[derive(Debug)]
pub(crate) struct WriteEnd {
    tail: usize,
    head: Cell<usize>,
    capacity: usize,
    shift: usize,
}

impl WriteEnd {
    pub(crate) fn new(start: usize, capacity: usize) -> Self {
        Self { tail: start, head: Cell::new(start), capacity, shift: 0 }
    }

    /// Makes the next `n` items visible to the consumer.
    #[inline]
    pub(crate) fn publish(&mut self, shared: &Positions, n: usize) {
        self.tail = self.tail.wrapping_add(n);
        // Release: the consumer that sees the position sees the items below it.
        shared.write.0.tail.store(self.tail, Ordering::Release);
    }

    /// If the ring is empty, places the next item at the start of the memory, which is most likely
    /// cached; returns whether it did. Only if no other thread than the consumer moves the read
    /// position.
    ///
    /// The consumer cannot mix the old and the new mapping: everything it has seen is consumed, so
    /// it must load the position before it finds more, and the shift that it loads after that is
    /// this one. The next change comes only when it has consumed what it found.
    #[inline]
    pub(crate) fn rewind(&mut self, shared: &Positions) -> bool {
        let empty = self.free_now(shared) == self.capacity;
        if empty {
            self.shift = self.tail.wrapping_neg();
            // Relaxed: ordered by the release of the next position.
            shared.write.0.shift.store(self.shift, Ordering::Relaxed);
        }
        empty
    }

    /// Number of the next item.
    #[inline]
    pub(crate) fn position(&self) -> usize {
        self.tail
    }

    /// Place of the next item in circular memory.
    #[inline]
    pub(crate) fn place(&self) -> usize {
        self.tail.wrapping_add(self.shift)
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Number of items that fit; reads the consumer's position only if fewer than `want` are known
    /// to fit.
    #[inline]
    pub(crate) fn free(&self, shared: &Positions, want: usize) -> usize {
        let free = self.capacity - self.fill_at_most();
        if free >= want { free } else { self.free_now(shared) }
    }

    /// Assumes the consumer at `head`, and returns the number of items that fit then.
    #[inline]
    pub(crate) fn assume_head(&self, head: usize) -> usize {
        self.head.set(head);
        self.capacity - self.fill_at_most()
    }

    /// Fill if the consumer is where it was last seen.
    #[inline]
    pub(crate) fn fill_at_most(&self) -> usize {
        self.tail.wrapping_sub(self.head.get())
    }

    /// Number of items that fit, from a fresh read of the position. It can only grow until the next
    /// `publish`.
    #[inline]
    pub(crate) fn free_now(&self, shared: &Positions) -> usize {
        self.assume_head(shared.head())
    }
}

/// The consumer's view: its own position, and the producer's as last seen.
#[derive(Debug)]
pub(crate) struct ReadEnd {
    head: usize,
    tail: Cell<usize>,
    shift: Cell<usize>,
}

impl ReadEnd {
    pub(crate) fn new(start: usize) -> Self {
        Self { head: start, tail: Cell::new(start), shift: Cell::new(0) }
    }

    /// Returns the next `n` items to the producer.
    #[inline]
    pub(crate) fn release(&mut self, shared: &Positions, n: usize) {
        self.head = self.head.wrapping_add(n);
        // Release: reads of these items happened before they may be overwritten.
        shared.read.0.store(self.head, Ordering::Release);
    }

    /// Advances by `n` items that the writer has dropped.
    #[inline]
    pub(crate) fn skip(&mut self, shared: &Positions, n: usize) {
        if n > 0 {
            self.head = self.head.wrapping_add(n);
            // The cached tail may be behind that.
            self.tail.set(shared.tail());
        }
    }

    /// Number of the next item.
    #[inline]
    pub(crate) fn position(&self) -> usize {
        self.head
    }

    /// Place of the next item, if there is one, in circular memory.
    #[inline]
    pub(crate) fn place(&self) -> usize {
        self.head.wrapping_add(self.shift.get())
    }

    /// Number of items; reads the producer's position only if fewer than `want` are known.
    #[inline]
    pub(crate) fn len(&self, shared: &Positions, want: usize) -> usize {
        let len = self.tail.get().wrapping_sub(self.head);
        if len >= want { len } else { self.len_now(shared) }
    }

    /// Number of items, from a fresh read of the position. It can only grow until the next
    /// `release`.
    #[inline]
    pub(crate) fn len_now(&self, shared: &Positions) -> usize {
        self.tail.set(shared.tail());
        // Relaxed: it was set before the position that was just acquired.
        self.shift.set(shared.write.0.shift.load(Ordering::Relaxed));
        self.tail.get().wrapping_sub(self.head)
    }
}
