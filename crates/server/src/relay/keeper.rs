//! The relays of a server that runs.
//!
//! None of their threads or sockets is there while there is no relay: most servers have none. What
//! is done here waits for those threads for some milliseconds, so it is for the control plane's
//! thread and never for one that carries sound.

use std::fmt;
use std::time::{Duration, Instant};

use aulos_config::Relay;
use aulos_config::limits::MAX_RELAYS;
use serde_json::{Value, json};

use super::{RelayError, Relays};

/// Relays, which come and go.
#[derive(Default)]
pub struct Keeper {
    /// None while there is no relay.
    relays: Option<Relays>,
    /// The names of those that a call has added.
    added: Vec<String>,
    tended: Option<Instant>,
    /// The last short answer, and when it was given.
    brief: Option<(Instant, Value)>,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("places", &self.places()).finish_non_exhaustive()
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

impl Keeper {
    /// Begins the relays of a configuration.
    ///
    /// # Errors
    /// [`RelayError`] of the first that cannot be had; none of them runs then.
    pub fn start(configs: &[Relay]) -> Result<Self, RelayError> {
        let mut keeper = Self::default();
        for config in configs {
            if let Err(error) = keeper.begin(config) {
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
    pub fn add(&mut self, config: &Relay) -> Result<String, RelayError> {
        if self.relays.as_ref().is_some_and(|relays| relays.running.len() >= MAX_RELAYS) {
            return Err(RelayError::Full);
        }
        self.begin(config)?;
        self.added.push(config.name.clone());
        self.brief = None;
        let places = self.places();
        let place = places.into_iter().find(|(name, ..)| *name == config.name);
        Ok(place.map_or_else(String::new, |(_, listen, _)| listen))
    }

    /// Ends a relay: what it still has is sent, its ports are free. False when there is none of
    /// that name.
    pub fn remove(&mut self, name: &str) -> bool {
        let removed = self.relays.as_mut().is_some_and(|relays| relays.remove(name));
        self.added.retain(|added| added != name);
        self.brief = None;
        self.rest();
        removed
    }

    /// Does what differs from a configuration that was read again. What a call has added stays,
    /// unless the configuration has the name now.
    pub fn change(&mut self, wanted: &[Relay]) -> RelayChanges {
        let mut done = RelayChanges::default();
        self.brief = None;
        self.added.retain(|added| !wanted.iter().any(|relay| relay.name == *added));
        let gone = |old: &Relay| {
            let stays = self.added.contains(&old.name);
            !stays && !wanted.contains(old)
        };
        let gone: Vec<Relay> = self.configs().filter(|old| gone(old)).cloned().collect();
        // Ports change hands, so all that end go first. The threads stay for those that come.
        if let Some(relays) = &mut self.relays {
            for old in &gone {
                relays.remove(&old.name);
            }
        }
        let is_new = |relay: &&Relay| !self.configs().any(|running| running.name == relay.name);
        let new: Vec<&Relay> = wanted.iter().filter(is_new).collect();
        for relay in new {
            let old = gone.iter().find(|old| old.name == relay.name);
            match (self.begin(relay), old) {
                (Ok(()), Some(_)) => done.changed.push(relay.name.clone()),
                (Ok(()), None) => done.added.push(relay.name.clone()),
                (Err(error), old) => {
                    done.failed.push(error.to_string().replace("\n    hint: ", "; "));
                    // What it was is better than nothing, if that can still be had.
                    if old.is_some_and(|old| self.begin(old).is_err()) {
                        done.removed.push(relay.name.clone());
                    }
                }
            }
        }
        let left = gone.iter().filter(|old| !wanted.iter().any(|new| new.name == old.name));
        done.removed.extend(left.map(|old| old.name.clone()));
        self.rest();
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
    pub fn brief(&mut self) -> Value {
        let fresh = self.brief.as_ref().filter(|(at, _)| at.elapsed() < TEND);
        if let (Some((_, brief)), true) = (fresh, self.relays.is_some()) {
            return brief.clone();
        }
        let brief = self.json(false)["relays"].take();
        self.brief = Some((Instant::now(), brief.clone()));
        brief
    }

    /// See [`Relays::tend`]; does nothing while less than a second has gone by.
    pub fn tend(&mut self) {
        let Some(relays) = &mut self.relays else { return };
        if self.tended.is_none_or(|at| at.elapsed() >= TEND) {
            self.tended = Some(Instant::now());
            relays.tend();
        }
    }

    /// The name of each, where it listens, and where it sends to.
    pub fn places(&self) -> Vec<(String, String, String)> {
        self.relays.as_ref().map(Relays::places).unwrap_or_default()
    }

    /// Ends everything: what is still there is sent.
    pub fn end(&mut self) {
        if let Some(relays) = self.relays.take() {
            relays.stop();
        }
    }

    fn configs(&self) -> impl Iterator<Item = &Relay> {
        self.relays.iter().flat_map(|relays| relays.running.iter().map(|running| &running.config))
    }

    fn begin(&mut self, config: &Relay) -> Result<(), RelayError> {
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
        self.rest();
        begun
    }

    /// Threads without a relay end.
    fn rest(&mut self) {
        if self.relays.as_ref().is_some_and(|relays| relays.running.is_empty()) {
            self.end();
        }
    }
}

const TEND: Duration = Duration::from_secs(1);
