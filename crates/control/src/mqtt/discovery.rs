//! The descriptions by which Home Assistant makes devices and entities: discovery of MQTT in the
//! form for devices, with its short names of keys.
//!
//! Home Assistant makes no media player from MQTT. What it makes are the figures, alarms, switches
//! and numbers of [`StationShape`], [`ClientFacts`] and the server.

use serde_json::{Map, Value, json};

use super::facts::{ClientFacts, StationShape};
use super::topics::MqttTopics;

/// The name of automatic selection among the options of `programme`, and of `Aulos.SetSource`.
pub(super) const AUTO: &str = "auto";

/// The events of a station.
pub(super) const EVENTS: [&str; 7] = [
    "silence_began",
    "silence_ended",
    "source_changed",
    "record_began",
    "record_ended",
    "announcement_began",
    "announcement_ended",
];

/// The keys, names and units of a station's loudness, in the order of
/// [`super::facts::StationFacts::loudness`].
pub(super) const LOUDNESS: [(&str, &str, &str); 6] = [
    ("momentary", "Momentary loudness", "LUFS"),
    ("short_term", "Short-term loudness", "LUFS"),
    ("integrated", "Integrated loudness", "LUFS"),
    ("range", "Loudness range", "LU"),
    ("true_peak", "True peak", "dBTP"),
    ("gain", "Normalizer gain", "dB"),
];

/// Seconds without a message after which a loudness is unknown.
const LOUDNESS_EXPIRES: u32 = 10;

/// A device whose entities are being listed.
struct Device<'a> {
    topics: &'a MqttTopics,
    /// `station` or `client` and the escaped id; `None` for the server.
    part: Option<(&'static str, &'a str)>,
    components: Map<String, Value>,
}

impl<'a> Device<'a> {
    fn new(topics: &'a MqttTopics, part: Option<(&'static str, &'a str)>) -> Self {
        Self { topics, part, components: Map::new() }
    }

    fn topic(&self, entity: &str) -> String {
        match self.part {
            Some((kind, id)) => self.topics.entity(kind, id, entity),
            None => self.topics.server(),
        }
    }

    /// Adds an entity, of which `more` are the keys of its platform.
    fn add(&mut self, key: &str, platform: &str, name: &str, more: Value) {
        let unique = format!("{}_{key}", self.topics.device(self.part));
        let mut component = json!({ "p": platform, "uniq_id": unique, "name": name });
        if let (Some(component), Value::Object(more)) = (component.as_object_mut(), more) {
            component.extend(more);
        }
        self.components.insert(key.to_owned(), component);
    }

    /// Adds an entity with a topic for its state and one for commands.
    fn add_control(&mut self, key: &str, platform: &str, name: &str, mut more: Value) {
        let topic = self.topic(key);
        more["cmd_t"] = json!(format!("{topic}/set"));
        more["stat_t"] = json!(topic);
        self.add(key, platform, name, more);
    }

    fn document(self, name: &str, more: Value) -> Value {
        let version = env!("CARGO_PKG_VERSION");
        let device = self.topics.device(self.part);
        let mut document = json!({
            "dev": { "ids": [device], "name": name, "mf": "aulos", "sw": version },
            "o": { "name": "aulos", "sw": version },
            "avty_t": self.topics.availability(),
            "cmps": self.components,
        });
        if let (Some(device), Value::Object(more)) = (document["dev"].as_object_mut(), more) {
            device.extend(more);
        }
        document
    }
}

/// The server, with the names of its presets.
pub(super) fn server(topics: &MqttTopics, host: &str, presets: &[String]) -> Value {
    let mut device = Device::new(topics, None);
    let topic = topics.server();
    let figure = |key: &str, mut more: Value| {
        more["stat_t"] = json!(topic);
        more["val_tpl"] = json!(format!("{{{{ value_json.{key} }}}}"));
        more["ent_cat"] = json!("diagnostic");
        more
    };
    let now = json!({ "stat_cla": "measurement" });
    device.add("clients", "sensor", "Clients connected", figure("clients", now));
    let total = json!({ "stat_cla": "total_increasing" });
    device.add("underruns", "sensor", "Underruns", figure("underruns", total));
    let hours = json!({ "unit_of_meas": "h", "dev_cla": "duration", "sug_dsp_prc": 1 });
    device.add("uptime", "sensor", "Uptime", figure("uptime_h", hours));
    for preset in presets {
        let key = format!("preset_{}", super::topics::escape(preset));
        let press = json!({ "cmd_t": topics.preset(preset) });
        device.add(&key, "button", &format!("Preset {preset}"), press);
    }
    device.document(&format!("aulos {host}"), json!({}))
}

