//! Saving and applying presets.

use super::client::clip;
use super::presets::{Preset, PresetClient, PresetError, PresetGroup, PresetVolume};
use super::{Effects, NotFound, Notice, Registry};

impl Registry {
    /// Saves the current groups under a name; replaces an older preset of that name.
    ///
    /// # Errors
    /// [`PresetError`].
    pub fn save_preset(&mut self, name: &str) -> Result<(), PresetError> {
        let name = clip(name);
        let groups = self.table.groups().map(|group| PresetGroup {
            name: group.name.clone(),
            station: group.station.clone(),
            muted: group.muted,
            clients: self
                .table
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

    /// Restores the groups of a preset, and the clients' volumes if `volumes`.
    ///
    /// # Errors
    /// [`NotFound::Preset`].
    pub fn apply_preset(&mut self, name: &str, volumes: bool) -> Result<Effects, NotFound> {
        let preset = self.presets.list.iter().find(|preset| preset.name == name).cloned();
        let mut all = Effects { save: true, ..Effects::default() };
        for wanted in &preset.ok_or(NotFound::Preset)?.groups {
            let known =
                wanted.clients.iter().filter(|client| self.table.client(&client.id).is_some());
            let known: Vec<&PresetClient> = known.collect();
            let Some((group, _)) = known.first().and_then(|first| self.table.client(&first.id))
            else {
                continue;
            };
            let group = group.id.clone();
            let ids: Vec<String> = known.iter().map(|client| client.id.clone()).collect();
            let station = match self.stations.find(&wanted.station) {
                Some(_) => wanted.station.clone(),
                None => self.stations.default_name().to_owned(),
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
        // One notice for all changes: controllers read the full status anyway.
        all.notices.push(Notice::Server);
        Ok(all)
    }
}
