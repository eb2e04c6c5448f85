//! A copy of what the server publishes about itself, in typed values, and its health.
//!
//! The lock of the state is held while the values are copied and not while they are written out as
//! text; no station is waited for.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aulos_config::StationSettings;
use aulos_core::Db;
use serde_json::Value;

use super::run_statistics::Histogram;
use crate::backend::{InputFault, SourceState, StationReport, StationState};
use crate::clients::registry::{Client, Group, GroupView};
use crate::hooks::HookSnapshot;
use crate::stations::activity::StationActivity;
use crate::stations::fallback;

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
    pub station: Arc<StationSettings>,
    /// Its status.
    pub status: StationReport,
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
        let input = self.status.inputs().get(index)?;
        Some(fallback::health(input, self.status.sources.get(index)?))
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
fn plays_last_resort(station: &StationSettings, status: &StationReport) -> bool {
    status.is_on_last_resort() && station.last_resort.is_some()
}

/// Why the server is not ready to serve clients: a reason for each station whose clock stands
/// still. With `strict`, also for what the fallback covers.
pub(super) fn unready_reasons(
    stations: &[(Arc<StationSettings>, StationReport, Option<Duration>)],
    strict: bool,
) -> Vec<String> {
    let mut reasons = Vec::new();
    for (station, status, idle) in stations {
        let name = &station.name;
        match idle {
            None => reasons.push(format!("station `{name}` has not started")),
            Some(idle) if *idle > CLOCK_TIMEOUT => {
                let seconds = idle.as_secs_f64();
                reasons.push(format!("station `{name}` has stood still for {seconds:.1} s"));
            }
            Some(_) if strict => strict_reasons(station, status, &mut reasons),
            Some(_) => {}
        }
    }
    reasons
}

fn strict_reasons(station: &StationSettings, status: &StationReport, reasons: &mut Vec<String>) {
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

/// The connected clients of these groups.
pub(super) fn connected(groups: &[GroupView]) -> impl Iterator<Item = (&Client, &Group)> {
    let all = groups.iter().flat_map(|view| view.members().map(|client| (client, &*view.group)));
    all.filter(|(client, _)| client.session.is_some())
}

impl ClientSnapshot {
    pub(super) fn new(client: &Client, group: &Group) -> Self {
        let name = if group.name.is_empty() { &group.id } else { &group.name };
        Self { client: client.clone(), group: name.clone(), station: group.station.clone() }
    }
}

/// A station advances by one chunk at a time, of 60 ms at most.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(1);
