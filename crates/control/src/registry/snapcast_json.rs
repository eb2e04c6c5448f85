//! Groups and clients in Snapcast's JSON, for controllers and for `server.json`.
//!
//! Serialization writes straight into text: the status of a large installation is rendered on every
//! request, and building it as a tree took eight times as long.

use std::sync::Arc;

use aulos_core::ChannelMap;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::Registry;
use super::client::{Client, Group, MAX_ID, MAX_IP, SavedGroup, WallTime, clip, clip_to};
use super::table::RememberedGroup;

/// A client as `Client.GetStatus` shows it.
#[derive(Debug, Serialize)]
pub struct ClientJson<'a> {
    config: ClientConfigJson<'a>,
    connected: bool,
    host: HostJson<'a>,
    id: &'a str,
    #[serde(rename = "lastSeen")]
    last_seen: LastSeenJson,
    snapclient: SnapclientJson<'a>,
}

#[derive(Debug, Serialize)]
struct ClientConfigJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    channels: Option<&'static str>,
    instance: u32,
    latency: i32,
    name: &'a str,
    volume: VolumeJson,
}

#[derive(Debug, Serialize)]
struct VolumeJson {
    /// Only in the state file; controllers get Snapcast's keys.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    by_client: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cap: Option<u8>,
    muted: bool,
    percent: u8,
}

#[derive(Debug, Serialize)]
struct HostJson<'a> {
    arch: &'a str,
    ip: &'a str,
    mac: &'a str,
    name: &'a str,
    os: &'a str,
}

#[derive(Debug, Serialize)]
struct LastSeenJson {
    sec: i64,
    usec: u32,
}

#[derive(Debug, Serialize)]
struct SnapclientJson<'a> {
    name: &'a str,
    #[serde(rename = "protocolVersion")]
    protocol_version: u32,
    version: &'a str,
}

impl<'a> From<&'a Client> for ClientJson<'a> {
    fn from(client: &'a Client) -> Self {
        Self {
            config: ClientConfigJson {
                channels: Some(client.map)
                    .filter(|map| *map != ChannelMap::Stereo)
                    .map(ChannelMap::name),
                instance: client.instance,
                latency: client.latency_ms,
                name: &client.name,
                volume: VolumeJson::from(client),
            },
            connected: client.session.is_some(),
            host: HostJson {
                arch: &client.arch,
                ip: &client.ip,
                mac: &client.mac,
                name: &client.host_name,
                os: &client.os,
            },
            id: &client.id,
            last_seen: LastSeenJson { sec: client.last_seen.sec, usec: client.last_seen.usec },
            snapclient: SnapclientJson {
                name: &client.software,
                protocol_version: client.protocol,
                version: &client.version,
            },
        }
    }
}

impl From<&Client> for VolumeJson {
    fn from(client: &Client) -> Self {
        let cap = Some(client.cap).filter(|cap| *cap < 100);
        Self { by_client: false, cap, muted: client.muted, percent: client.volume }
    }
}

/// A group as `Group.GetStatus` shows it.
#[derive(Debug, Serialize)]
pub struct GroupJson<'a> {
    clients: GroupMembers<'a>,
    id: &'a str,
    muted: bool,
    name: &'a str,
    stream_id: &'a str,
}

impl<'a> GroupJson<'a> {
    /// A group of this registry.
    #[must_use]
    pub fn new(registry: &'a Registry, group: &'a Group) -> Self {
        Self {
            clients: GroupMembers::All { registry, group: &group.id },
            id: &group.id,
            muted: group.muted,
            name: &group.name,
            stream_id: &group.station,
        }
    }

    /// The same for the state file.
    pub(super) fn saved(saved: &'a RememberedGroup) -> Self {
        let RememberedGroup { group, clients } = saved;
        Self {
            clients: GroupMembers::Saved(clients),
            id: &group.id,
            muted: group.muted,
            name: &group.name,
            stream_id: &group.station,
        }
    }
}

/// The clients of a group.
#[derive(Debug)]
enum GroupMembers<'a> {
    /// For controllers.
    All { registry: &'a Registry, group: &'a str },
    /// For the state file, with keys that only the file has.
    Saved(&'a [Arc<Client>]),
}

impl Serialize for GroupMembers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All { registry, group } => {
                serializer.collect_seq(registry.members(group).map(ClientJson::from))
            }
            Self::Saved(clients) => serializer.collect_seq(clients.iter().map(|client| {
                let mut shape = ClientJson::from(&**client);
                shape.config.volume.by_client = client.volume_by_client;
                shape
            })),
        }
    }
}

/// A client's volume as `Client.SetVolume` returns it.
#[must_use]
pub fn volume_json(client: &Client) -> Value {
    json!(VolumeJson::from(client))
}

/// Serializes to text. Cannot fail: keys are strings and numbers are finite.
pub(crate) fn to_json_text(shape: &impl Serialize) -> String {
    serde_json::to_string(shape).unwrap_or_default()
}

/// Reads a saved group, written by this server or by snapserver. Missing values get defaults;
/// entries without an id are skipped.
pub(super) fn group_from(value: &Value) -> SavedGroup {
    let clients = value["clients"].as_array().map_or(&[][..], Vec::as_slice);
    let group = Group {
        id: text(&value["id"]),
        name: text(&value["name"]),
        station: text(&value["stream_id"]),
        muted: value["muted"].as_bool().unwrap_or(false),
    };
    SavedGroup { group, clients: clients.iter().filter_map(client_from).collect() }
}

fn client_from(value: &Value) -> Option<Client> {
    let (config, host, program) = (&value["config"], &value["host"], &value["snapclient"]);
    let id = value["id"].as_str().map_or_else(String::new, |id| clip_to(id, MAX_ID));
    let percent = config["volume"]["percent"].as_i64().unwrap_or(100);
    let latency = config["latency"].as_i64().unwrap_or(0);
    let integer = |value: &Value, default| {
        value.as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(default)
    };
    let mut client = (!id.is_empty()).then(|| Client {
        id,
        name: text(&config["name"]),
        volume: super::client::clamp_volume(percent),
        muted: config["volume"]["muted"].as_bool().unwrap_or(false),
        cap: super::client::clamp_volume(config["volume"]["cap"].as_i64().unwrap_or(100)),
        volume_by_client: config["volume"]["by_client"].as_bool().unwrap_or(false),
        transient: false,
        map: config["channels"].as_str().and_then(|map| map.parse().ok()).unwrap_or_default(),
        latency_ms: i32::try_from(latency).unwrap_or(0).max(super::client::MIN_LATENCY_MS),
        instance: integer(&config["instance"], 1),
        host_name: text(&host["name"]),
        os: text(&host["os"]),
        arch: text(&host["arch"]),
        mac: text(&host["mac"]),
        ip: host["ip"].as_str().map_or_else(String::new, |ip| clip_to(ip, MAX_IP)),
        software: text(&program["name"]),
        version: text(&program["version"]),
        protocol: integer(&program["protocolVersion"], 2),
        last_seen: WallTime {
            sec: value["lastSeen"]["sec"].as_i64().unwrap_or(0),
            usec: integer(&value["lastSeen"]["usec"], 0),
        },
        session: None,
        earlier_sessions: Vec::new(),
        is_shared: false,
        health: None,
    })?;
    // The file may have been written before there was this limit.
    client.limit_reported_texts();
    Some(client)
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(String::new, clip)
}
