//! The control plane's one state, and everything that changes it.
//!
//! Requests, events of the audio and the clock meet in [`Control`]. A lock around the registry is
//! held for the length of one call and never while waiting, so that every controller sees changes
//! in the same order; the rejected alternative, an actor with a queue, gives the same order and
//! makes each request wait for two hops. The audio does not know of this lock.

mod admission;
mod announce;
mod art;
mod calls;
pub(crate) mod connections;
mod djs;
mod extension_methods;
mod fallback;
mod greetings;
mod hooks;
mod markers;
mod methods;
mod notices;
mod notification;
mod outbox;
mod peers;
mod playback;
pub mod plugin;
mod pushes;
mod radio;
mod recordings;
mod relays;
mod reload;
mod roles;
mod rpc;
mod rtp;
mod sound;
mod status_json;
mod streams;
pub mod tcp;
pub mod titles;

pub use crate::relay::RelayChanges;
pub use notification::Notification;
pub use peers::{Inbox, PeerId};
pub use recordings::closed_figures;
pub use reload::{ConfigLoader, ReloadReport};
pub use roles::Caller;
pub use status_json::HostInfo;
pub use streams::MAX_ADDED;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use aulos_config::ResolvedConfig;
use aulos_io::mdns::DiscoveredServer;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use crate::access::{AccessControl, AddressBuckets, Role};
use crate::backend::{AudioBackend, AudioEvent, StationPosition, StationStatus};
use crate::hooks::{Hooks, Observation};
use crate::registry::store::{SavedState, Snapshot};
use crate::registry::{
    Effects, MAX_CLIENTS, Notice, Registry, StationInfo, WallTime, to_json_text,
};
use crate::relay::RelayManager;
use announce::AnnouncementList;
use art::ArtCache;
use greetings::GreetingSync;
use notices::PendingUpdate;
use outbox::Outbox;
use peers::Peers;
use streams::StationSlot;

