//! A ring buffer with one producer and one consumer, neither of which ever waits for the other.
//!
//! It transfers handles, commands and events between two threads. A byte stream with back-pressure,
//! silence and an end belongs in the pipe, which uses the same positions. A queue for many
//! producers was rejected here: each producer gets its own ring, so that a stalled thread delays
//! only itself.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use crate::slots::Slots;
use crate::spsc::{DROPPED, Positions, ReadEnd, WriteEnd};
use crate::sync::Arc;

/// Creates a ring for `capacity` items and returns its two ends.
///
/// Not for a real-time thread: allocates. The memory is freed when the second end is dropped, on
/// that thread, together with the remaining items.
///
/// # Panics
/// If `capacity` items, rounded up to a power of two, do not fit into memory.
///
/// # Examples
/// ```
/// let (mut producer, mut consumer) = aulos_rt::ring::ring(2);
/// assert_eq!(producer.push('a'), Ok(()));
/// assert_eq!(producer.push('b'), Ok(()));
/// assert_eq!(producer.push('c'), Err('c'));
/// assert_eq!(consumer.pop(), Some('a'));
/// ```
#[must_use]
pub fn ring<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    starting_at(capacity, 0)
}

/// A ring whose positions begin at `start`, so that a test can start just before the wrap-around.
fn starting_at<T>(capacity: usize, start: usize) -> (Producer<T>, Consumer<T>) {
    let slots = Slots::new(capacity);
    let untouched = slots.count();
    let inner = Arc::new(Inner { positions: Positions::new(start), slots });
    let end = WriteEnd::new(start, capacity);
    let producer = Producer { inner: inner.clone(), end, untouched, reserved: 0 };
    (producer, Consumer { inner, end: ReadEnd::new(start) })
}

/// The writing end. It can move to another thread but is used by one at a time.
#[derive(Debug)]
pub struct Producer<T> {
    inner: Arc<Inner<T>>,
    end: WriteEnd,
    /// Slots from the write position on that were never written.
    untouched: usize,
    /// Slots that `reserve` returned and `commit` may publish.
    reserved: usize,
}

impl<T> Producer<T> {
    /// Pushes one item.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call.
    ///
    /// # Errors
    /// Returns the item if the ring is full. A dropped consumer is not an error here: check
    /// [`Producer::is_abandoned`].
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.end.free(&self.inner.positions, 1) == 0 {
            return Err(item);
        }
        // SAFETY: a free slot is the producer's until it is published.
        unsafe { self.inner.slots.write(self.end.position(), item) };
        self.publish(1);
        Ok(())
    }

    /// Number of items that fit now. The consumer may increase it at any time; only a push
    /// decreases it.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn free(&self) -> usize {
        self.end.free_now(&self.inner.positions)
    }

    /// Capacity of the ring, as requested at construction.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.end.capacity()
    }

    /// Whether the consumer is gone, so that pushed items will not be read. Once true it stays
    /// true; if false, the consumer may still go at any time.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.inner.positions.reader_exit() != 0
    }

    #[inline]
    fn publish(&mut self, n: usize) {
        self.untouched = self.untouched.saturating_sub(n);
        self.reserved = 0;
        self.end.publish(&self.inner.positions, n);
    }
}

impl<T: Copy> Producer<T> {
    /// Copies as many items as fit from the front of `items`, and returns their number.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call; the time is that of the copy.
    #[inline]
    pub fn write(&mut self, items: &[T]) -> usize {
        let n = items.len().min(self.end.free(&self.inner.positions, items.len()));
        let (now, _) = items.split_at(n);
        // SAFETY: `n` slots are free, so they are the producer's, and no more than the ring has.
        let (one, two) = unsafe { self.inner.slots.slices_mut(self.end.position(), n) };
        let (front, back) = now.split_at(one.len());
        copy_into(one, front);
        copy_into(two, back);
        self.publish(n);
        n
    }

    /// Gives access in place to the next `n` free slots, or to as many as are free: the second
    /// slice continues where the first ends. Their content is unspecified. [`Producer::commit`]
    /// makes them visible; without it they stay free.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call. In the first lap slots are set to the default
    /// value before they are returned.
    #[inline]
    pub fn reserve(&mut self, n: usize) -> (&mut [T], &mut [T])
    where
        T: Default,
    {
        let n = n.min(self.end.free(&self.inner.positions, n));
        self.initialize(n);
        self.reserved = n;
        // SAFETY: `n` slots are free, so they are the producer's, and no more than the ring has.
        let (one, two) = unsafe { self.inner.slots.slices_mut(self.end.position(), n) };
        // SAFETY: each slot was written in an earlier lap (`T: Copy` leaves a value behind when it
        // is read) or was initialised just above.
        let one = unsafe { assume_init(one) };
        // SAFETY: as above.
        (one, unsafe { assume_init(two) })
    }

