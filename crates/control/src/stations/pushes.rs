//! The status of pushes, as JSON.

use aulos_config::PushSettings;
use serde_json::{Value, json};

use crate::backend::PushState;
use crate::stations::level_json::whole_seconds;

/// The status of a push.
pub(crate) fn status_json(push: &PushSettings, state: &PushState) -> Value {
    json!({
        "target": push.target.to_string(),
        "format": push.codec.codec().info().extensions.first(),
        "codec": push.codec.to_string(),
        "state": state.phase.name(),
        "since_s": state.since.map(|since| since.as_millis() / 1_000),
        "bytes": state.bytes,
        "skipped_chunks": state.lagged,
        "connects": state.connects,
        "failures": state.failures,
        "last_error": state.error,
        "retry_in_s": state.retry_in.map(whole_seconds),
        "title_error": state.title_error,
        "srt": state.link.map(|link| json!({
            "round_trip_ms": link.round_trip.as_millis(),
            "packets": link.packets,
            "resent": link.resent,
            "unacknowledged": link.unacknowledged,
        })),
    })
}
