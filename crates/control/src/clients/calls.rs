//! Calls about clients, groups and presets, and about other servers.

use std::sync::Arc;

use aulos_core::ChannelMap;
use serde::Serialize;
use serde_json::{Value, json};

use crate::clients::registry::{
    NotFound, Preset, PresetError, PresetGroups, VolumeChange, to_json_text, volume_json,
};
use crate::control::context::CallContext;
use crate::methods::params::Params;
use crate::methods::rpc::{CallOutput, MethodResult, internal_error};

/// `Aulos.SetVolume`.
pub(crate) fn set_volume(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let change = match params.only_one(&["percent", "delta"])? {
        "percent" => VolumeChange::To(params.integer("percent")?),
        _ => VolumeChange::By(params.integer("delta")?),
    };
    let registry = &mut context.subjects.clients.registry;
    if let Some(id) = params.optional_text("group")? {
        let effects = registry.change_group_volume(id, change)?;
        let percent = registry.table.group_volume(id);
        context.push_effects(effects);
        return Ok(json!({ "percent": percent }).into());
    }
    let id = params.text("client")?;
    let effects = registry.change_volume(id, change)?;
    let percent = registry.table.client(id).map(|(_, client)| client.volume);
    context.push_effects(effects);
    Ok(json!({ "percent": percent }).into())
}

/// `Aulos.SetVolumeCap`.
pub(crate) fn set_cap(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let id = params.text("client")?;
    let effects = context.subjects.clients.registry.set_cap(id, params.integer("percent")?)?;
    let cap = context.subjects.clients.registry.table.client(id).map(|(_, client)| client.cap);
    context.push_effects(effects);
    Ok(json!({ "cap": cap }).into())
}

/// `Aulos.SetChannelMap`.
pub(crate) fn set_map(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let id = params.text("client")?;
    let map = params.text("map")?.parse::<ChannelMap>();
    let map = map.map_err(|_| {
        params.invalid("map", &"swap, a channel's number, stereo, left, right or mono")
    })?;
    let effects = context.subjects.clients.registry.set_map(id, map)?;
    context.push_effects(effects);
    Ok(json!({ "map": map.name() }).into())
}

/// `Aulos.GetServers`.
pub(crate) fn get_servers(context: &mut CallContext<'_>, _: &Params<'_>) -> MethodResult {
    let discovered_servers = context.control.discovered_servers.borrow();
    let servers = discovered_servers.iter().map(|one| {
        json!({
            "name": one.name,
            "host": one.host,
            "addresses": one.addresses,
            "port": one.port,
        })
    });
    Ok(json!({ "servers": servers.collect::<Vec<_>>() }).into())
}

/// `Aulos.GetPresets`: without a name the contents are left out, because all presets together can
/// exceed the limit of an answer.
pub(crate) fn get_presets(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let Some(name) = params.optional_text("name")? else { return Ok(presets(context).into()) };
    let mut presets = context.subjects.clients.registry.presets.list.iter();
    let preset = presets.find(|preset| preset.name == name).ok_or(NotFound::Preset)?;
    let preset = Arc::clone(preset);
    Ok(CallOutput::view(move || {
        let contents = PresetJson { groups: Some(preset.groups()), ..PresetJson::from(&*preset) };
        format!("{{\"presets\":[{}]}}", to_json_text(&contents))
    }))
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

fn presets(context: &CallContext<'_>) -> Value {
    let presets = context.subjects.clients.registry.presets.list.iter();
    json!({ "presets": presets.map(|preset| PresetJson::from(&**preset)).collect::<Vec<_>>() })
}

/// `Aulos.SavePreset`.
pub(crate) fn save_preset(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    match context.subjects.clients.registry.save_preset(params.text("name")?) {
        Ok(()) => {}
        Err(PresetError::NoName) => {
            return Err(params.invalid("name", &"a text that is not empty"));
        }
        Err(error) => return Err(internal_error(error.to_string())),
    }
    context.request_save();
    Ok(presets(context).into())
}

/// `Aulos.ApplyPreset`.
pub(crate) fn apply_preset(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let volumes = params.bool("volumes")?;
    let effects = context.subjects.clients.registry.apply_preset(params.text("name")?, volumes)?;
    context.push_effects(effects);
    Ok(context.server_status())
}

/// `Aulos.DeletePreset`.
pub(crate) fn delete_preset(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    context.subjects.clients.registry.presets.delete(params.text("name")?)?;
    context.request_save();
    Ok(presets(context).into())
}

/// `Server.DeleteClient`.
pub(crate) fn delete_client(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let effects = context.subjects.clients.registry.delete_client(params.text("id")?)?;
    context.push_effects(effects);
    Ok(context.server_status())
}

/// `Client.SetVolume`.
pub(crate) fn set_client_volume(
    context: &mut CallContext<'_>,
    params: &Params<'_>,
) -> MethodResult {
    let id = params.text("id")?;
    let registry = &mut context.subjects.clients.registry;
    registry.table.client(id).ok_or(NotFound::Client)?;
    let volume = params.object("volume", "volume.")?;
    let percent = volume.optional_integer("percent")?;
    let effects = registry.set_volume(id, percent, volume.optional_bool("muted")?)?;
    let (_, client) = registry.table.client(id).ok_or(NotFound::Client)?;
    let answer = json!({ "volume": volume_json(client) });
    context.push_effects(effects);
    Ok(answer.into())
}

/// `Client.SetLatency`.
pub(crate) fn set_latency(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let id = params.text("id")?;
    let registry = &mut context.subjects.clients.registry;
    let effects = registry.set_latency(id, params.integer("latency")?)?;
    let answer =
        json!({ "latency": registry.table.client(id).map(|(_, client)| client.latency_ms) });
    context.push_effects(effects);
    Ok(answer.into())
}

/// `Client.SetName`.
pub(crate) fn set_client_name(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let id = params.text("id")?;
    let registry = &mut context.subjects.clients.registry;
    let effects = registry.set_client_name(id, params.text("name")?)?;
    let answer = json!({ "name": registry.table.client(id).map(|(_, client)| &client.name) });
    context.push_effects(effects);
    Ok(answer.into())
}

/// `Group.SetMute`.
pub(crate) fn set_mute(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let mute = params.bool("mute")?;
    let effects = context.subjects.clients.registry.set_mute(params.text("id")?, mute)?;
    context.push_effects(effects);
    Ok(json!({ "mute": mute }).into())
}

/// `Group.SetStream`.
pub(crate) fn set_stream(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let stream = params.text("stream_id")?;
    let id = params.text("id")?;
    let effects = context.subjects.clients.registry.set_stream(id, stream)?;
    context.push_effects(effects);
    let group = context.subjects.clients.registry.table.group(id).ok_or(NotFound::Group)?;
    Ok(json!({ "stream_id": group.station }).into())
}

/// `Group.SetClients`.
pub(crate) fn set_clients(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let id = params.text("id")?;
    let clients: Vec<String> = params.texts("clients")?.into_iter().map(str::to_owned).collect();
    let effects = context.subjects.clients.registry.set_clients(id, &clients)?;
    context.push_effects(effects);
    Ok(context.server_status())
}

/// `Group.SetName`.
pub(crate) fn set_group_name(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let id = params.text("id")?;
    let registry = &mut context.subjects.clients.registry;
    let effects = registry.set_group_name(id, params.text("name")?)?;
    let answer = json!({ "name": registry.table.group(id).map(|group| &group.name) });
    context.push_effects(effects);
    Ok(answer.into())
}
