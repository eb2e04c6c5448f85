//! The records that other nodes of a cluster have sent, whether their clients have been here or
//! not.

use std::collections::HashMap;

use aulos_proto::nats::{GroupSettings, SharedClientSettings};

use super::client::Group;
use super::stations::StationTable;
use super::table::ClientTable;

/// What other nodes know of clients and groups, by their ids.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedTable {
    pub(super) clients: HashMap<String, SharedClientSettings>,
    pub(super) groups: HashMap<String, GroupSettings>,
}

impl SharedTable {
    /// The group of a client that other nodes know: one that is here, or one as they know it, or a
    /// new one without an id.
    pub(super) fn arrival_group(
        &self,
        table: &ClientTable,
        stations: &StationTable,
        shared: Option<&SharedClientSettings>,
    ) -> Group {
        let default = || stations.default_name().to_owned();
        let id = shared.map_or("", |shared| &shared.group);
        if let Some(group) = table.group(id) {
            return group.clone();
        }
        match self.groups.get(id) {
            Some(GroupSettings { name, muted, station }) => Group {
                id: id.to_owned(),
                name: name.clone(),
                muted: *muted,
                station: stations.find(station).map_or_else(default, |_| station.clone()),
            },
            None => Group { id: id.to_owned(), station: default(), ..Group::default() },
        }
    }
}
