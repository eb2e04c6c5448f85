//! Methods that Snapcast does not have: group volume, volume caps, presets, other servers.

use aulos_core::ChannelMap;
use aulos_io::mdns::DiscoveredServer;
use serde::Serialize;
use serde_json::{Value, json};

use super::CallContext;
use super::methods::{MethodResult, integer, invalid_param, text_param};
use super::rpc::internal_error;
use crate::registry::{NotFound, Preset, PresetError, PresetGroups, VolumeChange, to_json_text};

/// `Aulos.SetVolume {client | group, percent | delta}`.
pub(super) fn set_volume(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let change = match (&params["percent"], &params["delta"]) {
        (Value::Null, delta) => VolumeChange::By(integer(delta, "delta")?),
        (percent, Value::Null) => VolumeChange::To(integer(percent, "percent")?),
        _ => return Err(invalid_param("percent", "a number, or `delta` is one; not both")),
    };
    let registry = &mut state.inner.registry;
    if let Some(id) = params["group"].as_str() {
        let effects = registry.change_group_volume(id, change)?;
        let percent = registry.group_volume(id);
        state.push_effects(effects);
        return Ok(json!({ "percent": percent }));
    }
    let id = text_param(params, "client")?;
    let effects = registry.change_volume(id, change)?;
    let percent = registry.client(id).map(|(_, client)| client.volume);
    state.push_effects(effects);
    Ok(json!({ "percent": percent }))
}

/// `Aulos.SetVolumeCap {client, percent}`.
pub(super) fn set_cap(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let id = text_param(params, "client")?;
    let effects = state.inner.registry.set_cap(id, integer(&params["percent"], "percent")?)?;
    let cap = state.inner.registry.client(id).map(|(_, client)| client.cap);
    state.push_effects(effects);
    Ok(json!({ "cap": cap }))
}

/// `Aulos.SetChannelMap {client, map}`.
pub(super) fn set_map(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let id = text_param(params, "client")?;
    let map = text_param(params, "map")?.parse::<ChannelMap>();
    let map = map.map_err(|_| invalid_param("map", "stereo, left, right or mono"))?;
    let effects = state.inner.registry.set_map(id, map)?;
    state.push_effects(effects);
    Ok(json!({ "map": map.name() }))
}

/// `Aulos.GetServers`.
pub(super) fn servers(neighbours: &[DiscoveredServer]) -> Value {
    let servers = neighbours.iter().map(|one| {
        json!({
            "name": one.name,
            "host": one.host,
            "addresses": one.addresses,
            "port": one.port,
        })
    });
    json!({ "servers": servers.collect::<Vec<_>>() })
}

/// `Aulos.GetPresets {name?}`: without a name the contents are left out, because all presets
/// together can exceed the limit of an answer.
pub(super) fn get_presets(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    if params["name"].is_null() {
        return Ok(presets(state));
    }
    let name = text_param(params, "name")?;
    let mut presets = state.inner.registry.presets().iter();
    let preset = presets.find(|preset| preset.name == name).ok_or(NotFound::Preset)?;
    let shape = PresetJson { groups: Some(preset.groups()), ..PresetJson::from(&**preset) };
    *state.text_answer = Some(format!("{{\"presets\":[{}]}}", to_json_text(&shape)));
    Ok(Value::Null)
}

/// A preset in a list.
#[derive(Serialize)]
struct PresetJson<'a> {
    name: &'a str,
    group_count: usize,
    client_count: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<PresetGroups<'a>>,
}

impl<'a> From<&'a Preset> for PresetJson<'a> {
    fn from(preset: &'a Preset) -> Self {
        let (group_count, client_count) = (preset.group_count(), preset.client_count());
        Self { name: &preset.name, group_count, client_count, groups: None }
    }
}

fn presets(state: &CallContext<'_>) -> Value {
    let presets = state.inner.registry.presets().iter();
    json!({ "presets": presets.map(|preset| PresetJson::from(&**preset)).collect::<Vec<_>>() })
}

/// `Aulos.SavePreset {name}`.
pub(super) fn save_preset(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let name = text_param(params, "name")?;
    match state.inner.registry.save_preset(name) {
        Ok(()) => {}
        Err(PresetError::NoName) => return Err(invalid_param("name", "a text that is not empty")),
        Err(error) => return Err(internal_error(error.to_string())),
    }
    state.request_save();
    Ok(presets(state))
}

/// `Aulos.ApplyPreset {name, volumes?}`.
pub(super) fn apply_preset(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let volumes = match &params["volumes"] {
        Value::Null => false,
        given => given.as_bool().ok_or_else(|| invalid_param("volumes", "true or false"))?,
    };
    let effects = state.inner.registry.apply_preset(text_param(params, "name")?, volumes)?;
    state.push_effects(effects);
    Ok(state.status())
}

/// `Aulos.DeletePreset {name}`.
pub(super) fn delete_preset(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let deleted: Result<(), NotFound> =
        state.inner.registry.delete_preset(text_param(params, "name")?);
    deleted?;
    state.request_save();
    Ok(presets(state))
}
