//! The control plane's one state, and everything that changes it.
//!
//! Requests, events of the audio and the clock meet in [`Control`]. A lock around the registry is
//! held for the length of one call and never while waiting, so that every controller sees changes
//! in the same order; the rejected alternative, an actor with a queue, gives the same order and
//! makes each request wait for two hops. The audio does not know of this lock.

mod greetings;
mod methods;
mod outbox;
mod peers;
mod rpc;
mod shape;
pub mod tcp;

pub use peers::{Inbox, PeerId};
pub use shape::HostInfo;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::config::Resolved;
use crate::house::{Event, House, StationStatus};
use crate::registry::{Effects, Notice, Registry, StationInfo, Wall, client_json, store};
use greetings::Greetings;
use outbox::Outbox;
use peers::Peers;

/// The control plane. Everything takes `&self` and returns at once.
pub struct Control {
    resolved: Arc<Resolved>,
    house: Arc<dyn House>,
    host: HostInfo,
    started: Instant,
    inner: Mutex<Inner>,
    /// Counts every change that a page has to show.
    revision: watch::Sender<u64>,
    /// What was cut or refused.
    pub counters: Counters,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("counters", &self.counters).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Inner {
    registry: Registry,
    peers: Peers,
    outbox: Outbox,
    greetings: Greetings,
    /// What the stations were when anybody was last told, without what always changes.
    shown: Vec<StationStatus>,
    /// Somebody new has come, and controllers have not been told yet. A house that starts gets a
    /// thousand clients at once; a thousand whole statuses would keep them all waiting.
    update: bool,
    /// Whether there is something to save, and since when.
    unsaved: Option<Instant>,
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
    /// Controllers that sent a line without end.
    controllers_cut_long_line,
    /// Controllers for which there was no place.
    controllers_refused,
    /// Lines that were no JSON or no request.
    rpc_not_understood,
    /// HTTP connections that did not say in time what they want.
    http_cut_slow_request,
    /// HTTP connections whose first line had no end.
    http_cut_long_request,
    /// HTTP connections for which there was no place.
    http_refused,
    /// Requests that came from another site's page.
    http_cross_site,
    /// Requests that named a host that we are not.
    http_wrong_host,
    /// Times that the state could not be written.
    state_not_saved,
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What one call sees and changes.
pub(super) struct State<'a> {
    control: &'a Control,
    registry: &'a mut Registry,
    kept: &'a mut Vec<Effects>,
}

impl State<'_> {
    fn keep(&mut self, effects: Effects) {
        self.kept.push(effects);
    }

    fn status(&self) -> Value {
        self.control.server_json(self.registry)
    }

    fn aulos_status(&self) -> Value {
        self.control.status_json(self.registry)
    }

    fn station(&self, name: &str) -> Option<usize> {
        self.control.resolved.stations.iter().position(|station| station.name == name)
    }

    fn loudness(&self, station: usize) -> Value {
        self.control.loudness_json(station)
    }

    fn reset_loudness(&self, station: usize) {
        self.control.house.reset_loudness(station);
    }
}

impl Control {
    /// A control plane over this house, with what was saved of it.
    #[must_use]
    pub fn new(
        resolved: Arc<Resolved>,
        house: Arc<dyn House>,
        host: HostInfo,
        mut registry: Registry,
        saved: Vec<crate::registry::Group>,
    ) -> Self {
        registry.restore(saved);
        let shown = vec![StationStatus::default(); resolved.stations.len()];
        let (peers, outbox) = (Peers::default(), Outbox::default());
        let mut greetings = Greetings::default();
        greetings.stale = true;
        greetings.refresh(&registry, &*house);
        Self {
            resolved,
            house,
            host,
            started: Instant::now(),
            inner: Mutex::new(Inner {
                registry,
                peers,
                outbox,
                greetings,
                shown,
                update: false,
                unsaved: None,
            }),
            revision: watch::Sender::new(0),
            counters: Counters::default(),
        }
    }

