//! Notifications from a thread that must not make system calls to a thread that sleeps.
//!
//! Waking a thread takes a system call. The real-time side therefore only writes into its own
//! memory, and the [`Dispatcher`] on the other side wakes up by itself at the right time: with
//! [`PollStrategy::PhaseLocked`] it learns when the audio callback ends and polls just after.
//!
//! A [`Notifier`] is one real-time thread's queue to the dispatcher; a [`CallbackId`] identifies a
//! callback. Notifications of the same callback that were not served yet are merged. Callbacks run
//! in the order of notification, across all notifiers, on the thread that calls
//! [`Dispatcher::poll`] or [`Dispatcher::run`].
//!
//! `docs/decisions/real-time-notify.md` has the alternatives and their figures.
//!
//! The server does not use it: its real-time threads wake no other. It is for other programs; the
//! example `callback_to_ui` shows it.
//!
//! # Examples
//! ```
//! use std::sync::mpsc;
//!
//! use aulos_rt::notify::{Dispatcher, PollStrategy};
//!
//! let (sender, receiver) = mpsc::channel();
//! let mut dispatcher: Dispatcher = Dispatcher::new(PollStrategy::Timer);
//! let redraw = dispatcher.on(Box::new(move || sender.send("redraw").unwrap())).unwrap();
//! let mut notifier = dispatcher.notifier(None).unwrap();
//! // In the audio callback:
//! notifier.notify(redraw);
//! notifier.notify(redraw);
//! // On the other thread; `dispatcher.run()` does this in a loop.
//! dispatcher.poll(0);
//! assert_eq!(receiver.try_iter().count(), 1);
//! ```

mod channel;
mod dispatcher;
mod phase;
#[cfg(test)]
mod tests;

pub use channel::{CallbackId, Notifier};
pub use dispatcher::{Dispatcher, DispatcherFull, PollStrategy, StopHandle};
