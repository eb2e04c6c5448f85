//! The insert of a station, as JSON.

use aulos_config::StationSettings;
use aulos_core::Frames;
use serde_json::{Map, Value, json};

use crate::backend::{InsertFault, InsertReport, InsertState};
use crate::stations::level_json::{round_to_hundredths, whole_seconds};

/// The insert of a station; null without one.
pub(crate) fn status_json(station: &StationSettings, report: Option<&InsertReport>) -> Value {
    let (Some(settings), Some(report)) = (&station.insert, report) else { return Value::Null };
    let (stage, program) = (&report.stage, &report.program);
    let state = report.state();
    let is_bypassed = state == InsertState::Bypassed;
    #[allow(clippy::cast_precision_loss, reason = "a few seconds in nanoseconds")]
    let ms = |frames| round_to_hundredths(station.spec.rate.span(frames).as_nanos() as f64 / 1e6);
    let counts = InsertFault::ALL.map(InsertFault::name).into_iter().zip(program.faults);
    let counts =
        counts.filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), json!(count)));
    json!({
        "program": settings.path,
        "state": state.name(),
        "cause": is_bypassed.then(|| report.cause()),
        "reason": is_bypassed.then(|| report.reason()),
        "retry_in_s": report.retry_in.map(whole_seconds),
        "latency_frames": stage.latency.0,
        "latency_ms": ms(stage.latency),
        "needed_ms": stage.needed.map(ms),
        "lag_ms": stage.lag.map(ms),
        "delay_frames": program.session.delay,
        "starts": program.starts,
        "bypasses": stage.bypasses,
        "bypassed_s": whole_seconds(station.spec.rate.span(Frames(stage.bypassed_frames))),
        "failures": counts.collect::<Map<_, _>>(),
    })
}