    /// Answers a line of JSON-RPC; `from` does not hear of what it changes itself.
    pub fn request(&self, from: Option<PeerId>, line: &[u8]) -> Option<String> {
        let mut inner = self.lock();
        let mut kept = Vec::new();
        let answer = rpc::answer(line, |method, params| {
            let mut state = State { control: self, registry: &mut inner.registry, kept: &mut kept };
            let answer = methods::run(&mut state, method, params);
            // Others hear of each change before the next one is made.
            for effects in kept.drain(..) {
                self.carry_out(&mut inner, effects, from);
            }
            answer
        });
        answer.unwrap_or_else(|not_understood| {
            count(&self.counters.rpc_not_understood);
            Some(not_understood)
        })
    }

    /// Takes what the audio tells.
    pub fn event(&self, event: Event) {
        let mut inner = self.lock();
        if let Event::Left { session } = &event {
            inner.outbox.forget(*session);
        }
        let mut effects = inner.registry.apply(event, wall());
        inner.update |= effects.notices.contains(&Notice::Server);
        effects.notices.retain(|notice| *notice != Notice::Server);
        self.carry_out(&mut inner, effects, None);
    }

    /// What time brings: commands that found no place, stations that changed their state. To be
    /// called every [`TICK`].
    pub fn tick(&self) {
        let mut inner = self.lock();
        inner.outbox.flush(&*self.house);
        let Inner { greetings, registry, .. } = &mut *inner;
        greetings.refresh(registry, &*self.house);
        self.tell_update(&mut inner);
        for (index, station) in self.resolved.stations.iter().enumerate() {
            let status = self.house.status(index).at_rest();
            let Some(shown) = inner.shown.get_mut(index).filter(|shown| **shown != status) else {
                continue;
            };
            let (before, now) = (shown.state, status.state);
            *shown = status;
            self.changed();
            if before != now {
                let stream = shape::stream(station, now);
                let params = json!({ "id": station.name, "stream": stream });
                self.tell(&mut inner, None, "Stream.OnUpdate", params);
            }
        }
    }

    /// A new controller; what it is to hear comes out of the inbox, which ends when it is cut.
    pub fn join(&self) -> (PeerId, Inbox) {
        self.lock().peers.join()
    }

    /// A controller has gone.
    pub fn leave(&self, peer: PeerId) {
        self.lock().peers.leave(peer);
    }

    /// The contents of `server.json`, if they have been waiting since before `deadline`.
    pub fn unsaved(&self, deadline: Instant) -> Option<String> {
        let mut inner = self.lock();
        inner.unsaved.take_if(|since| *since <= deadline)?;
        Some(store::render(inner.registry.groups()))
    }

    /// Our own status: stations, sources, levels, clients, counters.
    #[must_use]
    pub fn status(&self) -> Value {
        self.status_json(&self.lock().registry)
    }

    /// The levels and the loudness of every station, for meters.
    #[must_use]
    pub fn levels(&self) -> Value {
        let stations = self.resolved.stations.iter().enumerate();
        stations
            .map(|(index, station)| {
                let status = self.house.status(index);
                let active = status.active.and_then(|index| station.sources.get(index));
                json!({
                    "name": station.name,
                    "active": active.map(|source| &source.name),
                    "levels_dbfs": shape::levels(&status.levels),
                    "loudness": shape::loudness(&status.loudness),
                    "sources": status.source_loudness.iter().map(shape::loudness)
                        .collect::<Vec<_>>(),
                })
            })
            .collect()
    }

    /// Counts every change that a page has to show.
    #[must_use]
    pub fn revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// What is run.
    #[must_use]
    pub fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    fn carry_out(&self, inner: &mut Inner, effects: Effects, from: Option<PeerId>) {
        for command in effects.commands {
            inner.outbox.push(command);
        }
        inner.outbox.flush(&*self.house);
        if effects.save {
            inner.unsaved.get_or_insert_with(Instant::now);
            inner.greetings.stale = true;
            self.changed();
        }
        if effects.notices.is_empty() || !inner.peers.any_but(from) {
            return;
        }
        // Nobody hears of a client that he does not know.
        self.tell_update(inner);
        for notice in effects.notices {
            let (method, params) = self.render(&inner.registry, &notice);
            self.tell(inner, from, method, params);
        }
    }

