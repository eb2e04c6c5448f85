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
mod error;
mod event_count;
mod fd;
mod linked_queue;
mod receiver;
mod sender;
mod shared;
#[cfg(test)]
mod tests;

pub use error::{ChannelClosed, SendError, TryRecvError};
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
