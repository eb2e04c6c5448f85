//! A model of the kernel's futex: one lock around the comparison and the sleep, and a list of
//! sleeping threads per word. A thread that is never woken is a deadlock, which loom reports.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use loom::sync::{Condvar, Mutex};
use loom::thread;

use crate::sync::{AtomicU32, Ordering};

loom::lazy_static! {
    /// Sleeping threads with the address of their word.
    static ref ROW: Mutex<Vec<(usize, Arc<Condvar>)>> = Mutex::new(Vec::new());
}

fn name_of(word: &AtomicU32) -> usize {
    std::ptr::from_ref(word).addr()
}

/// A sleep with a time limit returns at once, which is allowed.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, limit: Option<Duration>) {
    if limit.is_some() {
        return thread::yield_now();
    }
    let mut row = ROW.lock().unwrap();
    if word.load(Ordering::SeqCst) != expected {
        return;
    }
    let bed = Arc::new(Condvar::new());
    row.push((name_of(word), bed.clone()));
    while row.iter().any(|(_, other)| Arc::ptr_eq(other, &bed)) {
        row = bed.wait(row).unwrap();
    }
}

pub(crate) fn futex_wake(word: &AtomicU32) {
    wake_at_most(word, usize::MAX);
}

pub(crate) fn futex_wake_one(word: &AtomicU32) {
    wake_at_most(word, 1);
}

fn wake_at_most(word: &AtomicU32, most: usize) {
    let mut row = ROW.lock().unwrap();
    for _ in 0..most {
        let Some(first) = row.iter().position(|(name, _)| *name == name_of(word)) else { return };
        row.remove(first).1.notify_one();
    }
}

/// A file descriptor with a `poll` for it.
#[derive(Debug)]
pub struct Signal {
    is_raised: Mutex<bool>,
    bed: Condvar,
}

impl Signal {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { is_raised: Mutex::new(false), bed: Condvar::new() })
    }

    pub(crate) fn raise(&self) {
        *self.is_raised.lock().unwrap() = true;
        self.bed.notify_all();
    }

    pub(crate) fn clear(&self) {
        *self.is_raised.lock().unwrap() = false;
    }

    /// Sleeps until the signal is raised.
    pub fn poll(&self) {
        let mut is_raised = self.is_raised.lock().unwrap();
        while !*is_raised {
            is_raised = self.bed.wait(is_raised).unwrap();
        }
    }
}

pub(crate) fn precise_sleep() {}
