//! Controllers that receive notifications, each with a bounded queue.
//!
//! Queues of controllers that do not read are limited by number and bytes per controller, and by
//! bytes in total; a notification in several queues counts once in the total. A controller that is
//! behind gets one full status instead of several: a newer one replaces an older one and its parts
//! in the queue.

pub(crate) mod calls;
pub(crate) mod long_calls;
pub(crate) mod notification;
mod pending_update;
pub(crate) mod subscription;
pub(crate) mod updates;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::peers::notification::{LiveBytes, Notification, NotificationKind};

/// Identifies a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerId(u64);

/// The receiving end of a controller's queue.
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

    /// Marks the last notification as sent.
    pub fn sent(&self) {
        self.0.lock().sending = None;
    }

    /// Waits until the controller is cut; used while a send is in progress.
    pub async fn cut(&mut self) {
        while !self.0.lock().is_cut {
            self.0.changed.notified().await;
        }
    }
}

/// Limit of queued notifications per controller. Moving a slider makes 60 a second.
const MAX_WAITING: usize = 512;
/// Limit of queued bytes per controller: twice the status of a full server. A single longer
/// notification is allowed.
const MAX_WAITING_BYTES: usize = 8 << 20;
/// A controller with more queued bytes than this is behind, and gets no outdated full statuses. It
/// is the size of a status with some five hundred clients.
const BEHIND_BYTES: usize = 256 << 10;
/// Limit of bytes of all notifications that are queued or being sent, except for the newest full
/// status: eight full statuses. Above it, the controllers with the oldest notification are cut.
pub(crate) const MAX_LIVE_BYTES: usize = 32 << 20;

/// A controller's queue, shared by both ends.
#[derive(Debug, Default)]
struct SharedQueue {
    queue: Mutex<SendQueue>,
    changed: Notify,
}

impl SharedQueue {
    /// A poisoned lock is taken all the same: each change is a single step, so the queue is
    /// consistent.
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
    /// Queued bytes.
    bytes: usize,
    /// The number of the notification that is being sent.
    sending: Option<u64>,
    is_cut: bool,
}

#[derive(Clone, Debug)]
struct Waiting {
    /// A sequence number across all controllers; the lowest is the oldest.
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

    /// Appends a notification; returns how many it replaces, or `None` if there is no room.
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

    /// Removes the queued full status, and everything behind it that the next one includes. Earlier
    /// notifications stay, because they concern known clients.
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

    /// The number of the oldest notification that the controller has not read.
    fn oldest(&self) -> Option<u64> {
        self.sending.or_else(|| self.waiting.front().map(|one| one.number))
    }
}

/// The result of a notification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// Controllers that were cut because their queue was full.
    pub(crate) cut: usize,
    /// Queued notifications that it replaced.
    pub(crate) superseded: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Peers {
    next: u64,
    texts: u64,
    list: Vec<Peer>,
    live: LiveBytes,
    /// Size of the newest full status in bytes.
    newest_status: usize,
}

#[derive(Debug)]
struct Peer {
    id: PeerId,
    queue: Arc<SharedQueue>,
    /// Whether it gets notifications.
    is_subscribed: bool,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.queue.cut();
    }
}

impl Peers {
    pub(crate) fn join(&mut self, is_subscribed: bool) -> (PeerId, Inbox) {
        let queue = Arc::new(SharedQueue::default());
        let id = PeerId(self.next);
        self.next += 1;
        self.list.push(Peer { id, queue: Arc::clone(&queue), is_subscribed });
        (id, Inbox(queue))
    }

    pub(crate) fn leave(&mut self, id: PeerId) {
        self.list.retain(|peer| peer.id != id);
    }

    /// Lets a controller receive notifications.
    pub(crate) fn subscribe(&mut self, id: PeerId) {
        let peers = self.list.iter_mut().filter(|peer| peer.id == id);
        peers.for_each(|peer| peer.is_subscribed = true);
    }

    /// Cuts all controllers, so that they reconnect and are authorized again.
    pub(crate) fn cut_all(&mut self) {
        self.list.clear();
    }

    /// Whether another controller than `from` would get a notification.
    pub(crate) fn any_but(&self, from: Option<PeerId>) -> bool {
        self.list.iter().any(|peer| peer.is_subscribed && Some(peer.id) != from)
    }

    /// The number of controllers.
    pub(crate) const fn count(&self) -> usize {
        self.list.len()
    }

    /// The counter of bytes in notifications.
    pub(crate) const fn live(&self) -> &LiveBytes {
        &self.live
    }

    /// Checks that memory is left for another full status. Otherwise the controllers with the
    /// oldest notification are cut; its memory is freed once their connections end.
    ///
    /// # Errors
    /// The number of controllers that were cut.
    pub(crate) fn make_room(&mut self) -> Result<(), usize> {
        // The newest status is not counted, because every controller that reads gets one.
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

    /// Sends a notification to all controllers except `from`, and cuts those whose queue is full.
    pub(crate) fn notify(
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
