//! Play, pause and skip: commands to the control script, the playlist or the server of a station.

use aulos_config::StationSource;
use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};

use crate::backend::{AudioBackend, StationReport};
use crate::clients::registry::NotFound;
use crate::methods::rpc::{MethodResult, internal_error};
use crate::stations::Stations;
use crate::stations::slot::StationSlot;
use crate::stations::sources::sendspin;

/// Gives a command to the control script or the playlist of a station; `params` has its arguments.
pub(crate) fn control_stream(
    backend: &dyn AudioBackend,
    stations: &Stations,
    number: usize,
    command: &str,
    params: &Value,
) -> MethodResult {
    let (number, slot) = stations.metadata_slot(number, backend).ok_or(NotFound::Station)?;
    let status = backend.status(number);
    let server = sendspin::source_of(&status).filter(|_| slot.plugin.is_none());
    if command == "next"
        && slot.plugin.is_none()
        && (server.is_none() || server != status.machine.active)
        && let Some(source) = playlist_of(&slot.station.sources, &status)
    {
        skip(backend, number, source)?;
        return Ok(json!("ok").into());
    }
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
    if let Some(source) = server {
        let is_playing = slot.properties.get("playbackStatus") == Some(&json!("playing"));
        let told = sendspin::command(command, &arguments, is_playing);
        return match told.is_some_and(|told| backend.control_source(number, source, told)) {
            true => Ok(json!("ok").into()),
            false => Err(internal_error("the server of the source does not take commands")),
        };
    }
    let call = json!({ "command": command, "params": arguments });
    forward(slot, "Plugin.Stream.Player.Control", &call)
}

/// The playlist on air, else the first one.
pub(crate) fn playlist_of(sources: &[StationSource], status: &StationReport) -> Option<usize> {
    let is_playlist = |index: &usize| sources.get(*index).is_some_and(|it| it.config.can_skip());
    let first = sources.iter().position(|source| source.config.can_skip());
    status.machine.active.filter(is_playlist).or(first)
}

/// Skips the file that a source of a station plays.
pub(crate) fn skip(
    backend: &dyn AudioBackend,
    number: usize,
    source: usize,
) -> Result<(), RpcError> {
    match backend.skip_track(number, source) {
        true => Ok(()),
        false => Err(internal_error("the station does not run")),
    }
}

/// Sends a call to the control script of a station.
pub(crate) fn forward(slot: &StationSlot, method: &str, params: &Value) -> MethodResult {
    match &slot.plugin {
        Some(plugin) if plugin.call(method, params) => Ok(json!("ok").into()),
        Some(_) => Err(internal_error("the control script does not read its calls")),
        None => Err(RpcError::new(1, "Stream can not be controlled")),
    }
}
