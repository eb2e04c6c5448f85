//! The status that a node sends to the others.
//!
//! A node renders it with the limits with which the others read it. What is read is outside data:
//! its size is limited by the message, values have the declared types, texts are cut, and lists
//! have limits. It is rendered anew, so what is not declared here goes no further.

use aulos_proto::nats::MAX_NODE_DOCUMENT;
use serde::{Deserialize, Serialize};

use crate::backend::StationState;
use crate::clients::registry::{Client, GroupView, MAX_CLIENTS, clip_text, to_json_text};
use crate::stations::view::StationView;
use crate::views::status_json::publication_part;

/// The status of a node.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeDocument {
    pub(crate) version: String,
    pub(crate) host: String,
    pub(crate) uptime_s: u64,
    /// All clients that are connected, also those that are not listed.
    pub(crate) client_count: u64,
    /// Groups that are not listed because the document would be too large.
    pub(crate) groups_omitted: u64,
    pub(crate) stations: Vec<NodeStation>,
    pub(crate) groups: Vec<NodeGroup>,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeStation {
    name: String,
    state: String,
    /// The name of the source that plays.
    active: Option<String>,
    /// Clients that are connected and play it.
    client_count: u64,
    /// Its part in the publication of the station, if it is published.
    publication: Option<String>,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeGroup {
    id: String,
    name: String,
    stream_id: String,
    muted: bool,
    clients: Vec<NodeClient>,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeClient {
    id: String,
    name: String,
    host: String,
    connected: bool,
    volume: NodeVolume,
    latency: i32,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct NodeVolume {
    percent: u8,
    muted: bool,
}

impl NodeDocument {
    /// Reads the document of another node.
    ///
    /// # Errors
    /// What is wrong with it, for operators.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        if bytes.len() > MAX_NODE_DOCUMENT {
            return Err("its status is too large");
        }
        let mut document: Self =
            serde_json::from_slice(bytes).map_err(|_| "its status cannot be read")?;
        let clients = document.groups.iter().map(|group| group.clients.len()).sum::<usize>();
        let lengths = [document.stations.len(), document.groups.len(), clients];
        if lengths.into_iter().any(|length| length > MAX_CLIENTS) {
            return Err("its status has too many entries");
        }
        document.clip();
        Ok(document)
    }

    fn clip(&mut self) {
        let cut = |text: &mut String| *text = clip_text(text);
        cut(&mut self.version);
        cut(&mut self.host);
        for station in &mut self.stations {
            cut(&mut station.name);
            cut(&mut station.state);
            station.active.as_mut().map(cut);
            station.publication.as_mut().map(cut);
        }
        for group in &mut self.groups {
            cut(&mut group.id);
            cut(&mut group.name);
            cut(&mut group.stream_id);
            for client in &mut group.clients {
                cut(&mut client.id);
                cut(&mut client.name);
                cut(&mut client.host);
                client.volume.percent = client.volume.percent.min(100);
            }
        }
    }
}

impl NodeGroup {
    fn new(view: &GroupView) -> Self {
        let group = &view.group;
        Self {
            id: group.id.clone(),
            name: group.name.clone(),
            stream_id: group.station.clone(),
            muted: group.muted,
            clients: view.members().map(NodeClient::new).collect(),
        }
    }
}

impl NodeClient {
    fn new(client: &Client) -> Self {
        Self {
            id: client.id.clone(),
            name: client.name.clone(),
            host: client.host_name.clone(),
            connected: client.session.is_some(),
            volume: NodeVolume { percent: client.volume, muted: client.muted },
            latency: client.latency_ms,
        }
    }
}

/// This node at one moment, to be rendered without the lock of the state.
#[derive(Debug)]
pub(crate) struct NodeView {
    pub(crate) host: String,
    pub(crate) uptime_s: u64,
    pub(crate) groups: Vec<GroupView>,
    pub(crate) stations: Vec<StationView>,
}

impl NodeView {
    pub(super) fn document(&self) -> NodeDocument {
        let Self { host, uptime_s, groups, stations } = self;
        NodeDocument::new(host, *uptime_s, groups, stations)
    }
}

impl NodeDocument {
    /// The status of this node for the others. Groups with a connected client come first; those for
    /// which there is no room are counted.
    fn new(host: &str, uptime_s: u64, groups: &[GroupView], stations: &[StationView]) -> Self {
        let is_used = |group: &&GroupView| group.members().any(|one| one.session.is_some());
        let connected = |groups: &mut dyn Iterator<Item = &GroupView>| {
            let members = groups.flat_map(GroupView::members);
            members.filter(|client| client.session.is_some()).count() as u64
        };
        let of_station =
            |name: &str| connected(&mut groups.iter().filter(|view| view.group.station == *name));
        let mut document = Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: host.to_owned(),
            uptime_s,
            client_count: connected(&mut groups.iter()),
            groups_omitted: 0,
            stations: stations
                .iter()
                .map(|view| NodeStation::new(view, of_station(&view.station.name)))
                .collect(),
            groups: Vec::new(),
        };
        let mut room = MAX_NODE_DOCUMENT.saturating_sub(to_json_text(&document).len());
        let unused = groups.iter().filter(|one| !is_used(one));
        for group in groups.iter().filter(is_used).chain(unused) {
            // One byte for the comma, and some digits of the number of omitted groups.
            let shape = NodeGroup::new(group);
            let size = to_json_text(&shape).len() + 1;
            match room.checked_sub(size).filter(|room| *room > MAX_DIGITS) {
                Some(rest) => {
                    room = rest;
                    document.groups.push(shape);
                }
                None => document.groups_omitted += 1,
            }
        }
        document
    }
}

