//! Clients, groups and stations in the status of a server, and the ones that a text names.

use std::collections::HashMap;

use aulos_control::names::{NameMatch, Named, NamedKind, client_name, group_name, resolve};
use aulos_server::exit::{Exit, Failure};
use serde_json::{Value, json};

use crate::cli::calls::{list, sync_text};
use crate::cli::scan::plain;

/// What people see of a server.
#[derive(Debug, Default)]
pub(super) struct ServerOverview {
    pub(super) clients: Vec<ClientRow>,
    pub(super) groups: Vec<GroupRow>,
    pub(super) stations: Vec<StationRow>,
}

#[derive(Debug)]
pub(super) struct ClientRow {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) group: String,
    pub(super) group_name: String,
    pub(super) station: String,
    pub(super) is_connected: bool,
    /// Percent.
    pub(super) volume: i64,
    pub(super) is_muted: bool,
    /// Its health as `Aulos.GetStatus` has it.
    pub(super) health: Value,
}

#[derive(Debug)]
pub(super) struct GroupRow {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) station: String,
    pub(super) is_muted: bool,
    /// The indices of its clients.
    members: Vec<usize>,
    /// Percent: the average of its clients.
    pub(super) volume: i64,
}

#[derive(Debug)]
pub(super) struct StationRow {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) source: Option<String>,
    /// Connected clients.
    pub(super) clients: usize,
    pub(super) listeners: u64,
}

impl ServerOverview {
    /// The overview in a result of `Aulos.GetStatus`.
    pub(super) fn new(status: &Value) -> Self {
        let mut overview = Self::default();
        let mut indices = HashMap::new();
        for station in list(&status["stations"]) {
            let (name, clients) = (text(&station["name"]), list(&station["clients"]));
            for client in clients {
                let group = *indices.entry(text(&client["group"])).or_insert_with(|| {
                    overview.groups.push(GroupRow::new(client, &name));
                    overview.groups.len() - 1
                });
                overview.groups[group].members.push(overview.clients.len());
                overview.clients.push(ClientRow::new(client, &name));
            }
            overview.stations.push(StationRow {
                name,
                state: text(&station["state"]),
                source: station["active"].as_str().map(str::to_owned),
                clients: clients.iter().filter(|client| client["connected"] == true).count(),
                listeners: station["listeners"].as_u64().unwrap_or(0),
            });
        }
        for group in &mut overview.groups {
            let members = group.members.iter().map(|index| &overview.clients[*index]);
            let count = i64::try_from(group.members.len()).unwrap_or(i64::MAX).max(1);
            group.volume = (members.clone().map(|one| one.volume).sum::<i64>() + count / 2) / count;
            let own = std::mem::take(&mut group.name);
            group.name = group_name(&own, members.map(|one| one.name.as_str())).into_owned();
            for index in &group.members {
                overview.clients[*index].group_name.clone_from(&group.name);
            }
        }
        overview
    }

    /// The ids of a group's clients.
    pub(super) fn members(&self, group: &GroupRow) -> Vec<&str> {
        group.members.iter().map(|index| self.clients[*index].id.as_str()).collect()
    }

    /// The client that a text names.
    pub(super) fn client(&self, text: &str) -> Result<&ClientRow, Failure> {
        let named = self.clients.iter().map(|one| Named::new(&one.id, one.name.as_str()));
        let id = find(NamedKind::Client, text, named.collect())?;
        self.clients.iter().find(|one| one.id == id).ok_or_else(gone)
    }

    /// The group that a text names.
    pub(super) fn group(&self, text: &str) -> Result<&GroupRow, Failure> {
        let named = self.groups.iter().map(|one| Named::new(&one.id, one.name.as_str()));
        let id = find(NamedKind::Group, text, named.collect())?;
        self.groups.iter().find(|one| one.id == id).ok_or_else(gone)
    }

    /// The name of the station that a text names.
    pub(super) fn station(&self, text: &str) -> Result<String, Failure> {
        let names = self.stations.iter().map(|one| one.name.as_str());
        find(NamedKind::Station, text, names.map(|name| Named::new(name, name)).collect())
    }
}

impl ClientRow {
    /// A client of `Aulos.GetStatus`; the name of its group is known once all clients are.
    fn new(client: &Value, station: &str) -> Self {
        let config = &client["config"];
        let (given, host) = (text(&config["name"]), text(&client["host"]["name"]));
        Self {
            id: text(&client["id"]),
            name: client_name(&given, &host).to_owned(),
            group: text(&client["group"]),
            group_name: String::new(),
            station: station.to_owned(),
            is_connected: client["connected"] == true,
            volume: config["volume"]["percent"].as_i64().unwrap_or(0),
            is_muted: config["volume"]["muted"] == true,
            health: client["health"].clone(),
        }
    }

    /// Offset of its sound in microseconds, where it reports one.
    fn offset_us(&self) -> Value {
        self.health["sync"]["error_us"].clone()
    }

    /// How it is in time: `+0.3 ms`, `connected`, or `away`.
    pub(super) fn sync(&self) -> String {
        if self.is_connected { sync_text(&self.health) } else { "away".to_owned() }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "id": self.id,
            "name": self.name,
            "group": self.group,
            "group_name": self.group_name,
            "station": self.station,
            "connected": self.is_connected,
            "offset_us": self.offset_us(),
            "volume": self.volume,
            "muted": self.is_muted,
        })
    }
}

impl GroupRow {
    /// The group of a client, with no member yet.
    fn new(client: &Value, station: &str) -> Self {
        Self {
            id: text(&client["group"]),
            name: text(&client["group_name"]),
            station: station.to_owned(),
            is_muted: client["group_muted"] == true,
            members: Vec::new(),
            volume: 0,
        }
    }

    pub(super) fn json(&self, clients: &[&str]) -> Value {
        json!({
            "id": self.id,
            "name": self.name,
            "station": self.station,
            "clients": clients,
            "volume": self.volume,
            "muted": self.is_muted,
        })
    }
}

impl StationRow {
    pub(super) fn json(&self) -> Value {
        json!({
            "name": self.name,
            "state": self.state,
            "source": self.source,
            "clients": self.clients,
            "listeners": self.listeners,
        })
    }
}

fn find(kind: NamedKind, text: &str, all: Vec<Named<'_>>) -> Result<String, Failure> {
    resolve(kind, text, &all, NameMatch::Prefix)
        .map(str::to_owned)
        .map_err(|error| Failure::new(Exit::Negative, plain(&error.to_string())))
}

/// Cannot happen: the id is one of the list.
fn gone() -> Failure {
    Failure::new(Exit::Internal, "the id is not in the list")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
