//! "Look here", from a thread that must not call the system to a thread that sleeps.
//!
//! Waking a sleeper takes a system call, and on a busy machine the woken thread may even take the
//! processor from the one that woke it. So the real-time side only writes into memory of its own,
//! and the [`Dispatcher`] on the other side wakes by itself at the right moment: with
//! [`Strategy::PhaseLocked`] it learns when the audio callback ends and looks just after.
//!
//! A [`Notifier`] is one real-time thread's line to the dispatcher; a [`Target`] is one callback.
//! Announcements of the same target that were not served yet are one. Callbacks run in the order of
//! announcement, whatever line they came on, on the thread that calls [`Dispatcher::poll`] or
//! [`Dispatcher::run`].
//!
//! Rejected: a pending flag per callback, set by a compare-and-swap (as JUCE's `AsyncUpdater` has
//! it). The flag's cache line belongs to whoever served it last, so the announcing thread pays for a
//! trip between cores; and flags know no order.
//!
//! # Examples
//! ```
//! use std::sync::mpsc;
//!
//! use aulos_rt::notify::{Dispatcher, Strategy};
//!
//! let (heard, hear) = mpsc::channel();
//! let mut dispatcher: Dispatcher = Dispatcher::new(Strategy::Timer);
//! let redraw = dispatcher.on(Box::new(move || heard.send("redraw").unwrap())).unwrap();
//! let mut notifier = dispatcher.notifier(None).unwrap();
//! // In the audio callback:
//! notifier.notify(redraw);
//! notifier.notify(redraw);
//! // On the other thread, here by hand; or `dispatcher.run()`.
//! dispatcher.poll(0);
//! assert_eq!(hear.try_iter().count(), 1);
//! ```

mod channel;
mod dispatcher;
mod phase;
#[cfg(test)]
mod tests;

pub use channel::{CallbackId, Notifier};
pub use dispatcher::{Dispatcher, DispatcherFull, PollStrategy, StopHandle};
