//! The state of the control plane, and everything that changes it.
//!
//! Requests, audio events and the clock meet in [`Control`]. The lock around the registry is held
//! for one call and never across an `await`, so all controllers see changes in the same order.
//! Alternatives: `docs/decisions/control-state.md`. The audio threads do not use this lock.

mod answer;
mod calls;
pub(crate) mod context;
pub(crate) mod counters;
pub(crate) mod state;

pub use crate::control::answer::Answer;
pub use crate::control::counters::{Counters, count};
pub use crate::control::state::{Clock, ConfigLoader, Control, HostInfo};

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use aulos_config::{ResolvedConfig, Station};
use aulos_files::record::wall_clock;
use aulos_io::mdns::DiscoveredServer;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use crate::access::{AccessControl, Role};
use crate::announcements::announce;
use crate::announcements::list::AnnouncementList;
use crate::backend::{
    AudioBackend, AudioEvent, RelayControl, StationEvent, StationPosition, StationStatus,
};
use crate::clients::admission;
use crate::clients::greetings::GreetingSync;
use crate::clients::outbox::Outbox;
use crate::clients::registry::store::{SavedState, Snapshot};
use crate::clients::registry::{
    Effects, MAX_CLIENTS, Notice, Registry, StationInfo, WallTime, active_maps, to_json_text,
};
use crate::cluster::settings_sync::SettingsSync;
use crate::control::state::ControlState;
use crate::events::history::EventHistory;
use crate::history::sampler::HistorySampler;
use crate::hooks::{Hooks, Observation};
use crate::listeners::access_log::AccessLog;
use crate::listeners::table::ListenerTable;
use crate::peers::long_calls::LongCalls;
use crate::peers::pending_update::PendingUpdate;
use crate::peers::{Inbox, PeerId, Peers};
use crate::refusals::RefusalFilter;
use crate::stations::art::ArtCache;
use crate::stations::event_log::LogLimit;
use crate::stations::slot::StationSlot;
use crate::stations::streams::StreamOrigin;
use crate::stations::{level_json, radio};
use crate::views::run_statistics::RunStatistics;
use crate::views::status_json;

impl Control {
    /// A control plane over this audio backend and these relays, with the saved state restored.
    #[must_use]
    pub fn new(
        resolved: Arc<ResolvedConfig>,
        backend: Arc<dyn AudioBackend>,
        relays: Box<dyn RelayControl>,
        host: HostInfo,
        registry: Registry,
        saved: SavedState,
    ) -> Self {
        let slots =
            resolved.stations.iter().map(|station| Some(StationSlot::new(station.clone(), None)));
        let inner = ControlState {
            registry,
            peers: Peers::default(),
            outbox: Outbox::default(),
            greetings: GreetingSync::default(),
            settings: SettingsSync::default(),
            history: HistorySampler::default(),
            new_clients: admission::new_client_buckets(),
            last_shown: vec![StationStatus::default(); resolved.stations.len()],
            slots: slots.collect(),
            art: ArtCache::default(),
            announcements: AnnouncementList::default(),
            update_pending: PendingUpdate::default(),
            health_changed_at: None,
            browsers_checked_at: Instant::now(),
            unsaved_since: None,
            logged_aliases: BTreeSet::new(),
            named_plugins: 0,
            rendered_bytes: 0,
        };
        let control = Self {
            access: AccessControl::new(resolved.security.access.clone()),
            hooks: Hooks::new(&host.name, &resolved.hooks),
            base_url: format!("http://{}:{}", host.name, resolved.listen.http.port),
            resolved: Mutex::new(resolved),
            discovered_servers: watch::channel(Vec::new()).1,
            cluster: None,
            config_loader: Box::new(|| {
                Err("this server has no configuration file to read again".to_owned())
            }),
            tasks_changed: Notify::new(),
            backend,
            host,
            history: None,
            clock: Box::new(Instant::now),
            started: Instant::now(),
            inner: Mutex::new(inner),
            long_calls: LongCalls::default(),
            listeners: ListenerTable::default(),
            access_log: AccessLog::default(),
            relays: Mutex::new(relays),
            relay_watch: Mutex::default(),
            revision: watch::Sender::new(0),
            counters: Counters::default(),
            events: EventHistory::default(),
            log_limit: LogLimit::default(),
            refused_clients: RefusalFilter::default(),
            statistics: RunStatistics::new(SystemTime::now(), wall_clock()),
        };
        control.restore(saved);
        control
    }

