//! Announcements over the programme of a station, and plays in its place: those that have not
//! ended.

pub(crate) mod calls;
pub(crate) mod plays;
pub(crate) mod start;
pub mod talk;
pub(crate) mod test_tone;

use aulos_engine::announce::{Ducking, Layer, Priority};
use serde_json::{Value, json};

use crate::backend::{
    AnnouncementEvent, AnnouncementOutcome, AnnouncementTarget, ClientSound, SessionId,
};
use crate::clients::registry::Registry;
use crate::effects::Effects;

/// Every announcement and play of the server that has not ended.
#[derive(Debug, Default)]
pub(crate) struct Announcements {
    last: u64,
    list: Vec<AnnouncementEntry>,
}

/// An announcement or a play that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct AnnouncementEntry {
    pub(crate) id: u64,
    pub(crate) layer: Layer,
    pub(crate) priority: Priority,
    pub(crate) station: String,
    pub(crate) target: AnnouncementTarget,
    pub(crate) number: usize,
    pub(crate) uri: String,
    /// Of a play: what to show of it.
    pub(crate) title: Option<String>,
    pub(crate) ducking: Ducking,
    pub(crate) is_playing: bool,
}

impl AnnouncementEntry {
    /// The announcement or the play in the status of its station.
    pub(crate) fn json(&self) -> Value {
        let mut json = json!({
            "id": self.id,
            "group": self.group(),
            "client": self.client(),
            "uri": self.uri,
            "state": if self.is_playing { "playing" } else { "waiting" },
        });
        match self.layer {
            Layer::Play => json["title"] = json!(self.title),
            Layer::Announcement => {
                json["duck_db"] = json!(self.ducking.gain.get());
                json["priority"] = json!(self.priority.get());
                json["release_s"] = json!(self.ducking.release.as_secs_f64());
            }
        }
        json
    }

    /// The id of the group for which it is.
    pub(crate) fn group(&self) -> Option<&str> {
        match &self.target {
            AnnouncementTarget::Group(id) => Some(id),
            AnnouncementTarget::Station | AnnouncementTarget::Client(_) => None,
        }
    }

    /// The id of the client for which it is.
    pub(crate) fn client(&self) -> Option<&str> {
        match &self.target {
            AnnouncementTarget::Client(id) => Some(id),
            AnnouncementTarget::Station | AnnouncementTarget::Group(_) => None,
        }
    }
}

impl Announcements {
    /// The number of announcements to the same target that are played before this one.
    pub(crate) fn before(&self, entry: &AnnouncementEntry) -> usize {
        let own = self.of_station(entry.number, entry.layer);
        let others = own.filter(|one| one.target == entry.target && one.id != entry.id);
        others.filter(|one| one.priority >= entry.priority).count()
    }

    /// The announcements or the plays of one station.
    pub(crate) fn of_station(
        &self,
        station: usize,
        layer: Layer,
    ) -> impl Iterator<Item = &AnnouncementEntry> {
        self.list.iter().filter(move |entry| entry.number == station && entry.layer == layer)
    }

    /// The number of the next announcement.
    const fn next_id(&self) -> u64 {
        self.last + 1
    }

    /// Adds an announcement that the audio side has taken.
    fn add(&mut self, entry: AnnouncementEntry) {
        self.last = entry.id;
        self.list.push(entry);
    }

    fn all(&self) -> &[AnnouncementEntry] {
        &self.list
    }

    /// Handles what happened to an announcement.
    pub(crate) fn handle_event(
        &mut self,
        id: u64,
        event: AnnouncementEvent,
        registry: &Registry,
    ) -> Effects {
        let Some(at) = self.list.iter().position(|entry| entry.id == id) else {
            return Effects::default();
        };
        let entry = &mut self.list[at];
        let layer = entry.layer;
        let mut params = json!({ "id": id, "station": entry.station, "uri": entry.uri });
        if layer == Layer::Play {
            params["title"] = json!(entry.title);
            params["group"] = json!(entry.group());
            params["client"] = json!(entry.client());
        }
        match event {
            AnnouncementEvent::Started => {
                entry.is_playing = true;
                params["state"] = json!("began");
            }
            AnnouncementEvent::Ended(outcome) => {
                let (cause, reason) = outcome_text(outcome, layer);
                params["state"] = json!("ended");
                params["cause"] = json!(cause);
                params["reason"] = json!(reason);
                let entry = self.list.remove(at);
                params["clients"] = connected_clients(registry, &entry);
                params["group"] = json!(entry.group());
                params["client"] = json!(entry.client());
            }
        }
        let method = match layer {
            Layer::Play => "Aulos.OnPlay",
            Layer::Announcement => "Aulos.OnAnnouncement",
        };
        Effects::message(method, params)
    }
}

/// The sessions of a target's connected clients, with their sounds; `None` if the target does
/// not play the station of this number.
pub(crate) fn sessions(
    registry: &Registry,
    number: usize,
    target: &AnnouncementTarget,
) -> Option<Vec<(SessionId, ClientSound)>> {
    let (group, only) = match target {
        AnnouncementTarget::Station => return None,
        AnnouncementTarget::Group(id) => (registry.table.group(id)?, None),
        AnnouncementTarget::Client(id) => (registry.table.client(id)?.0, Some(id)),
    };
    registry.stations.find(&group.station).filter(|(own, _)| *own == number)?;
    let members = registry.table.members(&group.id);
    let named = members.filter(|client| only.is_none_or(|only| client.id == *only));
    Some(named.flat_map(|client| client.sessions().map(|one| (one, client.sound()))).collect())
}

/// The ids of the connected clients for which an announcement was.
fn connected_clients(registry: &Registry, entry: &AnnouncementEntry) -> Value {
    let AnnouncementEntry { station, number, target, .. } = entry;
    if *target == AnnouncementTarget::Station {
        return registry.table.clients_of_station(station).collect();
    }
    let sessions = sessions(registry, *number, target).into_iter().flatten();
    let mut ids: Vec<&str> = sessions
        .filter_map(|(session, _)| registry.table.with_session(session))
        .map(|client| client.id.as_str())
        .collect();
    // A client may have several sessions.
    ids.dedup();
    ids.into()
}

fn outcome_text(outcome: AnnouncementOutcome, layer: Layer) -> (&'static str, Option<String>) {
    match outcome {
        AnnouncementOutcome::Played => ("played", None),
        AnnouncementOutcome::Cancelled if layer == Layer::Play => ("stopped", None),
        AnnouncementOutcome::Cancelled => ("cancelled", None),
        AnnouncementOutcome::Replaced => ("replaced", None),
        AnnouncementOutcome::Interrupted => ("interrupted", None),
        AnnouncementOutcome::TooLong => ("too long", None),
        AnnouncementOutcome::StationGone => ("station gone", None),
        AnnouncementOutcome::Failed(why) => ("failed", Some(why)),
    }
}
