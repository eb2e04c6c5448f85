//! The bridge to MQTT: what is published of a server, and which calls messages ask for.
//!
//! A machine without sockets and clocks; `aulos_server` connects it to a broker. Topics are
//! retained and published when their value changes; discovery of Home Assistant describes them
//! (`discovery`). The broker is trusted as little as any controller: its messages become calls
//! with the role `control`, at a bounded rate, and whatever is not one of them is only counted.

mod command;
mod discovery;
mod facts;
mod leftovers;
mod outbox;
#[cfg(test)]
mod tests;
mod topics;

use std::collections::HashMap;

use aulos_core::{Instant, Rng, Span, TokenBucket};
use serde_json::{Value, json};

use command::LastSound;
pub use command::MqttCall;
pub use facts::{ClientFacts, ServerFacts, StationFacts, StationShape};
use leftovers::Leftovers;
pub use outbox::MqttMessage;
use outbox::MqttOutbox;
pub use topics::MqttTopics;
use topics::escape;

/// What happens to the bridge.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_enums, reason = "the edge makes all")]
pub enum MqttInput<'a> {
    /// The broker has accepted the connection.
    Connected,
    /// The connection has ended.
    Disconnected,
    /// The server as it is now; read a few times a second.
    Facts(&'a ServerFacts),
    /// A message from the broker.
    Message {
        /// Its topic.
        topic: &'a str,
        /// Its payload.
        payload: &'a [u8],
        /// Whether the broker has kept it from before the subscription.
        is_retained: bool,
    },
}

/// What was not done, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MqttStats {
    /// Messages that are no command, or exceed the rate of commands.
    pub refused: u64,
    /// Events without a connection, or behind too many others.
    pub dropped_events: u64,
}

/// The bridge between a server and a broker.
#[derive(Debug)]
pub struct MqttBridge {
    topics: MqttTopics,
    host: String,
    outbox: MqttOutbox,
    facts: ServerFacts,
    stations: HashMap<String, StationMemory>,
    leftovers: Leftovers,
    call: Option<MqttCall>,
    commands: TokenBucket,
    /// When everything is published again, because Home Assistant has started.
    republish_at: Option<Instant>,
    republished_at: Option<Instant>,
    rng: Rng,
    refused: u64,
}

/// What is remembered of a station from one moment to the next.
#[derive(Debug, Default)]
struct StationMemory {
    /// The loudness that is shown.
    loudness: [Option<f64>; 6],
    loudness_at: Option<Instant>,
    last_sound: LastSound,
}

/// Commands at once, and the time until one more: a slider that is moved sends some ten a second.
const COMMANDS: u32 = 32;
const COMMAND_INTERVAL: Span = Span::from_millis(50);

/// Least time between two loudness messages of a station.
const LOUDNESS_INTERVAL: Span = Span::from_secs(1);

/// Time after which a loudness that stays is published again: it expires after ten seconds.
const LOUDNESS_REFRESH: Span = Span::from_secs(5);

/// Home Assistant asks for a random pause of up to this time after its start, so that not all
/// devices answer at once; also the least time between two answers.
const MAX_REPUBLISH_PAUSE: Span = Span::from_secs(10);

/// The longest state in Home Assistant, in characters.
const MAX_STATE: usize = 255;

/// What Home Assistant takes as unknown. An empty payload would remove the message.
const UNKNOWN: &str = "None";

impl MqttBridge {
    /// A bridge with these topics for the server on this host; `seed` is for pauses.
    #[must_use]
    pub fn new(topics: MqttTopics, host: &str, seed: u64, now: Instant) -> Self {
        let mut outbox = MqttOutbox::default();
        outbox.set(&topics.availability(), "online".to_owned(), false, false);
        Self {
            topics,
            host: host.to_owned(),
            outbox,
            facts: ServerFacts::default(),
            stations: HashMap::new(),
            leftovers: Leftovers::default(),
            call: None,
            commands: TokenBucket::new(COMMANDS, COMMAND_INTERVAL, now),
            republish_at: None,
            republished_at: None,
            rng: Rng::new(seed),
            refused: 0,
        }
    }

