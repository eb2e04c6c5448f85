//! The end that takes items out.
#![allow(unsafe_code)]

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;

use super::TryRecvError;
use super::shared::{Core, Queue};
use crate::clock;
use crate::sync::Arc;

/// The end that takes items out: by hand, as a sleeping thread, or as a [`Stream`]. See also
/// [`Receiver::into_fd`] and [`Local::attach`](crate::main_loop::Local::attach).
///
/// When it is dropped, the channel is closed and what is in it is dropped on that thread.
pub struct Receiver<T> {
    core: Arc<Core<T>>,
}

impl<T> Receiver<T> {
    pub(super) fn new(core: Arc<Core<T>>) -> Self {
        Self { core }
    }

    /// Takes the oldest item out. Items come in the order in which senders reserved their places;
    /// one whose sender was interrupted before it had filled its place holds up those behind it, and
    /// until then the channel is empty for the receiver.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`], or [`TryRecvError::Closed`] when nothing can follow.
    ///
    /// # Real-time
    /// Of a bounded channel: wait-free, no allocation, no system call unless a [`Sender`](super::Sender)
    /// sleeps for room.
    #[inline]
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        if let Some(item) = self.pop() {
            return Ok(item);
        }
        if !self.is_ended() {
            return Err(TryRecvError::Empty);
        }
        // What was sent before the last sender went is visible by now.
        self.pop().ok_or(TryRecvError::Closed)
    }

    /// Sleeps until there is an item, and takes it out; `None` when nothing can follow.
    ///
    /// While there is a [`RealtimeSender`](super::RealtimeSender), which wakes nobody, it looks up
    /// once in a millisecond.
    pub fn recv(&mut self) -> Option<T> {
        self.recv_until(None).ok()
    }

    /// Like [`Receiver::recv`], but for this long at most.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`] when the time is over, [`TryRecvError::Closed`] when nothing can
    /// follow.
    pub fn recv_timeout(&mut self, limit: Duration) -> Result<T, TryRecvError> {
        self.recv_until(Some(clock::deadline_after(limit)))
    }

    fn recv_until(&mut self, until: Option<u64>) -> Result<T, TryRecvError> {
        loop {
            let left = until.map(clock::remaining);
            match self.try_recv() {
                Err(TryRecvError::Empty) if left.is_none_or(|left| !left.is_zero()) => {}
                done => return done,
            }
            self.sleep(left, || false);
        }
    }

    /// Takes the next item, or leaves the task's waker; `None` when nothing can follow.
    ///
    /// A [`RealtimeSender`](super::RealtimeSender) does not wake the task: let something call
    /// [`Look::look`].
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        loop {
            match self.try_recv() {
                Ok(item) => return Poll::Ready(Some(item)),
                Err(TryRecvError::Closed) => return Poll::Ready(None),
                Err(TryRecvError::Empty) => {}
            }
            if !self.core.receiver_wait.0.register_waker(context, || self.is_ready()) {
                return Poll::Pending;
            }
        }
    }

    /// The next item, as a future; `None` when nothing can follow. A dropped future has taken
    /// nothing.
    pub async fn next(&mut self) -> Option<T> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// Accepts nothing any more. Everything that a sender was told to be accepted is still there to
    /// be taken; after it comes [`TryRecvError::Closed`]. Senders that wait are sent away.
    pub fn close(&mut self) {
        match &self.core.queue {
            Queue::Bounded(array) => array.close(),
            Queue::Unbounded(list) => list.close(),
        }
        self.core.sender_wait.0.notify_all();
    }

    /// A handle with which another thread can make the receiver look.
    #[must_use]
    pub fn waker(&self) -> ReceiverWaker<T> {
        ReceiverWaker { core: self.core.clone() }
    }

    /// No item can be taken now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.has_item()
    }

    /// There is a sender that wakes nobody.
    pub(crate) fn has_realtime(&self) -> bool {
        self.core.has_realtime()
    }

    /// Sleeps until something is there, somebody says wake, or `limit` is over, unless `ready`. May
    /// wake early.
    pub(crate) fn sleep(&self, limit: Option<Duration>, ready: impl FnOnce() -> bool) {
        let realtime = self.core.has_realtime();
        let longest = if realtime { Some(POLL_INTERVAL) } else { None };
        let limit = limit.into_iter().chain(longest).min();
        self.core.receiver_wait.0.sleep(limit, || {
            // One who wakes nobody may have come since: then the limit is not right any more. This
            // question comes first: if that one has gone again, the look sees what it left.
            (!realtime && self.core.has_realtime()) || self.is_ready() || ready()
        });
    }

    /// Leaves a waker, unless there is something to look at.
    pub(crate) fn register_waker(&self, context: &Context<'_>) -> bool {
        self.core.receiver_wait.0.register_waker(context, || self.is_ready())
    }

    /// [`Receiver::try_recv`] would not answer "empty".
    pub(crate) fn is_ready(&self) -> bool {
        self.has_item() || self.is_ended()
    }

    /// Nothing can follow what is in the queue.
    fn is_ended(&self) -> bool {
        match &self.core.queue {
            _ if self.core.is_abandoned() => true,
            Queue::Bounded(array) => array.is_closed() && array.fill() == 0,
            // SAFETY: there is one receiver, and this method and `pop` borrow it.
            Queue::Unbounded(list) => unsafe { list.is_drained() },
        }
    }

    fn has_item(&self) -> bool {
        match &self.core.queue {
            Queue::Bounded(array) => array.has_item(),
            // SAFETY: there is one receiver, and `pop`, which must not run now, borrows it mutably.
            Queue::Unbounded(list) => unsafe { list.has_item() },
        }
    }

    #[inline]
    #[allow(clippy::needless_pass_by_ref_mut, reason = "it is what makes this the only one")]
    fn pop(&mut self) -> Option<T> {
        let item = match &self.core.queue {
            // SAFETY: there is one receiver, and this method borrows it mutably.
            Queue::Bounded(array) => unsafe { array.pop() },
            // SAFETY: as above.
            Queue::Unbounded(list) => return unsafe { list.pop() },
        };
        if item.is_some() {
            self.core.sender_wait.0.notify_one();
        }
        item
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.close();
        loop {
            match self.try_recv() {
                Ok(item) => drop(item),
                Err(TryRecvError::Closed) => break,
                // A sender has its place and is about to fill it: it has been told nothing yet.
                Err(TryRecvError::Empty) => self.sleep(Some(POLL_INTERVAL), || false),
            }
        }
    }
}

impl<T> Stream for Receiver<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.get_mut().poll_recv(context)
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("empty", &self.is_empty()).finish_non_exhaustive()
    }
}

/// Makes a receiver look, wherever it sleeps: for what came from a
/// [`RealtimeSender`](super::RealtimeSender). Let a timer or a callback of a
/// [`Dispatcher`](crate::notify::Dispatcher) call it.
pub struct ReceiverWaker<T> {
    core: Arc<Core<T>>,
}

impl<T> ReceiverWaker<T> {
    /// Wakes the receiver if it sleeps and something may be there for it.
    ///
    /// Not for a real-time thread: may call the system.
    pub fn wake(&self) {
        if self.core.may_have_items() || self.core.is_abandoned() {
            self.core.wake();
        }
    }
}

impl<T> Clone for ReceiverWaker<T> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone() }
    }
}

impl<T> fmt::Debug for ReceiverWaker<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Look")
    }
}

/// Short against what a person notices, long against the price of a look (some microseconds).
const POLL_INTERVAL: Duration = Duration::from_millis(1);
