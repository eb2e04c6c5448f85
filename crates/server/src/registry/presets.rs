//! Arrangements of groups under a name: "party", "night".
//!
//! A preset is put back through the same methods that controllers use, so it can make no house that
//! they could not; clients that are no longer known are passed over.
//!
//! Presets multiply the clients, so their bytes are bounded, one by one and all together. They do
//! not change once they are made: whatever writes them takes a counted reference and needs no lock.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::client::{MAX_ID, clip, clip_to};
use super::{Effects, MAX_CLIENTS, NotFound, Notice, Registry};

/// Presets that are kept; nobody finds his way through more.
pub const MAX_PRESETS: usize = 64;
/// Clients in one preset: each stands in it once, and no more than these are remembered.
pub const MAX_PRESET_CLIENTS: usize = MAX_CLIENTS;
/// Bytes of one preset as JSON: three times what [`MAX_PRESET_CLIENTS`] take with ordinary names and
/// a group each, and half of what one answer to a controller may have.
pub const MAX_PRESET_BYTES: usize = 4 << 20;
/// Bytes of all presets as JSON: as many as 64 presets of 2,000 clients with a group each. All of
/// them are written with every save, and read at each start.
pub const MAX_PRESETS_BYTES: usize = 16 << 20;

/// Groups, what they play, and how loud their clients are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Preset {
    /// What a person called it.
    pub name: String,
    groups: Vec<PresetGroup>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct PresetGroup {
    name: String,
    #[serde(rename = "stream_id")]
    station: String,
    muted: bool,
    clients: Vec<PresetClient>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct PresetClient {
    id: String,
    volume: PresetVolume,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct PresetVolume {
    percent: u8,
    muted: bool,
}

/// The groups of a preset, as JSON has them.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PresetGroups<'a>(&'a [PresetGroup]);

/// Why a preset is not kept. The presets are as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresetError {
    /// It has no name.
    NoName,
    /// There are [`MAX_PRESETS`].
    TooMany,
    /// It is larger than [`MAX_PRESET_BYTES`].
    TooLarge,
    /// All presets together would be larger than [`MAX_PRESETS_BYTES`].
    Full,
}

impl fmt::Display for PresetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: usize| bytes >> 20;
        match self {
            Self::NoName => f.write_str("a preset needs a name"),
            Self::TooMany => {
                write!(f, "there are {MAX_PRESETS} presets, and no more; delete one first")
            }
            Self::TooLarge => {
                write!(f, "the preset is larger than {} MiB as JSON", mib(MAX_PRESET_BYTES))
            }
            Self::Full => write!(
                f,
                "all presets together would be larger than {} MiB as JSON; delete one first",
                mib(MAX_PRESETS_BYTES)
            ),
        }
    }
}

impl std::error::Error for PresetError {}

/// Every preset, and what follows from all of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Presets {
    list: Vec<Arc<Preset>>,
    /// Bytes of each as JSON.
    sizes: Vec<usize>,
    /// In how many groups of presets a client is.
    members: HashMap<String, u32>,
}

impl Presets {
    /// Whether a client is in any preset.
    pub(super) fn contains_client(&self, client: &str) -> bool {
        self.members.contains_key(client)
    }

    /// Keeps a preset in place of an older one of its name.
    fn put(&mut self, preset: Preset) -> Result<(), PresetError> {
        let size = preset.bytes();
        let old = self.list.iter().position(|old| old.name == preset.name);
        let freed = old.map_or(0, |at| self.sizes[at]);
        let all: usize = self.sizes.iter().sum();
        if preset.name.is_empty() {
            return Err(PresetError::NoName);
        }
        if old.is_none() && self.list.len() >= MAX_PRESETS {
            return Err(PresetError::TooMany);
        }
        if size > MAX_PRESET_BYTES {
            return Err(PresetError::TooLarge);
        }
        if all - freed + size > MAX_PRESETS_BYTES {
            return Err(PresetError::Full);
        }
        if let Some(at) = old {
            self.take(at);
        }
        for id in preset.ids() {
            match self.members.get_mut(id) {
                Some(count) => *count += 1,
                None => drop(self.members.insert(id.to_owned(), 1)),
            }
        }
        self.sizes.push(size);
        self.list.push(Arc::new(preset));
        Ok(())
    }

    fn take(&mut self, at: usize) {
        let preset = self.list.remove(at);
        self.sizes.remove(at);
        for id in preset.ids() {
            if let Some(count) = self.members.get_mut(id) {
                *count -= 1;
                if *count == 0 {
                    self.members.remove(id);
                }
            }
        }
    }
}

