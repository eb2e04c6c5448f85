//! What has happened: the newest events for pages and the API, and the limit of the lines that
//! peers can cause.

pub(crate) mod calls;
pub(crate) mod history;
mod limit;
pub(crate) mod targets;

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::access::Role;
use crate::control::clock::Clock;
use history::{DEFAULT_LIMIT, EventHistory, EventQuery, MAX_LIMIT, NewEvent};
use limit::LogLimit;

/// The events of the server.
#[derive(Debug)]
pub struct EventLog {
    history: EventHistory,
    limit: LogLimit,
    clock: Clock,
}

impl EventLog {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { history: EventHistory::default(), limit: LogLimit::default(), clock }
    }

    pub(crate) fn add(&self, event: NewEvent) {
        self.history.add(event, self.clock.wall());
    }

    /// Whether one more line that a peer causes may be logged now.
    pub(crate) fn admits(&self) -> bool {
        self.limit.admits(self.clock.local())
    }

    /// The events of a query, as `Aulos.GetEvents` returns them.
    #[must_use]
    pub fn find(&self, query: &EventQuery<'_>) -> Value {
        self.history.find(query)
    }

    /// The revision, which changes with each event and acknowledgement.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.history.changes()
    }

    /// The notification `Aulos.OnEvents` of what has changed since a revision for a reader of this
    /// role, and the revision up to which it goes. It is bounded; the rest comes with the next one.
    #[must_use]
    pub fn notification(&self, since: u64, role: Role) -> (u64, Option<String>) {
        let (revision, params) = self.history.changes_since(since, role);
        let notification = |params: Value| {
            json!({ "jsonrpc": "2.0", "method": "Aulos.OnEvents", "params": params }).to_string()
        };
        (revision, params.map(notification))
    }

    /// The number of events that have been dropped because a ring was full.
    pub(crate) fn dropped(&self) -> u64 {
        self.history.dropped()
    }

    pub(crate) const fn history(&self) -> &EventHistory {
        &self.history
    }
}

/// Limit of a query of the HTTP API without `limit`, and the greatest one.
pub const EVENT_LIMITS: (usize, usize) = (DEFAULT_LIMIT, MAX_LIMIT);
