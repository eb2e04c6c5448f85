//! The router of the control plane.
//!
//! Requests, audio events and the clock meet in [`Control`], which gives each to its subject and
//! carries out the effects. The lock over the subjects is held for one call and never across an
//! `await` or while an answer is rendered, so all controllers see changes in the same order.
//! Alternatives: `docs/decisions/control-state.md`. The audio threads do not use this lock.

mod answer;
pub(crate) mod calls;
pub(crate) mod clock;
pub(crate) mod context;
pub(crate) mod counters;
pub(crate) mod host;
pub(crate) mod state;

pub use answer::Answer;
pub use calls::is_call_for_everyone;
pub use clock::Clock;
pub use counters::{Counters, count};
pub use host::HostInfo;
pub use state::{ConfigLoader, Control, ControlOptions, ControlParts};

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Instant;

use aulos_config::{ResolvedConfig, StationSettings};
use aulos_files::history::{HistoryRange, Series};
use aulos_io::reactor::ListenerSession;
use serde_json::Value;
use tokio::sync::{Notify, watch};

use crate::access::{AccessControl, Credentials, Login, LoginError, Role};
use crate::announcements::start::spawn_tasks;
use crate::announcements::{Announcements, sessions};
use crate::backend::{Hello, ProgrammeEvent, ReactorEvent, StationPosition};
use crate::clients::Clients;
use crate::clients::log::log_refused_login;
use crate::clients::registry::store::{SavedState, Snapshot};
use crate::clients::registry::{MAX_CLIENTS, Registry, StationInfo, active_sounds};
use crate::cluster::settings_sync::{MAX_APPLIED, SettingsSync};
use crate::effects::{Effects, Notice};
use crate::events::EventLog;
use crate::history::sampler::HistoryError;
use crate::history::{self, History};
use crate::hooks::Hooks;
use crate::listeners::Listeners;
use crate::logs;
use crate::peers::long_calls::LongCalls;
use crate::peers::updates::{UpdateContext, Updates};
use crate::peers::{Inbox, PeerId};
use crate::recordings;
use crate::relays::RelaySupervisor;
use crate::sendspin::{self, ArtworkRenditions, Rooms, SendspinTrust};
use crate::stations::Stations;
use crate::stations::added::StreamOrigin;
use crate::stations::mount_table::MountTable;
use crate::stations::slot::ScriptEvent;
use crate::stations::titles::TitleHistory;
use crate::stations::titles::shown::StationTitles;
use crate::views::Views;
use crate::views::run_statistics::RunStatistics;
use state::Subjects;

impl Control {
    /// A control plane, with the saved state restored.
    #[must_use]
    pub fn new(parts: ControlParts, options: ControlOptions) -> Self {
        let ControlParts { config, backend, relays, host, registry, saved } = parts;
        let ControlOptions { clock, base_url, discovered_servers, cluster, .. } = options;
        let own_url = || format!("http://{}:{}", host.name, config.listen.http.port);
        let base_url = base_url.unwrap_or_else(own_url);
        let subjects = Subjects {
            clients: Clients::new(registry),
            stations: Stations::new(&config.stations, base_url),
            announcements: Announcements::default(),
            rooms: Rooms::default(),
            shared_settings: SettingsSync::default(),
            history: History::new(options.history),
            updates: Updates::default(),
            unsaved_since: None,
            logged_aliases: BTreeSet::new(),
        };
        let control = Self {
            access: AccessControl::new(config.security.access.clone()),
            hooks: Hooks::new(&host.name, &config.hooks, clock.clone()),
            mounts: Mutex::new(Arc::new(MountTable::new(&config.stations))),
            resolved: Mutex::new(config),
            config_loader: options.config_loader,
            discovered_servers,
            cluster,
            tasks_changed: Notify::new(),
            sound_added: Notify::new(),
            backend,
            host,
            started: clock.now(),
            statistics: RunStatistics::new(clock.wall(), clock.reading()),
            events: Arc::new(EventLog::new(clock.clone())),
            long_calls: LongCalls::new(clock.clone()),
            sendspin: SendspinTrust::default(),
            artwork: ArtworkRenditions::default(),
            clock,
            subjects: Mutex::new(subjects),
            peers: Mutex::default(),
            delivery: Mutex::default(),
            listeners: Listeners::default(),
            relays: RelaySupervisor::new(relays),
            revision: watch::Sender::new(0),
            counters: Counters::default(),
            log_reads: logs::log_reads(),
        };
        control.restore(saved);
        // The station of an entry that has begun plays it from its first frame on.
        let (mut subjects, outside) = (control.lock(), control.outside());
        for number in 0..subjects.stations.end() {
            subjects.stations.follow_schedule(number, outside);
        }
        drop(subjects);
        control
    }

