//! Recorders by call (start, stop, pause, resume and cut, at an exact moment), and their
//! notifications.

use std::path::Path;

use aulos_config::HookEventKind;
use aulos_config::{RecorderSettings, Station};
use aulos_core::{Frames, Lufs, MediaTime, Span};
use aulos_engine::recorder::{
    CommandTime, MAX_PRE_ROLL, PauseMode, RecorderCommand, RecordingState as Doing,
};
use aulos_files::record::{self, ClosedSegment, RecorderEventKind};
use aulos_io::SystemClock;
use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};

use super::methods::{MethodResult, invalid_param, text_param};
use super::rpc::internal_error;
use super::status_json::round_to_hundredths;
use super::{CallContext, Control, ControlState};
use crate::hooks::HookEvent;
use crate::recording::{RecorderState, RecordingEventKind, StationRecorderEvent};
use crate::registry::NotFound;
use crate::upload::{UploadEvent, UploadState};

/// `Aulos.GetRecordings {station?}`.
pub(super) fn get(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let only = match &params["station"] {
        Value::Null => None,
        _ => Some(text_param(params, "station")?),
    };
    if let Some(name) = only {
        state.inner.slot(name).ok_or(NotFound::Station)?;
    }
    let slots = state.inner.slots.iter().enumerate();
    let slots = slots.filter_map(|(number, slot)| Some((number, slot.as_ref()?)));
    let slots = slots.filter(|(_, slot)| only.is_none_or(|name| slot.station.name == name));
    let all: Vec<Value> = slots
        .flat_map(|(number, slot)| {
            shapes(&slot.station, &state.control.backend.status(number).recorders)
        })
        .collect();
    Ok(json!({ "recorders": all }))
}

/// `Aulos.StartRecording`.
pub(super) fn start(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    tell(state, params, RecorderCommand::Start)
}

/// `Aulos.StopRecording`.
pub(super) fn stop(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    tell(state, params, RecorderCommand::Stop)
}

/// `Aulos.PauseRecording {gap}`.
pub(super) fn pause(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let gap = match &params["gap"] {
        Value::Null => PauseMode::Silence,
        Value::String(gap) if gap == "silence" => PauseMode::Silence,
        Value::String(gap) if gap == "closed" => PauseMode::Closed,
        _ => return Err(invalid_param("gap", "\"silence\" or \"closed\"")),
    };
    tell(state, params, RecorderCommand::Pause(gap))
}

/// `Aulos.ResumeRecording`.
pub(super) fn resume(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    tell(state, params, RecorderCommand::Resume)
}

/// `Aulos.CutRecording`: ends the file and begins the next one.
pub(super) fn cut(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    tell(state, params, RecorderCommand::Cut)
}

/// Sends the same command for the same moment to every recorder of the call.
fn tell(state: &CallContext<'_>, params: &Value, command: RecorderCommand) -> MethodResult {
    let meant = meant(state.inner, params)?;
    let when = when(params)?;
    let mut done = Vec::new();
    let mut refused = Vec::new();
    for Meant { number, index, station, name, hz } in meant {
        match state.control.backend.record(number, index, command, when) {
            Ok(frame) => done.push(json!({
                "recorder": name,
                "station": station,
                "frame": frame.map(|frame| frame.0),
                "sample_rate": hz,
            })),
            Err(why) => refused.push((name, why)),
        }
    }
    if let (true, Some((name, why))) = (done.is_empty(), refused.first()) {
        return Err(internal_error(format!("{name}: {why}")));
    }
    let refused = refused.iter().map(|(name, why)| json!({ "recorder": name, "reason": why }));
    let refused: Vec<Value> = refused.collect();
    Ok(json!({ "recorders": done, "refused": refused }))
}

/// A recorder of a call.
pub(super) struct Meant {
    pub(super) number: usize,
    pub(super) index: usize,
    pub(super) station: String,
    pub(super) name: String,
    pub(super) hz: u32,
}

