//! Two positions and who may move which: the part that every single-producer single-consumer ring
//! of the house shares.
//!
//! Positions count items since the start and wrap with `usize`; they are never reduced to an index
//! before use. So full and empty differ without a spare slot, and 32-bit machines need no 64-bit
//! atomics. Each side remembers the peer's last known position and reads the shared one again only
//! when that memory says "not enough": in steady flow a call touches one foreign cache line per
//! lap, not per item. (Known from rtrb and from its kin; an index ring with a spare slot was
//! rejected: it cannot count wraps.)

use std::cell::Cell;

use crate::sync::{AtomicU32, AtomicUsize, Ordering};

/// Keeps a value off its neighbours' cache lines.
///
/// 128 bytes: x86-64 prefetches lines in pairs, and big 64-bit Arm cores have lines that long.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

/// What both ends can see.
#[derive(Debug)]
pub(crate) struct Positions {
    write: CachePadded<WriteSide>,
    read: CachePadded<AtomicUsize>,
    /// Written once, so reading it costs nothing: it stays in everybody's cache.
    exits: CachePadded<[AtomicU32; 2]>,
}

/// On one line, so that whoever fetches the one has the other.
#[derive(Debug)]
struct WriteSide {
    tail: AtomicUsize,
    /// Added to a position to find its place in memory. Changes only while nothing waits.
    shift: AtomicUsize,
}

/// How an end left that has nothing else to say. 0 means that it is still there.
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

    /// How the writer left, or 0. What it published before is visible to whoever sees this.
    #[inline]
    pub(crate) fn writer_exit(&self) -> u32 {
        self.exits.0[0].load(Ordering::Acquire)
    }

    /// How the reader left, or 0.
    #[inline]
    pub(crate) fn reader_exit(&self) -> u32 {
        self.exits.0[1].load(Ordering::Acquire)
    }

    /// The writer leaves; only its last thread says so, after its last item.
    pub(crate) fn set_writer_exit(&self, how: u32) {
        self.exits.0[0].store(how, Ordering::Release);
    }

    /// The reader leaves.
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

    /// If nothing waits, lets the next item go to the first place of the memory, which the caches
    /// know best; says whether it did. Only where nobody but the consumer moves its position.
    ///
    /// The consumer cannot look at an old place by the new rule, nor at a new one by the old: all
    /// that it knows of is consumed, so it must load the position before it finds more, and the
    /// shift that it loads after that is this one. The next change comes only when it has consumed
    /// what it found.
    #[inline]
    pub(crate) fn rewind(&mut self, shared: &Positions) -> bool {
        let empty = self.free_now(shared) == self.capacity;
        if empty {
            self.shift = self.tail.wrapping_neg();
            // Relaxed: the release of the next position carries it.
            shared.write.0.shift.store(self.shift, Ordering::Relaxed);
        }
        empty
    }

    /// Number of the next item.
    #[inline]
    pub(crate) fn position(&self) -> usize {
        self.tail
    }

    /// Where the next item goes, for memory that goes around.
    #[inline]
    pub(crate) fn place(&self) -> usize {
        self.tail.wrapping_add(self.shift)
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many items fit; looks at the consumer only when fewer than `want` are known to fit.
    #[inline]
    pub(crate) fn free(&self, shared: &Positions, want: usize) -> usize {
        let free = self.capacity - self.fill_at_most();
        if free >= want { free } else { self.free_now(shared) }
    }

    /// Believes that the consumer is at `head`, and says how many items fit then.
    #[inline]
    pub(crate) fn assume_head(&self, head: usize) -> usize {
        self.head.set(head);
        self.capacity - self.fill_at_most()
    }

    /// How many items wait if the consumer is where it was last seen.
    #[inline]
    pub(crate) fn fill_at_most(&self) -> usize {
        self.tail.wrapping_sub(self.head.get())
    }

    /// How many items fit, from a fresh look. It can only grow until the next `publish`.
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

    /// Gives the next `n` items back to the producer.
    #[inline]
    pub(crate) fn release(&mut self, shared: &Positions, n: usize) {
        self.head = self.head.wrapping_add(n);
        // Release: whatever was read of these items happened before they may be overwritten.
        shared.read.0.store(self.head, Ordering::Release);
    }

    /// Goes on `n` items further on, which somebody else has taken.
    #[inline]
    pub(crate) fn skip(&mut self, shared: &Positions, n: usize) {
        if n > 0 {
            self.head = self.head.wrapping_add(n);
            // The remembered tail may be behind that.
            self.tail.set(shared.tail());
        }
    }

    /// Number of the next item.
    #[inline]
    pub(crate) fn position(&self) -> usize {
        self.head
    }

    /// Where the next item is, if one waits, for memory that goes around.
    #[inline]
    pub(crate) fn place(&self) -> usize {
        self.head.wrapping_add(self.shift.get())
    }

    /// How many items wait; looks at the producer only when fewer than `want` are known to wait.
    #[inline]
    pub(crate) fn len(&self, shared: &Positions, want: usize) -> usize {
        let len = self.tail.get().wrapping_sub(self.head);
        if len >= want { len } else { self.len_now(shared) }
    }

    /// How many items wait, from a fresh look. It can only grow until the next `release`.
    #[inline]
    pub(crate) fn len_now(&self, shared: &Positions) -> usize {
        self.tail.set(shared.tail());
        // Relaxed: it was set before the position that was just acquired.
        self.shift.set(shared.write.0.shift.load(Ordering::Relaxed));
        self.tail.get().wrapping_sub(self.head)
    }
}
