//! What a stream plays, and the ways to control it: everything that goes through a control script.

use aulos_config::SourceConfig;
use aulos_proto::snap::control::RpcError;
use aulos_proto::uri::encode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::plugin::{Handle, merge};
use super::streams::{Slot, no_control};
use super::{Control, Inner, art, titles};

impl Control {
    /// A control script is ready for calls.
    pub(super) fn plugin_ready(&self, stream: &str, handle: Handle) {
        if let Some(slot) = self.lock().slot_mut(stream) {
            slot.plugin = Some(handle);
        }
    }

    /// A control script has ended: nothing can be controlled until it is back.
    pub(crate) fn plugin_gone(&self, stream: &str) {
        let mut inner = self.lock();
        let Some(slot) = inner.slot_mut(stream) else { return };
        if slot.plugin.take().is_some() {
            slot.properties = no_control();
            self.tell_properties(&mut inner, stream);
        }
    }

    /// The station whose titles and controls are those of this one: where it plays another one, that.
    pub(super) fn voice<'a>(&self, inner: &'a Inner, number: usize) -> Option<&'a Slot> {
        let mut slot = inner.slots.get(number)?.as_ref()?;
        let mut number = number;
        // There are no rings; should there be one, it ends here.
        for _ in 0..MAX_VOICE {
            if slot.station.plugin.is_some() {
                break;
            }
            let active = self.house.status(number).active;
            let source = active.and_then(|active| slot.station.sources.get(active));
            let Some(SourceConfig::Station { name }) = source.map(|source| &source.config) else {
                break;
            };
            let Some(next) = inner.slot(name) else { break };
            (number, slot) = next;
        }
        Some(slot)
    }

    /// Tells the properties of a stream, for each stream that has them from it.
    pub(super) fn tell_properties(&self, inner: &mut Inner, stream: &str) {
        let numbers: Vec<usize> = inner.slots().map(|(number, _)| number).collect();
        for number in numbers {
            let voice = self.voice(inner, number);
            let Some(voice) = voice.filter(|voice| voice.station.name == stream) else { continue };
            let Some(slot) = inner.slots.get(number).and_then(Option::as_ref) else { continue };
            let told = json!({ "id": slot.station.name, "properties": voice.properties });
            self.house.show_title(number, &titles::line(&voice.properties));
            self.tell(inner, None, "Stream.OnProperties", &told);
        }
        self.changed();
    }

    /// A station has gone over from one source to another: it may have other titles now.
    pub(super) fn tell_new_voice(&self, inner: &mut Inner, number: usize) {
        let plays_others = inner.slots.get(number).and_then(Option::as_ref).is_some_and(|slot| {
            let mut sources = slot.station.sources.iter();
            sources.any(|source| matches!(source.config, SourceConfig::Station { .. }))
        });
        if plays_others && let Some(voice) = self.voice(inner, number) {
            let name = voice.station.name.clone();
            self.tell_properties(inner, &name);
        }
    }

    /// A control script has told what is played.
    pub(super) fn plugin_told(&self, stream: &str, told: Map<String, Value>) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let Some(slot) = inner.slots.iter_mut().flatten().find(|slot| slot.station.name == stream)
        else {
            return;
        };
        let pictures = &mut inner.art;
        let keep = |data: &str, extension: &str| {
            if data.len() > art::MAX_PICTURE * 2 {
                return None;
            }
            let name = pictures.keep(STANDARD.decode(data).ok()?, extension)?;
            Some(format!("{}/__image_cache?name={}", self.base_url, encode(&name)))
        };
        let played = status(&slot.properties) == Some("playing");
        if merge(&mut slot.properties, told, keep) {
            // A script that begins while its player is halted stops nothing: something else may be
            // heard there.
            let now = status(&slot.properties);
            let halted = played && matches!(now, Some("paused" | "stopped"));
            self.tell_properties(inner, stream);
            if halted {
                self.flush(inner, stream);
            }
        }
    }

    /// Who plays this stream hears at once that it is halted, and not when its buffer has passed.
    fn flush(&self, inner: &Inner, stream: &str) {
        for (number, _) in inner.slots() {
            let voice = self.voice(inner, number);
            if voice.is_some_and(|voice| voice.station.name == stream) {
                self.house.flush(number);
            }
        }
    }

    /// The description of an output of a station over RTP.
    pub fn description(&self, station: &str, output: usize) -> Option<String> {
        let inner = self.lock();
        let (number, _) = inner.slot(station)?;
        self.house.description(number, output)
    }

    /// A picture of what is played, and its media type.
    pub fn picture(&self, name: &str) -> Option<(&'static str, Bytes)> {
        self.lock().art.get(name)
    }
}

