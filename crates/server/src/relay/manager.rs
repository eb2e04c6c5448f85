//! The relays of a server that runs.
//!
//! None of their threads or sockets is there while there is no relay: most servers have none. What
//! is done here waits for those threads for some milliseconds, so it is for the control plane's
//! thread and never for one that carries sound.

use std::fmt;
use std::time::{Duration, Instant};

use aulos_config::RelaySettings;
use aulos_config::limits::MAX_RELAYS;
use serde_json::{Value, json};

use super::{RelayError, Relays};

/// Relays, which come and go.
#[derive(Default)]
pub struct RelayManager {
    /// None while there is no relay.
    relays: Option<Relays>,
    /// The names of those that a call has added.
    added: Vec<String>,
    last_maintenance: Option<Instant>,
    /// The last short answer, and when it was given.
    summary: Option<(Instant, Value)>,
}

impl fmt::Debug for RelayManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("places", &self.addresses()).finish_non_exhaustive()
    }
}

/// What a reload did to relays, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayChanges {
    /// Relays that are new.
    pub added: Vec<String>,
    /// Relays that are others under the same name.
    pub changed: Vec<String>,
    /// Relays that are gone.
    pub removed: Vec<String>,
    /// Relays that could not be had, and why; one that was there before goes on as it was.
    pub failed: Vec<String>,
}

impl RelayChanges {
    /// As control calls answer it.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "added": self.added,
            "changed": self.changed,
            "removed": self.removed,
            "failed": self.failed,
        })
    }
}

impl RelayManager {
    /// Begins the relays of a configuration.
    ///
    /// # Errors
    /// [`RelayError`] of the first that cannot be had; none of them runs then.
    pub fn start(configs: &[RelaySettings]) -> Result<Self, RelayError> {
        let mut keeper = Self::default();
        for config in configs {
            if let Err(error) = keeper.start_relay(config) {
                keeper.end();
                return Err(error);
            }
        }
        Ok(keeper)
    }

    /// Begins a relay that a call wishes for; no other one notices. Gives where it listens.
    ///
    /// # Errors
    /// [`RelayError`]; nothing of it runs then.
    pub fn add(&mut self, config: &RelaySettings) -> Result<String, RelayError> {
        if self.relays.as_ref().is_some_and(|relays| relays.running.len() >= MAX_RELAYS) {
            return Err(RelayError::TooManyRelays);
        }
        self.start_relay(config)?;
        self.added.push(config.name.clone());
        self.summary = None;
        let places = self.addresses();
        let place = places.into_iter().find(|(name, ..)| *name == config.name);
        Ok(place.map_or_else(String::new, |(_, listen, _)| listen))
    }

    /// Ends a relay: what it still has is sent, its ports are free. False when there is none of
    /// that name.
    pub fn remove(&mut self, name: &str) -> bool {
        let removed = self.relays.as_mut().is_some_and(|relays| relays.remove(name));
        self.added.retain(|added| added != name);
        self.summary = None;
        self.stop_if_empty();
        removed
    }

