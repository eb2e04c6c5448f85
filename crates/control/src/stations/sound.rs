//! Normalizer and equalizer of a station: changes and saved state.
//!
//! Settings made by a call apply until the configuration of the same station changes. An edited
//! file therefore takes effect, and a restart without an edit does not reset what a call has set.

use std::sync::Arc;

use aulos_config::{ProcessingSettings, StationSettings};
use serde_json::{Value, json};

use crate::backend::AudioBackend;
use crate::stations::Stations;
use crate::stations::slot::StationSlot;

/// A station's sound settings, as notifications and the state file have them.
pub(crate) fn sound_json(slot: &StationSlot) -> Value {
    let mut all = slot.station.sound.json();
    all["station"] = json!(slot.station.name);
    all
}

impl StationSlot {
    /// Sets sound settings, and remembers those of the configuration if they differ.
    pub(super) fn set_sound(&mut self, sound: ProcessingSettings) {
        let old = std::mem::replace(&mut Arc::make_mut(&mut self.station).sound, sound);
        let file = self.file_sound.take().unwrap_or(old);
        self.file_sound = (file != self.station.sound).then_some(file);
    }

    /// The slot of a replaced station: settings made by calls stay if the configuration's are
    /// unchanged.
    pub(crate) fn successor(&self, station: &StationSettings) -> Self {
        let mut new = Self::new(station.clone(), None);
        if self.file_sound.is_some() && *self.configured_sound() == station.sound {
            new.set_sound(self.station.sound.clone());
        }
        new
    }

    /// Settings made by calls, with those of the configuration, for the state file.
    pub(super) fn sound_override(&self) -> Option<Value> {
        let file = self.file_sound.as_ref()?;
        let mut all = sound_json(self);
        all["instead_of"] = file.json();
        Some(all)
    }

    /// The sound settings of the configuration.
    pub(crate) fn configured_sound(&self) -> &ProcessingSettings {
        self.file_sound.as_ref().unwrap_or(&self.station.sound)
    }
}

impl Stations {
    /// Restores settings made by calls, where the configuration is unchanged since.
    pub(crate) fn restore_sounds(&mut self, saved: &[Value], backend: &dyn AudioBackend) {
        for saved in saved {
            let Some((number, slot)) = saved["station"].as_str().and_then(|name| self.find(name))
            else {
                continue;
            };
            let name = &slot.station.name;
            if saved["instead_of"] != slot.station.sound.json() {
                tracing::info!(
                    name,
                    "sound settings of earlier calls are dropped: the configuration has changed"
                );
                continue;
            }
            let sound = ProcessingSettings::from_json(saved, slot.station.spec);
            let set = sound.and_then(|sound| {
                backend.set_sound(number, &sound)?;
                Ok(sound)
            });
            match (set, self.get_mut(number)) {
                (Ok(sound), Some(slot)) => slot.set_sound(sound),
                (Err(why), _) => {
                    tracing::warn!(number, "cannot restore sound settings of earlier calls: {why}");
                }
                (Ok(_), None) => {}
            }
        }
    }
}
