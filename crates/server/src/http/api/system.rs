//! The server itself, and how it is configured.

use aulos_control::{Caller, Control, EVENT_LIMITS, EventQuery};
use axum::Extension;
use axum::extract::State;
use axum::http::header::CONTENT_DISPOSITION;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::http::app_state::{AppState, json_response};
use crate::http::large_body::answer_response;
use crate::http::system_probe::utc;

fn configuration_json(control: &Control) -> Value {
    let config = control.config();
    let snapshot = control.views().snapshot(0);
    json!({
        "configuration": config.written.0,
        "read_at": utc(snapshot.configured_at),
        "is_current": snapshot.reload_succeeded,
        "warnings": config.warnings,
    })
}

/// `GET /api/v1/system`.
pub(crate) async fn system(State(app): State<AppState>) -> Response {
    json_response(app.system.read(&app.control).to_string())
}

/// `GET /api/v1/configuration`.
pub(crate) async fn configuration(State(app): State<AppState>) -> Response {
    json_response(configuration_json(&app.control).to_string())
}

/// `GET /api/v1/diagnostics`.
pub(crate) async fn diagnostics(
    State(app): State<AppState>,
    Extension(caller): Extension<Caller>,
) -> Response {
    let status = app.control.status_after_long_calls(caller.from).await;
    let control = &app.control;
    let (role, limit) = (caller.role, EVENT_LIMITS.1);
    let query = EventQuery { role, after: None, station: None, kind: None, severity: None, limit };
    let document = json!({
        "system": app.system.read(control),
        "configuration": configuration_json(control),
        "status": serde_json::from_str::<Value>(&status).unwrap_or_default(),
        "events": control.events.find(&query),
    });
    let disposition = [(CONTENT_DISPOSITION, "attachment; filename=\"aulos-diagnostics.json\"")];
    let answer = status.with_text(format!("{document:#}\n"));
    (disposition, answer_response(control, answer)).into_response()
}
