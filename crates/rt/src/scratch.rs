//! Working memory of libraries that ask the allocator for it in every call.
//!
//! Such a library gives back all of it before it returns. A thread with a deadline cannot let it
//! call the system's allocator, which may lock and ask the kernel. In a program whose allocator is
//! a [`ScratchAllocator`], what a thread asks for during [`with_scratch`] comes from an arena that
//! no other thread has, as from a stack; everything else comes from the allocator behind it.
//! Without such an allocator [`with_scratch`] changes nothing.
//!
//! Calling the library on another thread was rejected for what has a delay of a few milliseconds:
//! `docs/decisions/opus-codec.md`.
//!
//! The memory is static, so that a pointer tells where it came from. So it is no error when a block
//! outlives its call or is freed by another thread: it only keeps its place in the arena. An arena
//! that is full, or a thread for which none is left, gets memory from the allocator behind.
#![allow(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::ptr;

use crate::sync::{AtomicU64, Ordering};

/// An allocator with an arena for each thread that is in [`with_scratch`].
///
/// # Examples
/// ```
/// use aulos_rt::scratch::{ScratchAllocator, with_scratch};
///
/// #[global_allocator]
/// static ALLOCATOR: ScratchAllocator = ScratchAllocator::new();
///
/// // Does not reach the system's allocator.
/// assert_eq!(with_scratch(|| vec![1; 1_000].len()), 1_000);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ScratchAllocator<A = System>(A);

impl ScratchAllocator {
    /// In front of the system's allocator.
    #[must_use]
    pub const fn new() -> Self {
        Self(System)
    }
}

impl Default for ScratchAllocator {
    fn default() -> Self {
        Self::new()
    }
}

impl<A> ScratchAllocator<A> {
    /// In front of another allocator.
    pub const fn over(allocator: A) -> Self {
        Self(allocator)
    }
}

/// Calls `work`, which takes memory from the thread's arena.
///
/// # Real-time
/// Does not allocate, lock or call the system. The first call of a thread does all of it.
pub fn with_scratch<R>(work: impl FnOnce() -> R) -> R {
    lease_arena();
    let _mode = switch(true);
    work()
}

/// Calls `work`, which takes memory from the allocator behind the arena: for what outlives the
/// [`with_scratch`] around it.
///
/// # Real-time
/// Does not allocate, lock or call the system.
pub fn outside_scratch<R>(work: impl FnOnce() -> R) -> R {
    let _mode = switch(false);
    work()
}

/// What a thread knows of its arena.
#[derive(Clone, Copy)]
struct Scratch {
    /// The first byte; null while the thread has no arena.
    base: *mut u8,
    /// Bytes in use from the beginning, with gaps.
    used: usize,
    /// Blocks in use.
    blocks: usize,
    is_active: bool,
}

impl Scratch {
    /// Takes a block behind those in use.
    fn take(&mut self, layout: Layout) -> Option<*mut u8> {
        let begin = self.used.checked_next_multiple_of(layout.align())?;
        let end = begin.checked_add(layout.size())?;
        if !self.is_active || end > ARENA_BYTES || layout.align() > ARENA_ALIGN {
            return None;
        }
        (self.used, self.blocks) = (end, self.blocks + 1);
        // SAFETY: an active arena has a base, and `begin` lies in its `ARENA_BYTES`.
        Some(unsafe { self.base.add(begin) })
    }

    /// Gives a block back.
    fn give_back(&mut self, block: *mut u8, size: usize) {
        let begin = block.addr().wrapping_sub(self.base.addr());
        if self.base.is_null() || begin >= ARENA_BYTES {
            // Of another thread: its place stays taken.
            return;
        }
        self.blocks -= 1;
        if self.blocks == 0 {
            self.used = 0;
        } else if begin + size == self.used {
            self.used = begin;
        }
    }
}