    /// Sets the clock, for a test in virtual time.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the base URL of pictures: `http://HOST:PORT`.
    #[must_use]
    pub fn with_base_url(mut self, base_url: String) -> Self {
        self.base_url = base_url;
        self
    }

    /// Sets the source of other servers on the network.
    #[must_use]
    pub fn with_discovered_servers(
        mut self,
        discovered_servers: watch::Receiver<Vec<DiscoveredServer>>,
    ) -> Self {
        self.discovered_servers = discovered_servers;
        self
    }

    /// Restores streams before groups, because groups refer to them.
    fn restore(&self, saved: SavedState) {
        let mut inner = self.lock();
        for uri in saved.streams {
            if let Err(error) = self.add_stream(&mut inner, &uri, StreamOrigin::SavedState) {
                let why = error.data.as_ref().and_then(Value::as_str).unwrap_or_default();
                tracing::warn!(uri, "cannot restore an added stream: {why}");
            }
        }
        self.restore_sounds(&mut inner, &saved.sounds);
        let ControlState { greetings, registry, settings, .. } = &mut *inner;
        let dropped = registry.restore(saved.groups);
        if dropped > 0 {
            self.counters.clients_not_restored.fetch_add(dropped as u64, Ordering::Relaxed);
            tracing::warn!(
                dropped,
                "the saved state has more than {MAX_CLIENTS} clients; the rest is dropped"
            );
        }
        for name in registry.presets.restore(saved.presets) {
            tracing::warn!(name, "a saved preset exceeds the limits and is dropped");
        }
        let changed = registry.table.take_changed();
        settings.note(&changed);
        let open = !self.access.rules().requires_login();
        greetings.refresh(registry, changed, open, &*self.backend);
    }

    /// Handles an event of the audio backend.
    pub fn handle_event(&self, event: AudioEvent) {
        let mut inner = self.lock();
        self.log_departure(&inner, &event);
        let arrival = match &event {
            AudioEvent::Hello { session, peer, .. } => Some((*session, *peer)),
            _ => None,
        };
        match &event {
            AudioEvent::Left { session } => inner.outbox.forget(*session),
            AudioEvent::Hello { session, peer, hello, .. } => {
                let authorized = self.authorize_client(*peer, hello);
                if let Err(cause) =
                    authorized.and_then(|()| self.check_new_client(&mut inner, *peer, hello))
                {
                    self.log_refused_client(*peer, cause);
                    return self.reject_session(&mut inner, *session, cause);
                }
            }
            AudioEvent::ClientInfo { .. } => {}
            AudioEvent::Health { session, health } => {
                inner.health_changed_at.get_or_insert_with(&self.clock);
                inner.observe_client(*session, health);
            }
        }
        let mut effects = inner.registry.apply(event, wall_time());
        if let Some(shared) = effects.shared.take() {
            self.log_shared_id(&inner, &shared);
        }
        if let Some((session, peer)) = arrival {
            self.log_arrival(&inner, session, peer, &effects.commands);
        }
        if effects.notices.contains(&Notice::Server) {
            inner.update_pending.want();
        }
        effects.notices.retain(|notice| *notice != Notice::Server);
        self.apply_effects(&mut inner, effects, None);
    }

    /// Periodic work: retries queued commands and reports state changes. Called every [`TICK`].
    pub fn tick(&self) {
        self.with_relays(|relays| relays.maintain());
        let mut inner = self.lock();
        inner.outbox.flush(&*self.backend);
        self.sync_settings(&mut inner);
        self.backend.retain_channel_maps(&|| active_maps(&inner.registry));
        let registry = &inner.registry;
        self.backend.move_announced(&|number, target| announce::sessions(registry, number, target));
        self.backend.reap_ended();
        for task in self.backend.take_background_tasks() {
            tokio::spawn(task);
        }
        self.send_due_update(&mut inner);
        for event in self.backend.station_events() {
            match event {
                StationEvent::Switched(number, switch) => {
                    self.notify_switch(&mut inner, number, switch);
                }
                StationEvent::Announcement(id, event) => {
                    self.notify_announcement(&mut inner, id, event);
                }
            }
        }
        self.notify_recordings(&mut inner);
        self.log_ended_listeners(&inner);
        let now = (self.clock)();
        self.watch_relays(now);
        let is_due = |since: &mut Instant| now.saturating_duration_since(*since) >= HEALTH_INTERVAL;
        if inner.health_changed_at.take_if(is_due).is_some() {
            self.bump_revision();
        }
        for number in 0..inner.slots.len() {
            self.poll_station(&mut inner, number, now);
        }
        self.forget_absent_browsers(&mut inner, now);
        self.keep_second(&mut inner, wall_time());
        self.statistics.set_ticked(now);
    }

