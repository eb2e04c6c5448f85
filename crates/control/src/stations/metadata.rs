//! What streams play: the properties that control scripts and sources report.

use std::sync::Arc;

use aulos_proto::titles::{TrackMetadata, clean_text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::backend::{AudioBackend, StationReport};
use crate::effects::{Effects, Notice};
use crate::outside::Outside;
use crate::stations::plugin::merge;
use crate::stations::slot::{ScriptEvent, StationSlot, own_properties};
use crate::stations::titles::json;
use crate::stations::titles::shown::{self, NewTitle};
use crate::stations::view::StationView;
use crate::stations::{Stations, art, sources};

impl Stations {
    /// Handles an event of the control script of a stream.
    pub(crate) fn handle_script(
        &mut self,
        stream: &str,
        event: ScriptEvent,
        outside: Outside<'_>,
    ) -> Effects {
        match event {
            ScriptEvent::Ready(handle) => {
                if let Some(slot) = self.find_mut(stream) {
                    slot.plugin = Some(handle);
                }
                Effects::default()
            }
            ScriptEvent::Properties(update) => self.update_properties(stream, update, outside),
            // The stream cannot be controlled until the script runs again.
            ScriptEvent::Ended => {
                let slot = self.find_mut(stream);
                let Some(slot) = slot.filter(|slot| slot.plugin.is_some()) else {
                    return Effects::default();
                };
                slot.plugin = None;
                slot.properties = own_properties(&slot.station).into();
                self.show_properties(stream, outside)
            }
        }
    }

    /// Takes over the properties that a control script has reported.
    fn update_properties(
        &mut self,
        stream: &str,
        update: Map<String, Value>,
        outside: Outside<'_>,
    ) -> Effects {
        let Self { slots, art: pictures, .. } = self;
        let Some(slot) = slots.iter_mut().flatten().find(|slot| slot.station.name == stream) else {
            return Effects::default();
        };
        let keep = |data: &str, extension: &str| {
            if data.len() > art::MAX_PICTURE * 2 {
                return None;
            }
            pictures.add(STANDARD.decode(data).ok()?, extension)
        };
        let played = playback_status(&slot.properties) == Some("playing");
        if !merge(Arc::make_mut(&mut slot.properties), update, keep) {
            return Effects::default();
        }
        // A script that starts while its player is stopped must not flush: another source may be on
        // air.
        let now = playback_status(&slot.properties);
        let halted = played && matches!(now, Some("paused" | "stopped"));
        let effects = self.show_properties(stream, outside);
        if halted {
            let backend = outside.backend;
            // Clients stop at once instead of after their buffer.
            self.shown_by(stream, backend).into_iter().for_each(|number| backend.flush(number));
        }
        effects
    }

    /// Takes over the title of the active source. A control script has precedence. Where the source
    /// has just come on air, its title is that of the sound that goes out now.
    pub(super) fn update_title(
        &mut self,
        number: usize,
        (title, is_new_source): (Option<TrackMetadata>, bool),
        outside: Outside<'_>,
    ) -> Effects {
        let source = outside.backend.status(number).machine.active;
        let new = NewTitle { title: title.unwrap_or_default(), next: None, source };
        match self.get(number) {
            Some(slot) if slot.station.plugin.is_some() => Effects::default(),
            Some(_) if is_new_source => self.set_title(number, new, outside),
            _ => self.queue_title(number, new, outside),
        }
    }

    /// Takes over what the active source says of its programme. A control script has precedence.
    pub(super) fn update_transport(
        &mut self,
        number: usize,
        status: &StationReport,
        outside: Outside<'_>,
    ) -> Effects {
        let Some(slot) = self.get_mut(number).filter(|slot| slot.plugin.is_none()) else {
            return Effects::default();
        };
        let mut update = own_properties(&slot.station);
        let transport = sources::sendspin::transport(status).unwrap_or_default();
        // A playlist can skip as well.
        update.extend(transport.into_iter().filter(|(_, value)| *value != json!(false)));
        if !merge(Arc::make_mut(&mut slot.properties), update, |_, _| None) {
            return Effects::default();
        }
        let name = slot.station.name.clone();
        self.show_properties(&name, outside)
    }

    /// Shows a title when the sound that enters the station now goes out.
    pub(crate) fn queue_title(
        &mut self,
        number: usize,
        title: NewTitle,
        outside: Outside<'_>,
    ) -> Effects {
        let Some(slot) = self.get_mut(number) else { return Effects::default() };
        let latency = shown::latency(&slot.station, &outside.backend.status(number), title.source);
        slot.titles.queue(outside.clock.local(), latency, title);
        self.show_due_titles(number, outside)
    }

    /// Shows the titles whose sound goes out now.
    pub(super) fn show_due_titles(&mut self, number: usize, outside: Outside<'_>) -> Effects {
        let mut effects = Effects::default();
        let Some(slot) = self.get(number).filter(|slot| !slot.titles.is_idle()) else {
            return effects;
        };
        // A switch that is not handled yet makes the titles of the source before it outdated.
        if slot.shown.machine.active != outside.backend.status(number).machine.active {
            return effects;
        }
        let due =
            |stations: &mut Self| stations.get_mut(number)?.titles.take_due(outside.clock.local());
        while let Some(title) = due(self) {
            effects.extend(self.set_title(number, title, outside));
        }
        effects
    }

    /// Shows a title until the next one.
    fn set_title(&mut self, number: usize, new: NewTitle, outside: Outside<'_>) -> Effects {
        let NewTitle { title, next, .. } = new;
        let mut metadata = json::metadata(&title);
        let url = title.picture.and_then(|picture| {
            let extension = art::extension(&picture)?;
            self.art.add(picture.to_vec(), extension)
        });
        if let Some(url) = url {
            metadata.insert("artUrl".to_owned(), json!(url));
        }
        let Some(slot) = self.get_mut(number) else { return Effects::default() };
        let has_other_next = slot.titles.next != next;
        slot.titles.next = next;
        // All others stay, also those of a control script.
        let mut update = Map::clone(&slot.properties);
        update.insert("metadata".to_owned(), Value::Object(metadata));
        let has_changed = merge(Arc::make_mut(&mut slot.properties), update, |_, _| None);
        if !has_changed && !has_other_next {
            return Effects::default();
        }
        let name = slot.station.name.clone();
        self.show_properties(&name, outside)
    }

    /// Notifies controllers after a switch between sources that may have other metadata.
    pub(super) fn show_other_metadata(&mut self, number: usize, outside: Outside<'_>) -> Effects {
        let plays_others = self.get(number).is_some_and(|slot| {
            let mut sources = slot.station.sources.iter();
            sources.any(|source| source.config.station().is_some())
        });
        let slot = self.metadata_slot(number, outside.backend).filter(|_| plays_others);
        match slot.map(|(_, slot)| slot.station.name.clone()) {
            Some(name) => self.show_properties(&name, outside),
            None => Effects::default(),
        }
    }

    /// Notifies controllers of a stream's properties, for every stream that shows them.
    fn show_properties(&mut self, stream: &str, outside: Outside<'_>) -> Effects {
        let mut effects = Effects { is_shown: true, ..Effects::default() };
        let Some((_, source)) = self.find(stream) else { return effects };
        let properties = Arc::clone(&source.properties);
        let reported = source.titles.next.clone();
        for number in self.shown_by(stream, outside.backend) {
            let Some(slot) = self.get_mut(number) else { continue };
            let status = outside.backend.status(number);
            let next = reported.clone().or_else(|| next_of_playlist(&status));
            let listeners = outside.listeners.table().count(&slot.station.name).0;
            let now = (outside.clock.wall_time(), listeners);
            slot.titles.show(&slot.station, &status, (&properties, next), now);
            let params = json!({ "id": slot.station.name, "properties": *properties });
            outside.backend.set_title(number, &json::title_line(&properties));
            effects.notices.push(Notice::Message("Stream.OnProperties", params));
        }
        effects
    }

    /// The stations that show the properties of a stream.
    fn shown_by(&self, stream: &str, backend: &dyn AudioBackend) -> Vec<usize> {
        let is_it = |number: &usize| {
            let slot = self.metadata_slot(*number, backend);
            slot.is_some_and(|(_, slot)| slot.station.name == stream)
        };
        self.slots().map(|(number, _)| number).filter(is_it).collect()
    }

    /// The slot that provides a station's metadata and controls: that of the active station where
    /// it plays another one.
    pub(crate) fn metadata_slot(
        &self,
        number: usize,
        backend: &dyn AudioBackend,
    ) -> Option<(usize, &StationSlot)> {
        let mut slot = self.get(number)?;
        let mut number = number;
        // The configuration has no loops; the bound is a safeguard.
        for _ in 0..MAX_META_DEPTH {
            if slot.station.plugin.is_some() {
                break;
            }
            let active = backend.status(number).machine.active;
            let source = active.and_then(|active| slot.station.sources.get(active));
            let Some(name) = source.and_then(|source| source.config.station()) else { break };
            let Some(next) = self.find(name) else { break };
            (number, slot) = next;
        }
        Some((number, slot))
    }

    /// A station as it is now.
    pub(crate) fn view(&self, number: usize, backend: &dyn AudioBackend) -> Option<StationView> {
        let slot = self.get(number)?;
        let (_, metadata_slot) = self.metadata_slot(number, backend).unwrap_or((number, slot));
        Some(StationView {
            number,
            station: Arc::clone(&slot.station),
            added: slot.added.clone(),
            properties: Arc::clone(&metadata_slot.properties),
            status: backend.status(number),
            schedule: slot.schedule.plan().cloned(),
        })
    }

    /// All stations as they are now.
    pub(crate) fn views(&self, backend: &dyn AudioBackend) -> Vec<StationView> {
        (0..self.end()).filter_map(|number| self.view(number, backend)).collect()
    }
}

/// The next file of the playlist on air, by its name.
fn next_of_playlist(status: &StationReport) -> Option<String> {
    let playlist = sources::of_source(&status.playlists, status.machine.active?)?;
    let name = playlist.next.first()?.file_stem()?.to_string_lossy();
    clean_text(name.as_bytes())
}

/// A player's reported playback status.
fn playback_status(properties: &Map<String, Value>) -> Option<&str> {
    properties.get("playbackStatus").and_then(Value::as_str)
}

/// Longest chain of stations that play one another in which metadata is looked up.
const MAX_META_DEPTH: usize = 16;
