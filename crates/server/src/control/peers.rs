//! Controllers that get notifications, each behind a bounded queue.
//!
//! Three bounds hold what waits for controllers that do not read: a number and bytes for each of them,
//! and bytes for all together. A text that waits for several counts once in the last. A controller
//! that is behind gets one status of the whole house in place of several: a newer one replaces what
//! waits of it and of its parts.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::notification::{LiveBytes, Notification, NotificationKind};

/// A controller's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerId(u64);

/// Where a controller's notifications come out.
#[derive(Debug)]
pub struct Inbox(Arc<SharedQueue>);

impl Inbox {
    /// The next notification; `None` when the controller was cut because it does not read.
    pub async fn next(&mut self) -> Option<Arc<Notification>> {
        loop {
            {
                let mut queue = self.0.lock();
                if queue.is_cut {
                    return None;
                }
                if let Some(next) = queue.pop() {
                    return Some(next);
                }
            }
            self.0.changed.notified().await;
        }
    }

    /// The notification that came out last has been sent.
    pub(crate) fn sent(&self) {
        self.0.lock().sending = None;
    }

    /// Waits until the controller is cut; for whoever is busy with sending to it.
    pub async fn cut(&mut self) {
        while !self.0.lock().is_cut {
            self.0.changed.notified().await;
        }
    }
}

/// Notifications that may wait for one controller. Moving a slider makes 60 a second.
const MAX_WAITING: usize = 512;
/// And their bytes: twice the status of a full house. One that is longer than that may wait alone.
const MAX_WAITING_BYTES: usize = 8 << 20;
/// A controller for which more than this waits is behind: statuses of the whole house that are out of
/// date are not sent to it any more. The status of some five hundred clients.
const BEHIND_BYTES: usize = 256 << 10;
/// Bytes of all texts that wait for controllers or are being sent to them, beside the newest status of
/// the whole house: eight times that of a full one. Those who have not taken the oldest text are cut
/// for what goes beyond it.
pub(super) const MAX_LIVE_BYTES: usize = 32 << 20;

/// The queue of a controller, and the one who waits at its other end.
#[derive(Debug, Default)]
struct SharedQueue {
    queue: Mutex<SendQueue>,
    changed: Notify,
}

impl SharedQueue {
    /// What a panic leaves behind is whole enough: each change is one step.
    fn lock(&self) -> MutexGuard<'_, SendQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cut(&self) {
        let mut queue = self.lock();
        queue.is_cut = true;
        queue.waiting = VecDeque::new();
        drop(queue);
        self.changed.notify_one();
    }
}

#[derive(Debug, Default)]
struct SendQueue {
    waiting: VecDeque<Waiting>,
    /// Of what waits.
    bytes: usize,
    /// The number of the text that is being sent.
    sending: Option<u64>,
    is_cut: bool,
}

#[derive(Clone, Debug)]
struct Waiting {
    /// Counts the texts of all controllers: the lowest is the oldest.
    number: u64,
    kind: NotificationKind,
    text: Arc<Notification>,
}

impl SendQueue {
    fn pop(&mut self) -> Option<Arc<Notification>> {
        let next = self.waiting.pop_front()?;
        self.bytes -= next.text.bytes();
        self.sending = Some(next.number);
        Some(next.text)
    }

    /// Appends a text; gives how many it stands for, or `None` where there is no room for it.
    fn push(&mut self, new: Waiting) -> Option<usize> {
        let superseded = if new.kind == NotificationKind::WholeStatus && self.bytes > BEHIND_BYTES {
            self.remove_out_of_date()
        } else {
            0
        };
        let bytes = self.bytes + new.text.bytes();
        let fits = self.waiting.is_empty()
            || self.waiting.len() < MAX_WAITING && bytes <= MAX_WAITING_BYTES;
        fits.then(|| {
            self.bytes = bytes;
            self.waiting.push_back(new);
            superseded
        })
    }