    /// Does what differs from a configuration that was read again. What a call has added stays,
    /// unless the configuration has the name now.
    pub fn reload(&mut self, wanted: &[RelaySettings]) -> RelayChanges {
        let mut done = RelayChanges::default();
        self.summary = None;
        self.added.retain(|added| !wanted.iter().any(|relay| relay.name == *added));
        let gone = |old: &RelaySettings| {
            let stays = self.added.contains(&old.name);
            !stays && !wanted.contains(old)
        };
        let gone: Vec<RelaySettings> = self.configs().filter(|old| gone(old)).cloned().collect();
        // Ports change hands, so all that end go first. The threads stay for those that come.
        if let Some(relays) = &mut self.relays {
            for old in &gone {
                relays.remove(&old.name);
            }
        }
        let is_new =
            |relay: &&RelaySettings| !self.configs().any(|running| running.name == relay.name);
        let new: Vec<&RelaySettings> = wanted.iter().filter(is_new).collect();
        for relay in new {
            let old = gone.iter().find(|old| old.name == relay.name);
            match (self.start_relay(relay), old) {
                (Ok(()), Some(_)) => done.changed.push(relay.name.clone()),
                (Ok(()), None) => done.added.push(relay.name.clone()),
                (Err(error), old) => {
                    done.failed.push(error.to_string().replace("\n    hint: ", "; "));
                    // What it was is better than nothing, if that can still be had.
                    if old.is_some_and(|old| self.start_relay(old).is_err()) {
                        done.removed.push(relay.name.clone());
                    }
                }
            }
        }
        let left = gone.iter().filter(|old| !wanted.iter().any(|new| new.name == old.name));
        done.removed.extend(left.map(|old| old.name.clone()));
        self.stop_if_empty();
        done
    }

    /// What runs and what it came to, as `aulos relay --json` has it; with `streams`, each of them.
    pub fn json(&mut self, streams: bool) -> Value {
        let Some(relays) = &mut self.relays else {
            let mut none = json!({ "relays": [], "threads": [] });
            if streams {
                none["streams"] = json!([]);
            }
            return none;
        };
        let mut status = relays.status().json(streams);
        for relay in status["relays"].as_array_mut().into_iter().flatten() {
            let added = self.added.iter().any(|name| relay["name"] == **name);
            relay["added"] = added.into();
        }
        status
    }

    /// Each relay with its sums, at most a second old: whoever asks for everything asks often.
    pub fn summary(&mut self) -> Value {
        let fresh = self.summary.as_ref().filter(|(at, _)| at.elapsed() < MAINTENANCE_INTERVAL);
        if let (Some((_, brief)), true) = (fresh, self.relays.is_some()) {
            return brief.clone();
        }
        let brief = self.json(false)["relays"].take();
        self.summary = Some((Instant::now(), brief.clone()));
        brief
    }

    /// See [`Relays::tend`]; does nothing while less than a second has gone by.
    pub fn maintain(&mut self) {
        let Some(relays) = &mut self.relays else { return };
        if self.last_maintenance.is_none_or(|at| at.elapsed() >= MAINTENANCE_INTERVAL) {
            self.last_maintenance = Some(Instant::now());
            relays.maintain();
        }
    }

    /// The name of each, where it listens, and where it sends to.
    pub fn addresses(&self) -> Vec<(String, String, String)> {
        self.relays.as_ref().map(Relays::addresses).unwrap_or_default()
    }

    /// Ends everything: what is still there is sent.
    pub fn end(&mut self) {
        if let Some(relays) = self.relays.take() {
            relays.stop();
        }
    }

    fn configs(&self) -> impl Iterator<Item = &RelaySettings> {
        self.relays.iter().flat_map(|relays| relays.running.iter().map(|running| &running.config))
    }

    fn start_relay(&mut self, config: &RelaySettings) -> Result<(), RelayError> {
        let relays = match &mut self.relays {
            Some(relays) => relays,
            none => none.insert(Relays::start(None).map_err(RelayError::Threads)?),
        };
        let begun = relays.add(config);
        let short = relays.short_buffers();
        if let (Ok(()), Some((name, bytes))) =
            (&begun, short.iter().find(|(name, _)| *name == config.name))
        {
            let kb = bytes / 1_000;
            tracing::warn!(
                "relay `{name}`: the system gives its port a buffer of only {kb} kB, which bursts \
                 may overflow\n    hint: sysctl -w net.core.rmem_max=8388608"
            );
        }
        self.stop_if_empty();
        begun
    }

    /// Threads without a relay end.
    fn stop_if_empty(&mut self) {
        if self.relays.as_ref().is_some_and(|relays| relays.running.is_empty()) {
            self.end();
        }
    }
}

const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(1);
