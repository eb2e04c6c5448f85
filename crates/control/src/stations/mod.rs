//! The stations: what each plays, its titles, sound, inputs and outputs, and the streams that calls
//! add.

pub(crate) mod activity;
pub(crate) mod added;
pub(crate) mod art;
pub(crate) mod calls;
mod event_log;
pub(crate) mod fallback;
pub(crate) mod hls;
pub(crate) mod insert;
pub(crate) mod level_json;
mod log;
pub(crate) mod metadata;
pub(crate) mod mount_table;
pub mod plugin;
pub(crate) mod pushes;
pub(crate) mod schedule;
pub(crate) mod slot;
pub(crate) mod sound;
pub(crate) mod sources;
pub mod titles;
pub(crate) mod transport;
pub(crate) mod view;

use std::borrow::Cow;
use std::sync::Arc;

use aulos_config::{Mount, StationSettings};
use aulos_proto::snap::control::RpcError;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::backend::{ConnectionHealth, InputChange, StationReport};
use crate::effects::{Effects, Notice};
use crate::hooks::Observation;
use crate::names::{NameError, Named, NamedKind};
use crate::outside::Outside;
use art::ArtCache;
use log::{log_changes, log_hook_event, log_switch};
use slot::StationSlot;

/// All stations, with what controllers see of them.
#[derive(Debug)]
pub(crate) struct Stations {
    /// Indexed by station number; none where a station was removed.
    slots: Vec<Option<StationSlot>>,
    art: ArtCache,
    /// Control scripts that calls have named since the start.
    named_plugins: u64,
}

impl Stations {
    /// The stations of the configuration.
    pub(crate) fn new(configured: &[StationSettings], base_url: String) -> Self {
        let slots = configured.iter().map(|station| Some(StationSlot::new(station.clone(), None)));
        let slots = slots.collect();
        Self { slots, art: ArtCache::new(base_url), named_plugins: 0 }
    }

    /// Stores a station under the number that the audio backend gave it; returns the one that it
    /// replaces.
    pub(crate) fn set(&mut self, number: usize, slot: StationSlot) -> Option<StationSlot> {
        if self.slots.len() <= number {
            self.slots.resize_with(number + 1, || None);
        }
        self.slots[number].replace(slot)
    }

    pub(crate) fn remove(&mut self, number: usize) -> Option<StationSlot> {
        self.slots.get_mut(number)?.take()
    }

    /// Takes over a report about a client for the distribution of its station.
    pub(crate) fn observe_client(&mut self, number: usize, health: &ConnectionHealth) {
        if let Some(slot) = self.get_mut(number) {
            slot.activity.observe_client(health);
        }
    }

    /// Takes over the present status of a station: log, hooks, and what controllers are shown.
    pub(crate) fn poll(
        &mut self,
        number: usize,
        status: StationReport,
        outside: Outside<'_>,
    ) -> Effects {
        if let Some(slot) = self.get_mut(number) {
            slot.activity.update(&status, slot.station.sound.ceiling(), outside.clock.now());
        }
        let rescheduled = self.follow_schedule(number, outside);
        self.observe(number, Observation::Status(&status), outside);
        let status = status.without_live_figures();
        let mut effects = self.show_due_titles(number, outside);
        let Some(slot) = self.get_mut(number) else { return effects };
        log_changes(outside.events, slot, &status);
        if slot.shown == status {
            effects.is_shown |= rescheduled;
            return effects;
        }
        let shown = std::mem::replace(&mut slot.shown, status.clone());
        let is_switched = shown.machine.active != status.machine.active;
        let has_outdated = is_switched && slot.titles.forget_source();
        effects.is_shown = true;
        if shown.state != status.state
            && let Some(mut view) = self.view(number, outside.backend)
            && view.station.mount.is_none()
        {
            view.status.state = status.state;
            let params = json!({ "id": view.station.name, "stream": view.stream_json() });
            effects.notices.push(Notice::Message("Stream.OnUpdate", params));
        }
        if sources::sendspin::transport(&shown) != sources::sendspin::transport(&status) {
            effects.extend(self.update_transport(number, &status, outside));
        }
        let title = sources::title(&status);
        if sources::title(&shown) != title || has_outdated {
            let title = title.map(Cow::into_owned);
            effects.extend(self.update_title(number, (title, is_switched), outside));
        }
        if is_switched {
            effects.extend(self.show_other_metadata(number, outside));
        }
        effects
    }

