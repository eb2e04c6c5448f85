//! A fixed number of objects that are created once and lent out.
//!
//! Dropping the last handle returns the object, from any thread, in a few instructions: nothing is
//! allocated or freed on the audio path. No thread has to return them
//! (`docs/decisions/real-time-memory.md`).
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use crate::spsc::CachePadded;
use crate::sync::{Arc, AtomicU32, AtomicU64, AtomicUsize, Ordering, UnsafeCell, fence};

/// A pool of `T`. Clones refer to the same pool.
///
/// The objects live until the pool and every object's last handle are gone; the last drop frees the
/// memory, so keep one `Pool` on a thread that may free memory.
///
/// # Examples
/// ```
/// let pool = aulos_rt::Pool::new(1, || Vec::<u8>::with_capacity(1500));
/// let mut packet = pool.take().unwrap();
/// packet.extend_from_slice(b"sound");
/// let shared = packet.freeze();
/// let also = shared.clone();
/// assert!(pool.take().is_none());
/// drop(shared);
/// assert_eq!(&also[..], b"sound");
/// drop(also);
/// assert_eq!(pool.available(), 1);
/// ```
pub struct Pool<T> {
    inner: Arc<Inner<T>>,
}

impl<T> Pool<T> {
    /// Creates a pool of `count` objects, each by one call of `make`.
    ///
    /// Not for a real-time thread: allocates.
    ///
    /// # Panics
    /// If `count` is not below `u32::MAX`.
    #[must_use]
    pub fn new(count: usize, mut make: impl FnMut() -> T) -> Self {
        assert!(count < NO_SLOT as usize, "a pool of {count} objects is out of range");
        let slots: Box<[Slot<T>]> = (0..count)
            .map(|i| Slot {
                uses: CachePadded(AtomicUsize::new(0)),
                next: AtomicU32::new(if i + 1 < count { index_of(i + 1) } else { NO_SLOT }),
                value: UnsafeCell::new(make()),
            })
            .collect();
        let top = if count == 0 { NO_SLOT } else { 0 };
        let free = CachePadded(FreeList {
            top: AtomicU64::new(pack(top, 0)),
            available: AtomicUsize::new(count),
        });
        Self { inner: Arc::new(Inner { free, slots }) }
    }

    /// Lends an object; `None` if all are in use. Its content is what the last user left.
    ///
    /// # Real-time
    /// Lock-free, no allocation, no system call: it retries only if another thread has taken or
    /// returned an object at the same time.
    #[inline]
    #[must_use]
    pub fn take(&self) -> Option<Pooled<T>> {
        let index = self.inner.pop()?;
        Some(Pooled { inner: ManuallyDrop::new(self.inner.clone()), index, owns: PhantomData })
    }

    /// Number of objects available now; other threads may change it at any time.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn available(&self) -> usize {
        self.inner.free.0.available.load(Ordering::Relaxed)
    }

    /// Number of objects of the pool.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.inner.slots.len()
    }
}

impl<T> Clone for Pool<T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<T> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (available, capacity) = (self.available(), self.capacity());
        f.debug_struct("Pool").field("available", &available).field("capacity", &capacity).finish()
    }
}

/// The only handle of a lent object: reads and writes it, and returns it to the pool when dropped.
///
/// # Real-time
/// Dropping is lock-free and neither drops the `T` nor frees, while a [`Pool`] handle lives.
pub struct Pooled<T> {
    inner: ManuallyDrop<Arc<Inner<T>>>,
    index: u32,
    owns: PhantomData<T>,
}

impl<T> Pooled<T> {
    /// Converts into a read-only handle that can be cloned.
    ///
    /// # Real-time
    /// Wait-free, no allocation.
    #[inline]
    #[must_use]
    pub fn freeze(self) -> SharedPooled<T> {
        self.inner.slot(self.index).uses.0.store(1, Ordering::Relaxed);
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never used again and never dropped, so its handle has one owner.
        let inner = unsafe { ManuallyDrop::take(&mut this.inner) };
        SharedPooled { inner: ManuallyDrop::new(inner), index: this.index, owns: PhantomData }
    }
}