    /// Forgets the players of pages that are gone, and tells controllers.
    fn forget_absent_browsers(&self, inner: &mut ControlState, now: Instant) {
        if now.saturating_duration_since(inner.browsers_checked_at) < BROWSER_CHECK_INTERVAL {
            return;
        }
        inner.browsers_checked_at = now;
        let effects = inner.registry.forget_absent_browsers(now);
        self.apply_effects(inner, effects, None);
    }

    /// Notifies controllers of a station's state if it has changed.
    fn poll_station(&self, inner: &mut ControlState, number: usize, now: Instant) {
        let status = self.backend.status(number);
        if let Some(slot) = inner.slots.get_mut(number).and_then(Option::as_mut) {
            slot.activity.update(&status, slot.station.sound.ceiling(), now);
            inner.history.sample(number, &slot.station, &status);
        }
        self.observe_station(inner, number, Observation::Status(&status));
        let status = status.without_live_figures();
        self.log_station_changes(inner, number, &status);
        let Some(slot) = inner.slots.get(number).and_then(Option::as_ref) else { return };
        let Some(shown) = inner.last_shown.get_mut(number).filter(|shown| **shown != status) else {
            return;
        };
        let (before, now) = (shown.state, status.state);
        let switched = shown.active != status.active;
        let title = (radio::title(shown) != radio::title(&status)).then(|| radio::title(&status));
        *shown = status;
        self.bump_revision();
        if before != now {
            let stream = status_json::stream(slot, self.metadata_slot(inner, number), now);
            let params = json!({ "id": slot.station.name, "stream": stream });
            self.notify(inner, None, "Stream.OnUpdate", &params);
        }
        if let Some(title) = title {
            self.update_title(inner, number, title);
        }
        if switched {
            self.notify_new_metadata(inner, number);
        }
    }

    /// The media positions of all stations. Taking the lock shows that control is responsive too:
    /// it answers no controller without it.
    pub fn positions(&self) -> Vec<StationPosition> {
        drop(self.lock());
        self.backend.positions()
    }

    /// Registers a controller. Its notifications come out of the inbox, which ends when it is cut.
    /// Without permission to listen it gets none.
    pub fn join(&self, role: Role) -> (PeerId, Inbox) {
        self.lock().peers.join(role >= Role::Listen)
    }

    /// Lets a controller receive notifications.
    pub fn subscribe(&self, peer: PeerId) {
        self.lock().peers.subscribe(peer);
    }

    /// Removes a controller.
    pub fn leave(&self, peer: PeerId) {
        self.lock().peers.leave(peer);
    }

    /// What to write to `server.json`, if a change has been waiting since before `deadline`.
    pub fn take_unsaved(&self, deadline: Instant) -> Option<Snapshot> {
        let mut inner = self.lock();
        inner.unsaved_since.take_if(|since| *since <= deadline)?;
        Some(Snapshot::new(&inner.registry, inner.saved_streams(), inner.sound_overrides()))
    }

    /// Schedules another save after the snapshot of [`Control::take_unsaved`] could not be written.
    pub fn save_failed(&self) {
        count(&self.counters.state_not_saved);
        self.lock().unsaved_since.get_or_insert_with(&self.clock);
    }

    /// The server's own status as JSON: stations, sources, levels, clients, counters.
    #[must_use]
    pub fn status(&self) -> String {
        self.status_text(&self.lock())
    }

    /// The running stations.
    pub fn stations(&self) -> Vec<Station> {
        self.lock().slots().map(|(_, slot)| slot.station.clone()).collect()
    }

    /// Levels and loudness of every station, for meters.
    #[must_use]
    pub fn levels(&self) -> Value {
        let inner = self.lock();
        inner
            .slots()
            .map(|(index, StationSlot { station, .. })| {
                let status = self.backend.status(index);
                let active = status.active.and_then(|index| station.sources.get(index));
                json!({
                    "name": station.name,
                    "active": active.map(|source| &source.name),
                    "levels_dbfs": level_json::levels(&status.levels),
                    "loudness": level_json::loudness(&status.loudness),
                    "sources": status.source_loudness.iter().map(level_json::loudness)
                        .collect::<Vec<_>>(),
                    "normalizer": level_json::normalizer_json(status.normalizer.as_ref(), station.spec.rate),
                })
            })
            .collect()
    }