    /// Restores streams before groups, because groups refer to them.
    fn restore(&self, saved: SavedState) {
        let mut subjects = self.lock();
        let Subjects { clients, stations, shared_settings, .. } = &mut *subjects;
        let (config, backend) = (self.config(), &*self.backend);
        for uri in saved.streams {
            match stations.add_stream(&uri, StreamOrigin::SavedState, &config, backend) {
                Ok(added) => {
                    clients.registry.add_station(added.number, added.info);
                    if added.has_script {
                        self.tasks_changed.notify_one();
                    }
                }
                Err(error) => {
                    let why = error.data.as_ref().and_then(Value::as_str).unwrap_or_default();
                    tracing::warn!(uri, "cannot restore an added stream: {why}");
                }
            }
        }
        stations.restore_sounds(&saved.sounds, backend);
        for slot in stations.slots_mut() {
            if let Some(lines) = saved.titles.get(&slot.station.name) {
                slot.titles = StationTitles::with_history(TitleHistory::from_lines(lines));
            }
        }
        let dropped = clients.registry.restore(saved.groups);
        if dropped > 0 {
            self.counters.clients_not_restored.fetch_add(dropped as u64, Ordering::Relaxed);
            tracing::warn!(
                dropped,
                "the saved state has more than {MAX_CLIENTS} clients; the rest is dropped"
            );
        }
        for name in clients.registry.presets.restore(saved.presets) {
            tracing::warn!(name, "a saved preset exceeds the limits and is dropped");
        }
        let changed = clients.registry.table.take_changed();
        shared_settings.note(&changed);
        clients.send_greetings(changed, !self.access.rules().requires_login(), backend);
    }

    /// Handles an event of the audio backend.
    pub fn handle_event(&self, event: ReactorEvent) {
        self.change(|subjects| {
            if let ReactorEvent::Health { session, health } = &event
                && let Some(number) = subjects.clients.station_of(*session)
            {
                subjects.stations.observe_client(number, health);
            }
            let subjects = &mut *subjects;
            let limited = subjects.rooms.handle_event(&event, &*self.backend);
            self.counters.sendspin_artwork_limited.fetch_add(limited, Ordering::Relaxed);
            if let ReactorEvent::Command { session, command } = &event {
                let Subjects { clients, stations, .. } = subjects;
                let registry = &mut clients.registry;
                let effects =
                    sendspin::command(*session, *command, registry, stations, &*self.backend);
                return self.apply_effects(subjects, effects, None);
            }
            let login = |from, hello: &Hello| match &hello.auth {
                // Credentials that are given must be correct, even where none are required.
                Some(auth) => {
                    let credentials = Credentials::parse(&auth.scheme, &auth.param);
                    self.login(from, &credentials).map(|login| login.role)
                }
                None => Ok(self.access.rules().anonymous),
            };
            let mut effects = subjects.clients.handle_event(event, self.outside(), login);
            if effects.notices.contains(&Notice::Server) {
                subjects.updates.want_status();
            }
            effects.notices.retain(|notice| *notice != Notice::Server);
            self.apply_effects(subjects, effects, None);
        });
    }

    /// Periodic work: retries queued commands and reports state changes. Called every
    /// [`TICK`](crate::TICK).
    pub fn tick(&self) {
        let now = self.clock.now();
        self.relays.maintain(now, &self.events);
        self.change(|subjects| {
            self.sync_clients(subjects);
            let Subjects { updates, clients, stations, .. } = &mut *subjects;
            self.with_updates(clients, stations, |context| updates.push_due_status(context));
            self.handle_audio(subjects);
            if subjects.clients.take_health_change(now) {
                self.bump_revision();
            }
            for number in 0..subjects.stations.end() {
                let status = self.backend.status(number);
                if let Some(slot) = subjects.stations.get(number) {
                    subjects.history.sample(number, &slot.station, &status);
                }
                let effects = subjects.stations.poll(number, status, self.outside());
                self.apply_effects(subjects, effects, None);
            }
            let effects = subjects.clients.forget_absent_browsers(now);
            self.apply_effects(subjects, effects, None);
            let Subjects { history, stations, .. } = subjects;
            history.keep_second(self.outside(), |number| {
                stations.get(number).map(|slot| slot.station.name.clone())
            });
        });
        spawn_tasks(&*self.backend);
        self.statistics.set_ticked(now);
    }