impl<T> Deref for Pooled<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the object is out of the free list and this is its only handle.
        self.inner.slot(self.index).value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for Pooled<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the object is out of the free list and this is its only handle.
        self.inner.slot(self.index).value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for Pooled<T> {
    #[inline]
    fn drop(&mut self) {
        self.inner.push(self.index);
        // SAFETY: dropped once, here; `freeze` takes it out only where this cannot run.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
    }
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Pooled<T> {
    fn as_ref(&self) -> &[u8] {
        (**self).as_ref()
    }
}

impl<T: fmt::Debug> fmt::Debug for Pooled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A shared handle of a frozen object: reads it; dropping the last one returns the object.
///
/// # Real-time
/// Cloning is wait-free. Dropping is lock-free and neither drops the `T` nor frees, while a
/// [`Pool`] handle lives.
pub struct SharedPooled<T> {
    /// One reference to the pool for all clones together: the last clone drops it.
    inner: ManuallyDrop<Arc<Inner<T>>>,
    index: u32,
    /// Like an `Arc<T>`: may cross threads only where `&T` and `T` both may.
    owns: PhantomData<Arc<T>>,
}

impl<T> Clone for SharedPooled<T> {
    #[inline]
    fn clone(&self) -> Self {
        let before = self.inner.slot(self.index).uses.0.fetch_add(1, Ordering::Relaxed);
        if before > MAX_USES {
            std::process::abort();
        }
        // SAFETY: the copy is never dropped by itself: the count just taken keeps the one that all
        // clones share alive, and only the last clone drops it.
        let inner = unsafe { std::ptr::read(&raw const self.inner) };
        Self { inner, index: self.index, owns: PhantomData }
    }
}

impl<T> Deref for SharedPooled<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: while a shared handle lives there is no writing one.
        self.inner.slot(self.index).value.with(|value| unsafe { &*value })
    }
}

impl<T> Drop for SharedPooled<T> {
    #[inline]
    fn drop(&mut self) {
        // Release, and Acquire by the last: every reader has finished before the object is
        // returned.
        if self.inner.slot(self.index).uses.0.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        self.inner.push(self.index);
        // SAFETY: this was the last clone, so the common count is dropped exactly once.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
    }
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for SharedPooled<T> {
    fn as_ref(&self) -> &[u8] {
        (**self).as_ref()
    }
}

impl<T: fmt::Debug> fmt::Debug for SharedPooled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

struct Inner<T> {
    free: CachePadded<FreeList>,
    slots: Box<[Slot<T>]>,
}

/// The free list: a stack of indices (R. K. Treiber, 1986) with a change counter next to the top.
struct FreeList {
    /// Index of the top in the low half, number of changes in the high half. The counter prevents a
    /// thread that was interrupted between its load and its swap from taking a top that was removed
    /// and returned with another successor (the ABA problem); it would have to miss exactly 2^32
    /// changes.
    top: AtomicU64,
    available: AtomicUsize,
}

struct Slot<T> {
    /// Number of handles of the frozen object, on its own cache line: readers of the value must not
    /// be slowed down by clones on other threads.
    uses: CachePadded<AtomicUsize>,
    next: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value of a slot is reached only through a handle; the free list hands a slot to one
// owner at a time, so only `T: Send` is needed. What handles allow is bounded by their own markers.
unsafe impl<T: Send> Sync for Inner<T> {}

impl<T> Inner<T> {
    #[inline]
    fn slot(&self, index: u32) -> &Slot<T> {
        &self.slots[index as usize]
    }

    fn pop(&self) -> Option<u32> {
        let mut top = self.free.0.top.load(Ordering::Acquire);
        loop {
            let (index, changes) = unpack(top);
            if index == NO_SLOT {
                return None;
            }
            // It may be stale if another thread has the slot by now; then the swap fails.
            let next = self.slot(index).next.load(Ordering::Relaxed);
            let new = pack(next, changes.wrapping_add(1));
            // Acquire: pairs with the Release of the `push` that returned this object.
            let swapped = self.free.0.top.compare_exchange_weak(
                top,
                new,
                Ordering::Acquire,
                Ordering::Acquire,
            );
            if let Err(now) = swapped {
                top = now;
                continue;
            }
            self.free.0.available.fetch_sub(1, Ordering::Relaxed);
            return Some(index);
        }
    }

    fn push(&self, index: u32) {
        // Counted first, so that the number of available objects never falls below zero.
        self.free.0.available.fetch_add(1, Ordering::Relaxed);
        let mut top = self.free.0.top.load(Ordering::Relaxed);
        loop {
            let (next, changes) = unpack(top);
            self.slot(index).next.store(next, Ordering::Relaxed);
            let new = pack(index, changes.wrapping_add(1));
            match self.free.0.top.compare_exchange_weak(
                top,
                new,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }
}

/// "No slot" in the free list.
const NO_SLOT: u32 = u32::MAX;

/// More handles of one object than memory can hold: the caller leaks them.
const MAX_USES: usize = usize::MAX / 2;

fn pack(index: u32, changes: u32) -> u64 {
    u64::from(changes) << 32 | u64::from(index)
}

#[allow(clippy::cast_possible_truncation, reason = "the two halves are meant")]
fn unpack(top: u64) -> (u32, u32) {
    (top as u32, (top >> 32) as u32)
}

#[allow(clippy::cast_possible_truncation, reason = "`new` has checked the count")]
fn index_of(i: usize) -> u32 {
    i as u32
}

#[cfg(test)]
mod tests;
