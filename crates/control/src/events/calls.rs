//! The event history by call.

use std::sync::Arc;

use serde_json::json;

use crate::control::context::CallContext;
use crate::events::history::{DEFAULT_LIMIT, EVENT_KINDS, EVENT_SEVERITIES, EventQuery, MAX_LIMIT};
use crate::methods::params::{Param, ParamType, Params, Presence};
use crate::methods::rpc::{CallOutput, MethodResult};

/// The whole name: the station may be gone, and others have names that begin with it.
const STATION: Param =
    Param::optional("station", ParamType::Text, "only events of the station of this name");
const KIND: Param =
    Param::optional("kind", ParamType::Word(EVENT_KINDS), "only events of this kind");

/// The parameters of `Aulos.GetEvents`.
pub(crate) const QUERY: &[Param] = &[
    Param::optional(
        "after",
        ParamType::Count,
        "only events with a greater id, the oldest first; without it the newest",
    ),
    STATION,
    KIND,
    Param::optional(
        "severity",
        ParamType::Word(EVENT_SEVERITIES),
        "only events of at least this severity",
    ),
    Param::default(
        "limit",
        ParamType::Number { min: 1.0, max: MAX_LIMIT as f64 },
        Presence::Number(DEFAULT_LIMIT as f64),
        "at most this many events",
    ),
];

/// The parameters of `Aulos.AcknowledgeEvents`.
pub(crate) const ACKNOWLEDGEMENT: &[Param] = &[
    Param::optional("id", ParamType::Count, "this event; or `through`"),
    Param::optional("through", ParamType::Count, "all events with this id or a smaller one"),
    STATION,
    KIND,
];

/// `Aulos.GetEvents`.
pub(crate) fn get(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let after = if params.has("after") { Some(params.count("after")?) } else { None };
    // The range has been checked.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "see above")]
    let limit = params.number("limit")? as usize;
    let owned = |name| params.optional_text(name).map(|text| text.map(str::to_owned));
    let (station, kind, severity) = (owned("station")?, owned("kind")?, owned("severity")?);
    let (role, events) = (context.caller.role, Arc::clone(&context.control.events));
    Ok(CallOutput::view(move || {
        let (station, kind) = (station.as_deref(), kind.as_deref());
        let severity = severity.as_deref();
        events.find(&EventQuery { role, after, station, kind, severity, limit }).to_string()
    }))
}

/// `Aulos.AcknowledgeEvents`.
pub(crate) fn acknowledge(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let (after, through) = match params.only_one(&["id", "through"])? {
        "id" => {
            let id = params.count("id")?;
            (id.checked_sub(1), id)
        }
        _ => (None, params.count("through")?),
    };
    let role = context.caller.role;
    let events = context.control.events.history();
    let count = events.acknowledge(
        &EventQuery {
            role,
            after,
            station: params.optional_text("station")?,
            kind: params.optional_text("kind")?,
            severity: None,
            limit: MAX_LIMIT,
        },
        through,
    );
    Ok(json!({ "acknowledged": count, "unacknowledged": events.unacknowledged(role) }).into())
}