// SAFETY: a block of an arena lies behind all blocks of it that are in use, is aligned, and belongs
// to one thread; every other call goes to the allocator behind with the arguments it came with.
unsafe impl<A: GlobalAlloc> GlobalAlloc for ScratchAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let mut scratch = SCRATCH.get();
        match scratch.take(layout) {
            Some(block) => {
                SCRATCH.set(scratch);
                block
            }
            // SAFETY: the caller keeps the contract of `alloc`.
            None => unsafe { self.0.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let mut scratch = SCRATCH.get();
        match scratch.take(layout) {
            Some(block) => {
                SCRATCH.set(scratch);
                // SAFETY: the block has the size of the layout.
                unsafe { block.write_bytes(0, layout.size()) };
                block
            }
            // SAFETY: the caller keeps the contract of `alloc_zeroed`.
            None => unsafe { self.0.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_of_an_arena(block) {
            let mut scratch = SCRATCH.get();
            scratch.give_back(block, layout.size());
            SCRATCH.set(scratch);
        } else {
            // SAFETY: the caller keeps the contract of `dealloc`, and the block is of that
            // allocator.
            unsafe { self.0.dealloc(block, layout) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_of_an_arena(block) {
            // SAFETY: the caller keeps the contract of `realloc`, and the block is of that
            // allocator.
            return unsafe { self.0.realloc(block, layout, size) };
        }
        // SAFETY: the caller keeps the contract of `realloc`: the size is not zero and fits.
        let layout_after = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the same.
        let copy = unsafe { self.alloc(layout_after) };
        if !copy.is_null() {
            let shared = layout.size().min(size);
            // SAFETY: both blocks have that many bytes, and the new one is another one.
            unsafe { ptr::copy_nonoverlapping(block, copy, shared) };
            // SAFETY: the block is in use and has this layout.
            unsafe { self.dealloc(block, layout) };
        }
        copy
    }
}

/// Sets whether the thread's arena is in use, until the result is dropped.
fn switch(on: bool) -> Mode {
    let scratch = SCRATCH.get();
    let is_active = on && !scratch.base.is_null();
    SCRATCH.set(Scratch { is_active, ..scratch });
    Mode { outer: scratch.is_active }
}

/// Ends a [`switch`], also when a panic unwinds.
struct Mode {
    outer: bool,
}

impl Drop for Mode {
    fn drop(&mut self) {
        SCRATCH.set(Scratch { is_active: self.outer, ..SCRATCH.get() });
    }
}

/// Gives the thread an arena if it has none and one is left.
fn lease_arena() {
    let scratch = SCRATCH.get();
    if !scratch.base.is_null() {
        return;
    }
    // While the thread ends there is no lease any more, and so no arena.
    let number = LEASE.try_with(|lease| {
        if lease.0.get().is_none() {
            lease.0.set(take_number());
        }
        lease.0.get()
    });
    if let Ok(Some(number)) = number {
        // SAFETY: there are more arenas than the number.
        let base = unsafe { arenas().add(number as usize * ARENA_BYTES) };
        SCRATCH.set(Scratch { base, ..scratch });
    }
}

fn take_number() -> Option<u32> {
    let mut taken = TAKEN.load(Ordering::Relaxed);
    loop {
        let number = taken.trailing_ones();
        if number >= ARENAS {
            return None;
        }
        let with_it = taken | 1 << number;
        match TAKEN.compare_exchange(taken, with_it, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Some(number),
            Err(now) => taken = now,
        }
    }
}

/// The arena of a thread, free again when the thread ends.
struct Lease(Cell<Option<u32>>);

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(number) = self.0.get() else { return };
        let scratch = SCRATCH.replace(NO_SCRATCH);
        // An arena with a block in use is never used again.
        if scratch.blocks == 0 {
            TAKEN.fetch_and(!(1 << number), Ordering::Release);
        }
    }
}

fn arenas() -> *mut u8 {
    MEMORY.0.get().cast()
}

fn is_of_an_arena(block: *mut u8) -> bool {
    block.addr().wrapping_sub(arenas().addr()) < size_of::<Memory>()
}

/// All arenas. Zeros, so that a program contains none of it; the kernel gives what is touched.
#[repr(C, align(4096))]
struct Memory(UnsafeCell<[[u8; ARENA_BYTES]; ARENAS as usize]>);

// SAFETY: each arena is used by the one thread that has its number.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([[0; ARENA_BYTES]; ARENAS as usize]));

/// One bit for each arena that a thread has.
static TAKEN: AtomicU64 = AtomicU64::new(0);

const NO_SCRATCH: Scratch = Scratch { base: ptr::null_mut(), used: 0, blocks: 0, is_active: false };

thread_local! {
    /// Apart from the lease and without a destructor: the allocator reads it, and its first use
    /// must not allocate.
    static SCRATCH: Cell<Scratch> = const { Cell::new(NO_SCRATCH) };

    static LEASE: Lease = const { Lease(Cell::new(None)) };
}

/// The threads of a server that encode or decode at the same time, with some to spare: station
/// workers, reactors, codec pool and datagram threads are at most four each.
const ARENAS: u32 = 64;

/// Twice what libopus reserves where it has a stack of its own (`GLOBAL_STACK_SIZE`, 120,000
/// bytes).
const ARENA_BYTES: usize = 256 << 10;

/// That of a page: no library has asked for more.
const ARENA_ALIGN: usize = 4_096;

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "threads of a test")]

    use std::thread;

    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    /// The allocator of a test, whose calls of the one behind panic.
    struct Nothing;

    // SAFETY: it gives no memory.
    unsafe impl GlobalAlloc for Nothing {
        unsafe fn alloc(&self, _: Layout) -> *mut u8 {
            ptr::null_mut()
        }

        unsafe fn dealloc(&self, _: *mut u8, _: Layout) {
            unreachable!("the block is of an arena");
        }
    }

    const ALLOCATOR: ScratchAllocator<Nothing> = ScratchAllocator::over(Nothing);

    fn take(size: usize, align: usize) -> *mut u8 {
        // SAFETY: the size is not zero.
        unsafe { ALLOCATOR.alloc(layout(size, align)) }
    }

    fn free(block: *mut u8, size: usize) {
        // SAFETY: the tests free what they took.
        unsafe { ALLOCATOR.dealloc(block, layout(size, 1)) };
    }

    #[test]
    fn blocks_are_apart_and_aligned_and_their_place_is_used_again() {
        assert!(take(1, 1).is_null(), "outside of a call there is no arena");
        with_scratch(|| {
            let first = take(3, 1);
            let second = take(100, 64);
            assert_eq!(second.addr() % 64, 0);
            assert!(second.addr() >= first.addr() + 3);
            outside_scratch(|| assert!(take(1, 1).is_null()));
            free(second, 100);
            let third = take(1_000, 8);
            assert!(third.addr() <= second.addr(), "the last block's place is free again");
            free(first, 3);
            assert!(take(1, 1).addr() > third.addr(), "the first one's is not");
            free(third, 1_000);
        });
        // The last block is freed outside.
        let scratch = SCRATCH.get();
        assert_eq!(scratch.blocks, 1);
        // SAFETY: the block of one byte is the last one of the arena.
        let last = unsafe { scratch.base.add(scratch.used - 1) };
        free(last, 1);
        assert_eq!((SCRATCH.get().blocks, SCRATCH.get().used), (0, 0));
        assert!(take(1, 1).is_null());
    }

    #[test]
    fn a_full_arena_leaves_the_rest_to_the_allocator_behind() {
        with_scratch(|| {
            assert!(take(ARENA_BYTES + 1, 1).is_null());
            assert!(take(1, 2 * ARENA_ALIGN).is_null());
            let all = take(ARENA_BYTES, 1);
            assert!(!all.is_null());
            assert!(take(1, 1).is_null());
            free(all, ARENA_BYTES);
        });
    }

    #[test]
    fn memory_is_zeroed_where_that_is_wanted_and_kept_where_it_grows() {
        with_scratch(|| {
            let dirty = take(64, 1);
            // SAFETY: the block has 64 bytes.
            unsafe { dirty.write_bytes(7, 64) };
            free(dirty, 64);
            // SAFETY: the size is not zero.
            let clean = unsafe { ALLOCATOR.alloc_zeroed(layout(64, 1)) };
            assert_eq!(clean, dirty);
            // SAFETY: the block has 64 bytes, which are written.
            assert!(unsafe { std::slice::from_raw_parts(clean, 64) }.iter().all(|&byte| byte == 0));
            // SAFETY: the same.
            unsafe { clean.write_bytes(9, 64) };
            // SAFETY: the block is in use and has that layout.
            let longer = unsafe { ALLOCATOR.realloc(clean, layout(64, 1), 128) };
            // SAFETY: the block has 128 bytes, of which 64 are those of the other one.
            let copied = unsafe { std::slice::from_raw_parts(longer, 64) };
            assert!(copied.iter().all(|&byte| byte == 9));
            free(longer, 128);
        });
    }

    #[test]
    fn a_block_of_another_thread_keeps_its_place_and_an_arena_is_passed_on() {
        let arena = || with_scratch(|| SCRATCH.get().base.addr());
        let kept = thread::spawn(|| with_scratch(|| take(8, 8).addr())).join().unwrap();
        for _ in 0..2 * ARENAS {
            let base = thread::spawn(arena).join().unwrap();
            assert!(base != 0, "an arena is free again when its thread has ended");
            assert!(kept.wrapping_sub(base) >= ARENA_BYTES, "not one with a block in use");
        }
        free(ptr::with_exposed_provenance_mut(kept), 8);
    }

    #[test]
    fn a_panic_ends_the_use_of_the_arena() {
        let panicked = std::panic::catch_unwind(|| with_scratch(|| panic!("planned")));
        assert!(panicked.is_err());
        assert!(!SCRATCH.get().is_active);
    }
}