    /// A counter that changes with everything that a page shows.
    #[must_use]
    pub fn revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// The machine that the server runs on.
    #[must_use]
    pub const fn host(&self) -> &HostInfo {
        &self.host
    }

    /// The configuration in use.
    #[must_use]
    pub fn config(&self) -> Arc<ResolvedConfig> {
        Arc::clone(&self.resolved.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn apply_effects(
        &self,
        inner: &mut ControlState,
        effects: Effects,
        from: Option<PeerId>,
    ) {
        for command in effects.commands {
            inner.outbox.push(command);
        }
        inner.outbox.flush(&*self.backend);
        if effects.save {
            inner.unsaved_since.get_or_insert_with(&self.clock);
            self.bump_revision();
        }
        if !effects.notices.is_empty() && inner.peers.any_but(from) {
            self.send_notices(inner, from, effects.notices);
        }
    }

    pub(crate) fn bump_revision(&self) {
        self.revision.send_modify(|revision| *revision += 1);
    }

    pub(crate) fn server_text(&self, inner: &ControlState) -> String {
        to_json_text(&self.server_shape(inner))
    }

    pub(crate) fn server_shape<'a>(&self, inner: &'a ControlState) -> status_json::ServerShape<'a> {
        let streams = inner
            .slots()
            .map(|(number, slot)| {
                let state = self.backend.status(number).state;
                status_json::stream(slot, self.metadata_slot(inner, number), state)
            })
            .collect();
        status_json::server(&self.host, &inner.registry, streams)
    }

    pub(crate) fn status_text(&self, inner: &ControlState) -> String {
        let mut groups = status_json::groups_by_station(&inner.registry);
        let stations = inner.slots().map(|(number, slot)| {
            let groups = groups.remove(slot.station.name.as_str()).unwrap_or_default();
            let clients = status_json::ClientList::new(&inner.registry, groups);
            let metadata_slot = self.metadata_slot(inner, number);
            let announcements = inner.announcements.of_station(number);
            status_json::station(
                slot,
                metadata_slot,
                &self.backend.status(number),
                self.listeners.count(&slot.station.name).0,
                announcements,
                clients,
            )
        });
        let counters = self.all_counters(inner).into_iter();
        let head = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "host": self.host.name,
            "uptime_s": self.started.elapsed().as_secs(),
            "hooks": self.hooks.status(),
            "relays": self.with_relays(|relays| relays.summary()),
            "counters": counters.map(|(name, n)| (name.to_owned(), json!(n)))
                .collect::<serde_json::Map<_, _>>(),
        });
        status_json::status(head, stations.collect())
    }

    /// The counters of the status.
    pub(crate) fn all_counters(&self, inner: &ControlState) -> Vec<(&'static str, u64)> {
        let discarded = inner.registry.discarded;
        let lost = [
            ("clients_evicted", discarded.evicted),
            ("clients_not_remembered", discarded.transient),
            ("events_dropped", self.events.dropped()),
        ];
        self.counters.list().into_iter().chain(lost).chain(self.backend.counters()).collect()
    }
}

/// The registry for a configuration.
#[must_use]
pub fn registry_for(resolved: &ResolvedConfig, seed: u64) -> Registry {
    let stations = resolved
        .stations
        .iter()
        .map(|station| StationInfo { name: station.name.clone(), buffer_ms: station.buffer_ms });
    let mut registry = Registry::new(stations.collect(), seed);
    registry.set_volume_limits(resolved.clients.initial_volume, resolved.clients.volume_cap);
    registry
}

/// Interval at which client health is shown. Reports come per client, and each update is a full
/// status.
const HEALTH_INTERVAL: std::time::Duration = std::time::Duration::from_secs(2);

/// Interval at which browsers that are gone are looked for.
const BROWSER_CHECK_INTERVAL: std::time::Duration = std::time::Duration::from_secs(5);

fn wall_time() -> WallTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime { sec: i64::try_from(since.as_secs()).unwrap_or(0), usec: since.subsec_micros() }
}