    /// Handles an input; after a message [`poll_call`](Self::poll_call).
    pub fn handle_input(&mut self, now: Instant, input: MqttInput<'_>) {
        match input {
            MqttInput::Connected => self.outbox.open(),
            MqttInput::Disconnected => {
                self.outbox.close();
                self.leftovers = Leftovers::default();
                (self.call, self.republish_at) = (None, None);
            }
            MqttInput::Facts(facts) => self.handle_facts(now, facts),
            MqttInput::Message { topic, payload, is_retained } => {
                self.handle_message(now, topic, payload, is_retained);
            }
        }
    }

    /// Publishes everything again, when it is time.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.republish_at.take_if(|at| *at <= now).is_some() {
            self.republished_at = Some(now);
            self.outbox.publish_all();
        }
    }

    /// The call that the last message asks for.
    pub fn poll_call(&mut self) -> Option<MqttCall> {
        self.call.take()
    }

    /// The next message to publish; asked only when the connection has room for one, so that a slow
    /// broker gets the newest values.
    pub fn poll_output(&mut self) -> Option<MqttMessage> {
        self.outbox.next()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.republish_at
    }

    /// What was not done since the last time.
    pub const fn take_stats(&mut self) -> MqttStats {
        let refused = std::mem::replace(&mut self.refused, 0);
        let dropped_events = std::mem::replace(&mut self.outbox.dropped_events, 0);
        MqttStats { refused, dropped_events }
    }

    fn handle_message(&mut self, now: Instant, topic: &str, payload: &[u8], is_retained: bool) {
        if Some(topic) == self.topics.birth().as_deref() {
            if payload == b"online" && self.republish_at.is_none() {
                let pause = MAX_REPUBLISH_PAUSE.as_secs_f64() * self.rng.next_f64();
                let soonest = self.republished_at.map_or(now, |at| at + MAX_REPUBLISH_PAUSE);
                self.republish_at = Some((now + Span::from_secs_f64(pause)).max(soonest));
            }
            return;
        }
        if let Some((kind, id)) = self.topics.marker(topic) {
            if is_retained {
                self.leftovers.push(kind, id);
            }
            return;
        }
        // A command that the broker has kept would be carried out again after each connection.
        let call = std::str::from_utf8(payload).ok().filter(|_| !is_retained).and_then(|payload| {
            let command = self.topics.command(topic)?;
            let last = |station: &str| {
                self.stations.get(station).map(|one| one.last_sound.clone()).unwrap_or_default()
            };
            command::call(command, payload, &self.facts, last)
        });
        match call {
            Some(call) if self.commands.try_take(now) => self.call = Some(call),
            _ => self.refused += 1,
        }
    }

    fn handle_facts(&mut self, now: Instant, facts: &ServerFacts) {
        let before = std::mem::replace(&mut self.facts, facts.clone());
        self.remove_missing(&before);
        self.leftovers.remove(&self.facts, &self.topics, &mut self.outbox);
        self.publish_server(&before);
        for station in &facts.stations {
            let before = before.stations.iter().find(|one| one.shape.name == station.shape.name);
            self.publish_station(now, station, before);
        }
        let stations: Vec<String> = facts.station_names().cloned().collect();
        let had_same_stations = before.station_names().eq(&stations);
        for client in &facts.clients {
            let before = before.clients.iter().find(|one| one.id == client.id);
            let is_described =
                had_same_stations && before.is_some_and(|before| before.name == client.name);
            self.publish_client(client, (!is_described).then_some(&stations));
        }
    }

    /// Removes the devices of stations and clients that are gone.
    fn remove_missing(&mut self, before: &ServerFacts) {
        let facts = &self.facts;
        let has_station = |name: &str| facts.stations.iter().any(|one| one.shape.name == name);
        let names = before.stations.iter().map(|one| one.shape.name.as_str());
        let gone: Vec<&str> = names.filter(|name| !has_station(name)).collect();
        for name in &gone {
            self.stations.remove(*name);
        }
        let has_client = |id: &str| facts.clients.iter().any(|one| one.id == id);
        let ids = before.clients.iter().map(|one| one.id.as_str());
        let clients = ids.filter(|id| !has_client(id)).map(|id| ("client", id));
        for (kind, id) in gone.into_iter().map(|name| ("station", name)).chain(clients) {
            let id = escape(id);
            if let Some(topic) = self.topics.discovery(&self.topics.device(Some((kind, &id)))) {
                self.outbox.remove(&topic);
            }
            let entity = self.topics.entity(kind, &id, "");
            self.outbox.remove(entity.trim_end_matches('/'));
        }
    }

    fn publish_server(&mut self, before: &ServerFacts) {
        let facts = &self.facts;
        let is_described = before.presets == facts.presets && !before.is_empty();
        if !is_described {
            let document = discovery::server(&self.topics, &self.host, &facts.presets);
            self.outbox.describe(&self.topics, None, &document);
        }
        let hours = (facts.uptime_s / 360) as f64 / 10.0;
        let figures = json!({
            "clients": facts.connected_clients, "underruns": facts.underruns, "uptime_h": hours,
        });
        self.outbox.set(&self.topics.server(), figures.to_string(), false, false);
    }

    fn publish_station(
        &mut self,
        now: Instant,
        facts: &StationFacts,
        before: Option<&StationFacts>,
    ) {
        let Self { topics, outbox, stations, .. } = self;
        let shape = &facts.shape;
        let id = escape(&shape.name);
        let memory = stations.entry(shape.name.clone()).or_default();
        let had_equalizer = !memory.last_sound.equalizer.is_null();
        memory.remember_sound(facts);
        let has_equalizer = !memory.last_sound.equalizer.is_null();
        if before.is_none_or(|before| before.shape != *shape) || had_equalizer != has_equalizer {
            let document = discovery::station(topics, &id, shape, has_equalizer);
            outbox.describe(topics, Some(("station", &id)), &document);
        }
        if let Some(loudness) = memory.loudness(now, facts) {
            let topic = topics.entity("station", &id, "loudness");
            outbox.set(&topic, loudness.to_string(), false, true);
        }
        let unknown = |text: &str| if text.is_empty() { UNKNOWN.to_owned() } else { state(text) };
        let recorded = facts.recording.map_or_else(|| UNKNOWN.to_owned(), minutes);
        let mut set = |entity: &str, payload: String| {
            outbox.set(&topics.entity("station", &id, entity), payload, false, false);
        };
        set("source", unknown(facts.source.as_deref().unwrap_or_default()));
        set("title", unknown(&facts.title));
        set("silence", on_off(facts.is_silent));
        set("fallback", on_off(facts.is_on_fallback));
        set("programme", state(facts.selected.as_deref().unwrap_or(discovery::AUTO)));
        set("normalize", on_off(!facts.normalize.is_null()));
        if has_equalizer {
            set("equalizer", on_off(has_bands(&facts.equalizer)));
        }
        if shape.has_recorder {
            set("recording", on_off(facts.recording.is_some()));
            set("recorded", recorded);
        }
        for event in before.map(|before| events(before, facts)).unwrap_or_default() {
            outbox.push_event(topics.entity("station", &id, "event"), event.to_string());
        }
    }

    /// Publishes a client; described with the stations that it may play, if there are any.
    fn publish_client(&mut self, client: &ClientFacts, stations: Option<&Vec<String>>) {
        let Self { topics, outbox, .. } = self;
        let id = escape(&client.id);
        if let Some(stations) = stations {
            let document = discovery::client(topics, &id, client, stations);
            outbox.describe(topics, Some(("client", &id)), &document);
        }
        for (entity, payload) in [
            ("volume", client.volume.to_string()),
            ("mute", on_off(client.is_muted)),
            ("latency", client.latency_ms.to_string()),
            ("stream", state(&client.station)),
            ("connected", on_off(client.is_connected)),
        ] {
            outbox.set(&topics.entity("client", &id, entity), payload, false, false);
        }
    }
}

