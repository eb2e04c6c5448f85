//! What others read of the server: status, metrics, Icecast's statistics, meters.
//!
//! The lock of the state is held while values are taken, and not while they are written out.

pub(crate) mod dates;
pub(crate) mod icecast;
pub(crate) mod meter_feed;
pub(crate) mod run_statistics;
pub(crate) mod snapshot;
pub(crate) mod status_json;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aulos_config::StationSettings;
use aulos_engine::announce::Layer;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::announcements::AnnouncementEntry;
use crate::backend::StationReport;
use crate::clients::Clients;
use crate::cluster::node_document::NodeView;
use crate::control::state::{Control, Subjects};
use crate::stations::view::StationView;
use crate::stations::{Stations, level_json};
use icecast::IcecastView;
use meter_feed::MeterSnapshot;
use snapshot::{ClientSnapshot, ServerSnapshot, StationSnapshot, connected, unready_reasons};
use status_json::{ServerView, StatusView};

/// What others read of a server.
#[derive(Clone, Copy, Debug)]
pub struct Views<'a>(pub(crate) &'a Control);

impl Views<'_> {
    /// The whole of `Server.GetStatus`.
    pub(crate) fn server(self, clients: &Clients, stations: &Stations) -> ServerView {
        let groups = clients.registry.table.views();
        ServerView::new(&self.0.host, groups, self.client_stations(stations))
    }

    /// The stations that Snapcast clients can play: all but mounts.
    fn client_stations(self, stations: &Stations) -> Vec<StationView> {
        let mut views = stations.views(&*self.0.backend);
        views.retain(|view| view.station.mount.is_none());
        views
    }

    /// The whole of `Aulos.GetStatus`.
    pub(crate) fn status(self, subjects: &Subjects) -> StatusView {
        let Subjects { clients, stations, announcements, .. } = subjects;
        let stations = stations.views(&*self.0.backend).into_iter().map(|view| {
            let listeners = self.0.listeners.table().count(&view.station.name).0;
            let sounds = Layer::ALL.map(|layer| {
                announcements.of_station(view.number, layer).map(AnnouncementEntry::json).collect()
            });
            (view, listeners, sounds)
        });
        let counters = self.counters(subjects).into_iter();
        let head = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "host": self.0.host.name,
            "uptime_s": self.uptime().as_secs(),
            "hooks": self.0.hooks.status(),
            "relays": self.0.relays.with(|relays| relays.summary()),
            "counters": counters.map(|(name, n)| (name.to_owned(), json!(n)))
                .collect::<Map<_, _>>(),
        });
        StatusView { head, groups: clients.registry.table.views(), stations: stations.collect() }
    }

    /// This node for the others of a cluster.
    pub(crate) fn node(self, subjects: &Subjects) -> NodeView {
        NodeView {
            host: self.0.host.name.clone(),
            uptime_s: self.uptime().as_secs(),
            groups: subjects.clients.registry.table.views(),
            stations: self.client_stations(&subjects.stations),
        }
    }

    /// Levels and loudness of every station, for meters.
    #[must_use]
    pub fn levels(self) -> Value {
        let one = |(station, status): &(Arc<StationSettings>, StationReport)| {
            let active = status.machine.active.and_then(|index| station.sources.get(index));
            let normalizer = status.machine.normalizer.as_ref();
            let sources = status.inputs().iter();
            let sources: Vec<_> =
                sources.map(|input| level_json::loudness(&input.loudness)).collect();
            json!({
                "name": station.name,
                "active": active.map(|source| &source.name),
                "levels_dbfs": level_json::levels(status.machine.level.peaks()),
                "loudness": level_json::loudness(&status.machine.loudness),
                "sources": sources,
                "normalizer": level_json::normalizer_json(normalizer, station.spec.rate),
            })
        };
        self.statuses().iter().map(one).collect()
    }

    /// The meters of all stations, for the frames of all connections. `tick` counts the calls.
    #[must_use]
    pub fn meters(self, tick: u64) -> MeterSnapshot {
        MeterSnapshot::new(tick, self.uptime(), &self.statuses())
    }

    /// The server as Icecast shows it.
    #[must_use]
    pub fn icecast(self) -> IcecastView {
        let stations = self.0.lock().stations.views(&*self.0.backend);
        let table = self.0.listeners.table();
        let stations = stations.into_iter().map(|view| {
            let listeners = table.of_station(&view.station.name);
            let peak = table.count(&view.station.name).1;
            (view, listeners, peak)
        });
        IcecastView {
            host: self.0.host.name.clone(),
            started: self.0.clock.wall() - self.uptime(),
            now: self.0.clock.now(),
            stations: stations.collect(),
            totals: table.totals(),
        }
    }

    /// The station or mount that is heard at this path, as Icecast's interfaces name it.
    #[must_use]
    pub fn station_at(self, mount: &str) -> Option<Arc<StationSettings>> {
        self.0.stations().into_iter().find(|station| icecast::mount_of(station) == mount)
    }

    /// The state of the server now, with its clients if they are not more than `max_clients`.
    #[must_use]
    pub fn snapshot(self, max_clients: usize) -> ServerSnapshot {
        let control = self.0;
        let subjects = control.lock();
        let groups = subjects.clients.registry.table.views();
        let counters = self.counters(&subjects);
        let stations: Vec<_> = subjects
            .stations
            .slots()
            .map(|(number, slot)| (number, Arc::clone(&slot.station), slot.activity.clone()))
            .collect();
        drop(subjects);
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for (_, group) in connected(&groups) {
            *counts.entry(&group.station).or_default() += 1;
        }
        let is_few = connected(&groups).count() <= max_clients;
        let clients = connected(&groups).map(|(client, group)| ClientSnapshot::new(client, group));
        let clients = is_few.then(|| clients.collect());
        let stations = stations.into_iter().map(|(number, station, activity)| StationSnapshot {
            status: control.backend.status(number),
            clients: counts.get(station.name.as_str()).copied().unwrap_or(0),
            listeners: control.listeners.table().count(&station.name).0,
            station,
            activity,
        });
        control.statistics.observe_clock(control.clock.reading());
        let calls = control.statistics.calls();
        ServerSnapshot {
            started: calls.started,
            reload_succeeded: calls.reload_succeeded,
            configured_at: calls.configured_at,
            certificate_expires: control.config().security.tls.expires,
            counters,
            stations: stations.collect(),
            clients,
            controllers: control.peers().count(),
            hooks: control.hooks.snapshots(),
            relays: control.relays.with(|relays| relays.summary()),
            calls: calls.calls,
            call_seconds: calls.call_seconds,
        }
    }

    /// Whether the control loop runs; waits at most a second where that is not clear.
    pub async fn is_alive(self) -> bool {
        self.0.statistics.is_ticking(self.0.clock.now()).await
    }

    /// Why the server is not ready to serve clients: a reason for each station whose clock stands
    /// still. With `strict`, also for what the fallback covers: a source that has failed, a station
    /// that plays none, a configuration that could not be loaded again.
    #[must_use]
    pub fn unready_reasons(self, strict: bool) -> Vec<String> {
        let now = self.0.clock.now();
        let stations: Vec<_> = (self.0.lock().stations.slots())
            .map(|(number, slot)| {
                let status = self.0.backend.status(number);
                (Arc::clone(&slot.station), status, slot.activity.idle_for(now))
            })
            .collect();
        let mut reasons = unready_reasons(&stations, strict);
        if strict && !self.0.statistics.calls().reload_succeeded {
            reasons.push("the configuration file has errors and is not applied".to_owned());
        }
        reasons
    }

    /// The description (SDP) of a station's RTP output.
    #[must_use]
    pub fn description(self, station: &str, output: usize) -> Option<String> {
        let number = self.0.lock().stations.find(station).map(|(number, _)| number);
        self.0.backend.sdp(number?, output)
    }

    /// A picture and its media type.
    #[must_use]
    pub fn picture(self, name: &str) -> Option<(&'static str, Bytes)> {
        self.0.lock().stations.picture(name)
    }

    /// The counters of the status.
    fn counters(self, subjects: &Subjects) -> Vec<(&'static str, u64)> {
        let discarded = subjects.clients.registry.discarded;
        let lost = [
            ("clients_evicted", discarded.evicted),
            ("clients_not_remembered", discarded.transient),
            ("events_dropped", self.0.events.dropped()),
        ];
        let own = self.0.counters.list().into_iter().chain(lost);
        own.chain(self.0.backend.counters()).collect()
    }

    fn statuses(self) -> Vec<(Arc<StationSettings>, StationReport)> {
        let subjects = self.0.lock();
        let stations = subjects.stations.slots();
        let status = |number| self.0.backend.status(number);
        stations.map(|(number, slot)| (Arc::clone(&slot.station), status(number))).collect()
    }

    pub(crate) fn uptime(self) -> Duration {
        self.0.clock.now().saturating_duration_since(self.0.started)
    }
}
