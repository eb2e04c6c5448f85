//! Controllers that hear of changes, each behind a bounded queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{mpsc, oneshot};

/// A controller's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerId(u64);

/// Where a controller's notifications come out.
#[derive(Debug)]
pub struct Inbox {
    queue: mpsc::Receiver<Arc<str>>,
    bytes: Arc<AtomicUsize>,
    cut: oneshot::Receiver<()>,
}

impl Inbox {
    /// The next notification; `None` when the controller was cut because it does not read.
    pub async fn next(&mut self) -> Option<Arc<str>> {
        let text = self.queue.recv().await?;
        self.bytes.fetch_sub(text.len(), Ordering::Relaxed);
        Some(text)
    }

    /// Waits until the controller is cut; for whoever is busy with sending to it.
    pub async fn cut(&mut self) {
        // The other half is never used but by being dropped.
        (&mut self.cut).await.ok();
    }
}

/// Notifications that may wait for one controller. Moving a slider makes 60 a second.
const MAX_WAITING: usize = 512;
/// And their bytes: twice the status of a full house.
const MAX_WAITING_BYTES: usize = 8 << 20;

#[derive(Debug, Default)]
pub(super) struct Peers {
    next: u64,
    list: Vec<Peer>,
}

#[derive(Debug)]
struct Peer {
    id: PeerId,
    queue: mpsc::Sender<Arc<str>>,
    bytes: Arc<AtomicUsize>,
    /// It may know what happens.
    hears: bool,
    /// Tells the inbox that the peer is gone, by going with it.
    _cut: oneshot::Sender<()>,
}

impl Peers {
    pub(super) fn join(&mut self, hears: bool) -> (PeerId, Inbox) {
        let (sender, queue) = mpsc::channel(MAX_WAITING);
        let bytes = Arc::new(AtomicUsize::new(0));
        let id = PeerId(self.next);
        self.next += 1;
        let (gone, cut) = oneshot::channel();
        self.list.push(Peer { id, queue: sender, bytes: Arc::clone(&bytes), hears, _cut: gone });
        (id, Inbox { queue, bytes, cut })
    }

    pub(super) fn leave(&mut self, id: PeerId) {
        self.list.retain(|peer| peer.id != id);
    }

    /// From now on it hears what happens.
    pub(super) fn let_hear(&mut self, id: PeerId) {
        self.list.iter_mut().filter(|peer| peer.id == id).for_each(|peer| peer.hears = true);
    }

    /// Cuts everybody: they come again, and are looked at again.
    pub(super) fn cut_all(&mut self) {
        self.list.clear();
    }

    /// Whether anybody else would hear it.
    pub(super) fn any_but(&self, from: Option<PeerId>) -> bool {
        self.list.iter().any(|peer| peer.hears && Some(peer.id) != from)
    }

    /// Tells everybody but `from`, and cuts whoever has no place for it; returns how many.
    pub(super) fn tell(&mut self, from: Option<PeerId>, text: &str) -> u64 {
        let text: Arc<str> = Arc::from(text);
        let before = self.list.len();
        self.list.retain(|peer| {
            if Some(peer.id) == from || !peer.hears {
                return true;
            }
            let waiting = peer.bytes.fetch_add(text.len(), Ordering::Relaxed);
            waiting + text.len() <= MAX_WAITING_BYTES
                && peer.queue.try_send(Arc::clone(&text)).is_ok()
        });
        (before - self.list.len()) as u64
    }
}
