//! The sending ends of a channel.

use std::fmt;
use std::time::Duration;

use super::shared::Core;
use super::{ChannelClosed, SendError};
use crate::clock;
use crate::sync::Arc;

/// The sending end of a bounded channel for ordinary threads: wakes the receiver, and may wait for
/// space. Clones are further senders.
///
/// Sending allocates nothing and takes no lock; it makes a system call only to wake a sleeping
/// receiver or to sleep itself. That is still not for a real-time thread: see [`Sender::realtime`].
pub struct Sender<T> {
    core: Arc<Core<T>>,
}

impl<T> Sender<T> {
    /// The first sender of a channel.
    pub(super) fn new(core: Arc<Core<T>>) -> Self {
        core.add_sender();
        Self { core }
    }

    /// Sends an item if there is space.
    ///
    /// # Errors
    /// Returns the item: [`SendError::Full`] or [`SendError::Closed`].
    pub fn try_send(&self, item: T) -> Result<(), SendError<T>> {
        self.core.push(item)?;
        self.core.wake();
        Ok(())
    }

    /// Sends an item, and sleeps until there is space for it. The receiver's own thread must not
    /// wait for space: use [`Sender::try_send`] there.
    ///
    /// # Errors
    /// Returns the item if the receiver is gone or has closed the channel, also if that happens
    /// during the wait.
    pub fn send(&self, item: T) -> Result<(), ChannelClosed<T>> {
        self.send_until(item, None).map_err(|refused| ChannelClosed(refused.into_item()))
    }

    /// Like [`Sender::send`], with a time limit.
    ///
    /// # Errors
    /// Returns the item: [`SendError::Full`] when the time is over, or [`SendError::Closed`].
    pub fn send_timeout(&self, item: T, limit: Duration) -> Result<(), SendError<T>> {
        self.send_until(item, Some(clock::deadline_after(limit)))
    }

    fn send_until(&self, mut item: T, until: Option<u64>) -> Result<(), SendError<T>> {
        loop {
            let left = until.map(clock::remaining);
            item = match self.try_send(item) {
                // This check came after the last sleep, so a sender that times out loses no wake.
                Err(SendError::Full(item)) if left.is_some_and(|left| left.is_zero()) => {
                    return Err(SendError::Full(item));
                }
                Err(SendError::Full(item)) => item,
                done => return done,
            };
            self.core.sender_wait.0.wait(left, || self.core.can_send());
        }
    }

    /// A further sender, for a real-time thread.
    ///
    /// Not for a real-time thread: may wake the receiver, which has to poll from now on.
    #[must_use]
    pub fn realtime(&self) -> RealtimeSender<T> {
        self.core.add_sender();
        self.core.add_realtime();
        self.core.wake();
        RealtimeSender { core: self.core.clone() }
    }

    /// Number of items that fit now; a snapshot.
    #[must_use]
    pub fn free(&self) -> usize {
        self.core.free()
    }

    /// Whether the channel is closed. Once true it stays true; if false, the receiver may still
    /// close at any time.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.core.is_closed()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self::new(self.core.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.core.remove_sender() {
            self.core.wake();
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("free", &self.free()).finish_non_exhaustive()
    }
}

/// The sending end of a bounded channel for a real-time thread: it never waits and never wakes a
/// thread. Made by [`Sender::realtime`].
///
/// The receiver finds the item at its next poll: see
/// [the module](super#a-sender-that-does-not-wake-the-receiver). Dropping the last end of a channel
/// frees its memory, so the receiver, or a [`Sender`] on an ordinary thread, should outlive this
/// one.
pub struct RealtimeSender<T> {
    core: Arc<Core<T>>,
}

impl<T> RealtimeSender<T> {
    /// Sends an item if there is space.
    ///
    /// # Real-time
    /// No allocation, no lock, no system call. Wait-free if this is the only sender; with others it
    /// is lock-free: it retries only if another sender was faster.
    ///
    /// # Errors
    /// Returns the item: [`SendError::Full`] or [`SendError::Closed`]. An item that owns memory
    /// should then go into a [`drop_queue`](crate::drop_queue()).
    #[inline]
    pub fn push(&self, item: T) -> Result<(), SendError<T>> {
        self.core.push(item)
    }

    /// Number of items that fit now; a snapshot.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn free(&self) -> usize {
        self.core.free()
    }

    /// Whether the channel is closed; see [`Sender::is_closed`].
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.core.is_closed()
    }
}

impl<T> Clone for RealtimeSender<T> {
    fn clone(&self) -> Self {
        self.core.add_sender();
        self.core.add_realtime();
        Self { core: self.core.clone() }
    }
}

impl<T> Drop for RealtimeSender<T> {
    fn drop(&mut self) {
        // In this order: a receiver that sees no real-time sender, and may therefore sleep without
        // limit, sees before it sleeps that this one is gone. No thread is woken.
        self.core.remove_sender();
        self.core.remove_realtime();
    }
}

impl<T> fmt::Debug for RealtimeSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RealtimeSender").field("free", &self.free()).finish_non_exhaustive()
    }
}

/// The sending end of an unbounded channel. Clones are further senders.
///
/// Not for a real-time thread: every item is allocated.
pub struct UnboundedSender<T> {
    core: Arc<Core<T>>,
}

impl<T> UnboundedSender<T> {
    /// The first sender of a channel.
    pub(super) fn new(core: Arc<Core<T>>) -> Self {
        core.add_sender();
        Self { core }
    }

    /// Sends an item. Never waits.
    ///
    /// # Errors
    /// Returns the item if the receiver is gone or has closed the channel.
    pub fn send(&self, item: T) -> Result<(), ChannelClosed<T>> {
        self.core.push(item).map_err(|refused| ChannelClosed(refused.into_item()))?;
        self.core.wake();
        Ok(())
    }

    /// Whether the channel is closed; see [`Sender::is_closed`].
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.core.is_closed()
    }

    /// Wakes the receiver without sending an item.
    pub(crate) fn wake(&self) {
        self.core.wake();
    }
}

impl<T> Clone for UnboundedSender<T> {
    fn clone(&self) -> Self {
        Self::new(self.core.clone())
    }
}

impl<T> Drop for UnboundedSender<T> {
    fn drop(&mut self) {
        if self.core.remove_sender() {
            self.core.wake();
        }
    }
}

impl<T> fmt::Debug for UnboundedSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnboundedSender").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}
