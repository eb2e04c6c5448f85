//! A small loop for a thread that belongs to the caller: closures on channels, futures and timers.
//!
//! ```text
//!  other threads                                   the loop's thread
//!  Sender::send ------------> channel -----------> attach(receiver, closure)
//!  Handle::spawn, call -----> inbox -------------> futures; Local::spawn for those that stay here
//!  Handle::sleep, every ----> inbox -> timers ---> futures, wherever they run
//!  Notifier::notify --------> lines -------------> dispatch(dispatcher)
//! ```
//!
//! A [`MainLoop`] is a machine: [`MainLoop::poll`] does what is due at `now` and answers when to come
//! again. [`MainLoop::run`] does that on the calling thread and sleeps in between; this crate starts
//! no thread. Inside another loop (glib, winit, epoll), poll it when [`MainLoop::fd`] is readable or
//! the answered time has come.
//!
//! # What is promised
//! * Everything runs on the thread that polls, one after the other.
//! * What is due runs in turn: a closure gets at most 64 items of its channel before the others have
//!   their turn, and a poll runs at most 256 turns before it looks at its timers and answers.
//! * Timers fire in the order of their times, those of the same time in the order of their arming,
//!   never before their time on the clock that the loop is polled with.
//! * A [`Task`] that is dropped is cancelled: its future is dropped on the loop's thread, soon.
//!   [`Task::detach`] lets it run on.
//! * A panic in a future or closure comes out of `poll` or `run`. Only the future (or the attached
//!   closure, with its receiver) is lost: the loop can be polled on.
//! * When the loop is dropped, all its futures are dropped, on its thread. Timers of the loop that
//!   others wait for end at once, and what is spawned later is dropped.
//!
//! # What is not promised
//! * Real-time safety: tasks allocate, and waking may call the system. A real-time thread talks to
//!   the loop through a [`RealtimeSender`](crate::channel::RealtimeSender) or a
//!   [`Notifier`](crate::notify::Notifier).
//! * Files and sockets: let a reactor or a foreign loop do them.
//!
//! # Rejected
//! An executor of our own: tasks are those of the `async-task` crate, and this loop's inbox is its
//! run queue. `LocalPool` of `futures-executor` sleeps by its own rules on its own thread and has no
//! timers; `async-executor` brings a second queue, whose wake would have to be joined with ours.
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
mod task;
#[cfg(test)]
mod tests;
mod timer;

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

pub use handle::{LocalHandle, LoopHandle};
pub use task::Task;
pub use timer::{Interval, Sleep};

use self::handle::Shared;
use self::task::Tasks;
use self::timer::TimerHeap;
use crate::channel::{Receiver, SignalWaker, unbounded};
use crate::sys::Signal;
use crate::{clock, sys};

/// The loop. It stays on the thread on which it was made.
pub struct MainLoop {
    local: LocalHandle,
    inbox: Receiver<Command>,
    timers: TimerHeap,
    tasks: Tasks,
    fd: Option<(Arc<Signal>, Waker)>,
}

/// What is to be done on the loop's thread.
enum Command {
    Run(task::Runnable),
    ArmTimer(timer::ArmedTimer),
}

/// Commands that one poll handles before it looks at the timers again.
const MAX_COMMANDS_PER_POLL: usize = 256;

impl MainLoop {
    /// A loop with nothing to do.
    #[must_use]
    pub fn new() -> Self {
        let (sender, inbox) = unbounded();
        let handle = LoopHandle { shared: Arc::new(Shared::new(sender)) };
        let local = LocalHandle { handle, not_send: PhantomData };
        Self { local, inbox, timers: TimerHeap::default(), tasks: Tasks::default(), fd: None }
    }

    /// Does what is due at `now`, and answers when to call again if nothing wakes the loop before;
    /// `None` if no timer is set. An answer that is not after `now` means that there is more to do
    /// at once. Calling earlier than answered does no harm.
    ///
    /// `now` is nanoseconds, on the clock of [`clock::now`] or, in a test, any other. If it goes
    /// back, the loop's time stands still.
    ///
    /// # Panics
    /// With the panic of a future or closure, of which it was the last run.
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

    /// Polls on the calling thread until somebody calls [`Handle::quit`], sleeping in between. The
    /// turn in which that happens is finished; then this returns, and can be called again.
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

    /// A file descriptor that is readable when another thread wants the loop to be polled. A poll
    /// that answers no time or a later one has taken it down. It is on Linux only, as `AsFd`. Do not
    /// read from it or write to it.
    ///
    /// # Errors
    /// Where the system has no such thing: poll from a timer. Or when the process has no descriptor
    /// left.
    pub fn fd(&mut self) -> io::Result<LoopFd> {
        let signal = match &self.fd {
            Some((signal, _)) => signal.clone(),
            None => {
                let signal = Arc::new(Signal::new()?);
                // The first poll arms it.
                signal.raise();
                let waker = Waker::from(Arc::new(SignalWaker(signal.clone())));
                self.fd = Some((signal.clone(), waker));
                signal
            }
        };
        Ok(LoopFd { signal })
    }

    /// What the loop's own thread can ask of it; also from inside closures and futures.
    #[must_use]
    pub fn local(&self) -> &LocalHandle {
        &self.local
    }

    /// What any thread can ask of it.
    #[must_use]
    pub fn handle(&self) -> LoopHandle {
        self.local.handle.clone()
    }

    /// There is more to do at once. If not, and there is a descriptor, it will become readable.
    fn has_work(&self) -> bool {
        let Some((signal, waker)) = self.fd.as_ref().filter(|_| self.inbox.is_empty()) else {
            return !self.inbox.is_empty();
        };
        // In this order: what comes after the look in `leave` raises it again.
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
            // Futures are dropped here, with what they own.
            while let Ok(command) = self.inbox.try_recv() {
                drop(command);
            }
            if !self.tasks.has_unfinished() {
                return;
            }
            // Another thread is just waking a task, and its runnable will be here in a moment.
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

/// The descriptor of a [`MainLoop`]; made by [`MainLoop::fd`], on Linux it is `AsFd`.
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

/// What makes a value stay on its thread.
type NotSend = PhantomData<Rc<()>>;
