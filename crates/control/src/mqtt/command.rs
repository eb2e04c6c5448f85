//! The control calls that messages ask for.

use serde_json::{Value, json};

use super::discovery::AUTO;
use super::facts::{ClientFacts, ServerFacts, StationFacts};
use super::topics::{CommandTopic, escape};

/// A call, to be made with the permissions of a controller with the role `control`.
#[derive(Clone, Debug, PartialEq)]
pub struct MqttCall {
    /// The method.
    pub method: &'static str,
    /// Its parameters.
    pub params: Value,
}

/// Sound settings of a station as they were when they were last in use.
#[derive(Clone, Debug, Default)]
pub(super) struct LastSound {
    /// What turns the normalization on; null for the default.
    pub(super) normalize: Value,
    /// Bands.
    pub(super) equalizer: Value,
}

/// The call for a message; `None` for one that means nothing.
pub(super) fn call(
    topic: CommandTopic<'_>,
    payload: &str,
    facts: &ServerFacts,
    last_sound: impl Fn(&str) -> LastSound,
) -> Option<MqttCall> {
    let CommandTopic { kind, id, entity } = topic;
    match kind {
        "station" => {
            let station = facts.stations.iter().find(|one| escape(&one.shape.name) == id)?;
            of_station(station, entity, payload, &last_sound(&station.shape.name))
        }
        "client" => {
            let client = facts.clients.iter().find(|one| escape(&one.id) == id)?;
            of_client(client, entity, payload, facts)
        }
        _ => {
            let preset = facts.presets.iter().find(|name| escape(name) == entity)?;
            is_press(payload)?;
            Some(MqttCall { method: "Aulos.ApplyPreset", params: json!({ "name": preset }) })
        }
    }
}

fn of_station(
    facts: &StationFacts,
    entity: &str,
    payload: &str,
    last_sound: &LastSound,
) -> Option<MqttCall> {
    let shape = &facts.shape;
    let station = &shape.name;
    let (method, params) = match entity {
        "programme" => {
            let is_known = payload == AUTO || shape.sources.iter().any(|name| name == payload);
            let source = is_known.then_some(payload)?;
            ("Aulos.SetSource", json!({ "station": station, "source": source }))
        }
        "normalize" => {
            let normalize = match (switch(payload)?, &last_sound.normalize) {
                (false, _) => json!(false),
                (true, Value::Null) => json!(true),
                (true, last) => last.clone(),
            };
            ("Aulos.SetNormalize", json!({ "station": station, "normalize": normalize }))
        }
        "equalizer" => {
            let bands = match (switch(payload)?, &last_sound.equalizer) {
                (false, _) => json!([]),
                (true, Value::Null) => return None,
                (true, last) => last.clone(),
            };
            ("Aulos.SetEqualizer", json!({ "station": station, "equalizer": bands }))
        }
        "recording" if shape.has_recorder => {
            let is_on = switch(payload)?;
            let method = if is_on { "Aulos.StartRecording" } else { "Aulos.StopRecording" };
            (method, json!({ "station": station }))
        }
        "cancel" if shape.has_clients => {
            is_press(payload)?;
            ("Aulos.CancelAnnouncement", json!({ "station": station }))
        }
        "next" if shape.has_playlist => {
            is_press(payload)?;
            ("Aulos.SkipTrack", json!({ "station": station }))
        }
        _ => return None,
    };
    Some(MqttCall { method, params })
}

fn of_client(
    client: &ClientFacts,
    entity: &str,
    payload: &str,
    facts: &ServerFacts,
) -> Option<MqttCall> {
    let id = &client.id;
    let (method, params) = match entity {
        "volume" => {
            let percent = number(payload, 0.0, 100.0)?;
            ("Client.SetVolume", json!({ "id": id, "volume": { "percent": percent } }))
        }
        "mute" => {
            let is_muted = switch(payload)?;
            ("Client.SetVolume", json!({ "id": id, "volume": { "muted": is_muted } }))
        }
        "latency" => {
            let latency = number(payload, -10_000.0, 10_000.0)?;
            ("Client.SetLatency", json!({ "id": id, "latency": latency }))
        }
        "stream" => {
            let is_known = facts.station_names().any(|name| name == payload);
            let station = is_known.then_some(payload)?;
            ("Group.SetStream", json!({ "id": client.group, "stream_id": station }))
        }
        _ => return None,
    };
    Some(MqttCall { method, params })
}

fn switch(payload: &str) -> Option<bool> {
    match payload {
        "ON" => Some(true),
        "OFF" => Some(false),
        _ => None,
    }
}

fn is_press(payload: &str) -> Option<()> {
    (payload == "PRESS").then_some(())
}

/// A number in a range, rounded; Home Assistant sends `40` or `40.0`.
fn number(payload: &str, min: f64, max: f64) -> Option<i64> {
    let number = payload.parse::<f64>().ok().filter(|number| (min..=max).contains(number))?;
    // The range is far smaller than that of the type.
    #[allow(clippy::cast_possible_truncation, reason = "see above")]
    let rounded = number.round() as i64;
    Some(rounded)
}
