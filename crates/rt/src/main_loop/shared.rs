//! State that a loop shares with its handles, tasks and timers.

use std::sync::atomic::{AtomicBool, Ordering};

use portable_atomic::AtomicU64;

use super::task_list::Runnable;
use super::timer_heap::ArmedTimer;
use crate::channel::UnboundedSender;

/// Work for the loop's thread.
pub(super) enum Command {
    Run(Runnable),
    ArmTimer(ArmedTimer),
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

    /// The time of the loop's latest poll, in nanoseconds.
    pub(super) fn now(&self) -> u64 {
        self.now.load(Ordering::Acquire)
    }

    /// Advances the loop's time to `now`, never backwards. Called by the loop's thread only.
    pub(super) fn advance(&self, now: u64) -> u64 {
        let now = now.max(self.now.load(Ordering::Relaxed));
        self.now.store(now, Ordering::Release);
        now
    }

    /// Has the loop's run end after the current turn.
    pub(super) fn quit(&self) {
        self.quit.store(true, Ordering::Release);
        self.inbox.wake();
    }

    pub(super) fn is_quitting(&self) -> bool {
        self.quit.load(Ordering::Relaxed)
    }

    pub(super) fn take_quit(&self) -> bool {
        self.quit.swap(false, Ordering::Acquire)
    }
}
