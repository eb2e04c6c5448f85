//! Handles of a loop, for its own thread and for others.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::attach::{AttachedReceiver, dispatch};
use super::task::{self, Task};
use super::timer::{Interval, Sleep, TimerExpiry};
use super::{Command, NotSendMarker};
use crate::channel::{Receiver, UnboundedSender};
use crate::notify::Dispatcher;

/// Handle for the loop's own thread. Clones refer to the same loop.
#[derive(Clone, Debug)]
pub struct LocalHandle {
    pub(super) handle: LoopHandle,
    pub(super) not_send: NotSendMarker,
}

impl LocalHandle {
    /// Runs `each` for every item of the channel, in order. The task is finished after the last
    /// item, when the channel is closed; if it is dropped before that, the receiver is dropped.
    ///
    /// While there is a [`RealtimeSender`](crate::channel::RealtimeSender), which does not wake the
    /// loop, the loop polls the channel every 5 ms.
    pub fn attach<T, F>(&self, receiver: Receiver<T>, each: F) -> Task<()>
    where
        T: Send + 'static,
        F: FnMut(T) + 'static,
    {
        self.spawn(AttachedReceiver::new(self.handle.clone(), receiver, each))
    }

    /// Polls a dispatcher at the times that it returns, so that its callbacks run on this loop. Not
    /// for [`PollStrategy::Event`](crate::notify::PollStrategy::Event), which returns no time.
    ///
    /// [`Notifier::callback_ended`](crate::notify::Notifier::callback_ended) and the loop must use
    /// the same clock.
    pub fn dispatch<F>(&self, dispatcher: Dispatcher<F>) -> Task<()>
    where
        F: ?Sized + FnMut() + 'static,
    {
        self.spawn(dispatch(self.handle.clone(), dispatcher))
    }

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
        Sleep::new(self.clone(), TimerExpiry::At(at))
    }

    /// Waits for `span`, counted from the poll of the loop that follows the future's first poll,
    /// not from this call.
    pub fn sleep(&self, span: Duration) -> Sleep {
        Sleep::new(self.clone(), TimerExpiry::after(span))
    }

    /// A timer that ticks every `period`, the first time one period after its first poll.
    pub fn every(&self, period: Duration) -> Interval {
        Interval::new(self.clone(), period)
    }

    /// The time of the loop's latest poll, in nanoseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.shared.now.load(Ordering::Acquire)
    }

    /// Ends [`MainLoop::run`](super::MainLoop::run) after the current turn; if it does not run, the
    /// next run ends after its first turn.
    pub fn quit(&self) {
        self.shared.quit.store(true, Ordering::Release);
        self.shared.inbox.wake();
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

/// State that the loop and its handles share.
pub(super) struct Shared {
    inbox: UnboundedSender<Command>,
    quit: AtomicBool,
    now: AtomicU64,
}

impl Shared {
    pub(super) fn new(inbox: UnboundedSender<Command>) -> Self {
        Self { inbox, quit: AtomicBool::new(false), now: AtomicU64::new(0) }
    }

    /// Sends a command to the loop; returns it, to be dropped by the caller, if the loop is gone.
    pub(super) fn send(&self, command: Command) -> Result<(), Command> {
        self.inbox.send(command).map_err(|closed| closed.0)
    }

    /// Advances the loop's time to `now`, never backwards. Called by the loop's thread only.
    pub(super) fn advance(&self, now: u64) -> u64 {
        let now = now.max(self.now.load(Ordering::Relaxed));
        self.now.store(now, Ordering::Release);
        now
    }

    pub(super) fn is_quitting(&self) -> bool {
        self.quit.load(Ordering::Relaxed)
    }

    pub(super) fn take_quit(&self) -> bool {
        self.quit.swap(false, Ordering::Acquire)
    }
}