/// The control plane. Everything takes `&self` and returns at once.
pub struct Control {
    /// Replaced as a whole by a reload.
    resolved: Mutex<Arc<ResolvedConfig>>,
    config_loader: ConfigLoader,
    neighbours: watch::Receiver<Vec<DiscoveredServer>>,
    reloaded: Notify,
    backend: Arc<dyn AudioBackend>,
    host: HostInfo,
    /// Where pictures are fetched: `http://HOST:PORT`.
    base_url: String,
    started: Instant,
    inner: Mutex<ControlState>,
    /// Held by the call whose work grows with the house; not the lock of the state.
    long_calls: tokio::sync::Mutex<()>,
    /// Beside the stations, which know nothing of them.
    relays: Mutex<RelayManager>,
    /// Counts every change that a page has to show.
    revision: watch::Sender<u64>,
    /// Who may do what.
    pub access: AccessControl,
    /// Who is told of trouble.
    pub hooks: Hooks,
    /// What was cut or refused.
    pub counters: Counters,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("counters", &self.counters).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct ControlState {
    registry: Registry,
    peers: Peers,
    outbox: Outbox,
    greetings: GreetingSync,
    /// New clients by address: ids cost nothing, and each is remembered.
    new_clients: AddressBuckets,
    /// By the house's number; none where a station was removed.
    slots: Vec<Option<StationSlot>>,
    art: ArtCache,
    announcements: AnnouncementList,
    /// What the stations were when anybody was last told, without what always changes.
    last_shown: Vec<StationStatus>,
    /// Somebody new has come, and controllers have not been told yet. A house that starts gets a
    /// thousand clients at once; a thousand whole statuses would keep them all waiting.
    update_pending: PendingUpdate,
    /// Since when somebody's health is newer than what pages show.
    health_changed_at: Option<Instant>,
    /// Whether there is something to save, and since when.
    unsaved_since: Option<Instant>,
    /// Bytes of JSON that were written since the start, for answers and for notifications: what a
    /// list of calls may cost is measured by it.
    rendered_bytes: usize,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What was cut, refused or answered with an error, with its cause.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl Counters {
            /// Every counter and its name.
            #[must_use]
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

counters! {
    /// Controllers that did not read what they were sent.
    controllers_cut_slow,
    /// Controllers that had not taken the oldest text when all texts together took too much memory.
    controllers_cut_memory,
    /// Notifications that were not sent to a controller that was behind, because a newer status of the
    /// whole house says the same.
    notifications_superseded,
    /// Controllers that sent a line without end.
    controllers_cut_long_line,
    /// Connections whose first byte begins no JSON: what a web page makes a browser send.
    controllers_cut_not_json,
    /// Lists of calls that cost more than one list may.
    batches_over_budget,
    /// Calls that were not looked at, because too many came before a login.
    calls_refused_before_login,
    /// Controllers that had made no call when a newcomer needed their slot.
    controllers_cut_unfinished,
    /// Controllers for which there was no slot.
    controllers_refused,
    /// Lines that were no JSON or no request.
    rpc_not_understood,
    /// HTTP connections that did not say in time what they want.
    http_cut_slow_request,
    /// HTTP connections whose first line had no end.
    http_cut_long_request,
    /// HTTP connections that had made no request when a newcomer needed their slot.
    http_cut_unfinished,
    /// HTTP connections for which there was no slot.
    http_refused,
    /// Requests that came from another site's page.
    http_cross_site,
    /// Requests that named a host that we are not.
    http_wrong_host,
    /// Connections for which too many are here from their address.
    control_refused_same_address,
    /// Connections that came too fast from their address.
    control_refused_too_fast,
    /// Connections that do not speak TLS, and have to.
    control_refused_plain,
    /// Connections that began a handshake of TLS and did not end it.
    control_cut_tls_unfinished,
    /// Connections whose TLS was none.
    control_cut_tls_failed,
    /// Controllers that did not log in in time.
    controllers_cut_without_login,
    /// Logins with a wrong name or secret, on any port.
    logins_failed,
    /// Logins that were not looked at, because their address had been wrong too often.
    logins_slowed,
    /// Live sources that had made no request when a newcomer needed their slot.
    djs_cut_unfinished,
    /// Live sources for which there was no slot.
    djs_refused,
    /// DJs who came to a mount that is not there.
    djs_refused_unknown,
    /// DJs who came to a mount where somebody is on air.
    djs_refused_taken,
    /// DJs whose kind of stream cannot be played.
    djs_refused_type,
    /// DJs who did not say in time what they want.
    djs_cut_without_request,
    /// DJs whose request had no end.
    djs_cut_long_request,
    /// What came to a port for DJs and was no request.
    djs_not_understood,
    /// Times that the state could not be written.
    state_not_saved,
    /// Clients of the saved state beyond as many as there can be.
    clients_not_restored,
    /// Clients with new ids that came too fast from their address.
    clients_refused_new,
    /// Files of `doc_root` for which too many others were being read.
    pages_refused_busy,
    /// Files of `doc_root` that the disk did not give in time.
    pages_cut_slow,
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What one call sees and changes.
pub(super) struct CallContext<'a> {
    control: &'a Control,
    inner: &'a mut ControlState,
    caller: &'a mut Caller,
    effects: &'a mut Vec<Effects>,
    /// Stations that end once whoever plays them has been given another.
    removed_stations: &'a mut Vec<usize>,
    /// An answer as text, in place of what the method returns: the status of a whole house is
    /// written at once, and never stands as a tree.
    text_answer: &'a mut Option<String>,
    /// An answer that comes when the disk has what was asked for, in place of what the method returns.
    markers: &'a mut Option<markers::PendingMarkers>,
    /// Whether the call has an id. The status of a whole house is not written for one that has none.
    has_id: bool,
}

impl CallContext<'_> {
    fn push_effects(&mut self, effects: Effects) {
        self.effects.push(effects);
    }

    /// Something is to be saved that nobody has to hear of.
    fn request_save(&mut self) {
        self.push_effects(Effects { save: true, ..Effects::default() });
    }

    /// Answers with the status of the house.
    fn status(&mut self) -> Value {
        self.render_answer(Control::server_text)
    }

    fn aulos_status(&mut self) -> Value {
        self.render_answer(Control::status_text)
    }

    fn render_answer(&mut self, render: fn(&Control, &ControlState) -> String) -> Value {
        if self.has_id {
            *self.text_answer = Some(render(self.control, self.inner));
        }
        Value::Null
    }

    fn neighbours(&self) -> Vec<DiscoveredServer> {
        self.control.neighbours.borrow().clone()
    }

    fn station(&self, name: &str) -> Option<usize> {
        self.inner.slot(name).map(|(number, _)| number)
    }

    fn loudness(&self, station: usize) -> Value {
        self.control.loudness_json(self.inner, station)
    }

    fn reset_loudness(&self, station: usize) {
        self.control.backend.reset_loudness(station);
    }
}

impl Control {
    /// A control plane over this house, with what was saved of it.
    #[must_use]
    pub fn new(
        resolved: Arc<ResolvedConfig>,
        house: Arc<dyn AudioBackend>,
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
            new_clients: admission::new_client_buckets(),
            last_shown: vec![StationStatus::default(); resolved.stations.len()],
            slots: slots.collect(),
            art: ArtCache::default(),
            announcements: AnnouncementList::default(),
            update_pending: PendingUpdate::default(),
            health_changed_at: None,
            unsaved_since: None,
            rendered_bytes: 0,
        };
        let control = Self {
            access: AccessControl::new(resolved.security.access.clone()),
            hooks: Hooks::new(&host.name, &resolved.hooks),
            base_url: format!("http://{}:{}", host.name, resolved.listen.http.port),
            resolved: Mutex::new(resolved),
            neighbours: watch::channel(Vec::new()).1,
            config_loader: Box::new(
                || Err("there is no configuration to be read again".to_owned()),
            ),
            reloaded: Notify::new(),
            backend: house,
            host,
            started: Instant::now(),
            inner: Mutex::new(inner),
            long_calls: tokio::sync::Mutex::default(),
            relays: Mutex::default(),
            revision: watch::Sender::new(0),
            counters: Counters::default(),
        };
        control.restore(saved);
        control
    }

    /// Pictures are fetched from here: `http://HOST:PORT`.
    #[must_use]
    pub fn with_base_url(mut self, base_url: String) -> Self {
        self.base_url = base_url;
        self
    }

    /// Other servers come out of here.
    #[must_use]
    pub fn with_neighbours(mut self, neighbours: watch::Receiver<Vec<DiscoveredServer>>) -> Self {
        self.neighbours = neighbours;
        self
    }

    /// Streams first: groups play them.
    fn restore(&self, saved: SavedState) {
        let mut inner = self.lock();
        for uri in saved.streams {
            if let Err(error) = self.add_stream(&mut inner, &uri, false) {
                let why = error.data.as_ref().and_then(Value::as_str).unwrap_or_default();
                tracing::warn!(uri, "a stream that was added before cannot be made: {why}");
            }
        }
        self.restore_sounds(&mut inner, &saved.sounds);
        let ControlState { greetings, registry, .. } = &mut *inner;
        let dropped = registry.restore(saved.groups);
        if dropped > 0 {
            self.counters.clients_not_restored.fetch_add(dropped as u64, Ordering::Relaxed);
            tracing::warn!(
                dropped,
                "the saved state has more than {MAX_CLIENTS} clients; the others are forgotten"
            );
        }
        for name in registry.restore_presets(saved.presets) {
            tracing::warn!(name, "a saved preset is larger than the limits allow, and is dropped");
        }
        greetings.refresh(registry, !self.access.rules().is_closed(), &*self.backend);
    }

    /// Takes what the audio tells.
    pub fn handle_event(&self, event: AudioEvent) {
        let mut inner = self.lock();
        match &event {
            AudioEvent::Left { session } => inner.outbox.forget(*session),
            AudioEvent::Hello { session, peer, hello, .. } => {
                let may = self.authorize_client(*peer, hello);
                if let Err(cause) =
                    may.and_then(|()| self.check_new_client(&mut inner, *peer, hello))
                {
                    return self.reject_session(&mut inner, *session, cause);
                }
            }
            AudioEvent::ClientInfo { .. } => {}
            AudioEvent::Health { .. } => {
                inner.health_changed_at.get_or_insert_with(Instant::now);
            }
        }
        let mut effects = inner.registry.apply(event, wall_time());
        if effects.notices.contains(&Notice::Server) {
            inner.update_pending.want();
        }
        effects.notices.retain(|notice| *notice != Notice::Server);
        self.apply_effects(&mut inner, effects, None);
    }

    /// What time brings: commands that found no place, stations that changed their state. To be
    /// called every [`TICK`].
    pub fn tick(&self) {
        self.with_relays(RelayManager::maintain);
        let mut inner = self.lock();
        inner.outbox.flush(&*self.backend);
        let ControlState { greetings, registry, .. } = &mut *inner;
        greetings.refresh(registry, !self.access.rules().is_closed(), &*self.backend);
        self.backend.retain_channel_maps(&|| inner.registry.active_maps());
        self.backend.tidy();
        for chore in self.backend.take_background_tasks() {
            tokio::spawn(chore);
        }
        self.send_due_update(&mut inner);
        self.notify_announcements(&mut inner);
        self.notify_switches(&mut inner);
        self.tell_recordings(&mut inner);
        if inner.health_changed_at.take_if(|since| since.elapsed() >= HEALTH_INTERVAL).is_some() {
            self.bump_revision();
        }
        for number in 0..inner.slots.len() {
            self.poll_station(&mut inner, number);
        }
    }

    /// Tells what a station does, if that is something else than before.
    fn poll_station(&self, inner: &mut ControlState, number: usize) {
        let status = self.backend.status(number);
        self.observe_station(inner, number, Observation::Status(&status));
        let status = status.without_live_figures();
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

    /// How far the stations have come; an answer shows as well that control answers, because
    /// nothing is answered to a controller without this lock.
    pub(crate) fn positions(&self) -> Vec<StationPosition> {
        drop(self.lock());
        self.backend.positions()
    }

    /// A new controller; what it is to hear comes out of the inbox, which ends when it is cut. One
    /// that may not listen hears nothing until it may.
    pub fn join(&self, role: Role) -> (PeerId, Inbox) {
        self.lock().peers.join(role >= Role::Listen)
    }

    /// A controller gets notifications from now on.
    pub(crate) fn subscribe(&self, peer: PeerId) {
        self.lock().peers.subscribe(peer);
    }

    /// A controller has gone.
    pub fn leave(&self, peer: PeerId) {
        self.lock().peers.leave(peer);
    }

    /// What is to be in `server.json`, if it has been waiting since before `deadline`.
    pub fn take_unsaved(&self, deadline: Instant) -> Option<Snapshot> {
        let mut inner = self.lock();
        inner.unsaved_since.take_if(|since| *since <= deadline)?;
        Some(Snapshot::new(&inner.registry, &inner.added_streams(), &inner.sound_overrides()))
    }

    /// What was taken as [`Control::unsaved`] could not be written: it is wanted again later.
    pub fn save_failed(&self) {
        count(&self.counters.state_not_saved);
        self.lock().unsaved_since.get_or_insert_with(Instant::now);
    }

    /// Our own status as JSON: stations, sources, levels, clients, counters.
    #[must_use]
    pub fn status(&self) -> String {
        self.status_text(&self.lock())
    }

    /// The levels and the loudness of every station, for meters.
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
                    "levels_dbfs": status_json::levels(&status.levels),
                    "loudness": status_json::loudness(&status.loudness),
                    "sources": status.source_loudness.iter().map(status_json::loudness)
                        .collect::<Vec<_>>(),
                    "normalizer": sound::normalizer_json(status.normalizer.as_ref(), station.spec.rate),
                })
            })
            .collect()
    }

    /// Counts every change that a page has to show.
    #[must_use]
    pub fn revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// What is run: the newest configuration that was taken over.
    #[must_use]
    pub fn config(&self) -> Arc<ResolvedConfig> {
        Arc::clone(&self.resolved.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn apply_effects(&self, inner: &mut ControlState, effects: Effects, from: Option<PeerId>) {
        for command in effects.commands {
            inner.outbox.push(command);
        }
        inner.outbox.flush(&*self.backend);
        if effects.save {
            inner.unsaved_since.get_or_insert_with(Instant::now);
            self.bump_revision();
        }
        if !effects.notices.is_empty() && inner.peers.any_but(from) {
            self.send_notices(inner, from, effects.notices);
        }
    }

    fn bump_revision(&self) {
        self.revision.send_modify(|revision| *revision += 1);
    }

    fn server_text(&self, inner: &ControlState) -> String {
        to_json_text(&self.server_shape(inner))
    }

    fn server_shape<'a>(&self, inner: &'a ControlState) -> status_json::ServerShape<'a> {
        let streams = inner
            .slots()
            .map(|(number, slot)| {
                let state = self.backend.status(number).state;
                status_json::stream(slot, self.metadata_slot(inner, number), state)
            })
            .collect();
        status_json::server(&self.host, &inner.registry, streams)
    }

    fn status_text(&self, inner: &ControlState) -> String {
        let mut groups = status_json::groups_by_station(&inner.registry);
        let stations = inner.slots().map(|(number, slot)| {
            let groups = groups.remove(slot.station.name.as_str()).unwrap_or_default();
            let clients = status_json::ClientList::new(&inner.registry, groups);
            let voice = self.metadata_slot(inner, number);
            let announcements = inner.announcements.of_station(number);
            status_json::station(slot, voice, &self.backend.status(number), announcements, clients)
        });
        let discarded = inner.registry.discarded();
        let lost = [
            ("clients_evicted", discarded.evicted),
            ("clients_not_remembered", discarded.transient),
        ];
        let counters = self.counters.list().into_iter().chain(lost).chain(self.backend.counters());
        let head = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "host": self.host.name,
            "uptime_s": self.started.elapsed().as_secs(),
            "hooks": self.hooks.status(),
            "relays": self.with_relays(RelayManager::summary),
            "counters": counters.map(|(name, n)| (name.to_owned(), json!(n)))
                .collect::<serde_json::Map<_, _>>(),
        });
        status_json::status(head, stations.collect())
    }

    /// A panic while the lock was held is a bug that was reported; what it guards is still whole
    /// enough to go on with.
    fn lock(&self) -> MutexGuard<'_, ControlState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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

/// How often [`Control::tick`] is called: ten times a second, as the page's meters are.
pub const TICK: std::time::Duration = std::time::Duration::from_millis(100);

/// How often pages are shown everybody's health: it comes client by client, and each showing is a
/// whole status.
const HEALTH_INTERVAL: std::time::Duration = std::time::Duration::from_secs(2);

fn wall_time() -> WallTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime { sec: i64::try_from(since.as_secs()).unwrap_or(0), usec: since.subsec_micros() }
}
