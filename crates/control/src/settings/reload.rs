//! Reloading the configuration of a running server.
//!
//! The file is read and checked as a whole first; then only the differences are applied. A station
//! whose resolved configuration is equal is left alone. Restarting everything and handing clients
//! over was rejected: one changed line would interrupt clients of stations that it does not
//! concern.

use std::sync::{Arc, PoisonError};

use aulos_config::{ResolvedConfig, StationSettings};
use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};

use crate::backend::RelayChanges;
use crate::clients::registry::{Effects, Notice, StationInfo};
use crate::control::state::{Control, Subjects};
use crate::events::EventLog;
use crate::events::history::{EventKind, EventSeverity, NewEvent};
use crate::methods::rpc::internal_error;
use crate::outside::Outside;
use crate::stations::mount_table::MountTable;
use crate::stations::slot::StationSlot;
use crate::stations::sound::sound_json;

/// The result of a reload, by names of stations and keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadReport {
    /// New stations.
    pub added: Vec<String>,
    /// Stations that were replaced under the same name.
    pub changed: Vec<String>,
    /// Stations that continue with other normalizer, equalizer, push, RTP, recorder, schedule or
    /// `now_playing` settings.
    pub adjusted: Vec<String>,
    /// Removed stations.
    pub removed: Vec<String>,
    /// Tables whose keys apply from now on.
    pub settings: Vec<&'static str>,
    /// Keys that differ but apply only after a restart.
    pub needs_restart: Vec<&'static str>,
    /// Stations that could not be started, with the reason; everything else was applied.
    pub failed: Vec<String>,
    /// Changes of relays.
    pub relays: RelayChanges,
}

impl ReloadReport {
    /// A summary in one line, for the log.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut parts = Vec::new();
        for (what, names) in [
            ("added", &self.added),
            ("changed", &self.changed),
            ("adjusted", &self.adjusted),
            ("removed", &self.removed),
        ] {
            if !names.is_empty() {
                parts.push(format!("{what} {}", names.join(", ")));
            }
        }
        if !self.settings.is_empty() {
            parts.push(format!("new settings in {}", self.settings.join(", ")));
        }
        if !self.needs_restart.is_empty() {
            parts.push(format!("needs a restart: {}", self.needs_restart.join(", ")));
        }
        if !self.failed.is_empty() {
            parts.push(format!("failed: {}", self.failed.join(", ")));
        }
        for (what, names) in [
            ("added", &self.relays.added),
            ("changed", &self.relays.changed),
            ("removed", &self.relays.removed),
            ("failed:", &self.relays.failed),
        ] {
            if !names.is_empty() {
                parts.push(format!("relays {what} {}", names.join(", ")));
            }
        }
        if parts.is_empty() { "nothing has changed".to_owned() } else { parts.join("; ") }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "added": self.added,
            "changed": self.changed,
            "adjusted": self.adjusted,
            "removed": self.removed,
            "settings": self.settings,
            "needs_restart": self.needs_restart,
            "failed": self.failed,
            "relays": self.relays.json(),
        })
    }
}

impl Control {
    /// Reads the configuration again and applies the differences.
    ///
    /// # Errors
    /// What is wrong with the configuration; then nothing has changed.
    pub fn reload(&self) -> Result<ReloadReport, String> {
        let new = self.read_config();
        self.change(|subjects| {
            let (report, effects) = self.apply_config(subjects, new?);
            self.apply_effects(subjects, effects, None);
            Ok(report)
        })
    }

    /// `Aulos.Reload`.
    pub(crate) fn reload_call(
        &self,
        subjects: &mut Subjects,
    ) -> Result<(ReloadReport, Effects), RpcError> {
        let new = self.read_config().map_err(internal_error)?;
        Ok(self.apply_config(subjects, new))
    }

    fn read_config(&self) -> Result<ResolvedConfig, String> {
        (self.config_loader)().inspect_err(|problems| {
            self.statistics.set_reload(Err(()));
            tracing::error!("the configuration has errors and is not applied");
            problems.trim_end().lines().for_each(|line| tracing::error!("{line}"));
            let first = problems.lines().next().unwrap_or_default();
            let text = format!("the configuration has errors and is not applied: {first}");
            add_event(&self.events, EventSeverity::Warning, text);
        })
    }

