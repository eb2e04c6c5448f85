//! Systems without calls of our own: correct, but sleepers look again instead of being woken.

use std::ptr::NonNull;
use std::time::Duration;

use crate::sync::{AtomicU32, Ordering};

/// Cannot be made here: rings use two slices.
#[derive(Debug)]
pub(crate) enum Mirror {}

impl Mirror {
    pub(crate) fn new(_at_least: usize) -> Option<Self> {
        None
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        match *self {}
    }

    pub(crate) fn size(&self) -> usize {
        match *self {}
    }
}

/// How often a sleeper looks. Long enough not to burn a core, short against a period.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Sleeps a little if `word` is `expected`; the caller looks again anyway.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    if word.load(Ordering::Acquire) == expected {
        std::thread::park_timeout(timeout.unwrap_or(LOOK_EVERY).min(LOOK_EVERY));
    }
}

/// Nothing to do: sleepers look by themselves.
pub(crate) fn futex_wake(_word: &AtomicU32) {}