/// The recorders of a call: `recorder`, a name or a list of names; or every recorder of `station`,
/// a name or a list.
pub(super) fn meant(inner: &ControlState, params: &Value) -> Result<Vec<Meant>, RpcError> {
    let stations = names(params, "station")?;
    let recorders = names(params, "recorder")?;
    if stations.is_none() && recorders.is_none() {
        return Err(invalid_param("station", "the name of a station, or a list of names"));
    }
    let fits = |list: &Option<Vec<&str>>, name: &str| {
        list.as_ref().is_none_or(|list| list.contains(&name))
    };
    let mut all = Vec::new();
    for (number, slot) in inner.slots.iter().enumerate() {
        let Some(Station { name: station, spec, records, .. }) =
            slot.as_ref().map(|slot| &slot.station)
        else {
            continue;
        };
        let records = records.iter().enumerate();
        all.extend(
            records
                .filter(|(_, record)| fits(&stations, station) && fits(&recorders, &record.name))
                .map(|(index, record)| Meant {
                    number,
                    index,
                    station: station.clone(),
                    name: record.name.clone(),
                    hz: spec.rate.hz(),
                }),
        );
    }
    // An unknown name is an error, even next to known ones.
    for name in stations.iter().flatten() {
        inner.slot(name).ok_or(NotFound::Station)?;
        if !all.iter().any(|one| one.station == *name) {
            return Err(internal_error(format!(
                "station `{name}` has no such recorder: see its `record`"
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

fn names<'a>(params: &'a Value, key: &str) -> Result<Option<Vec<&'a str>>, RpcError> {
    let wrong = || invalid_param(key, "a name, or a list of names");
    match &params[key] {
        Value::Null => Ok(None),
        Value::String(name) => Ok(Some(vec![name])),
        Value::Array(names) if !names.is_empty() => names
            .iter()
            .map(|name| name.as_str().ok_or_else(wrong))
            .collect::<Result<_, _>>()
            .map(Some),
        _ => Err(wrong()),
    }
}

/// The moment of a call: `at`, a time of day in UTC; `ago_s`; `in_s`; `frame`; or now. It is the
/// same for all recorders.
pub(super) fn when(params: &Value) -> Result<CommandTime, RpcError> {
    let now = SystemClock::now();
    let given = ["at", "ago_s", "in_s", "frame"].into_iter().filter(|key| !params[*key].is_null());
    if given.count() > 1 {
        return Err(invalid_param("at", "the only one of at, ago_s, in_s and frame"));
    }
    if !params["frame"].is_null() {
        let frame = params["frame"].as_u64();
        let frame = frame.ok_or_else(|| invalid_param("frame", "a whole number"))?;
        return Ok(CommandTime::Frame(MediaTime(frame)));
    }
    if !params["at"].is_null() {
        let at = params["at"].as_str().and_then(record::parse_utc);
        let at = at.ok_or_else(|| invalid_param("at", "a time as in 2026-11-22T10:15:00Z"))?;
        return Ok(CommandTime::Local(record::local_at(at)));
    }
    if !params["ago_s"].is_null() {
        let most = MAX_PRE_ROLL.as_secs_f64();
        return Ok(CommandTime::Local(now - seconds(params, "ago_s", most)?));
    }
    if !params["in_s"].is_null() {
        return Ok(CommandTime::Local(now + seconds(params, "in_s", MOST_AHEAD_S)?));
    }
    Ok(CommandTime::Local(now))
}

fn seconds(params: &Value, key: &str, most: f64) -> Result<Span, RpcError> {
    let given = params[key].as_f64().filter(|seconds| (0.0..=most).contains(seconds));
    let given = given
        .ok_or_else(|| invalid_param(key, &format!("a number of seconds from 0 to {most}")))?;
    // In range: far below 2^63 nanoseconds.
    #[allow(clippy::cast_possible_truncation, reason = "see above")]
    Ok(Span::from_nanos((given * 1e9) as i64))
}

/// A day; for longer plans there are schedulers.
const MOST_AHEAD_S: f64 = 86_400.0;

/// The recorders of a station, for its status.
pub(super) fn shapes(station: &Station, states: &[RecorderState]) -> Vec<Value> {
    let all = station.records.iter().zip(states);
    all.map(|(record, state)| shape(station, record, state)).collect()
}

fn shape(station: &Station, record: &RecorderSettings, state: &RecorderState) -> Value {
    let source = record.source.and_then(|index| station.sources.get(index));
    let rate = state.segment.as_ref().map_or(station.spec.rate, |segment| segment.rate);
    let seconds = |frames: Frames| (rate.span(frames).as_millis() / 100) as f64 / 10.0;
    let since = match state.state {
        Some(Doing::Recording { since } | Doing::Paused { since, .. }) => Some(since.0),
        Some(Doing::Waiting { start }) => start.map(|start| start.0),
        Some(Doing::Idle) | None => None,
    };
    let file = state.segment.as_ref().map(|segment| {
        json!({
            "path": path(&segment.path),
            "number": segment.number,
            "start_frame": segment.start.0,
            "start": record::rfc3339(segment.utc),
            "seconds": seconds(segment.frames),
            "bytes": segment.bytes,
        })
    });
    json!({
        "name": record.name,
        "station": station.name,
        "source": source.map(|source| &source.name),
        "dir": path(&record.dir),
        "format": record.format.to_string(),
        "state": name(state.state),
        "since_frame": since,
        "file": file,
        "files": state.segments,
        "seconds": seconds(state.frames),
        "bytes": state.bytes,
        "lost_s": seconds(state.lost),
        "waiting_s": seconds(state.waiting),
        "deleted": state.deleted,
        "free_bytes": state.free,
        "trouble": state.trouble,
        "upload": state.upload.as_ref().map(upload),
    })
}

const fn name(state: Option<Doing>) -> &'static str {
    match state {
        None => "failed",
        Some(Doing::Idle) => "idle",
        Some(Doing::Waiting { .. }) => "waiting",
        Some(Doing::Recording { .. }) => "recording",
        Some(Doing::Paused { .. }) => "paused",
    }
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

fn upload(state: &UploadState) -> Value {
    json!({
        "state": state.phase.name(),
        "waiting": state.waiting,
        "waiting_bytes": state.waiting_bytes,
        "uploading": state.uploading,
        "done": state.done,
        "done_bytes": state.done_bytes,
        "failures": state.failures,
        "gone": state.missing,
        "broken": state.broken_entries,
        "last_error": state.error,
        "failing_for_s": state.since.map(|since| since.as_millis() / 1_000),
        "retry_in_s": state.retry_in.map(|span| (span.max(Span::ZERO).as_millis() + 999) / 1_000),
    })
}

impl Control {
    /// Notifies controllers of recorder events.
    pub(super) fn tell_recordings(&self, inner: &mut ControlState) {
        for event in self.backend.recorder_events() {
            log(&event);
            let StationRecorderEvent { station, recorder, kind: what } = event;
            let (kind, figures) = told(&what);
            let mut params = json!({ "station": station, "recorder": recorder, "event": kind });
            if let (Value::Object(params), Value::Object(figures)) = (&mut params, &figures) {
                params.extend(figures.clone());
            }
            self.notify(inner, None, "Aulos.OnRecording", &params);
            if let Some(news) = news(&recorder, &what, kind, figures) {
                self.hooks.notify(&station, &news);
            }
            self.bump_revision();
        }
    }
}

/// The hook event of a recorder event, if there is one.
fn news(
    recorder: &str,
    what: &RecordingEventKind,
    word: &str,
    mut figures: Value,
) -> Option<HookEvent> {
    let (kind, text) = match what {
        RecordingEventKind::Recorder(RecorderEventKind::SegmentClosed(closed)) => {
            let seconds = closed.rate.span(closed.frames).as_secs_f64();
            let text = format!("{recorder} has recorded {seconds:.1} s: {}", path(&closed.path));
            (HookEventKind::Recorded, text)
        }
        RecordingEventKind::Recorder(RecorderEventKind::Failed(trouble)) => {
            (HookEventKind::RecorderTrouble, format!("{recorder} {trouble}"))
        }
        RecordingEventKind::Recorder(RecorderEventKind::FramesLost { frames, .. }) => {
            let text = format!("{recorder} has lost {} frames: the disk is too slow", frames.0);
            (HookEventKind::RecorderTrouble, text)
        }
        RecordingEventKind::Recorder(RecorderEventKind::FileRemoved { path: file }) => (
            HookEventKind::RecorderTrouble,
            format!("{recorder} has lost its file: {}", path(file)),
        ),
        RecordingEventKind::Recorder(RecorderEventKind::RepairFailed {
            path: file,
            reason: why,
        }) => (
            HookEventKind::RecorderTrouble,
            format!("{recorder} cannot repair {}: {why}", path(file)),
        ),
        RecordingEventKind::Upload(UploadEvent::Failed { text, .. }) => {
            (HookEventKind::RecorderTrouble, format!("{recorder} cannot upload: {text}"))
        }
        RecordingEventKind::Recorder(RecorderEventKind::Recovered) => {
            (HookEventKind::RecorderRecovered, format!("{recorder} records again"))
        }
        _ => return None,
    };
    figures["recorder"] = json!(recorder);
    figures["event"] = json!(word);
    Some(HookEvent::Recorder { kind, text, figures })
}

/// The name of an event and its data.
fn told(what: &RecordingEventKind) -> (&'static str, Value) {
    match what {
        RecordingEventKind::Recorder(what) => match what {
            RecorderEventKind::SegmentOpened { path: file, frame, utc } => (
                "opened",
                json!({ "path": path(file), "start_frame": frame.0, "start": record::rfc3339(*utc) }),
            ),
            RecorderEventKind::SegmentClosed(closed) => ("closed", closed_figures(closed)),
            RecorderEventKind::MarkerAdded(marker) => (
                "marked",
                json!({
                    "path": path(&marker.path),
                    "frame": marker.frame.0,
                    "position": marker.position.0,
                    "time": record::rfc3339(marker.utc),
                    "label": marker.label,
                }),
            ),
            RecorderEventKind::FramesLost { frame, frames } => {
                ("lost", json!({ "frame": frame.0, "frames": frames.0 }))
            }
            RecorderEventKind::Failed(trouble) => {
                ("trouble", json!({ "reason": trouble.to_string() }))
            }
            RecorderEventKind::Recovered => ("recovered", json!({})),
            RecorderEventKind::FileRemoved { path: file } => {
                ("vanished", json!({ "path": path(file) }))
            }
            RecorderEventKind::FileRepaired { path: file } => {
                ("repaired", json!({ "path": path(file) }))
            }
            RecorderEventKind::RepairFailed { path: file, reason: why } => {
                ("unrepaired", json!({ "path": path(file), "reason": why }))
            }
            RecorderEventKind::FileDeleted { path: file, reason: why } => {
                ("deleted", json!({ "path": path(file), "reason": why.to_string() }))
            }
            _ => ("other", json!({})),
        },
        RecordingEventKind::Upload(event) => match event {
            UploadEvent::Uploaded { file, url, bytes, tries } => (
                "uploaded",
                json!({ "path": path(file), "url": url, "bytes": bytes, "failures": tries }),
            ),
            UploadEvent::Failed { file, text, permanent } => (
                "upload-failed",
                json!({ "path": path(file), "reason": text, "lasting": permanent }),
            ),
            UploadEvent::Missing { file } => ("upload-gone", json!({ "path": path(file) })),
        },
    }
}

/// The figures of a complete file, for events and `aulos record --json`.
#[must_use]
pub fn closed_figures(closed: &ClosedSegment) -> Value {
    let lufs = |value: Option<Lufs>| value.map(|value| round_to_hundredths(value.get()));
    let seconds = closed.rate.span(closed.frames).as_secs_f64();
    json!({
        "path": path(&closed.path),
        "number": closed.number,
        "start_frame": closed.start.0,
        "end_frame": closed.end.0,
        "start": record::rfc3339(closed.utc),
        "seconds": (seconds * 1e3).round() / 1e3,
        "bytes": closed.bytes,
        "lost_frames": closed.lost.0,
        "integrated_lufs": lufs(closed.loudness.integrated),
        "loudness_range_lu": closed.loudness.range.map(|range| round_to_hundredths(range.get())),
        "true_peak_dbtp": closed.loudness.true_peak.map(|peak| round_to_hundredths(peak.get())),
        "sha256": closed.sha256,
    })
}

fn log(event: &StationRecorderEvent) {
    let StationRecorderEvent { station, recorder, kind: what } = event;
    let (kind, figures) = told(what);
    match kind {
        "trouble" | "lost" | "vanished" | "unrepaired" | "upload-failed" | "upload-gone" => {
            tracing::warn!(station, recorder, "recording: {kind} {figures}");
        }
        _ => tracing::info!(station, recorder, "recording: {kind} {figures}"),
    }
}
