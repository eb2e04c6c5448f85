//! Calls about what stations play and how: control scripts, sources, sound.
//!
//! A preferred source is not kept across a restart: it was chosen for a moment, and a server that
//! restarts unattended has to find the best source by itself.

use aulos_config::{ProcessingSettings, StationSource};
use aulos_core::Span;
use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};

use crate::clients::registry::{Effects, NotFound, Notice};
use crate::control::context::CallContext;
use crate::methods::params::Params;
use crate::methods::rpc::{MethodResult, internal_error};
use crate::stations::added::StreamOrigin;
use crate::stations::level_json::{loudness, normalizer_json};
use crate::stations::slot::StationSlot;
use crate::stations::sound::sound_json;
use crate::stations::transport::{control_stream, forward, playlist_of, skip};

/// `Aulos.SetSource`.
pub(crate) fn set_source(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let (number, slot) = context.station_param(params)?;
    let sources = &slot.station.sources;
    let source = parse_source(sources, params)?;
    let span = params.optional_number("for_s")?.map(Span::from_secs_f64);
    let answer = json!({
        "station": slot.station.name,
        "source": source.and_then(|index| sources.get(index)).map(|source| &source.name),
        "for_s": source.and(span).map(Span::as_secs_f64),
    });
    context.control.backend.set_preferred_source(number, source.map(|index| (index, span)));
    Ok(answer.into())
}

/// The index of the selected source; `None` for automatic selection.
pub(crate) fn parse_source(
    sources: &[StationSource],
    params: &Params<'_>,
) -> Result<Option<usize>, RpcError> {
    let found = match params.value("source")? {
        Value::Null => return Ok(None),
        Value::String(name) => match sources.iter().position(|source| source.name == *name) {
            None if name == "auto" => return Ok(None),
            found => found,
        },
        other => {
            let index = other.as_u64().and_then(|index| usize::try_from(index).ok());
            index.filter(|index| *index < sources.len())
        }
    };
    found.map(Some).ok_or_else(|| {
        let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
        let expected = format!("one of {}, its number from 0, or auto", names.join(", "));
        params.invalid("source", &expected)
    })
}

/// Range of `for_s`: at least a few quanta; a day or longer needs no limit.
pub(crate) const MIN_DURATION_S: f64 = 0.1;
pub(crate) const MAX_DURATION_S: f64 = 86_400.0;

/// `Aulos.GetLoudness`.
pub(crate) fn get_loudness(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let (number, slot) = context.station_param(params)?;
    let status = context.control.backend.status(number);
    let sources = slot.station.sources.iter().zip(status.inputs());
    let sources = sources.map(
        |(source, input)| json!({ "name": source.name, "loudness": loudness(&input.loudness) }),
    );
    Ok(json!({
        "station": slot.station.name,
        "loudness": loudness(&status.machine.loudness),
        "sources": sources.collect::<Vec<_>>(),
    })
    .into())
}

/// `Aulos.ResetLoudness`.
pub(crate) fn reset_loudness(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let (number, slot) = context.station_param(params)?;
    context.control.backend.reset_loudness(number);
    Ok(json!({ "station": slot.station.name }).into())
}

/// `Aulos.GetNormalize`.
pub(crate) fn get_normalize(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let (number, slot) = context.station_param(params)?;
    let status = context.control.backend.status(number).machine.normalizer;
    Ok(json!({
        "station": slot.station.name,
        "normalize": slot.station.sound.normalize_json(),
        "status": normalizer_json(status.as_ref(), slot.station.spec.rate),
    })
    .into())
}

/// `Aulos.SetNormalize`.
pub(crate) fn set_normalize(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let value = params.value("normalize")?;
    change_sound(context, params, |sound, slot| sound.set_normalize(value, slot.station.spec))?;
    let (_, slot) = context.station_param(params)?;
    Ok(json!({ "station": slot.station.name, "normalize": slot.station.sound.normalize_json() })
        .into())
}

/// `Aulos.GetEqualizer`.
pub(crate) fn get_equalizer(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let (_, slot) = context.station_param(params)?;
    Ok(json!({ "station": slot.station.name, "equalizer": slot.station.sound.equalizer_json() })
        .into())
}

/// `Aulos.SetEqualizer`.
pub(crate) fn set_equalizer(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let value = params.value("equalizer")?;
    change_sound(context, params, |sound, slot| sound.set_equalizer(value, slot.station.spec))?;
    get_equalizer(context, params)
}