    /// Sends what the audio side could not take before, and shares settings with other nodes.
    fn sync_clients(&self, subjects: &mut Subjects) {
        subjects.clients.send(Vec::new(), &*self.backend);
        let link = self.cluster.as_deref().filter(|link| link.shares_settings());
        for _ in 0..MAX_APPLIED {
            let Subjects { clients, shared_settings, .. } = &mut *subjects;
            let effects =
                link.and_then(|link| shared_settings.receive(link, &mut clients.registry));
            let Some(effects) = effects else { break };
            self.apply_effects(subjects, effects, None);
        }
        let Subjects { clients, shared_settings, .. } = subjects;
        let changed = clients.registry.table.take_changed();
        shared_settings.send_changes(link, &clients.registry, &changed);
        clients.send_greetings(changed, !self.access.rules().requires_login(), &*self.backend);
        let registry = &clients.registry;
        self.backend.retain_sounds(&|| active_sounds(registry));
        self.backend.move_announced(&|number, target| sessions(registry, number, target));
        self.backend.reap_ended();
        let Subjects { clients, stations, rooms, .. } = subjects;
        rooms.update(&clients.registry, stations, &*self.backend, &self.artwork);
    }

    /// Handles what has happened in the audio since the last call.
    pub(crate) fn handle_audio(&self, subjects: &mut Subjects) {
        for event in self.backend.programme_events() {
            let effects = match event {
                ProgrammeEvent::Switched(number, switch) => {
                    subjects.stations.handle_switch(number, switch, self.outside())
                }
                ProgrammeEvent::Announcement(id, event) => {
                    let registry = &subjects.clients.registry;
                    subjects.announcements.handle_event(id, event, registry)
                }
            };
            self.apply_effects(subjects, effects, None);
        }
        for event in self.backend.recorder_events() {
            let effects = recordings::handle_event(event, self.outside());
            self.apply_effects(subjects, effects, None);
        }
        let stations = &subjects.stations;
        let is_station = |name: &str| stations.find(name).is_some();
        self.listeners.log_ended(&self.clock, &self.events, is_station);
    }

    /// Handles an event of the control script of a stream.
    pub(crate) fn handle_script(&self, stream: &str, event: ScriptEvent) {
        self.change(|subjects| {
            let effects = subjects.stations.handle_script(stream, event, self.outside());
            self.apply_effects(subjects, effects, None);
        });
    }

    /// Registers a web listener by the head of its request, which is for `station` or names one
    /// below `/listen/`. Its session goes to the audio side.
    pub fn register_listener(
        &self,
        head: &[u8],
        station: Option<&str>,
        from: IpAddr,
    ) -> Arc<ListenerSession> {
        let station_of = |path: &str| match station {
            Some(station) => Some(station.to_owned()),
            None => self.lock().stations.of_path(path),
        };
        self.listeners.register((head, from), self.clock.now(), &self.events, station_of)
    }

    /// The user with these credentials, and its permissions. A failure is counted.
    ///
    /// # Errors
    /// [`LoginError`].
    pub fn login(&self, from: IpAddr, credentials: &Credentials) -> Result<Login, LoginError> {
        let login = self.access.login(from, credentials, self.clock.local());
        login.inspect_err(|denied| {
            self.counters.count_denied(*denied);
            log_refused_login(&self.events, from, *denied);
        })
    }

    /// Records a login attempt from this address that was checked elsewhere, and is logged there.
    ///
    /// # Errors
    /// [`LoginError`].
    pub fn record_login_attempt(&self, from: IpAddr, right: bool) -> Result<(), LoginError> {
        let result = self.access.check_guess(from, right, self.clock.local());
        result.inspect_err(|denied| self.counters.count_denied(*denied))
    }

    /// Registers a controller. Its notifications come out of the inbox, which ends when it is cut.
    /// Without permission to listen it gets none.
    pub fn join(&self, role: Role) -> (PeerId, Inbox) {
        self.peers().join(role >= Role::Listen)
    }

    /// Lets a controller receive notifications.
    pub fn subscribe(&self, peer: PeerId) {
        self.peers().subscribe(peer);
    }

    /// Removes a controller.
    pub fn leave(&self, peer: PeerId) {
        self.peers().leave(peer);
    }

