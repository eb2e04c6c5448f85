//! A copy of what the server publishes about itself, in typed values, and its health.
//!
//! The lock of the state is held while the values are copied and not while they are written out as
//! text; no station is waited for.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use aulos_config::Station;
use aulos_core::Db;
use aulos_files::record::wall_clock;
use serde_json::Value;

use crate::backend::{
    ClientHealth, InputFault, OnAir, SessionId, SourceCondition, SourceState, StationOutput,
    StationState, StationStatus,
};
use crate::clients::registry::Client;
use crate::control::state::{Control, ControlState};
use crate::hooks::HookSnapshot;
use crate::stations::activity::StationActivity;
use crate::stations::fallback;
use crate::stations::slot::StationSlot;
use crate::views::run_statistics::Histogram;

/// The state of a server at one moment.
#[derive(Debug)]
pub struct ServerSnapshot {
    /// When it was started.
    pub started: SystemTime,
    /// Whether the last reload of the configuration succeeded; true before the first.
    pub reload_succeeded: bool,
    /// When the configuration in use was read.
    pub configured_at: SystemTime,
    /// When the configured certificate expires.
    pub certificate_expires: Option<SystemTime>,
    /// Every counter of the status by its name, and some numbers of what exists now.
    pub counters: Vec<(&'static str, u64)>,
    /// The stations.
    pub stations: Vec<StationSnapshot>,
    /// The connected clients; `None` when there are more than the caller wanted.
    pub clients: Option<Vec<ClientSnapshot>>,
    /// Controllers that receive notifications.
    pub controllers: usize,
    /// The hooks.
    pub hooks: Vec<HookSnapshot>,
    /// The totals of each relay, as in the status.
    pub relays: Value,
    /// Control calls by method; `other` is an unknown one.
    pub calls: Vec<(&'static str, u64)>,
    /// How long they took.
    pub call_seconds: Histogram,
}

/// A station at one moment.
#[derive(Clone, Debug)]
pub struct StationSnapshot {
    /// Its configuration.
    pub station: Station,
    /// Its status.
    pub status: StationStatus,
    /// Connected clients that play it.
    pub clients: usize,
    /// Web listeners.
    pub listeners: usize,
    /// What has been observed of it over time.
    pub activity: StationActivity,
}

/// A connected client at one moment.
#[derive(Clone, Debug)]
pub struct ClientSnapshot {
    /// The client.
    pub client: Client,
    /// The name of its group, or else its id.
    pub group: String,
    /// Its station.
    pub station: String,
}

impl StationSnapshot {
    /// The name of the health of a source, and its fault, if it is configured and runs.
    #[must_use]
    pub fn source_health(&self, index: usize) -> Option<(&'static str, Option<InputFault>)> {
        let condition: &SourceCondition = self.status.source_conditions.get(index)?;
        Some(fallback::health(condition, self.status.sources.get(index)?))
    }

    /// Whether the sound of the last resort is audible.
    #[must_use]
    pub fn plays_last_resort(&self) -> bool {
        plays_last_resort(&self.station, &self.status)
    }

    /// The loudness processing's ceiling in dBTP.
    #[must_use]
    pub fn ceiling(&self) -> Db {
        self.station.sound.ceiling()
    }
}

/// Without a sound of its own, the last resort is silence.
fn plays_last_resort(station: &Station, status: &StationStatus) -> bool {
    let OnAir { output, .. } = status.on_air;
    output == Some(StationOutput::LastResort) && station.last_resort.is_some()
}

impl Control {
    /// The state of the server now, with its clients if they are not more than `max_clients`.
    #[must_use]
    pub fn snapshot(&self, max_clients: usize) -> ServerSnapshot {
        let inner = self.lock();
        let connected = connected(&inner);
        let clients = (connected.len() <= max_clients).then(|| {
            connected.iter().map(|(client, group, station)| ClientSnapshot {
                client: (*client).clone(),
                group: (*group).to_owned(),
                station: (*station).to_owned(),
            })
        });
        let clients = clients.map(Iterator::collect);
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for (.., station) in &connected {
            *counts.entry(station).or_default() += 1;
        }
        let stations = inner.slots().map(|(number, slot)| {
            let StationSlot { station, activity, .. } = slot;
            StationSnapshot {
                station: station.clone(),
                status: self.backend.status(number),
                clients: counts.get(station.name.as_str()).copied().unwrap_or(0),
                listeners: self.listeners.count(&station.name).0,
                activity: activity.clone(),
            }
        });
        self.statistics.observe_clock(wall_clock());
        let calls = self.statistics.calls();
        ServerSnapshot {
            started: calls.started,
            reload_succeeded: calls.reload_succeeded,
            configured_at: calls.configured_at,
            certificate_expires: self.config().security.tls.expires,
            counters: self.all_counters(&inner),
            stations: stations.collect(),
            clients,
            controllers: inner.peers.count(),
            hooks: self.hooks.snapshots(),
            relays: self.with_relays(|relays| relays.summary()),
            calls: calls.calls,
            call_seconds: calls.call_seconds,
        }
    }

    /// Whether the control loop runs; waits at most a second where that is not clear.
    pub async fn is_alive(&self) -> bool {
        self.statistics.is_ticking((self.clock)()).await
    }

    /// Why the server is not ready to serve clients: a reason for each station whose clock stands
    /// still. With `strict`, also for what the fallback covers: a source that has failed, a station
    /// that plays none, a configuration that could not be loaded again.
    #[must_use]
    pub fn unready_reasons(&self, strict: bool) -> Vec<String> {
        let inner = self.lock();
        let now = (self.clock)();
        let mut reasons = Vec::new();
        for (number, StationSlot { station, activity, .. }) in inner.slots() {
            let name = &station.name;
            match activity.idle_for(now) {
                None => reasons.push(format!("station `{name}` has not started")),
                Some(idle) if idle > CLOCK_TIMEOUT => {
                    let seconds = idle.as_secs_f64();
                    reasons.push(format!("station `{name}` has stood still for {seconds:.1} s"));
                }
                Some(_) if strict => {
                    strict_reasons(station, &self.backend.status(number), &mut reasons);
                }
                Some(_) => {}
            }
        }
        if strict && !self.statistics.calls().reload_succeeded {
            reasons.push("the configuration file has errors and is not applied".to_owned());
        }
        reasons
    }
}

fn strict_reasons(station: &Station, status: &StationStatus, reasons: &mut Vec<String>) {
    let name = &station.name;
    if plays_last_resort(station, status) {
        reasons.push(format!("station `{name}` plays its last resort"));
    } else if status.state != StationState::Playing {
        reasons.push(format!("station `{name}` is silent"));
    }
    for (source, state) in station.sources.iter().zip(&status.sources) {
        if let SourceState::Failed(reason) = state {
            let source = &source.name;
            reasons.push(format!("source `{source}` of station `{name}` has failed: {reason}"));
        }
    }
}

/// The connected clients, each with the name of its group and its station.
fn connected(inner: &ControlState) -> Vec<(&Client, &str, &str)> {
    let groups = inner.registry.table.groups();
    let all = groups.flat_map(|group| {
        let name = if group.name.is_empty() { &group.id } else { &group.name };
        let members = inner.registry.table.members(&group.id);
        members.map(|client| (client, name.as_str(), group.station.as_str()))
    });
    all.filter(|(client, ..)| client.session.is_some()).collect()
}

impl ControlState {
    /// Takes over a report about a client for its station's distribution.
    pub(crate) fn observe_client(&mut self, session: SessionId, health: &ClientHealth) {
        let client = self.registry.table.with_session(session);
        let found = client.and_then(|client| self.registry.table.client(&client.id));
        let number = found.and_then(|(group, _)| self.registry.stations.find(&group.station));
        let slot = number.and_then(|(number, _)| self.slots.get_mut(number)?.as_mut());
        if let Some(slot) = slot {
            slot.activity.observe_client(health);
        }
    }
}

/// A station advances by one chunk at a time, of 60 ms at most.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(1);
