//! The receiving end of a channel.
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

/// The receiving end of a channel: polled, as a sleeping thread, or as a [`Stream`]. See also
/// [`Receiver::into_fd`] and [`LocalHandle::attach`](crate::main_loop::LocalHandle::attach).
///
/// Dropping it closes the channel and drops the remaining items on that thread.
pub struct Receiver<T> {
    core: Arc<Core<T>>,
}

impl<T> Receiver<T> {
    pub(super) fn new(core: Arc<Core<T>>) -> Self {
        Self { core }
    }

    /// Takes the oldest item. Items come in the order in which senders reserved their slots; a
    /// sender that was interrupted before it filled its slot delays the items behind it, and until
    /// then the channel is empty for the receiver.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`], or [`TryRecvError::Closed`] if no item can follow.
    ///
    /// # Real-time
    /// For a bounded channel: wait-free, no allocation, no system call unless a
    /// [`Sender`](super::Sender) sleeps for space.
    #[inline]
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        if let Some(item) = self.pop() {
            return Ok(item);
        }
        if !self.is_ended() {
            return Err(TryRecvError::Empty);
        }
        // Items that were sent before the last sender was dropped are visible by now.
        self.pop().ok_or(TryRecvError::Closed)
    }

    /// Sleeps until there is an item and takes it; `None` if no item can follow.
    ///
    /// While there is a [`RealtimeSender`](super::RealtimeSender), which wakes no thread, it polls
    /// once in a millisecond.
    pub fn recv(&mut self) -> Option<T> {
        self.recv_until(None).ok()
    }

    /// Like [`Receiver::recv`], with a time limit.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`] when the time is over, [`TryRecvError::Closed`] if no item can
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

    /// Takes the next item, or registers the task's waker; `None` if no item can follow.
    ///
    /// A [`RealtimeSender`](super::RealtimeSender) does not wake the task: have
    /// [`ReceiverWaker::wake`] called.
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

    /// The next item, as a future; `None` if no item can follow. A dropped future has taken no
    /// item.
    pub async fn next(&mut self) -> Option<T> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// Closes the channel. Accepted items can still be received; after them comes
    /// [`TryRecvError::Closed`]. Waiting senders return with an error.
    pub fn close(&mut self) {
        match &self.core.queue {
            Queue::Bounded(array) => array.close(),
            Queue::Unbounded(list) => list.close(),
        }
        self.core.sender_wait.0.notify_all();
    }

    /// A handle with which another thread can wake the receiver.
    #[must_use]
    pub fn waker(&self) -> ReceiverWaker<T> {
        ReceiverWaker { core: self.core.clone() }
    }

    /// Whether no item can be taken now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.has_item()
    }

    /// Whether there is a sender that does not wake the receiver.
    pub(crate) fn has_realtime(&self) -> bool {
        self.core.has_realtime()
    }

    /// Sleeps until an item comes, until a wake, or until `limit` is over, unless `ready`. May
    /// return early.
    pub(crate) fn sleep(&self, limit: Option<Duration>, ready: impl FnOnce() -> bool) {
        let realtime = self.core.has_realtime();
        let longest = if realtime { Some(POLL_INTERVAL) } else { None };
        let limit = limit.into_iter().chain(longest).min();
        self.core.receiver_wait.0.sleep(limit, || {
            // A real-time sender may have come since: then the limit is wrong. This condition is
            // checked first: if that sender has gone again, the check of the queue sees what it
            // left.
            (!realtime && self.core.has_realtime()) || self.is_ready() || ready()
        });
    }

    /// Registers a waker, unless an item can be taken.
    pub(crate) fn register_waker(&self, context: &Context<'_>) -> bool {
        self.core.receiver_wait.0.register_waker(context, || self.is_ready())
    }

    /// Whether [`Receiver::try_recv`] would return something other than "empty".
    pub(crate) fn is_ready(&self) -> bool {
        self.has_item() || self.is_ended()
    }

    /// Whether no item can follow those in the queue.
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
                // A sender has reserved its slot and is about to fill it: its send has not returned
                // yet.
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

/// Wakes a receiver, however it sleeps, for items of a [`RealtimeSender`](super::RealtimeSender).
/// To be called by a timer or by a callback of a [`Dispatcher`](crate::notify::Dispatcher).
pub struct ReceiverWaker<T> {
    core: Arc<Core<T>>,
}

impl<T> ReceiverWaker<T> {
    /// Wakes the receiver if it sleeps and an item may be there for it.
    ///
    /// Not for a real-time thread: may make a system call.
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

/// Too short to be noticed, and long against the cost of a poll (some microseconds).
const POLL_INTERVAL: Duration = Duration::from_millis(1);
