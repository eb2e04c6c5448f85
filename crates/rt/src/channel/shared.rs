//! State that all ends of a channel share.

use super::SendError;
use super::array_queue::ArrayQueue;
use super::event_count::EventCount;
use super::linked_queue::LinkedQueue;
use crate::spsc::CachePadded;
use crate::sync::{AtomicUsize, Ordering};
use crate::wake::WaitCell;

#[derive(Debug)]
pub(super) struct Core<T> {
    pub(super) queue: Queue<T>,
    /// The receiver sleeps here.
    pub(super) receiver_wait: CachePadded<WaitCell>,
    /// Senders sleep here.
    pub(super) sender_wait: CachePadded<EventCount>,
    pub(super) sender_counts: CachePadded<SenderCounts>,
}

/// Numbers of senders.
#[derive(Debug, Default)]
pub(super) struct SenderCounts {
    /// Senders of all kinds.
    senders: AtomicUsize,
    /// Real-time senders; they are counted above too.
    realtime: AtomicUsize,
}

#[derive(Debug)]
pub(super) enum Queue<T> {
    Bounded(ArrayQueue<T>),
    Unbounded(LinkedQueue<T>),
}

impl<T> Core<T> {
    pub(super) fn new(queue: Queue<T>) -> Self {
        let (receiver_wait, sender_wait, sender_counts) =
            (CachePadded::default(), CachePadded::default(), CachePadded::default());
        Self { queue, receiver_wait, sender_wait, sender_counts }
    }

    /// Appends an item without waking the receiver.
    #[inline]
    pub(super) fn push(&self, item: T) -> Result<(), SendError<T>> {
        match &self.queue {
            Queue::Bounded(array) => array.push(item),
            Queue::Unbounded(list) => list.push(item).map_err(SendError::Closed),
        }
    }

    /// Wakes the receiver if it sleeps.
    pub(super) fn wake(&self) {
        self.receiver_wait.0.wake(|| true);
    }

    pub(super) fn add_sender(&self) {
        self.sender_counts.0.senders.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether it was the last sender.
    pub(super) fn remove_sender(&self) -> bool {
        // Release: a thread that sees no sender left sees all items that were sent.
        self.sender_counts.0.senders.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether all senders are gone.
    pub(super) fn is_abandoned(&self) -> bool {
        self.sender_counts.0.senders.load(Ordering::Acquire) == 0
    }

    pub(super) fn add_realtime(&self) {
        self.sender_counts.0.realtime.fetch_add(1, Ordering::Release);
    }

    pub(super) fn remove_realtime(&self) {
        self.sender_counts.0.realtime.fetch_sub(1, Ordering::Release);
    }

    /// Whether there is a sender that does not wake the receiver.
    pub(super) fn has_realtime(&self) -> bool {
        self.sender_counts.0.realtime.load(Ordering::Acquire) > 0
    }

    /// Whether there may be an item; callable by any thread, and not exact.
    pub(super) fn may_have_items(&self) -> bool {
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

    /// Whether a sender need not wait.
    pub(super) fn can_send(&self) -> bool {
        self.free() > 0 || self.is_closed()
    }
}
