//! A channel from many threads to one loop.
//!
//! ```text
//!   worker ---- Sender ------+                        +--- recv()        a thread that sleeps
//!   worker ---- Sender ------+--> | | | | | Receiver -+--- Stream        any executor
//!   callback -- RealtimeSender                        +--- into_fd()     poll, epoll, glib, winit
//!               (wakes nobody)                        +--- attach()      a closure on our own loop
//! ```
//!
//! [`bounded`] has room for a fixed number of items: its [`Sender`] waits or answers "full", as
//! asked, and its [`RealtimeSender`] may live in an audio callback. [`unbounded`] never answers
//! "full"; it allocates every item, and nothing but its users keeps it from growing.
//!
//! # What is promised
//! * What one sender sends arrives in that order. Across senders, items arrive in the order in which
//!   their places were reserved; so what was sent before something else was begun arrives before it.
//! * A sender that is interrupted between reserving its place and filling it holds up those behind
//!   it, rather than being overtaken. Meanwhile the receiver finds the channel empty. Whoever fills
//!   the place wakes the receiver, which then finds all of it.
//! * What a sender was told to be accepted is received once, or dropped once by a receiver that is
//!   dropped. A close is one instant between two accepted items: nothing is lost across it.
//! * Closing is seen by the other side: senders get their item back (also those that sleep), the
//!   receiver gets "closed" after the last item.
//!
//! # A sender that wakes nobody
//! Waking a sleeper takes a system call, which has no place on a real-time thread. So a
//! [`RealtimeSender`] only leaves its item there, and the receiver finds it when it looks next:
//! [`Receiver::recv`] looks up once in a millisecond as long as there is such a sender; a closure
//! that is attached to [our own loop](crate::main_loop) every 5 ms; a `Stream` or a file descriptor
//! when something calls [`Look::look`]. A phase-locked [`Dispatcher`](crate::notify::Dispatcher) is
//! the right caller: then the item arrives within some tens of microseconds of the callback's end.
//!
//! # What is not promised
//! * Order across channels.
//! * Fairness among senders that wait for room: who comes first is served first mostly, not always.
//! * Waiting for room as a task: a task uses [`Sender::try_send`] or an unbounded channel.
//! * A fork: the child has no use of a channel that was made before it.
//!
//! # Rejected
//! A ring per producer, as [`ring`](crate::ring) recommends for real-time threads: it knows no order
//! across producers, and a main loop has producers that come and go. A lock with a condition
//! variable: the callback would wait for a worker that was preempted. Waking a sleeping loop through
//! a byte in a pipe for every item: here it is one system call per sleep, not per item.
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

/// Makes a channel with room for `capacity` items (at least one), all allocated now.
///
/// Not for a real-time thread: allocates.
///
/// # Panics
/// When that many items do not fit into memory.
#[must_use]
pub fn bounded<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    starting_at(capacity, 0)
}

/// A bounded channel whose positions begin at `start`, so that a test can stand just before the
/// wrap.
fn starting_at<T: Send>(capacity: usize, start: usize) -> (Sender<T>, Receiver<T>) {
    let core = Arc::new(Core::new(Queue::Bounded(ArrayQueue::new(capacity, start))));
    (Sender::new(core.clone()), Receiver::new(core))
}

/// Makes a channel without a bound.
///
/// Not for a real-time thread: allocates, here and for every item.
#[must_use]
pub fn unbounded<T: Send>() -> (UnboundedSender<T>, Receiver<T>) {
    let core = Arc::new(Core::new(Queue::Unbounded(LinkedQueue::new())));
    (UnboundedSender::new(core.clone()), Receiver::new(core))
}

/// An item was not accepted; it is given back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendError<T> {
    /// There is no room now.
    Full(T),
    /// There will never be: the receiver is gone or has closed.
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

/// The receiver is gone or has closed; the item is given back.
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

const CLOSED: &str = "the receiver is gone or has closed the channel";

/// Why there is no item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// None can be taken now.
    Empty,
    /// None will ever come: every sender is gone or the receiver has closed, and all that was sent
    /// has been received.
    Closed,
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "nothing is in the channel",
            Self::Closed => "nothing more can come through the channel",
        })
    }
}

impl std::error::Error for TryRecvError {}
