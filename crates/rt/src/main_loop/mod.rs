//! An event loop for a thread of the caller: closures on channels, futures and timers.
//!
//! ```text
//!  other threads                                     the loop's thread
//!  Sender::send --------------> channel -----------> attach(receiver, closure)
//!  LoopHandle::spawn, call ---> inbox -------------> futures (LocalHandle::spawn if not Send)
//!  LoopHandle::sleep, every --> inbox -> timers ---> futures, on any thread
//!  Notifier::notify ----------> notifications -----> dispatch(dispatcher)
//! ```
//!
//! A [`MainLoop`] is a state machine: [`MainLoop::poll`] does what is due at `now` and returns the
//! time of the next call. [`MainLoop::run`] does that on the calling thread and sleeps in between;
//! this crate starts no thread. Inside another loop (glib, winit, epoll), poll it when
//! [`MainLoop::fd`] is readable or the returned time has come.
//!
//! The server does not use it: its control plane has tokio. It is for other programs, with a loop
//! of their own or none; the example `workers_to_main_loop` shows it.
//!
//! # Guarantees
//! * Everything runs sequentially on the polling thread.
//! * Work that is due is interleaved: a closure gets at most 64 items of its channel before other
//!   tasks run, and a poll runs at most 256 turns before it checks its timers and returns.
//! * Timers fire in the order of their times, those with equal times in the order in which they
//!   were armed, never before their time on the clock that the loop is polled with.
//! * Dropping a [`Task`] cancels it: its future is dropped on the loop's thread, soon.
//!   [`Task::detach`] lets it run on.
//! * A panic in a future or closure propagates out of `poll` or `run`. Only that future (or the
//!   attached closure, with its receiver) is lost: the loop can be polled again.
//! * Dropping the loop drops all its futures, on its thread. Timers of the loop that other threads
//!   wait for end at once, and what is spawned later is dropped.
//!
//! # Not guaranteed
//! * Real-time safety: tasks allocate, and waking may make a system call. A real-time thread
//!   communicates with the loop through a [`RealtimeSender`](crate::channel::RealtimeSender) or a
//!   [`Notifier`](crate::notify::Notifier).
//! * Files and sockets: use a reactor or a foreign loop for them.
//!
//! # Rejected alternatives
//! A custom executor: tasks are those of the `async-task` crate, and this loop's inbox is its run
//! queue. `LocalPool` of `futures-executor` sleeps by its own rules on its own thread and has no
//! timers; `async-executor` has a second queue, whose wake would have to be combined with ours.
//!
//! # Examples
//! ```
//! use std::cell::Cell;
//! use std::rc::Rc;
//! use std::time::Duration;
//!
//! use aulos_rt::channel::bounded;
//! use aulos_rt::main_loop::MainLoop;
//!
//! let mut main_loop = MainLoop::new();
//! let (sender, receiver) = bounded(16);
//! // What is attached may hold what belongs to this thread.
//! let sum = Rc::new(Cell::new(0));
//! let seen = Rc::clone(&sum);
//! main_loop.local().attach(receiver, move |item: i32| seen.set(seen.get() + item)).detach();
//!
//! let handle = main_loop.handle();
//! std::thread::scope(|scope| {
//!     scope.spawn(move || {
//!         (1..=4).for_each(|item| sender.send(item).unwrap());
//!         let later = handle.sleep(Duration::from_millis(1));
//!         let quit = handle.clone();
//!         let work = async move {
//!             later.await;
//!             quit.quit();
//!         };
//!         handle.spawn(work).detach();
//!     });
//!     main_loop.run();
//! });
//! assert_eq!(sum.get(), 10);
//! ```

mod attach;
mod handle;
mod shared;
mod task;
mod task_list;
#[cfg(test)]
mod tests;
mod timer;
mod timer_heap;

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

pub use handle::{LocalHandle, LoopHandle};
pub use task::Task;
pub use timer::{Interval, Sleep};

use self::shared::{Command, Shared};
use self::task_list::Tasks;
use self::timer_heap::TimerHeap;
use crate::channel::{Receiver, SignalWaker, unbounded};
use crate::sys::Signal;
use crate::{clock, sys};

/// The event loop. It stays on the thread on which it was created.
pub struct MainLoop {
    local: LocalHandle,
    inbox: Receiver<Command>,
    timers: TimerHeap,
    tasks: Tasks,
    fd: Option<(Arc<Signal>, Waker)>,
}

/// Maximum number of commands that one poll handles before it checks the timers again.
const MAX_COMMANDS_PER_POLL: usize = 256;

