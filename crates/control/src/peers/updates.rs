//! The notifications of changes, and when they are sent.
//!
//! Clients may connect by the thousand, so the full status that their connects require is rendered
//! at a limited rate (`pending_update`). Notifications about clients are held back until then,
//! because a controller must not get one about a client that it does not know. Changes made by a
//! call are sent at once; if they require the status of a large installation, with the next tick.
//!
//! Under the lock of the state, notifications are only queued, in the order of the changes: text is
//! rendered by whoever takes them from the queue, without that lock.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use aulos_config::client_sound::chain_json;
use serde_json::{Value, json};

use super::notification::{Notification, NotificationKind};
use super::pending_update::{DeferredNotice, PendingUpdate};
use super::{Delivery, PeerId, Peers};
use crate::clients::registry::{ClientJson, Registry, volume_json};
use crate::control::counters::Counters;
use crate::effects::Notice;
use crate::views::status_json::ServerView;

/// Notifications that are to be rendered, in the order of the changes.
#[derive(Debug, Default)]
pub(crate) struct Updates {
    /// A new client has connected and controllers have not been notified yet. At startup a thousand
    /// clients may connect at once, and one full status for each would delay them all.
    pending: PendingUpdate,
    queue: VecDeque<Update>,
}

/// A notification that is to be rendered.
#[derive(Debug)]
pub(crate) struct Update {
    /// The controller that has made the change and is not notified.
    from: Option<PeerId>,
    content: UpdateContent,
}

#[derive(Debug)]
enum UpdateContent {
    /// The full status.
    Status(Box<ServerView>),
    /// The method and the parameters of another notification.
    Part(&'static str, Value),
}

/// What decides on notifications besides the changes.
pub(crate) struct UpdateContext<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) peers: &'a Mutex<Peers>,
    pub(crate) counters: &'a Counters,
    pub(crate) now: Instant,
    /// Takes the full status.
    pub(crate) view: &'a dyn Fn() -> ServerView,
}

impl Updates {
    /// Queues the notices of a change for all controllers except `from`.
    pub(crate) fn push(
        &mut self,
        from: Option<PeerId>,
        notices: Vec<Notice>,
        context: &UpdateContext<'_>,
    ) {
        let mut is_covered = false;
        let is_whole = notices.contains(&Notice::Server);
        let is_part = |notice: &Notice| !matches!(notice, Notice::Message(..));
        let is_due = self.pending.is_due(context.now) && notices.iter().any(is_part);
        if (is_due || self.pending.is_wanted && is_whole) && !self.pending.is_large() {
            // The caller gets it too, because it has not been notified of earlier changes by
            // others.
            self.push_status(None, context);
            is_covered = true;
        }
        for notice in notices {
            match notice {
                Notice::Server if is_covered => {}
                // The call and the status together would delay others for too long.
                Notice::Server if self.pending.is_large() => self.pending.want_soon(),
                Notice::Server => self.push_status(from, context),
                Notice::Message(method, params) => self.push_part(from, method, params),
                part => self.push_notice(from, part, context),
            }
        }
    }

    /// Requests a full status because a client has connected.
    pub(crate) const fn want_status(&mut self) {
        self.pending.want();
    }

    /// Queues the full status if connecting clients require it and the rate limit allows.
    pub(crate) fn push_due_status(&mut self, context: &UpdateContext<'_>) {
        if self.pending.is_due(context.now) {
            self.push_status(None, context);
        }
    }

    /// Takes the next notification.
    pub(crate) fn pop(&mut self) -> Option<Update> {
        self.queue.pop_front()
    }

    /// Number of queued notifications.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Records the size of the full status that was sent.
    pub(crate) fn status_sent(&mut self, bytes: usize, now: Instant) {
        self.pending.sent(bytes, now);
    }

    /// Queues the full status for all controllers except `from`, followed by the held-back
    /// notifications. If memory is short, the status is sent to all of them later.
    fn push_status(&mut self, from: Option<PeerId>, context: &UpdateContext<'_>) {
        let mut peers = lock_peers(context.peers);
        if !peers.any_but(from) {
            self.pending = PendingUpdate::default();
            return;
        }
        if let Err(cut) = peers.make_room() {
            context.counters.controllers_cut_memory.fetch_add(cut as u64, Ordering::Relaxed);
            self.pending.want();
            return;
        }
        drop(peers);
        self.pending.is_wanted = false;
        let content = UpdateContent::Status(Box::new((context.view)()));
        self.queue.push_back(Update { from, content });
        for DeferredNotice { from, notice, method, params } in
            std::mem::take(&mut self.pending.held_back)
        {
            // A client that has been forgotten meanwhile is not in the status.
            if is_known(context.registry, &notice) {
                self.push_part(from, method, params);
            }
        }
    }