/// `Aulos.SetCompare`.
pub(crate) fn set_compare(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let on = params.bool("compare")?;
    let (number, slot) = context.station_param(params)?;
    if slot.station.sound.normalize.is_none() {
        return Err(internal_error("the station is not normalized: there is nothing to compare"));
    }
    let answer = json!({ "station": slot.station.name, "compare": on });
    context.control.backend.set_bypass(number, on);
    context.push_effects(Effects::message("Aulos.OnCompareChanged", answer.clone()));
    Ok(answer.into())
}

/// Applies a change, saves it and notifies other controllers.
fn change_sound(
    context: &mut CallContext<'_>,
    params: &Params<'_>,
    edit: impl FnOnce(&mut ProcessingSettings, &StationSlot) -> Result<(), String>,
) -> Result<(), RpcError> {
    let (number, slot) = context.station_param(params)?;
    let mut sound = slot.station.sound.clone();
    edit(&mut sound, slot).map_err(|why| RpcError::invalid_params(&why))?;
    if sound == slot.station.sound {
        return Ok(());
    }
    context.control.backend.set_sound(number, &sound).map_err(internal_error)?;
    if let Some(slot) = context.subjects.stations.get_mut(number) {
        slot.set_sound(sound);
        let notice = Notice::Message("Aulos.OnSoundChanged", sound_json(slot));
        context.push_effects(Effects { notices: vec![notice], ..Effects::default() });
    }
    context.request_save();
    Ok(())
}

/// `Aulos.SkipTrack`.
pub(crate) fn skip_track(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let (number, slot) = context.station_param(params)?;
    let sources = &slot.station.sources;
    let chosen = match params.optional_text("source")? {
        Some(name) => sources.iter().position(|source| source.name == name),
        None => playlist_of(sources, &context.control.backend.status(number)),
    };
    let Some(index) = chosen.filter(|index| sources[*index].config.can_skip()) else {
        return Err(params.invalid("source", &"a playlist of the station"));
    };
    skip(&*context.control.backend, number, index)?;
    let answer = json!({ "station": slot.station.name, "source": sources[index].name });
    Ok(answer.into())
}

/// `Stream.Control`: to the control script, or to the playlist of a stream without one.
pub(crate) fn control(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let (number, _) = context.stream_param(params)?;
    let command = params.text("command")?;
    let stations = &context.subjects.stations;
    control_stream(&*context.control.backend, stations, number, command, params.values())
}

/// `Stream.SetProperty`.
pub(crate) fn set_property(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let (_, slot) = metadata_slot(context, params)?;
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

/// The slot whose control script or playlist a call controls, with its number.
fn metadata_slot<'a>(
    context: &'a CallContext<'_>,
    params: &Params<'_>,
) -> Result<(usize, &'a StationSlot), RpcError> {
    let (number, _) = context.stream_param(params)?;
    let backend = &*context.control.backend;
    Ok(context.subjects.stations.metadata_slot(number, backend).ok_or(NotFound::Station)?)
}

/// `Stream.AddStream`.
pub(crate) fn add_stream(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let (origin, config) = (StreamOrigin::Call(context.caller.from), context.control.config());
    let uri = params.text("streamUri")?;
    let backend = &*context.control.backend;
    let added = context.subjects.stations.add_stream(uri, origin, &config, backend)?;
    let id = added.info.name.clone();
    context.subjects.clients.registry.add_station(added.number, added.info);
    if added.has_script {
        context.control.tasks_changed.notify_one();
    }
    let notices = vec![Notice::Server];
    context.push_effects(Effects { save: true, notices, ..Effects::default() });
    Ok(json!({ "id": id, "stream_id": id }).into())
}

/// `Stream.RemoveStream`: the groups of the stream play the default one. As in snapserver, removing
/// an unknown stream succeeds.
pub(crate) fn remove_stream(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let id = params.text("id")?;
    if let Some((number, slot)) = context.subjects.stations.remove_stream(id)? {
        if slot.station.plugin.is_some() {
            context.control.tasks_changed.notify_one();
        }
        let mut effects = context.subjects.clients.registry.remove_station(number);
        effects.notices.push(Notice::Server);
        context.push_effects(effects);
        context.outcome.removed_stations.push(number);
    }
    Ok(json!({ "id": id, "stream_id": id }).into())
}
