//! Reloading the configuration of a running server.
//!
//! The file is read and checked as a whole first; then only the differences are applied. A station
//! whose resolved configuration is equal is left alone. Restarting everything and handing clients
//! over was rejected: one changed line would interrupt clients of stations that it does not
//! concern.

use std::sync::Arc;
use std::time::SystemTime;

use aulos_config::{Plugin, ResolvedConfig, Station};
use aulos_files::record::wall_clock;
use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};

use crate::backend::RelayChanges;
use crate::clients::registry::{Effects, Notice, StationInfo};
use crate::control::state::{ConfigLoader, Control, ControlState};
use crate::events::history::EventSeverity;
use crate::methods::rpc::internal_error;
use crate::stations::slot::StationSlot;
use crate::stations::sound;

/// The result of a reload, by names of stations and keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadReport {
    /// New stations.
    pub added: Vec<String>,
    /// Stations that were replaced under the same name.
    pub changed: Vec<String>,
    /// Stations that continue with other normalizer, equalizer, push, RTP or recorder settings.
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
    /// Sets the function that reads the configuration again.
    #[must_use]
    pub fn with_config_loader(mut self, reread: ConfigLoader) -> Self {
        self.config_loader = reread;
        self
    }

    /// Reads the configuration again and applies the differences.
    ///
    /// # Errors
    /// What is wrong with the configuration; then nothing has changed.
    pub fn reload(&self) -> Result<ReloadReport, String> {
        let mut inner = self.lock();
        let (reloaded, effects) = self.reload_locked(&mut inner)?;
        self.apply_effects(&mut inner, effects, None);
        Ok(reloaded)
    }

    /// `Aulos.Reload`.
    pub(crate) fn reload_call(
        &self,
        inner: &mut ControlState,
    ) -> Result<(ReloadReport, Effects), RpcError> {
        self.reload_locked(inner).map_err(internal_error)
    }

    /// Waits until the tasks that run beside the control plane have to be updated: after a reload,
    /// and when a call adds or removes a stream with a control script.
    pub async fn wait_for_task_changes(&self) {
        self.tasks_changed.notified().await;
    }

    /// The control scripts to run, each with its stream.
    #[must_use]
    pub fn scripts(&self) -> Vec<(String, Plugin)> {
        let by_rpc = self.config().streams.plugins_by_rpc;
        let inner = self.lock();
        let all = inner.slots().filter_map(|(_, slot)| {
            let plugin = slot.station.plugin.clone()?;
            (plugin.call.is_none() || by_rpc).then(|| (slot.station.name.clone(), plugin))
        });
        all.collect()
    }

    /// The running stations in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let inner = self.lock();
        let names: Vec<&str> = inner.slots().map(|(_, slot)| &*slot.station.name).collect();
        format!("{} station(s): {}", names.len(), names.join(", "))
    }

    fn reload_locked(&self, inner: &mut ControlState) -> Result<(ReloadReport, Effects), String> {
        let new = (self.config_loader)().inspect_err(|problems| {
            self.statistics.set_reload(Err(()));
            tracing::error!("the configuration has errors and is not applied");
            problems.trim_end().lines().for_each(|line| tracing::error!("{line}"));
            let first = problems.lines().next().unwrap_or_default();
            let text = format!("the configuration has errors and is not applied: {first}");
            self.add_reload_event(EventSeverity::Warning, text);
        })?;
        let (reloaded, effects) = self.apply(inner, new);
        self.statistics.observe_clock(wall_clock());
        self.statistics.set_reload(Ok(SystemTime::now()));
        let text = format!("configuration read again: {}", reloaded.summary());
        tracing::info!(target: "config", "{text}");
        let has_failed = !reloaded.failed.is_empty() || !reloaded.relays.failed.is_empty();
        let severity = if has_failed { EventSeverity::Warning } else { EventSeverity::Info };
        self.add_reload_event(severity, text);
        self.tasks_changed.notify_one();
        Ok((reloaded, effects))
    }

    fn apply(&self, inner: &mut ControlState, mut new: ResolvedConfig) -> (ReloadReport, Effects) {
        let old = self.config();
        let mut done =
            ReloadReport { needs_restart: keep_fixed(&old, &mut new), ..ReloadReport::default() };
        let mut all = Effects::default();
        // New stations start before old ones end, because clients may have to move to them.
        for station in &new.stations {
            self.apply_station(inner, station, &mut done, &mut all);
        }
        let names: Vec<&str> = new.stations.iter().map(|one| one.name.as_str()).collect();
        let removed =
            |slot: &StationSlot| slot.added.is_none() && !names.contains(&&*slot.station.name);
        let removed: Vec<usize> =
            inner.slots().filter(|(_, slot)| removed(slot)).map(|(number, _)| number).collect();
        for number in removed {
            let slot = inner.slots[number].take();
            done.removed.extend(slot.map(|slot| slot.station.name));
            let effects = inner.registry.remove_station(number);
            self.send_commands(inner, effects, &mut all);
            self.backend.remove_station(number);
        }
        if !done.adjusted.is_empty() {
            // The file's settings replace what calls had set.
            all.save = true;
        }
        if !(done.added.is_empty() && done.changed.is_empty() && done.removed.is_empty()) {
            all.notices.push(Notice::Server);
            // A new station may become the default for new clients.
            all.save = true;
        }
        self.apply_settings(inner, &old, &new, &mut done, &mut all);
        done.relays = self.with_relays(|relays| relays.reload(&new.relays));
        *self.resolved.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(new);
        (done, all)
    }

    /// Starts, updates or replaces one station.
    fn apply_station(
        &self,
        inner: &mut ControlState,
        station: &Station,
        done: &mut ReloadReport,
        all: &mut Effects,
    ) {
        let name = &station.name;
        let info = StationInfo { name: name.clone(), buffer_ms: station.buffer_ms };
        let Some((number, slot)) = inner.slot(name) else {
            match self.backend.add_station(station) {
                Ok(number) => {
                    inner.registry.add_station(number, info);
                    inner.set_slot(number, StationSlot::new(station.clone(), None));
                    done.added.push(name.clone());
                }
                Err(error) => done.failed.push(format!("{name}: {error}")),
            }
            return;
        };
        let asked = Station { sound: slot.configured_sound().clone(), ..slot.station.clone() };
        if asked == *station {
            // A station that a call added belongs to the file from now on.
            if let Some(slot) = inner.slot_mut(name) {
                slot.added = None;
            }
            return;
        }
        if is_live_change(asked.clone(), station) {
            self.update_outputs(inner, number, &asked, station);
            if asked.sound == station.sound {
                return done.adjusted.push(name.clone());
            }
            return self.update_sound(inner, number, station, done);
        }
        let mut new = slot.successor(station);
        let before = StationInfo { buffer_ms: slot.station.buffer_ms, ..info.clone() };
        // Settings go first: a client needs its buffer length before the codec header.
        let effects = inner.registry.change_station(number, info);
        self.send_commands(inner, effects, all);
        if let Err(error) = self.backend.replace_station(number, &new.station) {
            let effects = inner.registry.change_station(number, before);
            self.send_commands(inner, effects, all);
            return done.failed.push(format!("{name}: {error}"));
        }
        if let Some(old) = inner.slots[number].take() {
            // Trouble that hooks have reported still needs its end event.
            new.watch = old.watch;
            if old.station.plugin == station.plugin {
                (new.properties, new.plugin) = (old.properties, old.plugin);
            }
        }
        inner.set_slot(number, new);
        done.changed.push(name.clone());
    }

    /// Updates pushes, RTP outputs and recorders of a station that continues.
    fn update_outputs(
        &self,
        inner: &mut ControlState,
        number: usize,
        before: &Station,
        now: &Station,
    ) {
        if before.records != now.records {
            self.backend.set_records(number, &now.records);
        }
        if before.pushes != now.pushes {
            self.backend.set_pushes(number, &now.pushes);
        }
        if before.rtp != now.rtp {
            self.backend.set_rtp(number, &now.rtp);
        }
        if let Some(slot) = inner.slots[number].as_mut() {
            slot.station.records.clone_from(&now.records);
            slot.station.pushes.clone_from(&now.pushes);
            slot.station.rtp.clone_from(&now.rtp);
            slot.added = None;
        }
    }

    /// Updates normalizer and equalizer of a station that continues.
    fn update_sound(
        &self,
        inner: &mut ControlState,
        number: usize,
        station: &Station,
        done: &mut ReloadReport,
    ) {
        let name = &station.name;
        if let Err(error) = self.backend.set_sound(number, &station.sound) {
            return done.failed.push(format!("{name}: {error}"));
        }
        let Some(slot) = inner.slots[number].as_mut() else { return };
        slot.station.sound.clone_from(&station.sound);
        (slot.file_sound, slot.added) = (None, None);
        let params = sound::sound_json(slot);
        self.notify(inner, None, "Aulos.OnSoundChanged", &params);
        done.adjusted.push(name.clone());
    }

    /// Sends commands to the audio backend now; notices wait for the end of the reload.
    fn send_commands(&self, inner: &mut ControlState, effects: Effects, all: &mut Effects) {
        effects.commands.into_iter().for_each(|command| inner.outbox.push(command));
        inner.outbox.flush(&*self.backend);
        all.notices.extend(effects.notices);
        all.save |= effects.save;
    }

    /// Applies the settings that do not concern stations.
    fn apply_settings(
        &self,
        inner: &mut ControlState,
        old: &ResolvedConfig,
        new: &ResolvedConfig,
        done: &mut ReloadReport,
        all: &mut Effects,
    ) {
        if old.clients != new.clients {
            done.settings.push("clients");
            let clients = new.clients;
            let registry = &mut inner.registry;
            let effects = registry.change_volume_limits(clients.initial_volume, clients.volume_cap);
            self.send_commands(inner, effects, all);
        }
        let (before, after) = (&old.security, &new.security);
        if before.access != after.access {
            done.settings.push("access");
            self.access.replace(after.access.clone());
            // Controllers reconnect under the new rules; players continue.
            inner.peers.cut_all();
        }
        if before.tls != after.tls {
            done.settings.push("tls");
        }
        if before.limits != after.limits {
            done.settings.push("limits");
        }
        if old.http.names != new.http.names {
            done.settings.push("http");
        }
        if old.metrics != new.metrics {
            done.settings.push("metrics");
        }
        if old.streams != new.streams {
            done.settings.push("streams");
        }
        if old.hooks != new.hooks {
            done.settings.push("hook");
            self.hooks.change(&new.hooks);
        }
    }
}

impl ControlState {
    /// Stores a station under the number that the audio backend gave it.
    pub(crate) fn set_slot(&mut self, number: usize, slot: StationSlot) {
        if self.slots.len() <= number {
            self.slots.resize_with(number + 1, || None);
            self.last_shown.resize_with(number + 1, Default::default);
        }
        self.slots[number] = Some(slot);
        self.last_shown[number] = Default::default();
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
fn is_live_change(asked: Station, station: &Station) -> bool {
    let (sound, pushes) = (station.sound.clone(), station.pushes.clone());
    let (rtp, records) = (station.rtp.clone(), station.records.clone());
    Station { sound, pushes, rtp, records, ..asked } == *station
}
