//! A futex as the kernel has it: one lock around "is the word still that?" and the sleep.
//! A sleeper whom nobody wakes is a deadlock, which loom reports.

use std::time::Duration;

use loom::sync::{Condvar, Mutex};

use crate::sync::{AtomicU32, Ordering};

loom::lazy_static! {
    static ref BUCKET: Mutex<()> = Mutex::new(());
    static ref SLEEPERS: Condvar = Condvar::new();
}

pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, _timeout: Option<Duration>) {
    let bucket = BUCKET.lock().unwrap();
    if word.load(Ordering::SeqCst) == expected {
        drop(SLEEPERS.wait(bucket).unwrap());
    }
}

pub(crate) fn futex_wake(_word: &AtomicU32) {
    let _bucket = BUCKET.lock().unwrap();
    SLEEPERS.notify_all();
}

pub(crate) fn precise_sleep() {}
