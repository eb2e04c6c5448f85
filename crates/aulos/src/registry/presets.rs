//! Arrangements of groups under a name: "party", "night".
//!
//! A preset is put back through the same methods that controllers use, so it can make no house that
//! they could not; clients that are no longer known are passed over.

use serde_json::{Value, json};

use super::client::clip;
use super::{Effects, NotFound, Notice, Registry};

/// Presets that are kept; nobody finds his way through more.
pub const MAX_PRESETS: usize = 64;

/// Groups, what they play, and how loud their clients are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preset {
    /// What a person called it.
    pub name: String,
    groups: Vec<PresetGroup>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PresetGroup {
    name: String,
    station: String,
    muted: bool,
    clients: Vec<PresetClient>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PresetClient {
    id: String,
    volume: u8,
    muted: bool,
}

impl Registry {
    /// Keeps the groups as they are now under a name, in place of an older preset of that name.
    /// False when there is no room for one more, or the name is empty.
    #[must_use]
    pub fn save_preset(&mut self, name: &str) -> bool {
        let name = clip(name);
        self.presets.retain(|preset| preset.name != name);
        if name.is_empty() || self.presets.len() >= MAX_PRESETS {
            return false;
        }
        let groups = self.groups().map(|group| PresetGroup {
            name: group.name.clone(),
            station: group.station.clone(),
            muted: group.muted,
            clients: self
                .members(&group.id)
                .map(|client| PresetClient {
                    id: client.id.clone(),
                    volume: client.volume,
                    muted: client.muted,
                })
                .collect(),
        });
        let groups: Vec<PresetGroup> = groups.collect();
        self.presets.push(Preset { name, groups });
        true
    }

    /// Puts groups back as they were, their clients' volumes too if `volumes`.
    ///
    /// # Errors
    /// [`NotFound::Preset`].
    pub fn apply_preset(&mut self, name: &str, volumes: bool) -> Result<Effects, NotFound> {
        let preset = self.presets.iter().find(|preset| preset.name == name).cloned();
        let mut all = Effects { save: true, ..Effects::default() };
        for wanted in preset.ok_or(NotFound::Preset)?.groups {
            let known = wanted.clients.iter().filter(|client| self.client(&client.id).is_some());
            let known: Vec<PresetClient> = known.cloned().collect();
            let Some((group, _)) = known.first().and_then(|first| self.client(&first.id)) else {
                continue;
            };
            let group = group.id.clone();
            let ids: Vec<String> = known.iter().map(|client| client.id.clone()).collect();
            let station = match self.station(&wanted.station) {
                Some(_) => wanted.station,
                None => self.default_station().to_owned(),
            };
            let mut steps = vec![
                self.set_clients(&group, &ids)?,
                self.set_stream(&group, &station)?,
                self.set_mute(&group, wanted.muted)?,
                self.set_group_name(&group, &wanted.name)?,
            ];
            for client in known.iter().filter(|_| volumes) {
                let volume = Some(i64::from(client.volume));
                steps.push(self.set_volume(&client.id, volume, Some(client.muted))?);
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
        let before = self.presets.len();
        self.presets.retain(|preset| preset.name != name);
        if self.presets.len() < before { Ok(()) } else { Err(NotFound::Preset) }
    }

    /// Every preset, in the order in which they were made.
    #[must_use]
    pub fn presets(&self) -> &[Preset] {
        &self.presets
    }
}

/// A preset as it is listed and saved.
#[must_use]
pub fn preset_json(preset: &Preset) -> Value {
    let client = |client: &PresetClient| {
        json!({
            "id": client.id,
            "volume": { "percent": client.volume, "muted": client.muted },
        })
    };
    let groups = preset.groups.iter().map(|group| {
        json!({
            "name": group.name,
            "stream_id": group.station,
            "muted": group.muted,
            "clients": group.clients.iter().map(client).collect::<Vec<_>>(),
        })
    });
    json!({ "name": preset.name, "groups": groups.collect::<Vec<_>>() })
}

/// A preset that was saved.
pub(super) fn preset_from(value: &Value) -> Preset {
    let text = |value: &Value| value.as_str().map_or_else(String::new, clip);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let flag = |value: &Value| value.as_bool().unwrap_or(false);
    let client = |value: &Value| PresetClient {
        id: text(&value["id"]),
        volume: super::clamp_volume(value["volume"]["percent"].as_i64().unwrap_or(100)),
        muted: flag(&value["volume"]["muted"]),
    };
    let group = |value: &Value| PresetGroup {
        name: text(&value["name"]),
        station: text(&value["stream_id"]),
        muted: flag(&value["muted"]),
        clients: list(&value["clients"]).iter().map(client).collect(),
    };
    Preset {
        name: text(&value["name"]),
        groups: list(&value["groups"]).iter().map(group).collect(),
    }
}
