//! What all ends of a channel share.

use super::SendError;
use super::array::Array;
use super::list::List;
use super::room::Room;
use crate::bell::Bell;
use crate::spsc::Line;
use crate::sync::{AtomicUsize, Ordering};

#[derive(Debug)]
pub(super) struct Core<T> {
    pub(super) queue: Queue<T>,
    /// The receiver sleeps here.
    pub(super) bell: Line<Bell>,
    /// Senders sleep here.
    pub(super) room: Line<Room>,
    pub(super) ends: Line<Ends>,
}

/// How many ends there are.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// Senders of all kinds.
    senders: AtomicUsize,
    /// Those that wake nobody; they are counted above too.
    realtime: AtomicUsize,
}

#[derive(Debug)]
pub(super) enum Queue<T> {
    Bounded(Array<T>),
    Unbounded(List<T>),
}

impl<T> Core<T> {
    pub(super) fn new(queue: Queue<T>) -> Self {
        let (bell, room, ends) = (Line::default(), Line::default(), Line::default());
        Self { queue, bell, room, ends }
    }

    /// Puts an item in and wakes nobody.
    #[inline]
    pub(super) fn push(&self, item: T) -> Result<(), SendError<T>> {
        match &self.queue {
            Queue::Bounded(array) => array.push(item),
            Queue::Unbounded(list) => list.push(item).map_err(SendError::Closed),
        }
    }

    /// Wakes the receiver if it sleeps.
    pub(super) fn wake(&self) {
        self.bell.0.ring(|| true);
    }

    pub(super) fn add_sender(&self) {
        self.ends.0.senders.fetch_add(1, Ordering::Relaxed);
    }

    /// Says whether it was the last.
    pub(super) fn remove_sender(&self) -> bool {
        // Release: who sees nobody left sees all that was sent.
        self.ends.0.senders.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Nobody is left who could send.
    pub(super) fn is_abandoned(&self) -> bool {
        self.ends.0.senders.load(Ordering::Acquire) == 0
    }

    pub(super) fn add_realtime(&self) {
        self.ends.0.realtime.fetch_add(1, Ordering::Release);
    }

    pub(super) fn remove_realtime(&self) {
        self.ends.0.realtime.fetch_sub(1, Ordering::Release);
    }

    /// Somebody may send without waking the receiver.
    pub(super) fn has_realtime(&self) -> bool {
        self.ends.0.realtime.load(Ordering::Acquire) > 0
    }

    /// Something may wait: what anybody can ask, and is not always right.
    pub(super) fn seems_occupied(&self) -> bool {
        match &self.queue {
            Queue::Bounded(array) => array.fill() > 0,
            Queue::Unbounded(_) => true,
        }
    }

    pub(super) fn free(&self) -> usize {
        match &self.queue {
            Queue::Bounded(array) => array.capacity() - array.fill(),
            Queue::Unbounded(_) => usize::MAX,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        match &self.queue {
            Queue::Bounded(array) => array.is_closed(),
            Queue::Unbounded(list) => list.is_closed(),
        }
    }

    /// A sender need not wait.
    pub(super) fn admits(&self) -> bool {
        self.free() > 0 || self.is_closed()
    }
}