    /// What others read of the server.
    #[must_use]
    pub const fn views(&self) -> Views<'_> {
        Views(self)
    }

    /// The status of aulos as JSON: stations, sources, levels, clients, counters.
    #[must_use]
    pub fn status(&self) -> String {
        let view = self.views().status(&self.lock());
        view.text()
    }

    /// The media positions of all stations. Taking the lock shows that control is responsive too:
    /// it answers no controller without it.
    pub fn positions(&self) -> Vec<StationPosition> {
        drop(self.lock());
        self.backend.positions()
    }

    /// The running stations.
    pub fn stations(&self) -> Vec<Arc<StationSettings>> {
        self.lock().stations.list()
    }

    /// The mounts of the present configuration.
    pub fn mounts(&self) -> Arc<MountTable> {
        Arc::clone(&self.mounts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A counter that changes with everything that a page shows.
    #[must_use]
    pub fn revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// What was measured of a station in a span of time.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub async fn query_history(
        &self,
        station: &str,
        range: HistoryRange,
    ) -> Result<(Arc<StationSettings>, Series), HistoryError> {
        let (found, requests) = {
            let subjects = self.lock();
            let found = subjects.stations.find(station).map(|(_, slot)| Arc::clone(&slot.station));
            (found, subjects.history.requests())
        };
        let found = found.ok_or(HistoryError::UnknownStation)?;
        Ok((found, history::query(requests, station, range).await?))
    }

    /// What to write to `server.json`, if a change has been waiting since before `deadline`.
    pub fn take_unsaved(&self, deadline: Instant) -> Option<Snapshot> {
        let mut subjects = self.lock();
        subjects.unsaved_since.take_if(|since| *since <= deadline)?;
        let Subjects { clients, stations, .. } = &*subjects;
        let (streams, sounds) = (stations.saved_streams(), stations.sound_overrides());
        Some(Snapshot::new(&clients.registry, streams, sounds))
    }

    /// Schedules another save after the snapshot of [`Control::take_unsaved`] could not be written.
    pub fn save_failed(&self) {
        count(&self.counters.state_not_saved);
        self.lock().unsaved_since.get_or_insert_with(|| self.clock.now());
    }

    /// Makes a change under the lock, and sends its notifications without it.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Subjects) -> T) -> T {
        let result = change(&mut self.lock());
        self.deliver();
        result
    }

    /// Carries out the effects of a change that the controller `from` has made.
    pub(crate) fn apply_effects(
        &self,
        subjects: &mut Subjects,
        effects: Effects,
        from: Option<PeerId>,
    ) {
        let Effects { commands, notices, save, is_shown, .. } = effects;
        subjects.clients.send(commands, &*self.backend);
        if save {
            subjects.unsaved_since.get_or_insert_with(|| self.clock.now());
        }
        if save || is_shown {
            self.bump_revision();
        }
        if notices.is_empty() || !self.peers().any_but(from) {
            return;
        }
        let Subjects { updates, clients, stations, .. } = subjects;
        self.with_updates(clients, stations, |context| updates.push(from, notices, context));
    }

    fn with_updates(
        &self,
        clients: &Clients,
        stations: &Stations,
        act: impl FnOnce(&UpdateContext<'_>),
    ) {
        let view = || self.views().server(clients, stations);
        act(&UpdateContext {
            registry: &clients.registry,
            peers: &self.peers,
            counters: &self.counters,
            now: self.clock.now(),
            view: &view,
        });
    }

    /// Renders and sends the queued notifications in their order, without the lock of the state;
    /// returns the bytes. If another thread does so already, it sends these too.
    pub(crate) fn deliver(&self) -> usize {
        let mut rendered = 0;
        loop {
            // Not in the `match`, which would keep the lock while it waits for the other thread.
            let queued = self.lock().updates.len();
            let turn = match queued {
                0 => break,
                // The other thread is slower than the changes.
                MAX_QUEUED.. => self.delivery.lock().unwrap_or_else(PoisonError::into_inner),
                _ => match self.delivery.try_lock() {
                    Ok(turn) => turn,
                    Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
                    Err(TryLockError::WouldBlock) => break,
                },
            };
            loop {
                let Some(update) = self.lock().updates.pop() else { break };
                let (bytes, is_status) = update.send(&self.peers, &self.counters);
                rendered += bytes;
                if is_status {
                    self.lock().updates.status_sent(bytes, self.clock.now());
                }
            }
            drop(turn);
        }
        rendered
    }

    fn bump_revision(&self) {
        self.revision.send_modify(|revision| *revision += 1);
    }
}

/// Notifications that may wait for another thread; with more, a change waits for it.
const MAX_QUEUED: usize = 64;

/// The registry for a configuration.
#[must_use]
pub fn registry_for(resolved: &ResolvedConfig, seed: u64) -> Registry {
    let stations = resolved
        .stations
        .iter()
        // Mounts, which come last, have no clients.
        .filter(|station| station.mount.is_none())
        .map(|station| StationInfo { name: station.name.clone(), buffer_ms: station.buffer_ms });
    let mut registry = Registry::new(stations.collect(), seed);
    registry.set_volume_limits(resolved.clients.initial_volume, resolved.clients.volume_cap);
    registry
}