    fn tell_update(&self, inner: &mut Inner) {
        if std::mem::take(&mut inner.update) && inner.peers.any_but(None) {
            let server = self.server_json(&inner.registry);
            self.tell(inner, None, "Server.OnUpdate", server);
        }
    }

    fn changed(&self) {
        self.revision.send_modify(|revision| *revision += 1);
    }

    fn tell(&self, inner: &mut Inner, from: Option<PeerId>, method: &'static str, params: Value) {
        let cut = inner.peers.tell(from, &rpc::notification(method, params));
        self.counters.controllers_cut_slow.fetch_add(cut, Ordering::Relaxed);
    }

    fn render(&self, registry: &Registry, notice: &Notice) -> (&'static str, Value) {
        let client = |id: &str| registry.client(id).map(|(_, client)| client_json(client));
        let config = |id: &str, key: &str| client(id).map(|client| client["config"][key].clone());
        let group = |id: &str| registry.group(id);
        match notice {
            Notice::Connected(id) => {
                ("Client.OnConnect", json!({ "id": id, "client": client(id) }))
            }
            Notice::Disconnected(id) => {
                ("Client.OnDisconnect", json!({ "id": id, "client": client(id) }))
            }
            Notice::Volume(id) => {
                ("Client.OnVolumeChanged", json!({ "id": id, "volume": config(id, "volume") }))
            }
            Notice::Latency(id) => {
                ("Client.OnLatencyChanged", json!({ "id": id, "latency": config(id, "latency") }))
            }
            Notice::ClientName(id) => {
                ("Client.OnNameChanged", json!({ "id": id, "name": config(id, "name") }))
            }
            Notice::Mute(id) => {
                ("Group.OnMute", json!({ "id": id, "mute": group(id).map(|group| group.muted) }))
            }
            Notice::Stream(id) => (
                "Group.OnStreamChanged",
                json!({ "id": id, "stream_id": group(id).map(|group| &group.station) }),
            ),
            Notice::GroupName(id) => (
                "Group.OnNameChanged",
                json!({ "id": id, "name": group(id).map(|group| &group.name) }),
            ),
            Notice::Server => ("Server.OnUpdate", self.server_json(registry)),
        }
    }

    fn server_json(&self, registry: &Registry) -> Value {
        let state = |index| self.house.status(index).state;
        shape::server(&self.host, registry, &self.resolved.stations, &state)
    }

    fn status_json(&self, registry: &Registry) -> Value {
        let stations = self.resolved.stations.iter().enumerate().map(|(index, station)| {
            let status: StationStatus = self.house.status(index);
            shape::station(station, &status, registry)
        });
        let counters = self.counters.list().into_iter().chain(self.house.counters());
        let stations: Value = stations.collect();
        let mut value = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "host": self.host.name,
            "uptime_s": self.started.elapsed().as_secs(),
            "counters": counters.map(|(name, n)| (name.to_owned(), json!(n)))
                .collect::<serde_json::Map<_, _>>(),
        });
        value["stations"] = stations;
        value
    }

    fn loudness_json(&self, index: usize) -> Value {
        let status = self.house.status(index);
        let sources = self.resolved.stations.get(index).map_or(&[][..], |station| &station.sources);
        let sources = sources.iter().zip(&status.source_loudness).map(|(source, loudness)| {
            json!({ "name": source.name, "loudness": shape::loudness(loudness) })
        });
        json!({
            "station": self.resolved.stations.get(index).map(|station| &station.name),
            "loudness": shape::loudness(&status.loudness),
            "sources": sources.collect::<Vec<_>>(),
        })
    }

    /// A panic while the lock was held is a bug that was reported; what it guards is still whole
    /// enough to go on with.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The registry for a configuration.
#[must_use]
pub fn registry_for(resolved: &Resolved, seed: u64) -> Registry {
    let stations = resolved
        .stations
        .iter()
        .map(|station| StationInfo { name: station.name.clone(), buffer_ms: station.buffer_ms });
    Registry::new(stations.collect(), seed)
}

/// How often [`Control::tick`] is called: ten times a second, as the page's meters are.
pub const TICK: std::time::Duration = std::time::Duration::from_millis(100);

fn wall() -> Wall {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall { sec: i64::try_from(since.as_secs()).unwrap_or(0), usec: since.subsec_micros() }
}