    fn push_notice(&mut self, from: Option<PeerId>, notice: Notice, context: &UpdateContext<'_>) {
        let Some((method, params)) = render(context.registry, &notice) else { return };
        if !self.pending.is_wanted {
            return self.push_part(from, method, params);
        }
        if self.pending.hold_back(DeferredNotice { from, notice, method, params }) {
            context.counters.notifications_superseded.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn push_part(&mut self, from: Option<PeerId>, method: &'static str, params: Value) {
        self.queue.push_back(Update { from, content: UpdateContent::Part(method, params) });
    }
}

impl Update {
    /// Renders the notification and sends it; returns its size in bytes, and whether it is the full
    /// status.
    pub(crate) fn send(self, peers: &Mutex<Peers>, counters: &Counters) -> (usize, bool) {
        let live = lock_peers(peers).live().clone();
        let (kind, text) = match self.content {
            UpdateContent::Status(view) => {
                let text = Notification::of("Server.OnUpdate", &*view, &live);
                (NotificationKind::WholeStatus, text)
            }
            UpdateContent::Part(method, params) => {
                (kind_of(method), Notification::new(method, &params, &live))
            }
        };
        let (bytes, is_status) = (text.bytes(), kind == NotificationKind::WholeStatus);
        let mut peers = lock_peers(peers);
        if !is_status && let Err(cut) = peers.make_room() {
            counters.controllers_cut_memory.fetch_add(cut as u64, Ordering::Relaxed);
        }
        let Delivery { cut, superseded } = peers.notify(self.from, kind, text);
        counters.controllers_cut_slow.fetch_add(cut as u64, Ordering::Relaxed);
        counters.notifications_superseded.fetch_add(superseded as u64, Ordering::Relaxed);
        (bytes, is_status)
    }
}

/// A poisoned lock is taken all the same: each change is a single step.
pub(crate) fn lock_peers(peers: &Mutex<Peers>) -> MutexGuard<'_, Peers> {
    peers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The kind of a notification that is not the full status, by its method.
fn kind_of(method: &str) -> NotificationKind {
    if method.starts_with("Aulos.") {
        NotificationKind::Other
    } else {
        NotificationKind::PartOfStatus
    }
}

/// Whether the subject of a notice still exists.
fn is_known(registry: &Registry, notice: &Notice) -> bool {
    match notice {
        Notice::Connected(id)
        | Notice::Disconnected(id)
        | Notice::Volume(id)
        | Notice::Latency(id)
        | Notice::ChannelMap(id)
        | Notice::Sound(id)
        | Notice::ClientName(id) => registry.table.client(id).is_some(),
        Notice::Mute(id) | Notice::Stream(id) | Notice::GroupName(id) => {
            registry.table.group(id).is_some()
        }
        Notice::Server | Notice::Message(..) => true,
    }
}

/// The method and the parameters of a notice; none for the full status.
fn render(registry: &Registry, notice: &Notice) -> Option<(&'static str, Value)> {
    let known = |id: &str| registry.table.client(id).map(|(_, client)| client);
    let client = |id: &str| known(id).map(ClientJson::from);
    let group = |id: &str| registry.table.group(id);
    Some(match notice {
        Notice::Connected(id) => ("Client.OnConnect", json!({ "id": id, "client": client(id) })),
        Notice::Disconnected(id) => {
            ("Client.OnDisconnect", json!({ "id": id, "client": client(id) }))
        }
        Notice::Volume(id) => {
            ("Client.OnVolumeChanged", json!({ "id": id, "volume": known(id).map(volume_json) }))
        }
        Notice::Latency(id) => (
            "Client.OnLatencyChanged",
            json!({ "id": id, "latency": known(id).map(|one| one.latency_ms) }),
        ),
        Notice::ChannelMap(id) => {
            let map = known(id).map(|client| client.map.name());
            ("Aulos.OnChannelMapChanged", json!({ "client": id, "map": map }))
        }
        Notice::Sound(id) => {
            let chain = known(id).and_then(|client| client.chain.as_deref()).map(chain_json);
            ("Aulos.OnSoundChanged", json!({ "client": id, "chain": chain }))
        }
        Notice::ClientName(id) => {
            ("Client.OnNameChanged", json!({ "id": id, "name": known(id).map(|one| &one.name) }))
        }
        Notice::Mute(id) => {
            ("Group.OnMute", json!({ "id": id, "mute": group(id).map(|group| group.muted) }))
        }
        Notice::Stream(id) => (
            "Group.OnStreamChanged",
            json!({ "id": id, "stream_id": group(id).map(|group| &group.station) }),
        ),
        Notice::GroupName(id) => {
            ("Group.OnNameChanged", json!({ "id": id, "name": group(id).map(|group| &group.name) }))
        }
        Notice::Message(method, params) => (*method, params.clone()),
        Notice::Server => return None,
    })
}
