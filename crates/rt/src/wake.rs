//! Sleeping and waking of one end by the other, with a system call only if an end sleeps.
//!
//! The sleeping end sets its mark, issues a fence, checks the condition once more, and only then
//! sleeps. The peer publishes, issues a fence, and checks the mark. With both fences at least one
//! of them sees the other's store; without either, a wake can be lost (the loom models show it).

use std::task::Context;
use std::time::Duration;

use atomic_waker::AtomicWaker;

use crate::sync::{AtomicBool, AtomicU32, Ordering, full_fence};
use crate::sys;

/// One end sleeps here, as a thread or as a task; any number of threads may wake it. The mark
/// distinguishes thread and task, so that waking a task makes no futex call.
///
/// The mark is changed by swaps only, so all threads agree on the order of its changes, whichever
/// of several threads wakes. A plain store by the sleeping end would be correct too, but only by an
/// argument about adjacent swaps that the models do not cover.
#[derive(Debug, Default)]
pub(crate) struct WaitCell {
    asleep: AtomicU32,
    cancelled: AtomicBool,
    waker: AtomicWaker,
}

impl WaitCell {
    /// Sleeps until woken or until `limit` is over, unless `ready`. May return early: check the
    /// condition again.
    pub(crate) fn sleep(&self, limit: Option<Duration>, ready: impl FnOnce() -> bool) {
        self.asleep.swap(THREAD, Ordering::AcqRel);
        full_fence();
        if !ready() && !self.cancelled.load(Ordering::Relaxed) {
            sys::futex_wait(&self.asleep, THREAD, limit);
        }
        self.asleep.swap(AWAKE, Ordering::AcqRel);
    }

    /// Registers the task's waker. If `ready` by then, returns true and leaves the waker
    /// registered: a spurious wake does no harm.
    pub(crate) fn register_waker(
        &self,
        context: &Context<'_>,
        ready: impl FnOnce() -> bool,
    ) -> bool {
        self.waker.register(context.waker());
        self.asleep.swap(TASK, Ordering::AcqRel);
        full_fence();
        let awake = ready() || self.cancelled.load(Ordering::Relaxed);
        if awake {
            self.asleep.swap(AWAKE, Ordering::AcqRel);
        }
        awake
    }

    /// Wakes the sleeping end, if there is one and it is `wanted`.
    pub(crate) fn wake(&self, wanted: impl FnOnce() -> bool) {
        full_fence();
        if !self.is_asleep() || !wanted() {
            return;
        }
        match self.asleep.swap(AWAKE, Ordering::AcqRel) {
            THREAD => sys::futex_wake(&self.asleep),
            TASK => self.waker.wake(),
            // Another thread has woken it already.
            _ => {}
        }
    }

    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Acquire) != AWAKE
    }

    /// Ends the current wait, or the next one.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.wake(|| true);
    }

    /// Whether the wait was cancelled; true once per cancellation.
    pub(crate) fn take_cancel(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) && self.cancelled.swap(false, Ordering::Acquire)
    }
}

const AWAKE: u32 = 0;
const THREAD: u32 = 1;
const TASK: u32 = 2;