impl MqttOutbox {
    /// Sets the description of a device, if Home Assistant is told.
    fn describe(&mut self, topics: &MqttTopics, part: Option<(&str, &str)>, document: &Value) {
        if let Some(topic) = topics.discovery(&topics.device(part)) {
            self.set(&topic, document.to_string(), true, false);
        }
    }
}

impl ServerFacts {
    fn is_empty(&self) -> bool {
        self.stations.is_empty()
    }

    /// The stations that a client may play.
    fn station_names(&self) -> impl Iterator<Item = &String> {
        self.stations.iter().filter(|one| one.shape.has_clients).map(|one| &one.shape.name)
    }
}

impl StationMemory {
    fn remember_sound(&mut self, facts: &StationFacts) {
        if !facts.normalize.is_null() {
            self.last_sound.normalize = facts.normalize.clone();
        }
        if has_bands(&facts.equalizer) {
            self.last_sound.equalizer = facts.equalizer.clone();
        }
    }

    /// The loudness, if it is to be published: it has changed by more than its last digit, or was
    /// published long ago.
    fn loudness(&mut self, now: Instant, facts: &StationFacts) -> Option<Value> {
        let since = self.loudness_at.map(|at| now.since(at));
        if since.is_some_and(|since| since < LOUDNESS_INTERVAL) {
            return None;
        }
        let mut has_changed = since.is_none_or(|since| since >= LOUDNESS_REFRESH);
        for (shown, value) in self.loudness.iter_mut().zip(facts.loudness) {
            let stays = match (*shown, value) {
                (Some(shown), Some(value)) => (value - shown).abs() <= 0.1,
                (shown, value) => shown.is_none() && value.is_none(),
            };
            if !stays {
                // Avoids -0.0.
                *shown = value.map(|value| (value * 10.0).round() / 10.0 + 0.0);
                has_changed = true;
            }
        }
        if !has_changed {
            return None;
        }
        self.loudness_at = Some(now);
        let values = discovery::LOUDNESS.iter().zip(self.loudness);
        Some(values.map(|((key, ..), value)| ((*key).to_owned(), json!(value))).collect())
    }
}

/// What has happened between two moments.
fn events(before: &StationFacts, now: &StationFacts) -> Vec<Value> {
    let edge = |was: bool, is: bool, [began, ended]: [&str; 2]| {
        (was != is).then(|| json!({ "event_type": if is { began } else { ended } }))
    };
    let source = (before.source != now.source).then(
        || json!({ "event_type": "source_changed", "from": before.source, "to": now.source }),
    );
    let recording = (before.recording.is_some(), now.recording.is_some());
    [
        edge(before.is_silent, now.is_silent, ["silence_began", "silence_ended"]),
        source,
        edge(recording.0, recording.1, ["record_began", "record_ended"]),
        edge(before.is_announcing, now.is_announcing, ["announcement_began", "announcement_ended"]),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn has_bands(equalizer: &Value) -> bool {
    equalizer.as_array().is_some_and(|bands| !bands.is_empty())
}

fn on_off(is_on: bool) -> String {
    if is_on { "ON" } else { "OFF" }.to_owned()
}

/// A text as a state, which has a longest length.
fn state(text: &str) -> String {
    text.chars().take(MAX_STATE).collect()
}

fn minutes(seconds: f64) -> String {
    format!("{:.1}", (seconds / 6.0).floor() / 10.0)
}
