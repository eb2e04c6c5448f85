//! Recorders: their events, and their status as JSON.

pub(crate) mod calls;
pub(crate) mod markers;

use std::path::Path;

use aulos_config::{HookEventKind, RecorderSettings, StationSettings};
use aulos_core::{Frames, Lufs, MediaTime, SampleRate, Span};
use aulos_engine::recorder::RecordingState;
use aulos_files::logger::LogGap;
use aulos_files::record::{self, ClosedSegment, LossCause, RecorderEventKind};
use serde_json::{Value, json};

use crate::backend::{
    RecorderState, RecordingEventKind, StationRecorderEvent, UploadEvent, UploadState, fault_text,
};
use crate::effects::Effects;
use crate::events::history::{EventKind, EventSeverity, NewEvent};
use crate::hooks::HookEvent;
use crate::outside::Outside;
use crate::stations::level_json::{round_to_hundredths, whole_seconds};

/// The recorders of a station, for its status.
pub(crate) fn station_json(station: &StationSettings, states: &[RecorderState]) -> Vec<Value> {
    let all = station.records.iter().zip(states);
    all.map(|(record, state)| recorder_json(station, record, state)).collect()
}

fn recorder_json(
    station: &StationSettings,
    record: &RecorderSettings,
    state: &RecorderState,
) -> Value {
    let source = record.source.and_then(|index| station.sources.get(index));
    let status = &state.status;
    let rate = status.segment.as_ref().map_or(station.spec.rate, |segment| segment.rate);
    let seconds = |frames: Frames| (rate.span(frames).as_millis() / 100) as f64 / 10.0;
    let since = match state.machine() {
        Some(RecordingState::Recording { since } | RecordingState::Paused { since, .. }) => {
            Some(since.0)
        }
        Some(RecordingState::Waiting { start }) => start.map(|start| start.0),
        Some(RecordingState::Idle) | None => None,
    };
    let file = status.segment.as_ref().map(|segment| {
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
        "name": record.recording.name,
        "log": record.is_logger,
        "station": station.name,
        "source": source.map(|source| &source.name),
        "dir": path(&record.recording.folder),
        "format": record.recording.format.to_string(),
        "state": state_name(state.machine()),
        "since_frame": since,
        "file": file,
        "files": status.segments,
        "seconds": seconds(status.frames),
        "bytes": status.bytes,
        "lost_s": seconds(status.lost),
        "waiting_s": seconds(status.buffered),
        "deleted": status.deleted,
        "free_bytes": status.free_bytes,
        "trouble": state.trouble(),
        "upload": state.upload.as_ref().map(upload_json),
    })
}

fn round_to_millis(span: Span) -> f64 {
    (span.as_secs_f64() * 1e3).round() / 1e3
}

const fn state_name(state: Option<RecordingState>) -> &'static str {
    match state {
        None => "failed",
        Some(RecordingState::Idle) => "idle",
        Some(RecordingState::Waiting { .. }) => "waiting",
        Some(RecordingState::Recording { .. }) => "recording",
        Some(RecordingState::Paused { .. }) => "paused",
    }
}

/// The last part of a path; the page has the whole.
fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

fn upload_json(state: &UploadState) -> Value {
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
        "retry_in_s": state.retry_in.map(whole_seconds),
    })
}

/// Handles a recorder event: log, history, hooks, and a notification.
pub(crate) fn handle_event(event: StationRecorderEvent, outside: Outside<'_>) -> Effects {
    log(&event);
    if let Some(event) = history_event(&event) {
        outside.events.add(event);
    }
    let StationRecorderEvent { station, recorder, kind: what } = event;
    let (kind, figures) = event_json(&what);
    let mut params = json!({ "station": station, "recorder": recorder, "event": kind });
    if let (Value::Object(params), Value::Object(figures)) = (&mut params, &figures) {
        params.extend(figures.clone());
    }
    if let Some(event) = hook_event(&recorder, &what, kind, figures) {
        outside.hooks.notify(&station, &event);
    }
    Effects::message("Aulos.OnRecording", params)
}

