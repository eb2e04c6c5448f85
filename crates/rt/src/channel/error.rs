//! Errors of the ends of a channel.

use std::fmt;

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