    /// Makes the first `n` of the reserved items visible to the consumer, and ends the reservation.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call.
    ///
    /// # Panics
    /// If `n` is more than the last [`Producer::reserve`] returned, or another item was written
    /// since.
    #[inline]
    pub fn commit(&mut self, n: usize) {
        assert!(n <= self.reserved, "commit of {n} items, {} are reserved", self.reserved);
        self.publish(n);
    }

    /// Initializes those of the next `n` slots that were never written.
    #[inline]
    fn initialize(&mut self, n: usize)
    where
        T: Default,
    {
        for i in 0..n.min(self.untouched) {
            let position = self.end.position().wrapping_add(i);
            // SAFETY: the caller has checked that the next `n` slots are free.
            unsafe { self.inner.slots.write(position, T::default()) };
        }
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.inner.positions.set_writer_exit(DROPPED);
    }
}

/// The reading end. It can move to another thread but is used by one at a time.
#[derive(Debug)]
pub struct Consumer<T> {
    inner: Arc<Inner<T>>,
    end: ReadEnd,
}

impl<T> Consumer<T> {
    /// Takes the oldest item.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.end.len(&self.inner.positions, 1) == 0 {
            return None;
        }
        // SAFETY: a published slot holds a value and is the consumer's until it is released.
        let item = unsafe { self.inner.slots.read(self.end.position()) };
        self.end.release(&self.inner.positions, 1);
        Some(item)
    }

    /// Drops up to `n` of the oldest items in place and returns their number.
    ///
    /// # Real-time
    /// Wait-free if dropping a `T` is; constant time if `T` needs no drop.
    pub fn advance(&mut self, n: usize) -> usize {
        let n = n.min(self.end.len(&self.inner.positions, n));
        if std::mem::needs_drop::<T>() {
            for _ in 0..n {
                drop(self.pop());
            }
        } else {
            self.end.release(&self.inner.positions, n);
        }
        n
    }

    /// The oldest item, without taking it.
    ///
    /// # Real-time
    /// Wait-free.
    #[inline]
    #[must_use]
    pub fn peek(&self) -> Option<&T> {
        if self.end.len(&self.inner.positions, 1) == 0 {
            return None;
        }
        // SAFETY: one item is published, and it stays the consumer's while `self` is borrowed.
        let (one, _) = unsafe { self.inner.slots.slices(self.end.position(), 1) };
        one.first()
    }

    /// All available items, oldest first; the second slice continues where the first ends.
    ///
    /// # Real-time
    /// Wait-free.
    #[inline]
    #[must_use]
    pub fn as_slices(&self) -> (&[T], &[T]) {
        let n = self.end.len_now(&self.inner.positions);
        // SAFETY: `n` items are published, and they stay the consumer's while `self` is borrowed.
        unsafe { self.inner.slots.slices(self.end.position(), n) }
    }

    /// Number of available items. The producer may increase it at any time; only this end decreases
    /// it.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn len(&self) -> usize {
        self.end.len_now(&self.inner.positions)
    }

    /// Whether there is no item now.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the producer is gone. If this is checked before the ring is read, no item can follow
    /// those found there.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.inner.positions.writer_exit() != 0
    }
}

impl<T: Copy> Consumer<T> {
    /// Copies up to `out.len()` of the oldest items and returns their number. The rest of `out`
    /// stays as it was.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call; the time is that of the copy.
    #[inline]
    pub fn read(&mut self, out: &mut [T]) -> usize {
        let n = out.len().min(self.end.len(&self.inner.positions, out.len()));
        // SAFETY: `n` items are published, so they are the consumer's until they are released.
        let (one, two) = unsafe { self.inner.slots.slices(self.end.position(), n) };
        let (front, rest) = out.split_at_mut(one.len());
        front.copy_from_slice(one);
        let (back, _) = rest.split_at_mut(two.len());
        back.copy_from_slice(two);
        self.end.release(&self.inner.positions, n);
        n
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.inner.positions.set_reader_exit(DROPPED);
    }
}

#[derive(Debug)]
struct Inner<T> {
    positions: Positions,
    slots: Slots<T>,
}

impl<T> Drop for Inner<T> {
    fn drop(&mut self) {
        if !std::mem::needs_drop::<T>() {
            return;
        }
        let (mut head, tail) = (self.positions.head(), self.positions.tail());
        while head != tail {
            // SAFETY: both ends are gone and the slots between the positions hold values.
            drop(unsafe { self.slots.read(head) });
            head = head.wrapping_add(1);
        }
    }
}

#[inline]
fn copy_into<T: Copy>(to: &mut [MaybeUninit<T>], from: &[T]) {
    assert_eq!(to.len(), from.len());
    // SAFETY: the lengths are equal, and a free slot cannot overlap a slice of the caller's.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr().cast(), from.len()) };
}

/// # Safety
/// * Every slot of the run holds a value.
#[inline]
unsafe fn assume_init<T>(run: &mut [MaybeUninit<T>]) -> &mut [T] {
    // SAFETY: `MaybeUninit<T>` has the layout of `T`, and the caller promises values.
    unsafe { &mut *(std::ptr::from_mut(run) as *mut [T]) }
}

#[cfg(test)]
mod tests;