/// The hook event of a recorder event, if there is one.
fn hook_event(
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
            (HookEventKind::RecorderTrouble, format!("{recorder} {}", fault_text(trouble)))
        }
        RecordingEventKind::Recorder(RecorderEventKind::FramesLost {
            frames, rate, cause, ..
        }) => {
            let seconds = rate.span(*frames).as_secs_f64();
            let text = format!("{recorder} has lost {seconds:.3} s of sound: {cause}");
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
        RecordingEventKind::LogHead(head) => (
            HookEventKind::LogHead,
            format!("the log of {recorder} has {} lines and the head {}", head.lines, head.hash),
        ),
        RecordingEventKind::LogGap(gap) => {
            (HookEventKind::LogGap, format!("{recorder} has {}", gap_text(gap)))
        }
        _ => return None,
    };
    figures["recorder"] = json!(recorder);
    if kind == HookEventKind::RecorderTrouble {
        figures["trouble"] = json!(word);
    }
    Some(HookEvent::Recorder { kind, text, figures })
}

/// The event of the history, if there is one.
fn history_event(event: &StationRecorderEvent) -> Option<NewEvent> {
    use RecorderEventKind as Recorder;
    let text = match &event.kind {
        RecordingEventKind::Recorder(what) => match what {
            Recorder::SegmentOpened { path: file, .. } => {
                format!("recording to {}", file_name(file))
            }
            Recorder::SegmentClosed(closed) => {
                let seconds = closed.rate.span(closed.frames).as_secs_f64();
                format!("{seconds:.1} s recorded: {}", file_name(&closed.path))
            }
            Recorder::FramesLost { frames, rate, cause, .. } => {
                format!("{:.3} s of sound lost: {cause}", rate.span(*frames).as_secs_f64())
            }
            Recorder::ClockChanged { change, .. } => change.to_string(),
            Recorder::Failed(fault) => fault_text(fault),
            Recorder::Recovered => "recording again".to_owned(),
            Recorder::FileRemoved { path: file } => {
                format!("file removed while it was written: {}", file_name(file))
            }
            Recorder::FileRepaired { path: file } => format!("file repaired: {}", file_name(file)),
            Recorder::RepairFailed { path: file, reason } => {
                format!("cannot repair {}: {reason}", file_name(file))
            }
            Recorder::FileDeleted { path: file, reason } => {
                format!("file deleted: {} ({reason})", file_name(file))
            }
            _ => return None,
        },
        RecordingEventKind::Upload(what) => match what {
            UploadEvent::Uploaded { file, .. } => format!("uploaded: {}", file_name(file)),
            UploadEvent::Failed { text, .. } => format!("upload failed: {text}"),
            UploadEvent::Missing { file } => {
                format!("deleted before its upload: {}", file_name(file))
            }
        },
        RecordingEventKind::LogHead(head) => {
            format!("{} lines in the log; head {}", head.lines, head.hash)
        }
        RecordingEventKind::LogGap(gap) => gap_text(gap),
    };
    let severity = match &event.kind {
        kind if !is_failure(kind) => EventSeverity::Info,
        RecordingEventKind::Recorder(_) | RecordingEventKind::LogGap(_) => EventSeverity::Error,
        RecordingEventKind::Upload(_) | RecordingEventKind::LogHead(_) => EventSeverity::Warning,
    };
    let (station, subject) = (Some(event.station.clone()), event.recorder.clone());
    Some(NewEvent { kind: EventKind::Recorder, severity, station, subject, text })
}

/// The name of an event and its data.
fn event_json(what: &RecordingEventKind) -> (&'static str, Value) {
    match what {
        RecordingEventKind::Recorder(what) => recorder_event_json(what),
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
        RecordingEventKind::LogHead(head) => {
            ("log-head", json!({ "head": head.hash, "lines": head.lines }))
        }
        RecordingEventKind::LogGap(gap) => (
            "log-gap",
            json!({
                "from": record::rfc3339(gap.from),
                "to": record::rfc3339(gap.to),
                "seconds": round_to_millis(gap.length()),
                "cause": gap.cause.to_string(),
            }),
        ),
    }
}

