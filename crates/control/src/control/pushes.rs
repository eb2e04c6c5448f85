//! The status of pushes, as JSON.

use aulos_config::PushSettings;
use aulos_core::Span;
use serde_json::{Value, json};

use crate::backend::PushState;

/// The status of a push.
pub(super) fn status_json(push: &PushSettings, state: &PushState) -> Value {
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
        "retry_in_s": state.retry_in.map(|span| (span.max(Span::ZERO).as_millis() + 999) / 1_000),
        "title_error": state.title_error,
    })
}