    fn apply_config(
        &self,
        subjects: &mut Subjects,
        mut new: ResolvedConfig,
    ) -> (ReloadReport, Effects) {
        let old = self.config();
        let needs_restart = keep_fixed(&old, &mut new);
        let report = ReloadReport { needs_restart, ..ReloadReport::default() };
        let outside = self.outside();
        let mut reload = Reload { subjects, outside, report, effects: Effects::default() };
        reload.apply_stations(&new);
        reload.apply_settings(&old, &new);
        let Reload { mut report, effects, .. } = reload;
        if old.security.access != new.security.access {
            self.access.replace(new.security.access.clone());
            // Controllers reconnect under the new rules; players continue.
            self.peers().cut_all();
        }
        report.relays = self.relays.with(|relays| relays.reload(&new.relays));
        let mounts = Arc::new(MountTable::new(&new.stations));
        *self.mounts.lock().unwrap_or_else(PoisonError::into_inner) = mounts;
        *self.resolved.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        self.statistics.observe_clock(self.clock.reading());
        self.statistics.set_reload(Ok(self.clock.wall()));
        let text = format!("configuration read again: {}", report.summary());
        tracing::info!(target: "config", "{text}");
        let has_failed = !report.failed.is_empty() || !report.relays.failed.is_empty();
        let severity = if has_failed { EventSeverity::Warning } else { EventSeverity::Info };
        add_event(&self.events, severity, text);
        self.tasks_changed.notify_one();
        (report, effects)
    }
}

/// Adds the event of a reload.
fn add_event(events: &EventLog, severity: EventSeverity, text: String) {
    let (kind, subject) = (EventKind::Configuration, String::new());
    events.add(NewEvent { kind, severity, station: None, subject, text });
}

/// A reload under way.
struct Reload<'a> {
    subjects: &'a mut Subjects,
    outside: Outside<'a>,
    report: ReloadReport,
    /// What is notified and saved at its end.
    effects: Effects,
}

impl Reload<'_> {
    fn apply_stations(&mut self, new: &ResolvedConfig) {
        // New stations start before old ones end, because clients may have to move to them.
        for station in &new.stations {
            self.apply_station(station);
        }
        let names: Vec<&str> = new.stations.iter().map(|one| one.name.as_str()).collect();
        let is_removed =
            |slot: &StationSlot| slot.added.is_none() && !names.contains(&&*slot.station.name);
        let slots = self.subjects.stations.slots();
        let removed: Vec<usize> =
            slots.filter(|(_, slot)| is_removed(slot)).map(|(number, _)| number).collect();
        for number in removed {
            let slot = self.subjects.stations.remove(number);
            self.report.removed.extend(slot.map(|slot| slot.station.name.clone()));
            let effects = self.subjects.clients.registry.remove_station(number);
            self.send_commands(effects);
            self.outside.backend.remove_station(number);
        }
        let ReloadReport { added, changed, adjusted, removed, .. } = &self.report;
        if !adjusted.is_empty() {
            // The file's settings replace what calls had set.
            self.effects.save = true;
        }
        if !(added.is_empty() && changed.is_empty() && removed.is_empty()) {
            self.effects.notices.push(Notice::Server);
            // A new station may become the default for new clients.
            self.effects.save = true;
        }
    }

    /// Starts, updates or replaces one station.
    fn apply_station(&mut self, station: &StationSettings) {
        let name = &station.name;
        let Some((number, slot)) = self.subjects.stations.find(name) else {
            return self.add_station(station);
        };
        let asked =
            StationSettings { sound: slot.configured_sound().clone(), ..(*slot.station).clone() };
        if asked == *station {
            // A station that a call added belongs to the file from now on.
            if let Some(slot) = self.subjects.stations.get_mut(number) {
                slot.added = None;
            }
            return;
        }
        if is_live_change(asked.clone(), station) {
            self.update_outputs(number, &asked, station);
            if asked.sound == station.sound {
                return self.report.adjusted.push(name.clone());
            }
            return self.update_sound(number, station);
        }
        self.replace_station(number, station);
    }

    fn add_station(&mut self, station: &StationSettings) {
        let name = &station.name;
        match self.outside.backend.add_station(station) {
            Ok(number) => {
                let info = StationInfo { name: name.clone(), buffer_ms: station.buffer_ms };
                if station.mount.is_none() {
                    self.subjects.clients.registry.add_station(number, info);
                }
                self.subjects.stations.set(number, StationSlot::new(station.clone(), None));
                self.subjects.stations.follow_schedule(number, self.outside);
                self.report.added.push(name.clone());
            }
            Err(error) => self.report.failed.push(format!("{name}: {error}")),
        }
    }

    fn replace_station(&mut self, number: usize, station: &StationSettings) {
        let name = &station.name;
        let Some(slot) = self.subjects.stations.get(number) else { return };
        let slot_is_for_clients = slot.station.mount.is_none();
        let mut new = slot.successor(station);
        let info = StationInfo { name: name.clone(), buffer_ms: station.buffer_ms };
        let before = StationInfo { buffer_ms: slot.station.buffer_ms, ..info.clone() };
        // Settings go first: a client needs its buffer length before the codec header.
        let registry = &mut self.subjects.clients.registry;
        let effects = match station.mount {
            Some(_) => registry.remove_station(number),
            None => registry.change_station(number, info),
        };
        self.send_commands(effects);
        if let Err(error) = self.outside.backend.replace_station(number, &new.station) {
            if slot_is_for_clients {
                let effects = self.subjects.clients.registry.change_station(number, before);
                self.send_commands(effects);
            }
            return self.report.failed.push(format!("{name}: {error}"));
        }
        if let Some(old) = self.subjects.stations.remove(number) {
            // Trouble that hooks have reported still needs its end event.
            new.watch = old.watch;
            new.titles = old.titles;
            new.schedule = old.schedule;
            new.schedule.renew(true);
            if old.station.plugin == station.plugin {
                (new.properties, new.plugin) = (old.properties, old.plugin);
            }
        }
        self.subjects.stations.set(number, new);
        self.subjects.stations.follow_schedule(number, self.outside);
        self.report.changed.push(name.clone());
    }

    /// Updates pushes, RTP outputs, recorders, the schedule and the outputs of titles of a station
    /// that continues.
    fn update_outputs(&mut self, number: usize, before: &StationSettings, now: &StationSettings) {
        let backend = self.outside.backend;
        if before.records != now.records {
            backend.set_records(number, &now.records);
        }
        if before.pushes != now.pushes {
            backend.set_pushes(number, &now.pushes);
        }
        if before.rtp != now.rtp {
            backend.set_rtp(number, &now.rtp);
        }
        if let Some(slot) = self.subjects.stations.get_mut(number) {
            let station = Arc::make_mut(&mut slot.station);
            station.records.clone_from(&now.records);
            station.pushes.clone_from(&now.pushes);
            station.rtp.clone_from(&now.rtp);
            station.schedule.clone_from(&now.schedule);
            station.now_playing.clone_from(&now.now_playing);
            slot.schedule.renew(false);
            slot.added = None;
        }
        self.subjects.stations.follow_schedule(number, self.outside);
    }

    /// Updates normalizer and equalizer of a station that continues.
    fn update_sound(&mut self, number: usize, station: &StationSettings) {
        let name = &station.name;
        if let Err(error) = self.outside.backend.set_sound(number, &station.sound) {
            return self.report.failed.push(format!("{name}: {error}"));
        }
        let Some(slot) = self.subjects.stations.get_mut(number) else { return };
        Arc::make_mut(&mut slot.station).sound.clone_from(&station.sound);
        (slot.file_sound, slot.added) = (None, None);
        let notice = Notice::Message("Aulos.OnSoundChanged", sound_json(slot));
        self.effects.notices.push(notice);
        self.report.adjusted.push(name.clone());
    }

    /// Sends commands to the audio backend now; notices wait for the end of the reload.
    fn send_commands(&mut self, effects: Effects) {
        self.subjects.clients.send(effects.commands, self.outside.backend);
        self.effects.notices.extend(effects.notices);
        self.effects.save |= effects.save;
    }

    /// Applies the settings that do not concern stations.
    fn apply_settings(&mut self, old: &ResolvedConfig, new: &ResolvedConfig) {
        if old.clients != new.clients {
            let clients = new.clients;
            let registry = &mut self.subjects.clients.registry;
            let effects = registry.change_volume_limits(clients.initial_volume, clients.volume_cap);
            self.send_commands(effects);
        }
        if old.hooks != new.hooks {
            self.outside.hooks.change(&new.hooks);
        }
        let (before, after) = (&old.security, &new.security);
        let changed = [
            ("clients", old.clients != new.clients),
            ("access", before.access != after.access),
            ("tls", before.tls != after.tls),
            ("limits", before.limits != after.limits),
            ("http", old.http.names != new.http.names),
            ("metrics", old.metrics != new.metrics),
            ("streams", old.streams != new.streams),
            ("hook", old.hooks != new.hooks),
            ("mqtt", old.mqtt != new.mqtt),
        ];
        let changed = changed.into_iter().filter(|(_, is_changed)| *is_changed);
        self.report.settings.extend(changed.map(|(name, _)| name));
    }
}