impl NodeStation {
    fn new(view: &StationView, client_count: u64) -> Self {
        let StationView { station, status, .. } = view;
        let active = status.machine.active.and_then(|index| station.sources.get(index));
        Self {
            name: station.name.clone(),
            state: match status.state {
                StationState::Stopped => "stopped",
                StationState::Silent => "silent",
                StationState::Playing => "playing",
            }
            .to_owned(),
            active: active.map(|source| source.name.clone()),
            client_count,
            publication: status.publication.as_ref().map(|part| publication_part(part).to_owned()),
        }
    }
}

/// Digits of the longest number.
const MAX_DIGITS: usize = 20;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(groups: &serde_json::Value) -> Vec<u8> {
        json!({
            "version": "1", "host": "h", "uptime_s": 1, "client_count": 1, "groups_omitted": 0,
            "stations": [{ "name": "a", "state": "playing", "active": null, "client_count": 1,
                           "publication": null }],
            "groups": groups,
        })
        .to_string()
        .into_bytes()
    }

    fn group(clients: &serde_json::Value) -> serde_json::Value {
        json!({ "id": "g", "name": "", "stream_id": "a", "muted": false, "clients": clients })
    }

    #[test]
    fn texts_are_cut_and_unknown_members_go_no_further() {
        let client = json!({ "id": "x".repeat(5_000), "name": "a\nb", "host": "<img>",
            "connected": true, "volume": { "percent": 200, "muted": false }, "latency": 5,
            "later": { "more": 1 } });
        let read = NodeDocument::parse(&document(&json!([group(&json!([client]))]))).unwrap();
        let client = &read.groups[0].clients[0];
        assert_eq!(
            (client.id.len(), client.name.as_str()),
            (crate::clients::registry::MAX_TEXT, "ab")
        );
        assert_eq!(client.volume.percent, 100);
        assert!(!to_json_text(&read).contains("later"));
    }

    #[test]
    fn what_is_no_document_is_refused() {
        let deep = "[".repeat(100_000);
        let other_type = document(&json!([{ "id": 5 }]));
        for bytes in [&b""[..], b"{}", b"[1,2", b"\xff", deep.as_bytes(), &other_type] {
            assert_eq!(NodeDocument::parse(bytes), Err("its status cannot be read"));
        }
        let many = vec![
            json!({ "id": "", "name": "", "stream_id": "", "muted": true,
            "clients": [] });
            2
        ];
        assert!(NodeDocument::parse(&document(&json!(many))).is_ok());
        let large = vec![b' '; MAX_NODE_DOCUMENT + 1];
        assert_eq!(NodeDocument::parse(&large), Err("its status is too large"));
    }
}
