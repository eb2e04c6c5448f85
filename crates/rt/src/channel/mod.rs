//! A channel with many senders and one receiver.
//!
//! ```text
//!   worker ---- Sender ------+                        +--- recv()        a sleeping thread
//!   worker ---- Sender ------+--> | | | | | Receiver -+--- Stream        any executor
//!   callback -- RealtimeSender                        +--- into_fd()     poll, epoll, glib, winit
//!               (wakes no thread)                     +--- attach()      a closure on a MainLoop
//! ```
//!
//! [`bounded`] has room for a fixed number of items: its [`Sender`] waits or returns "full", as
//! chosen by the call, and its [`RealtimeSender`] can be used in an audio callback. [`unbounded`]
//! never returns "full"; it allocates every item, and its growth is limited by its users only.
//!
//! # Guarantees
//! * Items of one sender arrive in order. Across senders, items arrive in the order in which their
//!   slots were reserved, so an item whose send returned before another send began arrives first.
//! * A sender that is interrupted between reserving and filling a slot delays the items behind it;
//!   they do not overtake it. Meanwhile the channel is empty for the receiver. Filling the slot
//!   wakes the receiver, which then finds all of them.
//! * An accepted item is received once, or dropped once by a receiver that is dropped. A close
//!   takes effect at one instant between two accepted items: no item is lost across it.
//! * The other side detects a close: senders get their item back (also while they sleep), and the
//!   receiver gets "closed" after the last item.
//!
//! # A sender that does not wake the receiver
//! Waking a thread takes a system call, which is not allowed on a real-time thread. A
//! [`RealtimeSender`] therefore only stores its item, and the receiver finds it at its next poll:
//! [`Receiver::recv`] polls once in a millisecond while there is such a sender; a closure that is
//! attached to a [`MainLoop`](crate::main_loop) every 5 ms; a `Stream` or a file descriptor when
//! [`ReceiverWaker::wake`] is called. The best caller is a phase-locked
//! [`Dispatcher`](crate::notify::Dispatcher): the item then arrives within some tens of
//! microseconds of the callback's end.
//!
//! # Not guaranteed
//! * Order across channels.
//! * Fairness among senders that wait for space: they are served mostly, but not always, in order
//!   of arrival.
//! * Waiting for space as a task: a task uses [`Sender::try_send`] or an unbounded channel.
//! * Fork: a child process cannot use a channel that was created before the fork.
//!
//! Rejected alternatives: `docs/decisions/channel.md`.
//!
//! # Examples
//! ```
//! use aulos_rt::channel::{TryRecvError, bounded};
//!
//! let (sender, mut receiver) = bounded(2);
//! let audio = sender.realtime();
//! assert!(sender.try_send("from a worker").is_ok());
//! assert!(audio.push("from a callback").is_ok());
//! assert!(audio.push("too much").is_err());
//! assert_eq!(receiver.recv(), Some("from a worker"));
//! assert_eq!(receiver.try_recv(), Ok("from a callback"));
//! assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
//! drop((sender, audio));
//! assert_eq!(receiver.recv(), None);
//! ```

mod array_queue;
mod event_count;
mod fd;
mod linked_queue;
mod receiver;
mod sender;
mod shared;
#[cfg(test)]
mod tests;

use std::fmt;

pub(crate) use fd::SignalWaker;
pub use fd::{FdReceiver, IntoFdError};
pub use receiver::{Receiver, ReceiverWaker};
pub use sender::{RealtimeSender, Sender, UnboundedSender};

use self::array_queue::ArrayQueue;
use self::linked_queue::LinkedQueue;
use self::shared::{Core, Queue};
use crate::sync::Arc;

/// Creates a channel for `capacity` items (at least one), all allocated now.
///
/// Not for a real-time thread: allocates.
///
/// # Panics
/// If that many items do not fit into memory.
#[must_use]
pub fn bounded<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    starting_at(capacity, 0)
}

/// A bounded channel whose positions begin at `start`, so that a test can start just before the
/// wrap-around.
fn starting_at<T: Send>(capacity: usize, start: usize) -> (Sender<T>, Receiver<T>) {
    let core = Arc::new(Core::new(Queue::Bounded(ArrayQueue::new(capacity, start))));
    (Sender::new(core.clone()), Receiver::new(core))
}

/// Creates a channel without a limit.
///
/// Not for a real-time thread: allocates, here and for every item.
#[must_use]
pub fn unbounded<T: Send>() -> (UnboundedSender<T>, Receiver<T>) {
    let core = Arc::new(Core::new(Queue::Unbounded(LinkedQueue::new())));
    (UnboundedSender::new(core.clone()), Receiver::new(core))
}

/// Error: an item was not accepted; it is returned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendError<T> {
    /// The channel is full at the moment.
    Full(T),
    /// The receiver is gone or has closed the channel.
    Closed(T),
}

impl<T> SendError<T> {
    /// The item.
    pub fn into_item(self) -> T {
        match self {
            Self::Full(item) | Self::Closed(item) => item,
        }
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::Full(_)) { "Full(..)" } else { "Closed(..)" })
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "the channel is full",
            Self::Closed(_) => CLOSED,
        })
    }
}

impl<T> std::error::Error for SendError<T> {}

/// Error: the receiver is gone or has closed the channel; the item is returned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ChannelClosed<T>(
    /// The item.
    pub T,
);

impl<T> fmt::Debug for ChannelClosed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closed(..)")
    }
}

impl<T> fmt::Display for ChannelClosed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(CLOSED)
    }
}

impl<T> std::error::Error for ChannelClosed<T> {}

const CLOSED: &str = "the receiver has been dropped or has closed the channel";

/// Error: there is no item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// No item can be taken at the moment.
    Empty,
    /// No item will ever come: every sender is gone or the receiver has closed, and all items have
    /// been received.
    Closed,
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the channel is empty",
            Self::Closed => "the channel is empty and closed",
        })
    }
}

impl std::error::Error for TryRecvError {}
