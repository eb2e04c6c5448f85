//! Methods that Snapcast has not got: volumes of groups, caps, presets, other servers.

use aulos_core::ChannelMap;
use aulos_io::mdns::Neighbour;
use serde_json::{Value, json};

use super::State;
use super::methods::{Answer, text, wanted, whole};
use super::rpc::internal;
use crate::registry::{Change, MAX_PRESETS, NotFound, preset_json};

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

/// `Aulos.GetPresets`.
pub(super) fn presets(state: &State<'_>) -> Value {
    json!({ "presets": state.inner.registry.presets().iter().map(preset_json).collect::<Vec<_>>() })
}

/// `Aulos.SavePreset {name}`.
pub(super) fn save_preset(state: &mut State<'_>, params: &Value) -> Answer {
    let name = text(params, "name")?;
    if name.is_empty() {
        return Err(wanted("name", "a text that is not empty"));
    }
    if !state.inner.registry.save_preset(name) {
        return Err(internal(format!("there are {MAX_PRESETS} presets, and no more")));
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
