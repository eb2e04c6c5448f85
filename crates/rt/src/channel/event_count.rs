//! Where senders sleep until there is room.
//!
//! A [`Bell`](crate::bell::Bell) has one sleeper; here there may be many. Each counts itself, looks
//! at the epoch, puts up a fence, looks for room once more, and sleeps while the epoch is the same.
//! The receiver makes room, puts up a fence, and if somebody is counted it starts a new epoch and
//! wakes one. Who wakes and finds no room sleeps again: then another sender has it.

use std::time::Duration;

use crate::sync::{AtomicU32, Ordering, full_fence};
use crate::sys;

#[derive(Debug, Default)]
pub(super) struct EventCount {
    waiting: AtomicU32,
    epoch: AtomicU32,
}

impl EventCount {
    /// Sleeps until there may be room or `limit` is over, unless `ready`. May wake early. Who gives
    /// up after it must look for room a last time: the wake may have been the only one.
    pub(super) fn wait(&self, limit: Option<Duration>, ready: impl FnOnce() -> bool) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let epoch = self.epoch.load(Ordering::Acquire);
        full_fence();
        if !ready() {
            sys::futex_wait(&self.epoch, epoch, limit);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// One place is free: wakes one who waits for it.
    pub(super) fn notify_one(&self) {
        if self.advance_epoch() {
            sys::futex_wake_one(&self.epoch);
        }
    }

    /// There will be no more room: wakes all.
    pub(super) fn notify_all(&self) {
        if self.advance_epoch() {
            sys::futex_wake(&self.epoch);
        }
    }

    fn advance_epoch(&self) -> bool {
        full_fence();
        let wanted = self.waiting.load(Ordering::Relaxed) > 0;
        if wanted {
            self.epoch.fetch_add(1, Ordering::Release);
        }
        wanted
    }
}