    /// Takes the status of the whole house out of the queue, and all that waits behind it and is in
    /// the next one as well. What waits before it stays: that is about clients which are known.
    fn remove_out_of_date(&mut self) -> usize {
        use NotificationKind::{Other, WholeStatus};
        let whole = self.waiting.iter().position(|one| one.kind == WholeStatus);
        let Some(first) = whole else { return 0 };
        let before = self.waiting.len();
        let rest = self.waiting.split_off(first);
        self.waiting.extend(rest.into_iter().filter(|one| one.kind == Other));
        self.bytes = self.waiting.iter().map(|one| one.text.bytes()).sum();
        before - self.waiting.len()
    }

    /// The number of the oldest text that the controller has not taken.
    fn oldest(&self) -> Option<u64> {
        self.sending.or_else(|| self.waiting.front().map(|one| one.number))
    }
}

/// What came of a notification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Delivery {
    /// Controllers that were cut because they had no room for it.
    pub(super) cut: usize,
    /// Texts that it replaced.
    pub(super) superseded: usize,
}

#[derive(Debug, Default)]
pub(super) struct Peers {
    next: u64,
    texts: u64,
    list: Vec<Peer>,
    live: LiveBytes,
    /// Bytes of the newest status of the whole house.
    newest_status: usize,
}

#[derive(Debug)]
struct Peer {
    id: PeerId,
    queue: Arc<SharedQueue>,
    /// It may know what happens.
    is_subscribed: bool,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.queue.cut();
    }
}

impl Peers {
    pub(super) fn join(&mut self, is_subscribed: bool) -> (PeerId, Inbox) {
        let queue = Arc::new(SharedQueue::default());
        let id = PeerId(self.next);
        self.next += 1;
        self.list.push(Peer { id, queue: Arc::clone(&queue), is_subscribed });
        (id, Inbox(queue))
    }

    pub(super) fn leave(&mut self, id: PeerId) {
        self.list.retain(|peer| peer.id != id);
    }

    /// From now on it gets notifications.
    pub(super) fn subscribe(&mut self, id: PeerId) {
        let peers = self.list.iter_mut().filter(|peer| peer.id == id);
        peers.for_each(|peer| peer.is_subscribed = true);
    }

    /// Cuts everybody: they come again, and are looked at again.
    pub(super) fn cut_all(&mut self) {
        self.list.clear();
    }

    /// Whether anybody else would get a notification.
    pub(super) fn any_but(&self, from: Option<PeerId>) -> bool {
        self.list.iter().any(|peer| peer.is_subscribed && Some(peer.id) != from)
    }

    /// What counts the bytes of texts.
    pub(super) const fn live(&self) -> &LiveBytes {
        &self.live
    }

    /// Whether the texts that live leave room for another status of the whole house. Where they do
    /// not, the controllers that have not taken the oldest text are cut. Its memory comes back when
    /// they have noticed.
    ///
    /// # Errors
    /// How many were cut.
    pub(super) fn make_room(&mut self) -> Result<(), usize> {
        // The newest may be as long as it likes: everybody who reads gets one.
        if self.live.get().saturating_sub(self.newest_status) <= MAX_LIVE_BYTES {
            return Ok(());
        }
        let oldest = self.list.iter().filter_map(|peer| peer.queue.lock().oldest()).min();
        let before = self.list.len();
        if oldest.is_some() {
            self.list.retain(|peer| peer.queue.lock().oldest() != oldest);
        }
        Err(before - self.list.len())
    }

    /// Sends a text to everybody but `from`, and cuts those who have no room for it.
    pub(super) fn notify(
        &mut self,
        from: Option<PeerId>,
        kind: NotificationKind,
        text: Notification,
    ) -> Delivery {
        if kind == NotificationKind::WholeStatus {
            self.newest_status = text.bytes();
        }
        let new = Waiting { number: self.texts, kind, text: Arc::new(text) };
        self.texts += 1;
        let (before, mut superseded) = (self.list.len(), 0);
        self.list.retain(|peer| {
            if Some(peer.id) == from || !peer.is_subscribed {
                return true;
            }
            let pushed = peer.queue.lock().push(new.clone());
            superseded += pushed.unwrap_or(0);
            peer.queue.changed.notify_one();
            pushed.is_some()
        });
        Delivery { cut: before - self.list.len(), superseded }
    }
}

#[cfg(test)]
mod tests;