impl Preset {
    /// Its groups, to be written.
    #[must_use]
    pub fn groups(&self) -> PresetGroups<'_> {
        PresetGroups(&self.groups)
    }

    /// How many groups it has.
    #[must_use]
    pub const fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// How many clients it has.
    #[must_use]
    pub fn client_count(&self) -> usize {
        self.groups.iter().map(|group| group.clients.len()).sum()
    }

    fn ids(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().flat_map(|group| &group.clients).map(|client| client.id.as_str())
    }

    /// As JSON; counted and not written.
    fn bytes(&self) -> usize {
        let mut counted = ByteCounter(0);
        // Its keys are texts and its numbers finite, and counting does not fail.
        serde_json::to_writer(&mut counted, self).ok();
        counted.0
    }
}

/// Counts what is written.
struct ByteCounter(usize);

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Registry {
    /// Keeps the groups as they are now under a name, in place of an older preset of that name.
    ///
    /// # Errors
    /// [`PresetError`].
    pub fn save_preset(&mut self, name: &str) -> Result<(), PresetError> {
        let name = clip(name);
        let groups = self.groups().map(|group| PresetGroup {
            name: group.name.clone(),
            station: group.station.clone(),
            muted: group.muted,
            clients: self
                .members(&group.id)
                .filter(|client| !client.transient)
                .map(|client| PresetClient {
                    id: client.id.clone(),
                    volume: PresetVolume { percent: client.volume, muted: client.muted },
                })
                .collect(),
        });
        let groups = groups.filter(|group| !group.clients.is_empty()).collect();
        self.presets.put(Preset { name, groups })
    }

    /// Puts groups back as they were, their clients' volumes too if `volumes`.
    ///
    /// # Errors
    /// [`NotFound::Preset`].
    pub fn apply_preset(&mut self, name: &str, volumes: bool) -> Result<Effects, NotFound> {
        let preset = self.presets().iter().find(|preset| preset.name == name).cloned();
        let mut all = Effects { save: true, ..Effects::default() };
        for wanted in &preset.ok_or(NotFound::Preset)?.groups {
            let known = wanted.clients.iter().filter(|client| self.client(&client.id).is_some());
            let known: Vec<&PresetClient> = known.collect();
            let Some((group, _)) = known.first().and_then(|first| self.client(&first.id)) else {
                continue;
            };
            let group = group.id.clone();
            let ids: Vec<String> = known.iter().map(|client| client.id.clone()).collect();
            let station = match self.station(&wanted.station) {
                Some(_) => wanted.station.clone(),
                None => self.default_station().to_owned(),
            };
            let mut steps = vec![
                self.set_clients(&group, &ids)?,
                self.set_stream(&group, &station)?,
                self.set_mute(&group, wanted.muted)?,
                self.set_group_name(&group, &wanted.name)?,
            ];
            for client in known.iter().filter(|_| volumes) {
                let PresetVolume { percent, muted } = client.volume;
                steps.push(self.set_volume(&client.id, Some(percent.into()), Some(muted))?);
            }
            all.commands.extend(steps.into_iter().flat_map(|step| step.commands));
        }
        // One for all: a controller reads the whole status anyway.
        all.notices.push(Notice::Server);
        Ok(all)
    }

    /// Forgets a preset.
    ///
    /// # Errors
    /// [`NotFound::Preset`].
    pub fn delete_preset(&mut self, name: &str) -> Result<(), NotFound> {
        let at = self.presets().iter().position(|preset| preset.name == name);
        self.presets.take(at.ok_or(NotFound::Preset)?);
        Ok(())
    }

    /// Every preset, in the order in which they were made.
    #[must_use]
    pub fn presets(&self) -> &[Arc<Preset>] {
        &self.presets.list
    }

    /// Puts back the presets that were saved; gives the names of those for which there is no room.
    pub fn restore_presets(&mut self, presets: Vec<Preset>) -> Vec<String> {
        self.presets = Presets::default();
        let mut refused = Vec::new();
        for preset in presets {
            let name = preset.name.clone();
            if self.presets.put(preset).is_err() {
                refused.push(name);
            }
        }
        refused
    }
}

/// A preset that was saved.
pub(super) fn preset_from(value: &Value) -> Preset {
    let text = |value: &Value| value.as_str().map_or_else(String::new, clip);
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let flag = |value: &Value| value.as_bool().unwrap_or(false);
    let client = |value: &Value| PresetClient {
        id: value["id"].as_str().map_or_else(String::new, |id| clip_to(id, MAX_ID)),
        volume: PresetVolume {
            percent: super::clamp_volume(value["volume"]["percent"].as_i64().unwrap_or(100)),
            muted: flag(&value["volume"]["muted"]),
        },
    };
    let mut room = MAX_PRESET_CLIENTS;
    let group = |value: &Value| {
        let clients: Vec<_> = list(&value["clients"]).iter().take(room).map(client).collect();
        room -= clients.len();
        PresetGroup {
            name: text(&value["name"]),
            station: text(&value["stream_id"]),
            muted: flag(&value["muted"]),
            clients,
        }
    };
    Preset {
        name: text(&value["name"]),
        groups: list(&value["groups"]).iter().take(MAX_CLIENTS).map(group).collect(),
    }
}
