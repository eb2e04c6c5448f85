//! Real sockets and files beside a counting allocator. A program apart from `../it`: it counts the
//! calls of all threads with the names of the server's threads, so no other test may run beside one
//! of these, and they take turns.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

mod counting;
mod file_writer;
mod reactor;
mod rtp;
mod udp;

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Mutex, MutexGuard, PoisonError};

use counting::{ALLOCATED, COUNTING, FREED};

/// Waits until no other test runs, and sets the counts to zero. Each test holds it until its
/// threads have ended.
fn exclusive_counts() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // A test that has failed does not make the others fail.
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    COUNTING.store(false, SeqCst);
    ALLOCATED.store(0, SeqCst);
    FREED.store(0, SeqCst);
    turn
}