impl MainLoop {
    /// Creates an idle loop.
    #[must_use]
    pub fn new() -> Self {
        let (sender, inbox) = unbounded();
        let handle = LoopHandle { shared: Arc::new(Shared::new(sender)) };
        let local = LocalHandle { handle, not_send: PhantomData };
        Self { local, inbox, timers: TimerHeap::default(), tasks: Tasks::default(), fd: None }
    }

    /// Does what is due at `now`, and returns the time of the next call if no wake comes before;
    /// `None` if no timer is set. A time that is not after `now` means that more work is due at
    /// once. Calling earlier does no harm.
    ///
    /// `now` is in nanoseconds, on the clock of [`clock::now`] or, in a test, any other. If it goes
    /// backwards, the loop's time stands still.
    ///
    /// # Panics
    /// If a future or closure panics; the loop then drops it.
    pub fn poll(&mut self, now: u64) -> Option<u64> {
        let now = self.local.handle.shared.advance(now);
        self.timers.fire(now);
        for _ in 0..MAX_COMMANDS_PER_POLL {
            match self.inbox.try_recv() {
                Ok(Command::Run(runnable)) => self.tasks.run(runnable),
                Ok(Command::ArmTimer(timer)) => self.timers.insert(now, timer),
                Err(_) => break,
            }
        }
        if self.has_work() { Some(now) } else { self.timers.next() }
    }

    /// Polls on the calling thread until [`LoopHandle::quit`] is called, sleeping in between. The
    /// current turn is finished; then this returns, and can be called again.
    ///
    /// # Panics
    /// Like [`MainLoop::poll`].
    pub fn run(&mut self) {
        sys::precise_sleep();
        loop {
            let next = self.poll(clock::now());
            if self.local.handle.shared.take_quit() {
                return;
            }
            let left = next.map(clock::remaining);
            if left.is_none_or(|left| !left.is_zero()) {
                self.inbox.sleep(left, || self.local.handle.shared.is_quitting());
            }
        }
    }

    /// A file descriptor that is readable when another thread has work for the loop. A poll that
    /// returns no time or a later one has cleared it. Available on Linux only, as `AsFd`. Do not
    /// read from it or write to it.
    ///
    /// # Errors
    /// If the system does not support it (poll from a timer then) or the process has no free
    /// descriptor.
    pub fn fd(&mut self) -> io::Result<LoopFd> {
        let signal = match &self.fd {
            Some((signal, _)) => signal.clone(),
            None => {
                let signal = Arc::new(Signal::new()?);
                // The first poll clears it and registers the waker.
                signal.raise();
                let waker = Waker::from(Arc::new(SignalWaker(signal.clone())));
                self.fd = Some((signal.clone(), waker));
                signal
            }
        };
        Ok(LoopFd { signal })
    }

    /// Handle for the loop's own thread; also for use inside closures and futures.
    #[must_use]
    pub fn local(&self) -> &LocalHandle {
        &self.local
    }

    /// Handle for any thread.
    #[must_use]
    pub fn handle(&self) -> LoopHandle {
        self.local.handle.clone()
    }

    /// Whether more work is due at once. If not, and there is a descriptor, it will become
    /// readable.
    fn has_work(&self) -> bool {
        let Some((signal, waker)) = self.fd.as_ref().filter(|_| self.inbox.is_empty()) else {
            return !self.inbox.is_empty();
        };
        // In this order: a command that comes after the check in `register_waker` raises the signal
        // again.
        signal.clear();
        let wanted = self.inbox.register_waker(&Context::from_waker(waker));
        if wanted {
            signal.raise();
        }
        wanted
    }
}

impl Default for MainLoop {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for MainLoop {
    fn drop(&mut self) {
        self.tasks.wake_all();
        loop {
            // The futures are dropped here, with what they own.
            while let Ok(command) = self.inbox.try_recv() {
                drop(command);
            }
            if !self.tasks.has_unfinished() {
                return;
            }
            // Another thread is waking a task, whose runnable arrives soon.
            self.inbox.sleep(Some(DROP_POLL_INTERVAL), || false);
        }
    }
}

const DROP_POLL_INTERVAL: Duration = Duration::from_millis(1);

impl fmt::Debug for MainLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut this = f.debug_struct("MainLoop");
        this.field("timers", &self.timers).field("tasks", &self.tasks).finish_non_exhaustive()
    }
}

/// The file descriptor of a [`MainLoop`]; made by [`MainLoop::fd`], on Linux it is `AsFd`.
#[derive(Clone, Debug)]
pub struct LoopFd {
    signal: Arc<Signal>,
}

impl LoopFd {
    #[allow(dead_code, reason = "not everywhere is there a descriptor to give out")]
    pub(crate) fn signal(&self) -> &Signal {
        &self.signal
    }
}
