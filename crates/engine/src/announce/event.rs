//! What happens to an announcement.

use core::fmt;

use super::limits::MAX_QUEUE;

/// A state change of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueEvent {
    /// The programme ramps down for it.
    Began(u64),
    /// The announcement has ended, with the reason.
    Ended(u64, AnnouncementEnd),
}

/// Why an announcement has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AnnouncementEnd {
    /// It was played to its end.
    Played,
    /// It was cancelled.
    Cancelled,
    /// A newer play took its place.
    Replaced,
    /// An announcement of higher priority took its place.
    Interrupted,
    /// It was longer than [`MAX_LENGTH`](super::MAX_LENGTH).
    TooLong,
    /// Its source delivered no audio, or stopped delivering.
    NoSound,
}

/// The queue already holds [`MAX_QUEUE`] announcements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

impl fmt::Display for QueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the announcement queue is full ({MAX_QUEUE}); try again later")
    }
}

impl core::error::Error for QueueFull {}
