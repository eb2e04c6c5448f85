//! HLS of a station, as JSON.

use aulos_config::StationSettings;
use serde_json::{Value, json};

use crate::backend::{HlsTargetState, StationReport};
use crate::stations::level_json::whole_seconds;

/// HLS of a station; null without it.
pub(crate) fn status_json(station: &StationSettings, report: &StationReport) -> Value {
    let Some(settings) = &station.hls else { return Value::Null };
    let renditions = settings.renditions.iter().map(|format| format.name());
    let target = |state: &HlsTargetState| {
        let status = &state.status;
        let since = |at| whole_seconds(report.at.since(at));
        json!({
            "kind": state.kind.name(),
            "target": state.target,
            "segments": status.segments,
            "playlists": status.playlists,
            "bytes": status.bytes,
            "removed": status.removed,
            "failures": status.failures,
            "dropped_segments": status.dropped,
            "age_s": status.complete_at.map(since),
            "error": status.error,
            "failing_for_s": status.failing_since.map(since),
            "retry_in_s": status.retry_at.map(|at| whole_seconds(at.since(report.at))),
        })
    };
    json!({
        "renditions": renditions.collect::<Vec<_>>(),
        "targets": report.hls.iter().map(target).collect::<Vec<_>>(),
    })
}
