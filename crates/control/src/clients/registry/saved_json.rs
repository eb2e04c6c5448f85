//! The parts of `server.json`, read from JSON.
//!
//! A missing value has a default, because files of snapserver and of older versions lack some. A
//! value of another type is an error of the whole file: a list of groups from which each unreadable
//! one is left out would replace a good previous file by an empty one at the next save.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use aulos_config::client_sound::chain_from_json;
use aulos_core::{ChannelMap, SampleRate};
use aulos_dsp::sound::SoundChain;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::client::{
    Client, Group, MAX_ID, MAX_IP, MIN_LATENCY_MS, SavedGroup, WallTime, clamp_volume, clip,
    clip_to,
};
use super::presets::{Preset, PresetClient, PresetGroup, PresetVolume};

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct StateFileJson {
    pub(super) groups: Vec<SavedGroup>,
    #[serde(default)]
    pub(super) streams: Vec<String>,
    /// Their values are checked against their stations, which only the configuration knows.
    #[serde(default, deserialize_with = "sounds")]
    pub(super) sounds: Vec<Value>,
    #[serde(default)]
    pub(super) presets: Vec<Preset>,
}

#[derive(Deserialize)]
struct GroupFields {
    #[serde(deserialize_with = "clipped")]
    id: String,
    #[serde(default, deserialize_with = "clipped")]
    name: String,
    #[serde(default, deserialize_with = "clipped")]
    stream_id: String,
    #[serde(default)]
    muted: bool,
    #[serde(default)]
    clients: Vec<Client>,
}

impl<'de> Deserialize<'de> for SavedGroup {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let GroupFields { id, name, stream_id: station, muted, clients } =
            Object::deserialize(deserializer)?.0;
        Ok(Self { group: Group { id, name, station, muted }, clients })
    }
}

#[derive(Deserialize)]
struct ClientFields {
    #[serde(deserialize_with = "client_id")]
    id: String,
    #[serde(default)]
    config: Object<ConfigFields>,
    #[serde(default)]
    host: Object<HostFields>,
    #[serde(default)]
    snapclient: Object<SoftwareFields>,
    #[serde(default, rename = "lastSeen")]
    last_seen: Object<LastSeenFields>,
}

#[derive(Deserialize)]
#[serde(default)]
struct ConfigFields {
    #[serde(deserialize_with = "channel_map")]
    channels: ChannelMap,
    instance: u32,
    latency: i32,
    #[serde(deserialize_with = "clipped")]
    name: String,
    #[serde(deserialize_with = "chain")]
    sound: Option<Arc<SoundChain>>,
    volume: Object<VolumeFields>,
}

impl Default for ConfigFields {
    fn default() -> Self {
        Self {
            channels: ChannelMap::default(),
            instance: 1,
            latency: 0,
            name: String::new(),
            sound: None,
            volume: Object::default(),
        }
    }
}

#[derive(Deserialize)]
#[serde(default)]
struct VolumeFields {
    by_client: bool,
    #[serde(deserialize_with = "percent")]
    cap: u8,
    muted: bool,
    #[serde(deserialize_with = "percent")]
    percent: u8,
}

