//! What a stream plays and how it is controlled: everything that involves a control script.

use aulos_config::SourceConfig;
use aulos_proto::snap::control::RpcError;
use aulos_proto::uri::percent_encode_url;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::clients::registry::NotFound;
use crate::control::context::CallContext;
use crate::control::state::{Control, ControlState};
use crate::methods::params::Params;
use crate::methods::rpc::MethodResult;
use crate::stations::plugin::merge;
use crate::stations::slot::{PluginHandle, StationSlot, uncontrollable_properties};
use crate::stations::{art, titles};

impl Control {
    /// A control script is ready for calls.
    pub(crate) fn plugin_ready(&self, stream: &str, handle: PluginHandle) {
        if let Some(slot) = self.lock().slot_mut(stream) {
            slot.plugin = Some(handle);
        }
    }

    /// A control script has ended; the stream cannot be controlled until it runs again.
    pub fn plugin_ended(&self, stream: &str) {
        let mut inner = self.lock();
        let Some(slot) = inner.slot_mut(stream) else { return };
        if slot.plugin.take().is_some() {
            slot.properties = uncontrollable_properties();
            self.notify_properties(&mut inner, stream);
        }
    }

    /// The slot that provides a station's metadata and controls: that of the active station where
    /// it plays another one.
    pub(crate) fn metadata_slot<'a>(
        &self,
        inner: &'a ControlState,
        number: usize,
    ) -> Option<&'a StationSlot> {
        let mut slot = inner.slots.get(number)?.as_ref()?;
        let mut number = number;
        // The configuration has no loops; the bound is a safeguard.
        for _ in 0..MAX_META_DEPTH {
            if slot.station.plugin.is_some() {
                break;
            }
            let active = self.backend.status(number).active;
            let source = active.and_then(|active| slot.station.sources.get(active));
            let Some(SourceConfig::Station { name }) = source.map(|source| &source.config) else {
                break;
            };
            let Some(next) = inner.slot(name) else { break };
            (number, slot) = next;
        }
        Some(slot)
    }

    /// Notifies controllers of a stream's properties, for every stream that shows them.
    pub(crate) fn notify_properties(&self, inner: &mut ControlState, stream: &str) {
        let numbers: Vec<usize> = inner.slots().map(|(number, _)| number).collect();
        for number in numbers {
            let metadata_slot = self.metadata_slot(inner, number);
            let Some(metadata_slot) = metadata_slot.filter(|other| other.station.name == stream)
            else {
                continue;
            };
            let Some(slot) = inner.slots.get(number).and_then(Option::as_ref) else { continue };
            let params = json!({ "id": slot.station.name, "properties": metadata_slot.properties });
            self.backend.set_title(number, &titles::title_line(&metadata_slot.properties));
            self.notify(inner, None, "Stream.OnProperties", &params);
        }
        self.bump_revision();
    }

    /// Notifies controllers after a switch between sources that may have other metadata.
    pub(crate) fn notify_new_metadata(&self, inner: &mut ControlState, number: usize) {
        let plays_others = inner.slots.get(number).and_then(Option::as_ref).is_some_and(|slot| {
            let mut sources = slot.station.sources.iter();
            sources.any(|source| matches!(source.config, SourceConfig::Station { .. }))
        });
        if plays_others && let Some(metadata_slot) = self.metadata_slot(inner, number) {
            let name = metadata_slot.station.name.clone();
            self.notify_properties(inner, &name);
        }
    }

    /// Takes over the properties that a control script has reported.
    pub(crate) fn update_properties(&self, stream: &str, update: Map<String, Value>) {
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
            let name = pictures.insert(STANDARD.decode(data).ok()?, extension)?;
            Some(format!("{}/__image_cache?name={}", self.base_url, percent_encode_url(&name)))
        };
        let played = playback_status(&slot.properties) == Some("playing");
        if merge(&mut slot.properties, update, keep) {
            // A script that starts while its player is stopped must not flush: another source may
            // be on air.
            let now = playback_status(&slot.properties);
            let halted = played && matches!(now, Some("paused" | "stopped"));
            self.notify_properties(inner, stream);
            if halted {
                self.flush_listeners(inner, stream);
            }
        }
    }

    /// Makes clients of this stream stop at once instead of after their buffer.
    fn flush_listeners(&self, inner: &ControlState, stream: &str) {
        for (number, _) in inner.slots() {
            let metadata_slot = self.metadata_slot(inner, number);
            if metadata_slot.is_some_and(|other| other.station.name == stream) {
                self.backend.flush(number);
            }
        }
    }

    /// The description (SDP) of a station's RTP output.
    pub fn description(&self, station: &str, output: usize) -> Option<String> {
        let inner = self.lock();
        let (number, _) = inner.slot(station)?;
        self.backend.sdp(number, output)
    }

    /// A picture and its media type.
    pub fn picture(&self, name: &str) -> Option<(&'static str, Bytes)> {
        self.lock().art.get(name)
    }
}

/// A player's reported playback status.
fn playback_status(properties: &Map<String, Value>) -> Option<&str> {
    properties.get("playbackStatus").and_then(Value::as_str)
}

/// Longest chain of stations that play one another in which metadata is looked up.
const MAX_META_DEPTH: usize = 16;

/// `Stream.Control`.
pub(crate) fn control(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let slot = metadata_slot(context, params)?;
    let command = params.text("command")?;
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
    let params = params.values();
    // python-snapcast sends the arguments next to `params` instead of in it.
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
pub(crate) fn set_property(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let slot = metadata_slot(context, params)?;
    let name = params.text("property")?;
    let value = &params.values()["value"];
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

/// The slot whose control script controls the stream of a call.
fn metadata_slot<'a>(
    context: &'a CallContext<'_>,
    params: &Params<'_>,
) -> Result<&'a StationSlot, RpcError> {
    let (number, _) = context.stream_param(params)?;
    Ok(context.control.metadata_slot(context.inner, number).ok_or(NotFound::Station)?)
}

fn forward(slot: &StationSlot, method: &str, params: &Value) -> MethodResult {
    match &slot.plugin {
        Some(plugin) if plugin.call(method, params) => Ok(json!("ok")),
        Some(_) => {
            Err(crate::methods::rpc::internal_error("the control script does not read its calls"))
        }
        None => Err(RpcError::new(1, "Stream can not be controlled")),
    }
}