/// Restores the keys that cannot change while the server runs; returns their names.
fn keep_fixed(old: &ResolvedConfig, new: &mut ResolvedConfig) -> Vec<&'static str> {
    let mut kept = Vec::new();
    let mut keep = |name, differs: bool| kept.extend(differs.then_some(name));
    keep("state_dir", old.state_dir != new.state_dir);
    keep("listen.stream", old.listen.stream != new.listen.stream);
    keep("listen.control", old.listen.control != new.listen.control);
    keep("listen.http", old.listen.http != new.listen.http);
    keep("http.doc_root", old.http.doc_root != new.http.doc_root);
    keep("history", old.history != new.history);
    new.history = old.history;
    keep("cluster", old.cluster != new.cluster);
    new.cluster.clone_from(&old.cluster);
    new.state_dir.clone_from(&old.state_dir);
    new.listen.clone_from(&old.listen);
    new.http.doc_root.clone_from(&old.http.doc_root);
    kept
}

/// Whether all differences can be applied to a running station.
fn is_live_change(asked: StationSettings, station: &StationSettings) -> bool {
    let (sound, pushes) = (station.sound.clone(), station.pushes.clone());
    let (rtp, records) = (station.rtp.clone(), station.records.clone());
    let (schedule, now_playing) = (station.schedule.clone(), station.now_playing.clone());
    StationSettings { sound, pushes, rtp, records, schedule, now_playing, ..asked } == *station
}
