//! A counting allocator: the proof that a real-time path neither allocates nor frees.
//!
//! A test program makes it its allocator, and asks what its thread has called:
//!
//! ```
//! use aulos_blackbox::alloc::{CountingAllocator, calls_during};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator::new();
//!
//! assert_eq!(calls_during(|| drop(vec![1])), 2);
//! assert_eq!(calls_during(|| ()), 0);
//! ```
//!
//! Each such test program shows once that its counter counts: without the two lines above, nothing
//! would ever be found.

#![allow(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// A call of the allocator. A reallocation is one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocatorCall {
    /// Memory was requested.
    Alloc,
    /// Memory was given back.
    Free,
}

/// The system's allocator with an observer.
#[derive(Clone, Copy, Debug)]
pub struct CountingAllocator(fn(AllocatorCall));

impl CountingAllocator {
    /// Counts the calls of each thread, for [`calls`].
    #[must_use]
    pub const fn new() -> Self {
        Self(count)
    }

    /// Passes each call to `observer`, which must not allocate.
    #[must_use]
    pub const fn observed_by(observer: fn(AllocatorCall)) -> Self {
        Self(observer)
    }
}

impl Default for CountingAllocator {
    fn default() -> Self {
        Self::new()
    }
}

/// Calls of this thread since its beginning.
#[must_use]
pub fn calls() -> u64 {
    let (allocated, freed) = CALLS.get();
    allocated + freed
}

/// Allocations of this thread since its beginning.
#[must_use]
pub fn allocations() -> u64 {
    CALLS.get().0
}

/// Calls of this thread during `work`.
pub fn calls_during(work: impl FnOnce()) -> u64 {
    let before = calls();
    work();
    calls() - before
}

thread_local! {
    /// Allocations and frees of this thread. `const`, so that reading it does not allocate.
    static CALLS: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

fn count(call: AllocatorCall) {
    let (allocated, freed) = CALLS.get();
    CALLS.set(match call {
        AllocatorCall::Alloc => (allocated + 1, freed),
        AllocatorCall::Free => (allocated, freed + 1),
    });
}

// SAFETY: every call goes to the system's allocator with the arguments it came with.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        (self.0)(AllocatorCall::Alloc);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        (self.0)(AllocatorCall::Free);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}
