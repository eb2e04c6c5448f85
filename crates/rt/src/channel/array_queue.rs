//! The bounded queue: an array of slots that many producers reserve in turn.
//!
//! The algorithm is D. Vyukov's bounded queue (1024cores.net, 2010) with one consumer: a producer
//! reserves a position by advancing the tail, fills the slot, and then stores in the slot's stamp
//! that it is filled. There are two differences. Free space is determined by the consumer's
//! position and not by the stamp, so the capacity need not be a power of two. And the lowest bit of
//! the tail marks the queue as closed, so nothing can be reserved after the close: the set of
//! accepted items is exact.
#![allow(unsafe_code)]

use super::SendError;
use crate::slots::Slots;
use crate::spsc::CachePadded;
use crate::sync::{AtomicUsize, Ordering};

/// Positions count in steps of two and wrap with `usize`; the lowest bit is the closed mark.
#[derive(Debug)]
pub(super) struct ArrayQueue<T> {
    slots: Slots<T>,
    /// Per slot, the position after its item, stored once the item can be taken.
    stamps: Box<[AtomicUsize]>,
    capacity: usize,
    /// Position of the next item, and [`CLOSED`].
    tail: CachePadded<AtomicUsize>,
    /// Position of the oldest item. Only the consumer moves it.
    head: CachePadded<AtomicUsize>,
}

/// Distance between two positions.
const STEP: usize = 2;
/// Mark in the tail: nothing can be reserved any more.
const CLOSED: usize = 1;
/// Limit such that a fill never reaches half of the positions' range and rounding up does not
/// overflow.
const MAX_CAPACITY: usize = usize::MAX >> 4;

impl<T> ArrayQueue<T> {
    /// A queue for `capacity` items, at least one; the first has position `start`.
    pub(super) fn new(capacity: usize, start: usize) -> Self {
        let capacity = capacity.max(1);
        assert!(capacity <= MAX_CAPACITY, "a channel of {capacity} items is out of range");
        let slots = Slots::new(capacity);
        let mask = slots.count() - 1;
        // A stamp that does not match the slot's first item.
        let unused = |i: usize| start.wrapping_add(i.wrapping_sub(start) & mask).wrapping_mul(STEP);
        let stamps = (0..slots.count()).map(|i| AtomicUsize::new(unused(i))).collect();
        let position = || CachePadded(AtomicUsize::new(start.wrapping_mul(STEP)));
        Self { slots, stamps, capacity, tail: position(), head: position() }
    }

    /// Appends an item. Lock-free: retries only if another producer was faster.
    #[inline]
    pub(super) fn push(&self, item: T) -> Result<(), SendError<T>> {
        let mut tail = self.tail.0.load(Ordering::Relaxed);
        loop {
            if tail & CLOSED != 0 {
                return Err(SendError::Closed(item));
            }
            // Acquire: the consumer has finished with every slot below.
            let fill = tail.wrapping_sub(self.head.0.load(Ordering::Acquire)) / STEP;
            let seen = if fill < self.capacity {
                let next = tail.wrapping_add(STEP);
                let order = Ordering::Relaxed;
                match self.tail.0.compare_exchange_weak(tail, next, order, order) {
                    Ok(_) => break,
                    Err(seen) => seen,
                }
            } else {
                // Full, or the tail is outdated and the consumer has passed it. The tail that is
                // read now is not behind the head that was read before.
                let seen = self.tail.0.load(Ordering::Relaxed);
                if seen == tail {
                    return Err(SendError::Full(item));
                }
                seen
            };
            tail = seen;
        }
        // SAFETY: the position is this call's alone, and the consumer has left its slot.
        unsafe { self.slots.write(tail / STEP, item) };
        // Release: a thread that sees the stamp sees the item.
        self.stamp(tail).store(tail.wrapping_add(STEP), Ordering::Release);
        Ok(())
    }

    /// Takes the oldest item, unless its slot is only reserved.
    ///
    /// # Safety
    /// * No other thread does this at the same time.
    #[inline]
    pub(super) unsafe fn pop(&self) -> Option<T> {
        let head = self.head.0.load(Ordering::Relaxed);
        if !self.is_ready(head) {
            return None;
        }
        // SAFETY: a stamped slot holds a value and is the consumer's until the head has passed it.
        let item = unsafe { self.slots.read(head / STEP) };
        // Release: the value is moved out before the slot may be reused.
        self.head.0.store(head.wrapping_add(STEP), Ordering::Release);
        Some(item)
    }

    /// Whether the oldest item can be taken.
    pub(super) fn has_item(&self) -> bool {
        self.is_ready(self.head.0.load(Ordering::Relaxed))
    }

    /// Number of items, including reserved slots; a snapshot.
    pub(super) fn fill(&self) -> usize {
        // The head is read first: the tail that is read then is not behind it.
        let head = self.head.0.load(Ordering::Acquire);
        let tail = self.tail.0.load(Ordering::Acquire);
        (tail.wrapping_sub(head) / STEP).min(self.capacity)
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Prevents further reservations.
    pub(super) fn close(&self) {
        self.tail.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.tail.0.load(Ordering::Acquire) & CLOSED != 0
    }

    #[inline]
    fn is_ready(&self, head: usize) -> bool {
        self.stamp(head).load(Ordering::Acquire) == head.wrapping_add(STEP)
    }

    #[inline]
    fn stamp(&self, position: usize) -> &AtomicUsize {
        &self.stamps[(position / STEP) & (self.stamps.len() - 1)]
    }
}

impl<T> Drop for ArrayQueue<T> {
    fn drop(&mut self) {
        // SAFETY: no other reference to this queue exists any more.
        while let Some(item) = unsafe { self.pop() } {
            drop(item);
        }
    }
}
