//! A cell that holds the newest value only: a triple buffer.
//!
//! A meter publishes and a page reads; the reader gets the last complete value, never a torn one,
//! and neither side waits. It is not a sequence lock, whose reader reads memory that is being
//! changed (`docs/decisions/latest-value.md`).
#![allow(unsafe_code)]

use crate::spsc::CachePadded;
use crate::sync::{Arc, AtomicUsize, Ordering, UnsafeCell};

/// Creates a cell that holds `initial`, and returns its two ends.
///
/// Not for a real-time thread: allocates, and clones `initial` twice.
///
/// # Examples
/// ```
/// let (mut publisher, mut reader) = aulos_rt::latest(0);
/// publisher.publish(1);
/// publisher.publish(2);
/// assert_eq!(*reader.read(), 2);
/// ```
#[must_use]
pub fn latest<T: Clone>(initial: T) -> (LatestPublisher<T>, LatestReader<T>) {
    let cells = [
        UnsafeCell::new(initial.clone()),
        UnsafeCell::new(initial.clone()),
        UnsafeCell::new(initial),
    ];
    let inner =
        Arc::new(Inner { middle: CachePadded(AtomicUsize::new(1)), cells: cells.map(CachePadded) });
    (LatestPublisher { inner: inner.clone(), back: 0 }, LatestReader { inner, front: 2 })
}

/// The end that sets the value. It can move to another thread but is used by one at a time.
#[derive(Debug)]
pub struct LatestPublisher<T> {
    inner: Arc<Inner<T>>,
    back: usize,
}

impl<T> LatestPublisher<T> {
    /// Publishes `value` as the newest one.
    ///
    /// # Real-time
    /// Wait-free, no system call; no allocation, and no deallocation if dropping a `T` frees
    /// nothing, because an older value is dropped here. Use [`LatestPublisher::update`] for a `T`
    /// that owns memory.
    #[inline]
    pub fn publish(&mut self, value: T) {
        self.update(|slot| *slot = value);
    }

    /// Lets `change` modify an older value in place and publishes it as the newest one. Which older
    /// value that is, is unspecified: set all of it.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call, if the same holds for `change`.
    #[inline]
    pub fn update(&mut self, change: impl FnOnce(&mut T)) {
        // SAFETY: the cell with the index `back` is the publisher's until it is swapped in below.
        self.inner.cells[self.back].0.with_mut(|value| change(unsafe { &mut *value }));
        // Release passes the value to the reader; Acquire takes over the cell that the reader has
        // left.
        let taken = self.inner.middle.0.swap(self.back | FRESH, Ordering::AcqRel);
        self.back = taken & INDEX;
    }
}

/// The end that reads the value. It can move to another thread but is used by one at a time.
#[derive(Debug)]
pub struct LatestReader<T> {
    inner: Arc<Inner<T>>,
    front: usize,
}

impl<T> LatestReader<T> {
    /// The newest value. The reference stays valid, and the value unchanged, until the next call.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call.
    #[inline]
    pub fn read(&mut self) -> &T {
        self.refresh();
        // SAFETY: the cell with the index `front` is the reader's until the next swap.
        self.inner.cells[self.front].0.with(|value| unsafe { &*value })
    }

    /// The newest value if it was not read before.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call.
    #[inline]
    pub fn read_new(&mut self) -> Option<&T> {
        if !self.refresh() {
            return None;
        }
        // SAFETY: the cell with the index `front` is the reader's until the next swap.
        Some(self.inner.cells[self.front].0.with(|value| unsafe { &*value }))
    }

    /// Swaps the middle cell in if it is newer; returns whether it was.
    #[inline]
    fn refresh(&mut self) -> bool {
        // Relaxed is enough for this check: only this end clears the mark, and the swap orders the
        // rest.
        if self.inner.middle.0.load(Ordering::Relaxed) & FRESH == 0 {
            return false;
        }
        self.front = self.inner.middle.0.swap(self.front, Ordering::AcqRel) & INDEX;
        true
    }
}

#[derive(Debug)]
struct Inner<T> {
    /// Index of the cell that neither end uses, and whether the publisher stored it last.
    middle: CachePadded<AtomicUsize>,
    cells: [CachePadded<UnsafeCell<T>>; 3],
}

// SAFETY: back, front and middle are always three different cells, so no two threads use one at a
// time; values move between threads, which `T: Send` allows.
unsafe impl<T: Send> Sync for Inner<T> {}

const FRESH: usize = 4;
const INDEX: usize = 3;

#[cfg(test)]
mod tests;
