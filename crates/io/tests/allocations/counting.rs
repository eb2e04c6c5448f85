//! A counting allocator for the threads that process or write audio.

#![allow(unsafe_code, reason = "the name of a thread comes from the kernel")]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use aulos_blackbox::alloc::{AllocatorCall, CountingAllocator};
use aulos_rt::scratch::ScratchAllocator;

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

fn count(call: AllocatorCall) {
    if COUNTING.load(SeqCst) && is_server_thread() {
        let counter = if call == AllocatorCall::Alloc { &ALLOCATED } else { &FREED };
        counter.fetch_add(1, SeqCst);
    }
}

#[global_allocator]
static ALLOCATOR: ScratchAllocator<CountingAllocator> =
    ScratchAllocator::over(CountingAllocator::observed_by(count));
