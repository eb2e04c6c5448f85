//! The event history by call and by notification.

pub(crate) mod history;

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::access::Role;
use crate::control::context::CallContext;
use crate::control::state::Control;
use crate::events::history::{
    DEFAULT_LIMIT, EVENT_KINDS, EVENT_SEVERITIES, EventKind, EventQuery, EventSeverity, MAX_LIMIT,
    NewEvent,
};
use crate::methods::params::{Param, ParamType, Params, Presence};
use crate::methods::rpc::MethodResult;

const STATION: Param = Param::optional("station", ParamType::Text, "only events of this station");
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
    Ok(context.control.events_json(&EventQuery {
        role: context.caller.role,
        after,
        station: params.optional_text("station")?,
        kind: params.optional_text("kind")?,
        severity: params.optional_text("severity")?,
        limit,
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
    let events = &context.control.events;
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
    Ok(json!({ "acknowledged": count, "unacknowledged": events.unacknowledged(role) }))
}

impl Control {
    /// The events of a query, as `Aulos.GetEvents` returns them.
    #[must_use]
    pub fn events_json(&self, query: &EventQuery<'_>) -> Value {
        self.events.find(query)
    }

    /// The revision of the event history, which changes with each event and acknowledgement.
    #[must_use]
    pub fn event_changes(&self) -> watch::Receiver<u64> {
        self.events.changes()
    }

    /// The notification `Aulos.OnEvents` of what has changed since a revision for a reader of this
    /// role, and the revision up to which it goes. It is bounded; the rest comes with the next one.
    #[must_use]
    pub fn event_notification(&self, since: u64, role: Role) -> (u64, Option<String>) {
        let (revision, params) = self.events.changes_since(since, role);
        let notification = |params: Value| {
            json!({ "jsonrpc": "2.0", "method": "Aulos.OnEvents", "params": params }).to_string()
        };
        (revision, params.map(notification))
    }

    /// Adds the event of a reload.
    pub(crate) fn add_reload_event(&self, severity: EventSeverity, text: String) {
        let (kind, subject) = (EventKind::Configuration, String::new());
        self.add_event(NewEvent { kind, severity, station: None, subject, text });
    }
}

/// Limit of a query of the HTTP API without `limit`, and the greatest one.
pub const EVENT_LIMITS: (usize, usize) = (DEFAULT_LIMIT, MAX_LIMIT);
