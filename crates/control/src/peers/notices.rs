//! Renders notices of the registry as notifications, and decides when they are sent.
//!
//! Clients may connect by the thousand, so the full status that their connects require is rendered
//! at a limited rate (`pending_update`). Notifications about clients are held back until then,
//! because a controller must not get one about a client that it does not know. Changes made by a
//! call are sent at once; if they require the status of a large installation, with the next tick.

use std::fmt;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::clients::registry::{ClientJson, Notice, volume_json};
use crate::control::state::{Control, ControlState};
use crate::peers::notification::{Notification, NotificationKind};
use crate::peers::pending_update::{HeldBack, PendingUpdate};
use crate::peers::{Delivery, PeerId};

/// The kind of a notification, by its method.
fn kind_of(method: &str) -> NotificationKind {
    match method {
        "Server.OnUpdate" => NotificationKind::WholeStatus,
        ours if ours.starts_with("Aulos.") => NotificationKind::Other,
        _ => NotificationKind::PartOfStatus,
    }
}

impl Control {
    /// Sends the notices of a change to all controllers except `from`.
    pub(crate) fn send_notices(
        &self,
        inner: &mut ControlState,
        from: Option<PeerId>,
        notices: Vec<Notice>,
    ) {
        let mut is_covered = false;
        let is_whole = notices.contains(&Notice::Server);
        let pending = &inner.update_pending;
        let is_due = pending.is_due((self.clock)());
        if (is_due || pending.is_wanted && is_whole) && !pending.is_large() {
            // The caller gets it too, because it has not been notified of earlier changes by
            // others.
            self.send_update(inner, None);
            is_covered = true;
        }
        for notice in notices {
            match notice {
                Notice::Server if is_covered => {}
                // The call and the status together would delay others for too long.
                Notice::Server if inner.update_pending.is_large() => {
                    inner.update_pending.want_soon();
                }
                Notice::Server => self.send_update(inner, from),
                part => self.send_part(inner, from, part),
            }
        }
    }

    /// Sends the full status if connecting clients require it and the rate limit allows.
    pub(crate) fn send_due_update(&self, inner: &mut ControlState) {
        if inner.update_pending.is_due((self.clock)()) {
            self.send_update(inner, None);
        }
    }

    /// Sends the full status to all controllers except `from`, followed by the held-back
    /// notifications. If memory is short, the status is sent to all of them later.
    fn send_update(&self, inner: &mut ControlState, from: Option<PeerId>) {
        if !inner.peers.any_but(from) {
            inner.update_pending = PendingUpdate::default();
            return;
        }
        if let Err(cut) = inner.peers.make_room() {
            self.counters.controllers_cut_memory.fetch_add(cut as u64, Ordering::Relaxed);
            inner.update_pending.want();
            return;
        }
        let status = self.server_shape(inner);
        let text = Notification::of("Server.OnUpdate", &status, inner.peers.live());
        drop(status);
        inner.update_pending.sent(text.bytes(), (self.clock)());
        self.send(inner, from, NotificationKind::WholeStatus, text);
        for HeldBack { from, notice, text } in std::mem::take(&mut inner.update_pending.held_back) {
            // A client that has been forgotten meanwhile is not in the status.
            if is_known(inner, &notice) {
                self.send(inner, from, NotificationKind::PartOfStatus, text);
            }
        }
    }

    fn send_part(&self, inner: &mut ControlState, from: Option<PeerId>, notice: Notice) {
        let Some((method, params)) = render(inner, &notice) else { return };
        let text = Notification::new(method, &params, inner.peers.live());
        if !inner.update_pending.is_wanted {
            return self.send(inner, from, kind_of(method), text);
        }
        if inner.update_pending.hold_back(HeldBack { from, notice, text }) {
            self.counters.notifications_superseded.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends a notification to all controllers except `from`; `params` are JSON.
    pub(crate) fn notify(
        &self,
        inner: &mut ControlState,
        from: Option<PeerId>,
        method: &'static str,
        params: &impl fmt::Display,
    ) {
        let text = Notification::new(method, params, inner.peers.live());
        self.send(inner, from, kind_of(method), text);
    }

    fn send(
        &self,
        inner: &mut ControlState,
        from: Option<PeerId>,
        kind: NotificationKind,
        text: Notification,
    ) {
        inner.rendered_bytes += text.bytes();
        let counters = &self.counters;
        if kind != NotificationKind::WholeStatus
            && let Err(cut) = inner.peers.make_room()
        {
            counters.controllers_cut_memory.fetch_add(cut as u64, Ordering::Relaxed);
        }
        let Delivery { cut, superseded } = inner.peers.notify(from, kind, text);
        counters.controllers_cut_slow.fetch_add(cut as u64, Ordering::Relaxed);
        counters.notifications_superseded.fetch_add(superseded as u64, Ordering::Relaxed);
    }
}

/// Whether the subject of a notice still exists.
fn is_known(inner: &ControlState, notice: &Notice) -> bool {
    let registry = &inner.registry;
    match notice {
        Notice::Connected(id)
        | Notice::Disconnected(id)
        | Notice::Volume(id)
        | Notice::Latency(id)
        | Notice::ChannelMap(id)
        | Notice::ClientName(id) => registry.table.client(id).is_some(),
        Notice::Mute(id) | Notice::Stream(id) | Notice::GroupName(id) => {
            registry.table.group(id).is_some()
        }
        Notice::Server => true,
    }
}

/// The method and the parameters of a notice; none for the full status.
fn render(inner: &ControlState, notice: &Notice) -> Option<(&'static str, Value)> {
    let registry = &inner.registry;
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
        Notice::Server => return None,
    })
}