/// A station; `id` is its escaped name.
pub(super) fn station(
    topics: &MqttTopics,
    id: &str,
    shape: &StationShape,
    has_equalizer: bool,
) -> Value {
    let mut device = Device::new(topics, Some(("station", id)));
    for (key, name, unit) in LOUDNESS {
        let sensor = json!({
            "stat_t": device.topic("loudness"),
            "val_tpl": format!("{{{{ value_json.{key} }}}}"),
            "unit_of_meas": unit,
            "stat_cla": "measurement",
            "sug_dsp_prc": 1,
            "exp_aft": LOUDNESS_EXPIRES,
        });
        device.add(key, "sensor", name, sensor);
    }
    let state = |device: &Device<'_>, key: &str| json!({ "stat_t": device.topic(key) });
    let mut source = state(&device, "source");
    (source["dev_cla"], source["ops"]) = (json!("enum"), json!(without_repeats(&shape.sources)));
    device.add("source", "sensor", "Source on air", source);
    device.add("title", "sensor", "Title", state(&device, "title"));
    for (key, name) in [("silence", "Silence"), ("fallback", "On fallback")] {
        let mut alarm = state(&device, key);
        alarm["dev_cla"] = json!("problem");
        device.add(key, "binary_sensor", name, alarm);
    }
    let mut options = vec![AUTO.to_owned()];
    options.extend(shape.sources.iter().cloned());
    let options = json!({ "ops": without_repeats(&options) });
    device.add_control("programme", "select", "Programme", options);
    device.add_control("normalize", "switch", "Normalize", json!({}));
    if has_equalizer {
        device.add_control("equalizer", "switch", "Equalizer", json!({}));
    }
    if shape.has_recorder {
        device.add_control("recording", "switch", "Recording", json!({}));
        let mut length = state(&device, "recorded");
        (length["unit_of_meas"], length["dev_cla"]) = (json!("min"), json!("duration"));
        length["sug_dsp_prc"] = json!(1);
        device.add("recorded", "sensor", "Length of the recording", length);
    }
    let press =
        |device: &Device<'_>, key| json!({ "cmd_t": format!("{}/press", device.topic(key)) });
    if shape.has_clients {
        let cancel = press(&device, "cancel");
        device.add("cancel", "button", "Cancel announcements", cancel);
    }
    if shape.has_playlist {
        let next = press(&device, "next");
        device.add("next", "button", "Next file", next);
    }
    let mut event = state(&device, "event");
    event["evt_typ"] = json!(EVENTS);
    device.add("event", "event", "Event", event);
    device.document(&shape.name, json!({ "via_device": topics.device(None) }))
}

/// A client, which may play these stations; `id` is its escaped id.
pub(super) fn client(
    topics: &MqttTopics,
    id: &str,
    client: &ClientFacts,
    stations: &[String],
) -> Value {
    let mut device = Device::new(topics, Some(("client", id)));
    let volume = json!({ "min": 0, "max": 100, "step": 1, "mode": "slider", "unit_of_meas": "%" });
    device.add_control("volume", "number", "Volume", volume);
    device.add_control("mute", "switch", "Mute", json!({}));
    let latency =
        json!({ "min": -10_000, "max": 10_000, "step": 1, "mode": "box", "unit_of_meas": "ms" });
    device.add_control("latency", "number", "Latency", latency);
    device.add_control("stream", "select", "Station of the group", json!({ "ops": stations }));
    let connected = json!({ "stat_t": device.topic("connected"), "dev_cla": "connectivity",
        "ent_cat": "diagnostic" });
    device.add("connected", "binary_sensor", "Connected", connected);
    let name = if client.name.is_empty() { &client.id } else { &client.name };
    device.document(name, json!({ "via_device": topics.device(None) }))
}

/// Options differ in Home Assistant; sources may have one name.
fn without_repeats(names: &[String]) -> Vec<&String> {
    let mut once: Vec<&String> = Vec::new();
    for name in names {
        if !once.contains(&name) {
            once.push(name);
        }
    }
    once
}
