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

use crate::sync::{AtomicBool, AtomicUsize, Ordering};

/// Keeps a value off its neighbours' cache lines.
///
/// 128 bytes: x86-64 prefetches lines in pairs, and big 64-bit Arm cores have lines that long.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Line<T>(pub(crate) T);

/// What both ends can see.
#[derive(Debug)]
pub(crate) struct Positions {
    write: Line<Side>,
    read: Line<Side>,
}

#[derive(Debug)]
struct Side {
    position: AtomicUsize,
    gone: AtomicBool,
}

impl Positions {
    /// Both positions at `start`, both ends present.
    pub(crate) fn new(start: usize) -> Self {
        let side = || Side { position: AtomicUsize::new(start), gone: AtomicBool::new(false) };
        Self { write: Line(side()), read: Line(side()) }
    }

    /// The writer is gone; what it published before is visible to whoever sees this.
    pub(crate) fn writer_gone(&self) -> bool {
        self.write.0.gone.load(Ordering::Acquire)
    }

    /// The reader is gone.
    pub(crate) fn reader_gone(&self) -> bool {
        self.read.0.gone.load(Ordering::Acquire)
    }

    pub(crate) fn set_writer_gone(&self) {
        self.write.0.gone.store(true, Ordering::Release);
    }

    pub(crate) fn set_reader_gone(&self) {
        self.read.0.gone.store(true, Ordering::Release);
    }

    /// The reader's and the writer's position, for whoever has the ring to itself.
    pub(crate) fn bounds(&self) -> (usize, usize) {
        let head = self.read.0.position.load(Ordering::Relaxed);
        (head, self.write.0.position.load(Ordering::Relaxed))
    }
}

/// The producer's view: its own position, and the consumer's as last seen.
#[derive(Debug)]
pub(crate) struct WriteEnd {
    tail: usize,
    head: Cell<usize>,
    capacity: usize,
}

impl WriteEnd {
    pub(crate) fn new(start: usize, capacity: usize) -> Self {
        Self { tail: start, head: Cell::new(start), capacity }
    }

    /// Makes the next `n` items visible to the consumer.
    #[inline]
    pub(crate) fn publish(&mut self, shared: &Positions, n: usize) {
        self.tail = self.tail.wrapping_add(n);
        // Release: the consumer that sees the position sees the items below it.
        shared.write.0.position.store(self.tail, Ordering::Release);
    }

    /// Where the next item goes.
    #[inline]
    pub(crate) fn position(&self) -> usize {
        self.tail
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many items fit; looks at the consumer only when fewer than `want` are known to fit.
    #[inline]
    pub(crate) fn free(&self, shared: &Positions, want: usize) -> usize {
        let free = self.capacity - self.tail.wrapping_sub(self.head.get());
        if free >= want { free } else { self.free_now(shared) }
    }

    /// How many items fit, from a fresh look. It can only grow until the next `publish`.
    #[inline]
    pub(crate) fn free_now(&self, shared: &Positions) -> usize {
        // Acquire: the consumer has finished with every item below its position.
        self.head.set(shared.read.0.position.load(Ordering::Acquire));
        self.capacity - self.tail.wrapping_sub(self.head.get())
    }
}

/// The consumer's view: its own position, and the producer's as last seen.
#[derive(Debug)]
pub(crate) struct ReadEnd {
    head: usize,
    tail: Cell<usize>,
}

impl ReadEnd {
    pub(crate) fn new(start: usize) -> Self {
        Self { head: start, tail: Cell::new(start) }
    }

    /// Gives the next `n` items back to the producer.
    #[inline]
    pub(crate) fn release(&mut self, shared: &Positions, n: usize) {
        self.head = self.head.wrapping_add(n);
        // Release: whatever was read of these items happened before they may be overwritten.
        shared.read.0.position.store(self.head, Ordering::Release);
    }

    /// Where the next item is.
    #[inline]
    pub(crate) fn position(&self) -> usize {
        self.head
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
        self.tail.set(shared.write.0.position.load(Ordering::Acquire));
        self.tail.get().wrapping_sub(self.head)
    }
}
