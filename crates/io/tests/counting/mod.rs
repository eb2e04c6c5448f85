//! A counting allocator for the threads that process or write audio.

#![allow(unsafe_code, reason = "a counting allocator is the proof, and allocators are unsafe")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

struct Counting;

/// Whether counting is enabled, and the counts of the server's threads.
pub(crate) static COUNTING: AtomicBool = AtomicBool::new(false);
pub(crate) static ALLOCATED: AtomicU64 = AtomicU64::new(0);
pub(crate) static FREED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_OURS: Cell<Option<bool>> = const { Cell::new(None) };
}

/// The prefixes of their names.
const SERVER_THREAD_PREFIXES: [&str; 6] =
    ["aulos-disk", "aulos-net-", "aulos-producer", "aulos-record-", "aulos-station-", "aulos-udp-"];

/// Whether this thread processes audio; determined once, without allocating.
fn is_server_thread() -> bool {
    if let Some(known) = IS_OURS.get() {
        return known;
    }
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes at most 16 bytes, with a zero at the end.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let ours = SERVER_THREAD_PREFIXES.iter().any(|prefix| name.starts_with(prefix.as_bytes()));
    IS_OURS.set(Some(ours));
    ours
}

fn count(counter: &AtomicU64) {
    if COUNTING.load(SeqCst) && is_server_thread() {
        counter.fetch_add(1, SeqCst);
    }
}

// SAFETY: every call goes to the system's allocator with the arguments it came with.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(&ALLOCATED);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(&FREED);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