    /// Follows the schedule of a station; called about ten times a second, and when it begins or
    /// its settings change. Returns whether another entry is active.
    pub(crate) fn follow_schedule(&mut self, number: usize, outside: Outside<'_>) -> bool {
        let Some(slot) = self.get_mut(number) else { return false };
        if slot.station.schedule.is_none() && slot.schedule.is_idle() {
            return false;
        }
        let update = slot.schedule.update(&slot.station, &outside.clock.reading());
        if let Some(schedule) = update.send {
            outside.backend.set_schedule(number, schedule);
        }
        let events = update.events();
        for event in &events {
            log_hook_event(outside.events, &slot.station.name, event);
            outside.hooks.notify(&slot.station.name, event);
        }
        !events.is_empty()
    }

    /// Handles a switch of the source.
    pub(crate) fn handle_switch(
        &mut self,
        number: usize,
        switch: InputChange,
        outside: Outside<'_>,
    ) -> Effects {
        self.observe(number, Observation::Switched(switch), outside);
        let Some(slot) = self.get(number) else { return Effects::default() };
        let station = &slot.station;
        log_switch(outside.events, station, switch);
        let name = |index: Option<usize>| {
            index.and_then(|index| station.sources.get(index)).map(|source| &source.name)
        };
        let params = json!({
            "station": station.name,
            "from": name(switch.from),
            "to": name(switch.to),
            "cause": switch.cause.name(),
        });
        Effects::message("Aulos.OnSwitch", params)
    }

    /// Evaluates a station's state and queues the events for its hooks.
    fn observe(&mut self, number: usize, seen: Observation<'_>, outside: Outside<'_>) {
        let Some(slot) = self.get_mut(number) else { return };
        slot.watch.handle_input(outside.clock.local(), &slot.station, seen);
        while let Some(event) = slot.watch.poll_output() {
            log_hook_event(outside.events, &slot.station.name, &event);
            outside.hooks.notify(&slot.station.name, &event);
        }
    }

    /// The stations with their numbers.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (usize, &StationSlot)> {
        self.slots.iter().enumerate().filter_map(|(at, slot)| Some((at, slot.as_ref()?)))
    }

    pub(crate) fn slots_mut(&mut self) -> impl Iterator<Item = &mut StationSlot> {
        self.slots.iter_mut().flatten()
    }

    /// One more than the highest number of a station.
    pub(crate) const fn end(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn get(&self, number: usize) -> Option<&StationSlot> {
        self.slots.get(number)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut StationSlot> {
        self.slots.get_mut(number)?.as_mut()
    }

    /// The station of this name, with its number.
    pub(crate) fn find(&self, name: &str) -> Option<(usize, &StationSlot)> {
        self.slots().find(|(_, slot)| slot.station.name == name)
    }

    pub(crate) fn find_mut(&mut self, name: &str) -> Option<&mut StationSlot> {
        self.slots.iter_mut().flatten().find(|slot| slot.station.name == name)
    }

    /// The station of this name, with its number.
    ///
    /// # Errors
    /// The names of the stations that there are.
    pub(crate) fn named(&self, name: &str) -> Result<(usize, &StationSlot), RpcError> {
        let unknown = || NameError::unknown(NamedKind::Station, name, &self.names()).into();
        self.find(name).ok_or_else(unknown)
    }

    /// The stations as texts may name them.
    pub(crate) fn names(&self) -> Vec<Named<'_>> {
        let names = self.slots().map(|(_, slot)| slot.station.name.as_str());
        names.map(|name| Named::new(name, name)).collect()
    }

    /// The station of a path below `/listen/`, by its name or by its name with an ending.
    pub(crate) fn of_path(&self, path: &str) -> Option<String> {
        let named = |name: &str| {
            let (_, slot) = self.find(name)?;
            slot.station.mount.is_none().then(|| slot.station.name.clone())
        };
        named(path).or_else(|| named(path.rsplit_once('.')?.0))
    }

    /// The configurations of all stations.
    pub(crate) fn list(&self) -> Vec<Arc<StationSettings>> {
        self.slots().map(|(_, slot)| Arc::clone(&slot.station)).collect()
    }

    /// A picture and its media type.
    pub(crate) fn picture(&self, name: &str) -> Option<(&'static str, Bytes)> {
        self.art.get(name)
    }

    /// Settings made by calls, each with those of the configuration, for the state file.
    pub(crate) fn sound_overrides(&self) -> Vec<Value> {
        self.slots().filter_map(|(_, slot)| slot.sound_override()).collect()
    }
}

/// All mounts of these stations, each with the name of its station.
pub fn mounts(stations: &[Arc<StationSettings>]) -> impl Iterator<Item = (&str, &Mount)> {
    stations.iter().flat_map(|station| {
        let mounts = station.sources.iter().filter_map(|source| source.config.mount());
        mounts.map(|mount| (station.name.as_str(), mount))
    })
}
