//! Storage of a ring: a power of two of slots, each owned by either end at any time.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

/// Slots addressed by wrapping positions. The callers coordinate the access to them.
pub(crate) struct Slots<T> {
    cells: Box<[UnsafeCell<MaybeUninit<T>>]>,
    mask: usize,
}

// SAFETY: a slot is reached only through the unsafe functions below, whose callers promise that no
// two threads use one slot at a time; values then move between threads, which `T: Send` allows.
unsafe impl<T: Send> Sync for Slots<T> {}

impl<T> Slots<T> {
    /// Room for `at_least` values, rounded up to a power of two.
    pub(crate) fn new(at_least: usize) -> Self {
        #[allow(clippy::expect_used, reason = "memory for so many cannot be had either")]
        let count = at_least.max(1).checked_next_power_of_two().expect("capacity out of range");
        let cells = (0..count).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
        Self { cells, mask: count - 1 }
    }

    pub(crate) fn count(&self) -> usize {
        self.cells.len()
    }

    #[inline]
    fn slot(&self, position: usize) -> *mut T {
        self.range(position).cast_mut().cast()
    }

    /// The slot at `position` as the start of a run within the whole allocation.
    #[inline]
    fn range(&self, position: usize) -> *const UnsafeCell<MaybeUninit<T>> {
        let index = position & self.mask;
        debug_assert!(index < self.cells.len());
        self.cells.as_ptr().wrapping_add(index)
    }

    /// Writes a value into the slot at `position`.
    ///
    /// # Safety
    /// * No other thread uses this slot during the call.
    #[inline]
    pub(crate) unsafe fn write(&self, position: usize, value: T) {
        // SAFETY: the pointer is inside the allocation, and the caller owns the slot.
        unsafe { self.slot(position).write(value) };
    }

    /// Moves the value out of the slot at `position`.
    ///
    /// # Safety
    /// * No other thread uses this slot during the call.
    /// * It holds a value, which is not used as a `T` again unless `T` is `Copy`.
    #[inline]
    pub(crate) unsafe fn read(&self, position: usize) -> T {
        // SAFETY: the pointer is inside the allocation; the caller owns the slot and its value.
        unsafe { self.slot(position).read() }
    }

    /// The `n` values from `position` on, in at most two runs.
    ///
    /// # Safety
    /// * All of them hold values, and no thread writes to them while the slices live.
    /// * `n <= self.count()`.
    #[inline]
    pub(crate) unsafe fn slices(&self, position: usize, n: usize) -> (&[T], &[T]) {
        let first = n.min(self.count() - (position & self.mask));
        // SAFETY: the run ends at or before the last slot; the caller promises values in it.
        let one = unsafe { std::slice::from_raw_parts(self.slot(position).cast_const(), first) };
        // SAFETY: the rest starts at slot 0 and is shorter than the count; the same promise holds.
        let two = unsafe { std::slice::from_raw_parts(self.slot(0).cast_const(), n - first) };
        (one, two)
    }

    /// The `n` slots from `position` on, for writing, in at most two runs.
    ///
    /// # Safety
    /// * No other code uses these slots while the slices live.
    /// * `n <= self.count()`.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "which end owns a slot is known to the caller only")]
    pub(crate) unsafe fn slices_mut(
        &self,
        position: usize,
        n: usize,
    ) -> (&mut [MaybeUninit<T>], &mut [MaybeUninit<T>]) {
        let first = n.min(self.count() - (position & self.mask));
        // SAFETY: the run ends at or before the last slot; the caller owns it.
        let one = unsafe { std::slice::from_raw_parts_mut(self.slot(position).cast(), first) };
        // SAFETY: the rest starts at slot 0 and does not reach the first run, as n <= count.
        let two = unsafe { std::slice::from_raw_parts_mut(self.slot(0).cast(), n - first) };
        (one, two)
    }
}

impl<T> std::fmt::Debug for Slots<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slots").field("count", &self.count()).finish()
    }
}
