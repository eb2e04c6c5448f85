//! Recorders by call: start, stop, pause, resume and cut, at an exact moment.

use aulos_config::StationSettings;
use aulos_core::{MediaTime, SampleRate, Span};
use aulos_engine::recorder::{CommandTime, PauseMode, RecorderCommand};
use aulos_files::record;
use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};

use crate::control::context::CallContext;
use crate::methods::params::Params;
use crate::methods::rpc::{CallOutput, MethodResult, internal_error};
use crate::recordings::station_json;
use crate::stations::Stations;

/// `Aulos.GetRecordings`.
pub(crate) fn get(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let only = params.optional_text("station")?;
    if let Some(name) = only {
        context.station(name)?;
    }
    let slots = context.subjects.stations.slots();
    let slots = slots.filter(|(_, slot)| only.is_none_or(|name| slot.station.name == name));
    let all: Vec<Value> = slots
        .flat_map(|(number, slot)| {
            station_json(&slot.station, &context.control.backend.status(number).recorders)
        })
        .collect();
    Ok(json!({ "recorders": all }).into())
}

/// `Aulos.StartRecording`.
pub(crate) fn start(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    send_command(context, params, RecorderCommand::Start)
}

/// `Aulos.StopRecording`.
pub(crate) fn stop(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    send_command(context, params, RecorderCommand::Stop)
}

/// `Aulos.PauseRecording`.
pub(crate) fn pause(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let mode = match params.text("gap")? {
        "closed" => PauseMode::Closed,
        _ => PauseMode::Silence,
    };
    send_command(context, params, RecorderCommand::Pause(mode))
}

/// `Aulos.ResumeRecording`.
pub(crate) fn resume(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    send_command(context, params, RecorderCommand::Resume)
}

/// `Aulos.CutRecording`: ends the file and begins the next one.
pub(crate) fn cut(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    send_command(context, params, RecorderCommand::Cut)
}

/// Sends the same command for the same moment to every recorder of the call.
fn send_command(
    context: &CallContext<'_>,
    params: &Params<'_>,
    command: RecorderCommand,
) -> MethodResult {
    let selected = selected_recorders(&context.subjects.stations, params)?;
    let when = command_time(params, context.control.clock.local())?;
    let results = selected.into_iter().map(|recorder| {
        let backend = &context.control.backend;
        let frame = backend.record(recorder.number, recorder.index, command, when);
        let answer = frame.map(|frame| {
            json!({
                "recorder": recorder.name,
                "station": recorder.station,
                "frame": frame.map(|frame| frame.0),
                "sample_rate": recorder.rate.hz(),
            })
        });
        (recorder.name, answer)
    });
    answer(results).map(CallOutput::Tree)
}

/// The answer to a call for several recorders, each with its result or the reason of its refusal.
///
/// # Errors
/// The first refusal, when all recorders refuse.
pub(crate) fn answer(
    results: impl Iterator<Item = (String, Result<Value, String>)>,
) -> Result<Value, RpcError> {
    let (mut done, mut refused) = (Vec::new(), Vec::new());
    for (name, result) in results {
        match result {
            Ok(result) => done.push(result),
            Err(reason) => refused.push((name, reason)),
        }
    }
    if let (true, Some((name, reason))) = (done.is_empty(), refused.first()) {
        return Err(internal_error(format!("{name}: {reason}")));
    }
    let refused = refused.iter().map(|(name, why)| json!({ "recorder": name, "reason": why }));
    let refused: Vec<Value> = refused.collect();
    Ok(json!({ "recorders": done, "refused": refused }))
}

/// A recorder that a call selects.
pub(crate) struct SelectedRecorder {
    /// The number of its station.
    pub(crate) number: usize,
    /// Its index in `StationSettings::records`.
    pub(crate) index: usize,
    pub(crate) station: String,
    pub(crate) name: String,
    pub(crate) rate: SampleRate,
}

/// The recorders of a call: those of `recorder`, or every recorder of `station`. A log is never
/// among them: it has no holes that a call has made.
pub(crate) fn selected_recorders(
    all_stations: &Stations,
    params: &Params<'_>,
) -> Result<Vec<SelectedRecorder>, RpcError> {
    let stations = params.optional_texts("station")?;
    let recorders = params.optional_texts("recorder")?;
    if stations.is_none() && recorders.is_none() {
        return Err(params.invalid("station", &"a name or a list of names"));
    }
    let contains = |list: &Option<Vec<&str>>, name: &str| {
        list.as_ref().is_none_or(|list| list.contains(&name))
    };
    let mut all = Vec::new();
    for (number, slot) in all_stations.slots() {
        let StationSettings { name: station, spec, records, .. } = &*slot.station;
        let records = records.iter().enumerate();
        all.extend(
            records
                .filter(|(_, record)| {
                    !record.is_logger
                        && contains(&stations, station)
                        && contains(&recorders, &record.recording.name)
                })
                .map(|(index, record)| SelectedRecorder {
                    number,
                    index,
                    station: station.clone(),
                    name: record.recording.name.clone(),
                    rate: spec.rate,
                }),
        );
    }
    // An unknown name is an error, even next to known ones.
    for name in stations.iter().flatten() {
        all_stations.named(name)?;
        if !all.iter().any(|one| one.station == *name) {
            return Err(internal_error(format!(
                "station `{name}` has no such recorder; its `record` lists them"
            )));
        }
    }
    for name in recorders.iter().flatten() {
        if !all.iter().any(|one| one.name == *name) {
            return Err(internal_error(format!("there is no recorder `{name}`")));
        }
    }
    Ok(all)
}

/// The moment of a call: `at`, a time of day in UTC; `ago_s`; `in_s`; `frame`; or now. It is the
/// same for all recorders.
pub(crate) fn command_time(
    params: &Params<'_>,
    now: aulos_core::Instant,
) -> Result<CommandTime, RpcError> {
    let seconds = |key| Ok::<_, RpcError>(Span::from_secs_f64(params.number(key)?));
    Ok(match params.at_most_one(&["at", "ago_s", "in_s", "frame"])? {
        None => CommandTime::Local(now),
        Some("frame") => CommandTime::Frame(MediaTime(params.count("frame")?)),
        Some("ago_s") => CommandTime::Local(now - seconds("ago_s")?),
        Some("in_s") => CommandTime::Local(now + seconds("in_s")?),
        Some(_) => {
            let at = record::parse_utc(params.text("at")?);
            let at =
                at.ok_or_else(|| params.invalid("at", &"a time as in 2026-11-22T10:15:00Z"))?;
            CommandTime::Local(record::local_at(at))
        }
    })
}

/// A day; for longer plans there are schedulers.
pub(crate) const MAX_AHEAD_S: f64 = 86_400.0;
