//! Methods that Snapcast has not got: volumes of groups, caps, presets, other servers.

use aulos_core::ChannelMap;
use aulos_io::mdns::Neighbour;
use serde::Serialize;
use serde_json::{Value, json};

use super::State;
use super::methods::{Answer, text, wanted, whole};
use super::rpc::internal;
use crate::registry::{Change, NotFound, Preset, PresetError, PresetGroups, to_text};

/// `Aulos.SetVolume {client | group, percent | delta}`.
pub(super) fn set_volume(state: &mut State<'_>, params: &Value) -> Answer {
    let change = match (&params["percent"], &params["delta"]) {
        (Value::Null, delta) => Change::By(whole(delta, "delta")?),
        (percent, Value::Null) => Change::To(whole(percent, "percent")?),
        _ => return Err(wanted("percent", "a number, or `delta` is one; not both")),
    };
    let registry = &mut state.inner.registry;
    if let Some(id) = params["group"].as_str() {
        let effects = registry.change_group_volume(id, change)?;
        let percent = registry.group_volume(id);
        state.keep(effects);
        return Ok(json!({ "percent": percent }));
    }
    let id = text(params, "client")?;
    let effects = registry.change_volume(id, change)?;
    let percent = registry.client(id).map(|(_, client)| client.volume);
    state.keep(effects);
    Ok(json!({ "percent": percent }))
}

/// `Aulos.SetVolumeCap {client, percent}`.
pub(super) fn set_cap(state: &mut State<'_>, params: &Value) -> Answer {
    let id = text(params, "client")?;
    let effects = state.inner.registry.set_cap(id, whole(&params["percent"], "percent")?)?;
    let cap = state.inner.registry.client(id).map(|(_, client)| client.cap);
    state.keep(effects);
    Ok(json!({ "cap": cap }))
}

/// `Aulos.SetChannelMap {client, map}`.
pub(super) fn set_map(state: &mut State<'_>, params: &Value) -> Answer {
    let id = text(params, "client")?;
    let map = text(params, "map")?.parse::<ChannelMap>();
    let map = map.map_err(|_| wanted("map", "stereo, left, right or mono"))?;
    let effects = state.inner.registry.set_map(id, map)?;
    state.keep(effects);
    Ok(json!({ "map": map.name() }))
}

/// `Aulos.GetServers`.
pub(super) fn servers(neighbours: &[Neighbour]) -> Value {
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

/// `Aulos.GetPresets {name?}`: without a name no contents. All of them together are larger than an
/// answer may be.
pub(super) fn get_presets(state: &mut State<'_>, params: &Value) -> Answer {
    if params["name"].is_null() {
        return Ok(presets(state));
    }
    let name = text(params, "name")?;
    let mut presets = state.inner.registry.presets().iter();
    let preset = presets.find(|preset| preset.name == name).ok_or(NotFound::Preset)?;
    let shape = PresetShape { groups: Some(preset.groups()), ..PresetShape::from(&**preset) };
    *state.text = Some(format!("{{\"presets\":[{}]}}", to_text(&shape)));
    Ok(Value::Null)
}

/// A preset as it is listed.
#[derive(Serialize)]
struct PresetShape<'a> {
    name: &'a str,
    group_count: usize,
    client_count: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<PresetGroups<'a>>,
}

impl<'a> From<&'a Preset> for PresetShape<'a> {
    fn from(preset: &'a Preset) -> Self {
        let (group_count, client_count) = (preset.group_count(), preset.client_count());
        Self { name: &preset.name, group_count, client_count, groups: None }
    }
}

fn presets(state: &State<'_>) -> Value {
    let presets = state.inner.registry.presets().iter();
    json!({ "presets": presets.map(|preset| PresetShape::from(&**preset)).collect::<Vec<_>>() })
}

/// `Aulos.SavePreset {name}`.
pub(super) fn save_preset(state: &mut State<'_>, params: &Value) -> Answer {
    let name = text(params, "name")?;
    match state.inner.registry.save_preset(name) {
        Ok(()) => {}
        Err(PresetError::NoName) => return Err(wanted("name", "a text that is not empty")),
        Err(error) => return Err(internal(error.to_string())),
    }
    state.keep_saved();
    Ok(presets(state))
}

/// `Aulos.ApplyPreset {name, volumes?}`.
pub(super) fn apply_preset(state: &mut State<'_>, params: &Value) -> Answer {
    let volumes = match &params["volumes"] {
        Value::Null => false,
        given => given.as_bool().ok_or_else(|| wanted("volumes", "true or false"))?,
    };
    let effects = state.inner.registry.apply_preset(text(params, "name")?, volumes)?;
    state.keep(effects);
    Ok(state.status())
}

/// `Aulos.DeletePreset {name}`.
pub(super) fn delete_preset(state: &mut State<'_>, params: &Value) -> Answer {
    let deleted: Result<(), NotFound> = state.inner.registry.delete_preset(text(params, "name")?);
    deleted?;
    state.keep_saved();
    Ok(presets(state))
}
