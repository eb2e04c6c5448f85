//! Methods that Snapcast does not have: group volume, volume caps, presets, other servers.

use aulos_core::ChannelMap;
use serde::Serialize;
use serde_json::{Value, json};

use crate::clients::registry::{
    NotFound, Preset, PresetError, PresetGroups, VolumeChange, to_json_text,
};
use crate::control::context::CallContext;
use crate::methods::params::Params;
use crate::methods::rpc::{MethodResult, internal_error};

/// `Aulos.SetVolume`.
pub(crate) fn set_volume(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let change = match params.only_one(&["percent", "delta"])? {
        "percent" => VolumeChange::To(params.integer("percent")?),
        _ => VolumeChange::By(params.integer("delta")?),
    };
    let registry = &mut context.inner.registry;
    if let Some(id) = params.optional_text("group")? {
        let effects = registry.change_group_volume(id, change)?;
        let percent = registry.table.group_volume(id);
        context.push_effects(effects);
        return Ok(json!({ "percent": percent }));
    }
    let id = params.text("client")?;
    let effects = registry.change_volume(id, change)?;
    let percent = registry.table.client(id).map(|(_, client)| client.volume);
    context.push_effects(effects);
    Ok(json!({ "percent": percent }))
}

/// `Aulos.SetVolumeCap`.
pub(crate) fn set_cap(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let id = params.text("client")?;
    let effects = context.inner.registry.set_cap(id, params.integer("percent")?)?;
    let cap = context.inner.registry.table.client(id).map(|(_, client)| client.cap);
    context.push_effects(effects);
    Ok(json!({ "cap": cap }))
}

/// `Aulos.SetChannelMap`.
pub(crate) fn set_map(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let id = params.text("client")?;
    let map = params.text("map")?.parse::<ChannelMap>();
    let map = map.map_err(|_| params.invalid("map", &"stereo, left, right or mono"))?;
    let effects = context.inner.registry.set_map(id, map)?;
    context.push_effects(effects);
    Ok(json!({ "map": map.name() }))
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
    Ok(json!({ "servers": servers.collect::<Vec<_>>() }))
}

/// `Aulos.GetPresets`: without a name the contents are left out, because all presets together can
/// exceed the limit of an answer.
pub(crate) fn get_presets(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let Some(name) = params.optional_text("name")? else { return Ok(presets(context)) };
    let mut presets = context.inner.registry.presets.list.iter();
    let preset = presets.find(|preset| preset.name == name).ok_or(NotFound::Preset)?;
    let contents = PresetJson { groups: Some(preset.groups()), ..PresetJson::from(&**preset) };
    let text = format!("{{\"presets\":[{}]}}", to_json_text(&contents));
    Ok(context.answer_text(text))
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
    let presets = context.inner.registry.presets.list.iter();
    json!({ "presets": presets.map(|preset| PresetJson::from(&**preset)).collect::<Vec<_>>() })
}

/// `Aulos.SavePreset`.
pub(crate) fn save_preset(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    match context.inner.registry.save_preset(params.text("name")?) {
        Ok(()) => {}
        Err(PresetError::NoName) => {
            return Err(params.invalid("name", &"a text that is not empty"));
        }
        Err(error) => return Err(internal_error(error.to_string())),
    }
    context.request_save();
    Ok(presets(context))
}

/// `Aulos.ApplyPreset`.
pub(crate) fn apply_preset(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let volumes = params.bool("volumes")?;
    let effects = context.inner.registry.apply_preset(params.text("name")?, volumes)?;
    context.push_effects(effects);
    Ok(context.status())
}

/// `Aulos.DeletePreset`.
pub(crate) fn delete_preset(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    context.inner.registry.presets.delete(params.text("name")?)?;
    context.request_save();
    Ok(presets(context))
}
