//! The announcements that have not ended.

use aulos_core::Db;
use serde_json::{Value, json};

/// Every announcement of the server that has not ended.
#[derive(Debug, Default)]
pub(super) struct AnnouncementList {
    pub(super) last: u64,
    pub(super) list: Vec<AnnouncementEntry>,
}

#[derive(Debug)]
pub(super) struct AnnouncementEntry {
    pub(super) id: u64,
    pub(super) station: String,
    pub(super) number: usize,
    pub(super) uri: String,
    pub(super) duck: Db,
    pub(super) is_playing: bool,
}

impl AnnouncementList {
    /// The announcements of one station, for its status.
    pub(super) fn of_station(&self, station: usize) -> Value {
        let own = self.list.iter().filter(|entry| entry.number == station);
        own.map(|entry| {
            json!({
                "id": entry.id,
                "uri": entry.uri,
                "duck_db": entry.duck.get(),
                "state": if entry.is_playing { "playing" } else { "waiting" },
            })
        })
        .collect()
    }
}
