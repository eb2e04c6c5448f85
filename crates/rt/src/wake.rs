//! How one end sleeps and the other wakes it, with a system call only when somebody sleeps.
//!
//! The sleeper says "asleep", puts up a fence, looks once more, and only then sleeps. The peer
//! publishes, puts up a fence, and looks whether somebody is asleep. With both fences at least one
//! of them sees the other; take one out and a wake can be lost (the models show it).

use std::task::Context;
use std::time::Duration;

use atomic_waker::AtomicWaker;

use crate::sync::{AtomicBool, AtomicU32, Ordering, full_fence};
use crate::sys;

/// One end's bed: it sleeps here, as a thread or as a task. Any number of threads may ring. The mark
/// says which of the two it is, so that a task is not also looked for in the kernel.
///
/// The mark is only ever swapped: so its changes have one order that all threads agree on, whoever
/// of several rings. A plain store of the sleeper's would be right too, but only by an argument on
/// swaps next to it that the models do not follow.
#[derive(Debug, Default)]
pub(crate) struct WaitCell {
    asleep: AtomicU32,
    cancelled: AtomicBool,
    waker: AtomicWaker,
}

impl WaitCell {
    /// Sleeps until rung or `limit` is over, unless `ready`. May wake early: look again.
    pub(crate) fn sleep(&self, limit: Option<Duration>, ready: impl FnOnce() -> bool) {
        self.asleep.swap(THREAD, Ordering::AcqRel);
        full_fence();
        if !ready() && !self.cancelled.load(Ordering::Relaxed) {
            sys::futex_wait(&self.asleep, THREAD, limit);
        }
        self.asleep.swap(AWAKE, Ordering::AcqRel);
    }

    /// Leaves the task's waker here. If `ready` meanwhile, answers true and takes nothing back:
    /// one wake too many does no harm.
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

    /// Wakes the sleeper if there is one and it is `wanted`.
    pub(crate) fn wake(&self, wanted: impl FnOnce() -> bool) {
        full_fence();
        if !self.is_asleep() || !wanted() {
            return;
        }
        match self.asleep.swap(AWAKE, Ordering::AcqRel) {
            THREAD => sys::futex_wake(&self.asleep),
            TASK => self.waker.wake(),
            // Another one was faster.
            _ => {}
        }
    }

    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Acquire) != AWAKE
    }

    /// Ends the wait that goes on now, or the next one.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.wake(|| true);
    }

    /// Whether the wait was cancelled; answers true once per cancel.
    pub(crate) fn take_cancel(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) && self.cancelled.swap(false, Ordering::Acquire)
    }
}

const AWAKE: u32 = 0;
const THREAD: u32 = 1;
const TASK: u32 = 2;
