//! Notices as the notifications that controllers know, and when they go out.
//!
//! The status of the whole house is rendered at most so often that it makes
//! [`STATUS_BYTES_PER_SECOND`], when it is clients that come who make it necessary: they may come by
//! the thousand. What is told of clients meanwhile is held back until the status has gone out, because
//! a controller is not told about a client that it does not know. What a call changes is told at once.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::notification::{Notification, NotificationKind};
use super::peers::{Delivery, PeerId};
use super::{Control, ControlState};
use crate::registry::{ClientJson, Notice, volume_json};

/// Bytes of statuses of the whole house that are rendered in a second for clients that come: four
/// times the status of a full house.
const STATUS_BYTES_PER_SECOND: u64 = 16 << 20;

/// A status of so many bytes is rendered as often as one is wanted: that of some five hundred clients.
const SMALL_STATUS: usize = 256 << 10;

/// Notifications that are held back at once.
const MAX_HELD_BACK: usize = 512;

/// The status of the whole house that controllers are still to get.
#[derive(Debug, Default)]
pub(super) struct PendingUpdate {
    is_wanted: bool,
    /// What they get after it.
    held_back: VecDeque<HeldBack>,
    /// Before this the next one is not rendered for clients that come.
    not_before: Option<Instant>,
}

#[derive(Debug)]
struct HeldBack {
    from: Option<PeerId>,
    notice: Notice,
    text: Notification,
}

impl PendingUpdate {
    /// Controllers are to get a status of the whole house.
    pub(super) const fn want(&mut self) {
        self.is_wanted = true;
    }

    fn is_due(&self, now: Instant) -> bool {
        self.is_wanted && self.not_before.is_none_or(|then| now >= then)
    }

    /// A status of so many bytes has gone out.
    fn sent(&mut self, bytes: usize, now: Instant) {
        self.is_wanted = false;
        self.not_before = now.checked_add(pause_after(bytes));
    }

    /// Appends a text; gives whether the oldest had to go for it.
    fn hold_back(&mut self, text: HeldBack) -> bool {
        let is_full = self.held_back.len() >= MAX_HELD_BACK;
        if is_full {
            self.held_back.pop_front();
        }
        self.held_back.push_back(text);
        is_full
    }
}

/// How long after a status of so many bytes the next one is not rendered for clients that come.
fn pause_after(bytes: usize) -> Duration {
    if bytes <= SMALL_STATUS {
        return Duration::ZERO;
    }
    let micros = (bytes as u64).saturating_mul(1_000_000) / STATUS_BYTES_PER_SECOND;
    Duration::from_micros(micros)
}

/// What a notification stands for, by its method.
fn kind_of(method: &str) -> NotificationKind {
    match method {
        "Server.OnUpdate" => NotificationKind::WholeStatus,
        ours if ours.starts_with("Aulos.") => NotificationKind::Other,
        _ => NotificationKind::PartOfStatus,
    }
}

impl Control {
    /// Sends what a change brings about to everybody but `from`.
    pub(super) fn send_notices(
        &self,
        inner: &mut ControlState,
        from: Option<PeerId>,
        notices: Vec<Notice>,
    ) {
        let mut is_covered = false;
        let is_whole = notices.contains(&Notice::Server);
        if inner.update_pending.is_due(Instant::now()) || inner.update_pending.is_wanted && is_whole
        {
            // The caller gets it as well: it has not heard what others changed before.
            self.send_update(inner, None);
            is_covered = true;
        }
        for notice in notices {
            match notice {
                Notice::Server if is_covered => {}
                Notice::Server => self.send_update(inner, from),
                part => self.send_part(inner, from, part),
            }
        }
    }

    /// Sends the status of the whole house, if clients that have come make it necessary and the last
    /// one is long enough ago.
    pub(super) fn send_due_update(&self, inner: &mut ControlState) {
        if inner.update_pending.is_due(Instant::now()) {
            self.send_update(inner, None);
        }
    }

    /// Sends the status of the whole house to everybody but `from`, and then what was held back for
    /// it. Where there is no room for it, everybody gets it as soon as there is.
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
        inner.update_pending.sent(text.bytes(), Instant::now());
        self.send(inner, from, NotificationKind::WholeStatus, text);
        for HeldBack { from, notice, text } in std::mem::take(&mut inner.update_pending.held_back) {
            // A client that is forgotten meanwhile is not in the status.
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

    /// Sends a notification to everybody but `from`; `params` are JSON.
    pub(super) fn notify(
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

/// Whether what a notice is about is still there.
fn is_known(inner: &ControlState, notice: &Notice) -> bool {
    let registry = &inner.registry;
    match notice {
        Notice::Connected(id)
        | Notice::Disconnected(id)
        | Notice::Volume(id)
        | Notice::Latency(id)
        | Notice::ChannelMap(id)
        | Notice::ClientName(id) => registry.client(id).is_some(),
        Notice::Mute(id) | Notice::Stream(id) | Notice::GroupName(id) => {
            registry.group(id).is_some()
        }
        Notice::Server => true,
    }
}

/// The method and the parameters of a notice; none for the status of the whole house.
fn render(inner: &ControlState, notice: &Notice) -> Option<(&'static str, Value)> {
    let registry = &inner.registry;
    let known = |id: &str| registry.client(id).map(|(_, client)| client);
    let client = |id: &str| known(id).map(ClientJson::from);
    let group = |id: &str| registry.group(id);
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