fn recorder_event_json(what: &RecorderEventKind) -> (&'static str, Value) {
    match what {
        RecorderEventKind::SegmentOpened { path: file, frame, utc } => (
            "opened",
            json!({ "path": path(file), "start_frame": frame.0, "start": record::rfc3339(*utc) }),
        ),
        RecorderEventKind::SegmentClosed(closed) => ("closed", closed_segment_json(closed)),
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
        RecorderEventKind::FramesLost { frame, frames, rate, cause } => {
            ("lost", loss_json(*frame, *frames, *rate, *cause))
        }
        RecorderEventKind::ClockChanged { frame, change } => (
            "clock-changed",
            json!({
                "frame": frame.0,
                "set_by_s": change.set_by.as_secs_f64(),
                "suspended_s": change.suspended.as_secs_f64(),
            }),
        ),
        RecorderEventKind::Failed(trouble) => ("trouble", json!({ "reason": fault_text(trouble) })),
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
    }
}

fn gap_text(gap: &LogGap) -> String {
    let seconds = gap.length().as_secs_f64();
    let [from, to] = [gap.from, gap.to].map(record::rfc3339);
    format!("a gap of {seconds:.1} s in the log, from {from} to {to}: {}", gap.cause)
}

fn loss_json(frame: MediaTime, frames: Frames, rate: SampleRate, cause: LossCause) -> Value {
    json!({
        "frame": frame.0,
        "frames": frames.0,
        "seconds": round_to_millis(rate.span(frames)),
        "reason": cause.to_string(),
    })
}

/// The figures of a complete file, for events and `aulos record --json`.
#[must_use]
pub fn closed_segment_json(closed: &ClosedSegment) -> Value {
    let lufs = |value: Option<Lufs>| value.map(|value| round_to_hundredths(value.get()));
    json!({
        "path": path(&closed.path),
        "number": closed.number,
        "start_frame": closed.start.0,
        "end_frame": closed.end.0,
        "start": record::rfc3339(closed.utc),
        "seconds": round_to_millis(closed.rate.span(closed.frames)),
        "bytes": closed.bytes,
        "lost_frames": closed.lost.0,
        "lost_s": round_to_millis(closed.rate.span(closed.lost)),
        "integrated_lufs": lufs(closed.loudness.integrated),
        "loudness_range_lu": closed.loudness.range.map(|range| round_to_hundredths(range.get())),
        "true_peak_dbtp": closed.loudness.true_peak.map(|peak| round_to_hundredths(peak.get())),
        "sha256": closed.sha256,
    })
}

fn log(event: &StationRecorderEvent) {
    let StationRecorderEvent { station, recorder, kind: what } = event;
    let (kind, figures) = event_json(what);
    let figures = figures.as_object().into_iter().flatten();
    let figures: Vec<String> = figures.map(|(name, value)| format!("{name}={value}")).collect();
    let figures = figures.join(" ");
    if is_failure(what) {
        tracing::warn!(station, recorder, "recording {kind}: {figures}");
    } else {
        tracing::info!(target: "recorder", station, recorder, "recording {kind}: {figures}");
    }
}

/// Whether sound is lost, or is not where it should be.
const fn is_failure(what: &RecordingEventKind) -> bool {
    match what {
        RecordingEventKind::Recorder(what) => matches!(
            what,
            RecorderEventKind::Failed(_)
                | RecorderEventKind::FramesLost { .. }
                | RecorderEventKind::FileRemoved { .. }
                | RecorderEventKind::RepairFailed { .. }
        ),
        RecordingEventKind::Upload(event) => !matches!(event, UploadEvent::Uploaded { .. }),
        RecordingEventKind::LogHead(_) => false,
        RecordingEventKind::LogGap(_) => true,
    }
}
