//! Handles of a loop, for its own thread and for others.

use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::shared::Shared;
use super::task::{self, Task};
use super::timer::{Interval, Sleep};
use super::timer_heap::TimerExpiry;

/// Handle for the loop's own thread. Clones refer to the same loop.
#[derive(Clone, Debug)]
pub struct LocalHandle {
    pub(super) handle: LoopHandle,
    pub(super) not_send: NotSendMarker,
}

impl LocalHandle {
    /// Runs a future that need not be `Send`.
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        task::spawn_local(&self.handle.shared, future)
    }

    /// Handle for other threads.
    #[must_use]
    pub fn handle(&self) -> &LoopHandle {
        &self.handle
    }
}

/// Handle for any thread. Clones refer to the same loop. Not for real-time threads.
#[derive(Clone)]
pub struct LoopHandle {
    pub(super) shared: Arc<Shared>,
}

impl LoopHandle {
    /// Runs a future on the loop's thread. If the loop is gone, the future is dropped.
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        task::spawn(&self.shared, future)
    }

    /// Runs a closure on the loop's thread, after what was submitted before it. If the loop is
    /// gone, the closure is dropped.
    pub fn call(&self, work: impl FnOnce() + Send + 'static) {
        self.spawn(async move { work() }).detach();
    }

    /// Waits until the loop's time is `at`, in nanoseconds on the clock that it is polled with. The
    /// future can be awaited on any thread.
    pub fn sleep_until(&self, at: u64) -> Sleep {
        Sleep::new(self.shared.clone(), TimerExpiry::At(at))
    }

    /// Waits for `span`, counted from the poll of the loop that follows the future's first poll,
    /// not from this call.
    pub fn sleep(&self, span: Duration) -> Sleep {
        Sleep::new(self.shared.clone(), TimerExpiry::after(span))
    }

    /// A timer that ticks every `period`, the first time one period after its first poll.
    pub fn every(&self, period: Duration) -> Interval {
        Interval::new(self.shared.clone(), period)
    }

    /// The time of the loop's latest poll, in nanoseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.shared.now()
    }

    /// Ends [`MainLoop::run`](super::MainLoop::run) after the current turn; if it does not run, the
    /// next run ends after its first turn.
    pub fn quit(&self) {
        self.shared.quit();
    }

    /// Whether [`LoopHandle::quit`] was called and no run has ended by it yet. A foreign loop in
    /// which this one is embedded checks this after every poll.
    #[must_use]
    pub fn is_quitting(&self) -> bool {
        self.shared.is_quitting()
    }
}

impl fmt::Debug for LoopHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("now", &self.now()).finish_non_exhaustive()
    }
}

/// Marker that keeps a value on its thread.
type NotSendMarker = PhantomData<Rc<()>>;
