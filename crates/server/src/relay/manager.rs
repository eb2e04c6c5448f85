//! The relays of a running server.
//!
//! Without a relay, as on most servers, there are no threads and sockets for them. The methods wait
//! some milliseconds for those threads, so they are for the control thread and never for an audio
//! thread.

use std::fmt;
use std::time::{Duration, Instant};

use aulos_config::RelaySettings;
use aulos_config::limits::MAX_RELAYS;
use aulos_control::backend::{RelayChanges, RelayControl};
use serde_json::{Value, json};

use super::{RelayError, Relays};

/// Relays that are added and removed at run time.
#[derive(Default)]
pub struct RtpRelayManager {
    /// `None` while there is no relay.
    relays: Option<Relays>,
    /// Names of the relays added by API calls.
    added: Vec<String>,
    last_maintenance: Option<Instant>,
    /// The last summary, with its time.
    summary: Option<(Instant, Value)>,
}

impl fmt::Debug for RtpRelayManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("places", &self.addresses()).finish_non_exhaustive()
    }
}

impl RtpRelayManager {
    /// Starts the configured relays.
    ///
    /// # Errors
    /// [`RelayError`] of the first that fails; none of them runs then.
    pub fn start(configs: &[RelaySettings]) -> Result<Self, RelayError> {
        let mut manager = Self::default();
        for config in configs {
            if let Err(error) = manager.start_relay(config) {
                manager.end();
                return Err(error);
            }
        }
        Ok(manager)
    }

    /// Name, listen address and destination of each relay.
    pub fn addresses(&self) -> Vec<(String, String, String)> {
        self.relays.as_ref().map(Relays::addresses).unwrap_or_default()
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
                relay = name,
                buffer_kb = kb,
                hint = "sysctl -w net.core.rmem_max=8388608",
                "receive buffer too small; bursts may overflow it"
            );
        }
        self.stop_if_empty();
        begun
    }

    /// Ends the threads if there is no relay.
    fn stop_if_empty(&mut self) {
        if self.relays.as_ref().is_some_and(|relays| relays.running.is_empty()) {
            self.end();
        }
    }
}

impl RelayControl for RtpRelayManager {
    fn add(&mut self, config: &RelaySettings) -> Result<String, String> {
        if self.relays.as_ref().is_some_and(|relays| relays.running.len() >= MAX_RELAYS) {
            return Err(in_one_line(&RelayError::TooManyRelays));
        }
        self.start_relay(config).map_err(|error| in_one_line(&error))?;
        self.added.push(config.name.clone());
        self.summary = None;
        let addresses = self.addresses();
        let address = addresses.into_iter().find(|(name, ..)| *name == config.name);
        Ok(address.map_or_else(String::new, |(_, listen, _)| listen))
    }

    fn remove(&mut self, name: &str) -> bool {
        let removed = self.relays.as_mut().is_some_and(|relays| relays.remove(name));
        self.added.retain(|added| added != name);
        self.summary = None;
        self.stop_if_empty();
        removed
    }

    fn reload(&mut self, wanted: &[RelaySettings]) -> RelayChanges {
        let mut done = RelayChanges::default();
        self.summary = None;
        self.added.retain(|added| !wanted.iter().any(|relay| relay.name == *added));
        let gone = |old: &RelaySettings| {
            let stays = self.added.contains(&old.name);
            !stays && !wanted.contains(old)
        };
        let gone: Vec<RelaySettings> = self.configs().filter(|old| gone(old)).cloned().collect();
        // Ports may move between relays, so all ends come first. The threads stay for the new
        // relays.
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
                    done.failed.push(in_one_line(&error));
                    // The old relay is better than none, if it can still be started.
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

    fn json(&mut self, streams: bool) -> Value {
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

    fn summary(&mut self) -> Value {
        let fresh = self.summary.as_ref().filter(|(at, _)| at.elapsed() < MAINTENANCE_INTERVAL);
        if let (Some((_, brief)), true) = (fresh, self.relays.is_some()) {
            return brief.clone();
        }
        let brief = self.json(false)["relays"].take();
        self.summary = Some((Instant::now(), brief.clone()));
        brief
    }

    fn maintain(&mut self) {
        let Some(relays) = &mut self.relays else { return };
        if self.last_maintenance.is_none_or(|at| at.elapsed() >= MAINTENANCE_INTERVAL) {
            self.last_maintenance = Some(Instant::now());
            relays.maintain();
        }
    }

    fn end(&mut self) {
        if let Some(relays) = self.relays.take() {
            relays.stop();
        }
    }
}

/// The message with its hint, for answers of control calls.
fn in_one_line(error: &RelayError) -> String {
    error.to_string().replace("\n    hint: ", "; ")
}

const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(1);
