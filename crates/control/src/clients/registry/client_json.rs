//! Clients in Snapcast's JSON. What a client seldom changes is kept as text, because characters
//! that have to be escaped take most of the time of a full status.

use aulos_config::client_sound::chain_json;
use aulos_core::ChannelMap;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::client::Client;

/// A client as `Client.GetStatus` shows it.
#[derive(Debug, Serialize)]
pub struct ClientJson<'a> {
    config: PartJson<'a, ClientConfigJson<'a>>,
    connected: bool,
    host: PartJson<'a, HostJson<'a>>,
    id: &'a str,
    #[serde(rename = "lastSeen")]
    last_seen: LastSeenJson,
    snapclient: PartJson<'a, SnapclientJson<'a>>,
}

/// A part of a client, or its text.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum PartJson<'a, T> {
    Shape(T),
    Text(&'a RawValue),
}

/// The parts of a client that change with its settings or its Hello only, as text.
#[derive(Clone, Debug)]
pub(super) struct ClientTexts {
    config: Box<RawValue>,
    host: Box<RawValue>,
    snapclient: Box<RawValue>,
}

impl ClientTexts {
    pub(super) fn new(client: &Client) -> Self {
        // Cannot fail: keys are strings and numbers are finite.
        let text = |shape: Result<Box<RawValue>, _>| shape.unwrap_or_default();
        Self {
            config: text(to_raw_value(&ClientConfigJson::from(client))),
            host: text(to_raw_value(&HostJson::from(client))),
            snapclient: text(to_raw_value(&SnapclientJson::from(client))),
        }
    }

    #[cfg(test)]
    pub(super) fn is_of(&self, client: &Client) -> bool {
        json!(ClientJson::with_texts(client, self)) == json!(ClientJson::from(client))
    }
}

#[derive(Debug, Serialize)]
struct ClientConfigJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    channels: Option<&'static str>,
    instance: u32,
    latency: i32,
    name: &'a str,
    /// Only in the state file: it is long, and `Aulos.GetClientSound` has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    sound: Option<Value>,
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
        Self::of(
            client,
            PartJson::Shape(client.into()),
            PartJson::Shape(client.into()),
            PartJson::Shape(client.into()),
        )
    }
}

impl<'a> ClientJson<'a> {
    /// A client whose texts are kept.
    pub(super) fn with_texts(client: &'a Client, texts: &'a ClientTexts) -> Self {
        let ClientTexts { config, host, snapclient } = texts;
        Self::of(client, PartJson::Text(config), PartJson::Text(host), PartJson::Text(snapclient))
    }

    /// A client for the state file.
    pub(super) fn saved(client: &'a Client) -> Self {
        let mut config = ClientConfigJson::from(client);
        config.volume.by_client = client.volume_by_client;
        config.sound = client.chain.as_deref().map(chain_json);
        Self { config: PartJson::Shape(config), ..Self::from(client) }
    }

    fn of(
        client: &'a Client,
        config: PartJson<'a, ClientConfigJson<'a>>,
        host: PartJson<'a, HostJson<'a>>,
        snapclient: PartJson<'a, SnapclientJson<'a>>,
    ) -> Self {
        Self {
            config,
            connected: client.session.is_some(),
            host,
            id: &client.id,
            last_seen: LastSeenJson { sec: client.last_seen.sec, usec: client.last_seen.usec },
            snapclient,
        }
    }
}

impl<'a> From<&'a Client> for ClientConfigJson<'a> {
    fn from(client: &'a Client) -> Self {
        Self {
            channels: Some(client.map)
                .filter(|map| *map != ChannelMap::Stereo)
                .map(ChannelMap::name),
            instance: client.instance,
            latency: client.latency_ms,
            name: &client.name,
            sound: None,
            volume: VolumeJson::from(client),
        }
    }
}

impl<'a> From<&'a Client> for HostJson<'a> {
    fn from(client: &'a Client) -> Self {
        Self {
            arch: &client.arch,
            ip: &client.ip,
            mac: &client.mac,
            name: &client.host_name,
            os: &client.os,
        }
    }
}

impl<'a> From<&'a Client> for SnapclientJson<'a> {
    fn from(client: &'a Client) -> Self {
        Self { name: &client.software, protocol_version: client.protocol, version: &client.version }
    }
}

impl From<&Client> for VolumeJson {
    fn from(client: &Client) -> Self {
        let cap = Some(client.cap).filter(|cap| *cap < 100);
        Self { by_client: false, cap, muted: client.muted, percent: client.volume }
    }
}

/// A client's volume as `Client.SetVolume` returns it.
#[must_use]
pub fn volume_json(client: &Client) -> Value {
    json!(VolumeJson::from(client))
}
