//! The announcements that have not ended.

use aulos_engine::announce::Ducking;
use serde_json::{Value, json};

use crate::backend::AnnouncementTarget;

/// Every announcement of the server that has not ended.
#[derive(Debug, Default)]
pub(crate) struct AnnouncementList {
    pub(crate) last: u64,
    pub(crate) list: Vec<AnnouncementEntry>,
}

#[derive(Debug)]
pub(crate) struct AnnouncementEntry {
    pub(crate) id: u64,
    pub(crate) station: String,
    pub(crate) target: AnnouncementTarget,
    pub(crate) number: usize,
    pub(crate) uri: String,
    pub(crate) ducking: Ducking,
    pub(crate) is_playing: bool,
}

impl AnnouncementEntry {
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

impl AnnouncementList {
    /// The number of announcements to this target of a station.
    pub(crate) fn count(&self, station: usize, target: &AnnouncementTarget) -> usize {
        self.list.iter().filter(|one| one.number == station && one.target == *target).count()
    }

    /// The announcements of one station, for its status.
    pub(crate) fn of_station(&self, station: usize) -> Value {
        let own = self.list.iter().filter(|entry| entry.number == station);
        own.map(|entry| {
            json!({
                "id": entry.id,
                "group": entry.group(),
                "client": entry.client(),
                "uri": entry.uri,
                "duck_db": entry.ducking.gain.get(),
                "release_s": entry.ducking.release.as_secs_f64(),
                "state": if entry.is_playing { "playing" } else { "waiting" },
            })
        })
        .collect()
    }
}