/// What a player has said that it does.
fn status(properties: &Map<String, Value>) -> Option<&str> {
    properties.get("playbackStatus").and_then(Value::as_str)
}

/// Stations that may play one another in a row until a title is looked for no further.
const MAX_VOICE: usize = 16;

/// `Stream.Control`.
pub(super) fn control(slot: &Slot, command: &str, params: &Value) -> Result<Value, RpcError> {
    let needs: &[(&str, i64)] = match command {
        "next" => &[("canGoNext", 2)],
        "previous" => &[("canGoPrevious", 3)],
        "play" => &[("canPlay", 4)],
        "pause" => &[("canPause", 5)],
        "playPause" if slot.properties.get("canPause") == Some(&json!(true)) => &[],
        "playPause" => &[("canPlay", 4)],
        "seek" | "setPosition" => &[("canSeek", 6)],
        "stop" => &[("canControl", 7)],
        other => {
            return Err(RpcError::invalid_params(&format!("Command '{other}' not supported")));
        }
    };
    for (capability, code) in needs.iter().copied() {
        if slot.properties.get(capability) != Some(&json!(true)) {
            return Err(RpcError::new(code, format!("Stream property {capability} is false")));
        }
    }
    // python-snapcast writes what a command needs beside it, and not below `params`.
    let mut arguments = params["params"].as_object().cloned().unwrap_or_default();
    let wanted = match command {
        "seek" => Some("offset"),
        "setPosition" => Some("position"),
        _ => None,
    };
    if let Some(key) = wanted {
        let number = arguments.get(key).unwrap_or_else(|| &params[key]).clone();
        if !number.is_number() {
            return Err(RpcError::invalid_params(&format!("{command} requires parameter '{key}'")));
        }
        arguments.insert(key.to_owned(), number);
    }
    let call = json!({ "command": command, "params": arguments });
    forward(slot, "Plugin.Stream.Player.Control", &call)
}

/// `Stream.SetProperty`.
pub(super) fn set_property(slot: &Slot, name: &str, value: &Value) -> Result<Value, RpcError> {
    let (good, kind) = match name {
        "loopStatus" => (
            ["none", "track", "playlist"].iter().any(|known| value == known),
            "none, track or playlist",
        ),
        "shuffle" | "mute" => (value.is_boolean(), "bool"),
        "volume" => (value.is_i64(), "int"),
        "rate" => (value.is_f64(), "float"),
        _ => {
            return Err(RpcError::invalid_params(&format!("Property '{name}' not supported")));
        }
    };
    if !good {
        return Err(RpcError::invalid_params(&format!("Value for {name} must be {kind}")));
    }
    if slot.properties.get("canControl") != Some(&json!(true)) {
        return Err(RpcError::new(7, "Stream property canControl is false"));
    }
    forward(slot, "Plugin.Stream.Player.SetProperty", &json!({ name: value }))
}

fn forward(slot: &Slot, method: &str, params: &Value) -> Result<Value, RpcError> {
    match &slot.plugin {
        Some(plugin) if plugin.call(method, params) => Ok(json!("ok")),
        Some(_) => Err(super::rpc::internal("the control script does not read its calls")),
        None => Err(RpcError::new(1, "Stream can not be controlled")),
    }
}
