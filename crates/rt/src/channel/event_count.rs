//! An event count: senders sleep until there is space in the queue.
//!
//! A [`WaitCell`](crate::wake::WaitCell) supports one sleeping thread; here there may be many. Each
//! sender counts itself, reads the epoch, issues a fence, checks for space once more, and sleeps
//! while the epoch is unchanged. The receiver frees space, issues a fence, and if a sender is
//! counted it starts a new epoch and wakes one. A sender that wakes and finds no space sleeps
//! again: another sender has taken it.

use std::time::Duration;

use crate::sync::{AtomicU32, Ordering, full_fence};
use crate::sys;

#[derive(Debug, Default)]
pub(super) struct EventCount {
    waiting: AtomicU32,
    epoch: AtomicU32,
}

impl EventCount {
    /// Sleeps until there may be space or `limit` is over, unless `ready`. May return early. After
    /// a timeout the sender must check for space a last time: the wake may have been the only one.
    pub(super) fn wait(&self, limit: Option<Duration>, ready: impl FnOnce() -> bool) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let epoch = self.epoch.load(Ordering::Acquire);
        full_fence();
        if !ready() {
            sys::futex_wait(&self.epoch, epoch, limit);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// One slot is free: wakes one sender.
    pub(super) fn notify_one(&self) {
        if self.advance_epoch() {
            sys::futex_wake_one(&self.epoch);
        }
    }

    /// No more slots will become free: wakes all senders.
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