impl Default for VolumeFields {
    fn default() -> Self {
        Self { by_client: false, cap: 100, muted: false, percent: 100 }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HostFields {
    #[serde(deserialize_with = "clipped")]
    arch: String,
    #[serde(deserialize_with = "clipped")]
    ip: String,
    #[serde(deserialize_with = "clipped")]
    mac: String,
    #[serde(deserialize_with = "clipped")]
    name: String,
    #[serde(deserialize_with = "clipped")]
    os: String,
}

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SoftwareFields {
    #[serde(deserialize_with = "clipped")]
    name: String,
    protocol_version: u32,
    #[serde(deserialize_with = "clipped")]
    version: String,
}

impl Default for SoftwareFields {
    fn default() -> Self {
        Self { name: String::new(), protocol_version: 2, version: String::new() }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LastSeenFields {
    sec: i64,
    usec: u32,
}

impl<'de> Deserialize<'de> for Client {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ClientFields { id, config, host, snapclient, last_seen } =
            Object::deserialize(deserializer)?.0;
        let (Object(config), Object(host), Object(snapclient)) = (config, host, snapclient);
        let (Object(volume), Object(last_seen)) = (config.volume, last_seen);
        let mut client = Self {
            id,
            name: config.name,
            volume: volume.percent,
            muted: volume.muted,
            cap: volume.cap,
            volume_by_client: volume.by_client,
            transient: false,
            map: config.channels,
            chain: config.sound,
            latency_ms: config.latency.max(MIN_LATENCY_MS),
            instance: config.instance,
            host_name: host.name,
            os: host.os,
            arch: host.arch,
            mac: host.mac,
            ip: clip_to(&host.ip, MAX_IP),
            software: snapclient.name,
            version: snapclient.version,
            protocol: snapclient.protocol_version,
            last_seen: WallTime { sec: last_seen.sec, usec: last_seen.usec },
            session: None,
            earlier_sessions: Vec::new(),
            is_shared: false,
            health: None,
        };
        // The file may have been written before there was this limit.
        client.limit_reported_texts();
        Ok(client)
    }
}

#[derive(Deserialize)]
struct PresetFields {
    #[serde(deserialize_with = "clipped")]
    name: String,
    groups: Vec<Object<PresetGroupFields>>,
}

#[derive(Deserialize)]
struct PresetGroupFields {
    #[serde(default, deserialize_with = "clipped")]
    name: String,
    #[serde(default, deserialize_with = "clipped")]
    stream_id: String,
    #[serde(default)]
    muted: bool,
    clients: Vec<Object<PresetClientFields>>,
}

#[derive(Deserialize)]
struct PresetClientFields {
    #[serde(deserialize_with = "client_id")]
    id: String,
    #[serde(default)]
    volume: Object<VolumeFields>,
}

impl<'de> Deserialize<'de> for Preset {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Object(PresetFields { name, groups }) = Object::deserialize(deserializer)?;
        Ok(Self { name, groups: groups.into_iter().map(|group| group.0.into()).collect() })
    }
}

impl From<PresetGroupFields> for PresetGroup {
    fn from(fields: PresetGroupFields) -> Self {
        let PresetGroupFields { name, stream_id: station, muted, clients } = fields;
        let client = |Object(PresetClientFields { id, volume: Object(volume) })| PresetClient {
            id,
            volume: PresetVolume { percent: volume.percent, muted: volume.muted },
        };
        Self { name, station, muted, clients: clients.into_iter().map(client).collect() }
    }
}

/// A value that is an object: the derived readers take a list of the fields' values as well.
#[derive(Default)]
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);
        impl<'de, T: DeserializeOwned> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

fn clipped<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer).map(|text| clip(&text))
}

/// The id of a client, which is never empty.
fn client_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let id = clip_to(&String::deserialize(deserializer)?, MAX_ID);
    let empty = || D::Error::invalid_value(Unexpected::Str(""), &"the id of a client");
    if id.is_empty() { Err(empty()) } else { Ok(id) }
}

fn percent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    i64::deserialize(deserializer).map(clamp_volume)
}

/// The sound of a client, for stations of any rate.
fn chain<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<SoundChain>>, D::Error> {
    let Some(saved) = Option::<Value>::deserialize(deserializer)? else { return Ok(None) };
    let rate = SampleRate::new(SampleRate::MAX).map_err(D::Error::custom)?;
    let chain = chain_from_json(&saved, rate).map_err(D::Error::custom)?;
    Ok(Some(Arc::new(chain)))
}

fn channel_map<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ChannelMap, D::Error> {
    let name = String::deserialize(deserializer)?;
    let unknown = |_| D::Error::invalid_value(Unexpected::Str(&name), &"a channel map");
    name.parse().map_err(unknown)
}

fn sounds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    let sounds = Vec::<Value>::deserialize(deserializer)?;
    let is_whole = |sound: &Value| sound["station"].is_string() && sound["instead_of"].is_object();
    if sounds.iter().all(is_whole) {
        return Ok(sounds);
    }
    Err(D::Error::custom("sound settings need `station` and `instead_of`"))
}
