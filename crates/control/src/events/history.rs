//! The newest events of the server, for the page and the API: an operator who comes in the morning
//! sees what happened at night without access to the log.
//!
//! The log of the process is derived from the same places (`event_log`, `client_log`,
//! `recordings`), but a page cannot read it, and its lines have no identity to acknowledge. Events
//! that peers cause at will (clients, listeners, logins) have a ring of their own, so that a flood
//! of them never displaces the failure of a source.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use aulos_core::Utc;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::access::Role;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A change of the source on air.
    Switch,
    /// A source that fails or works again, and live sources.
    Source,
    /// Silence of a station, and its end.
    Silence,
    /// A true peak above the ceiling.
    Level,
    /// A player that connects, disconnects or is refused.
    Client,
    /// A web listener that connects or disconnects.
    Listener,
    /// A refused login; for administrators only, because it has the address of a stranger.
    Login,
    /// A recorder, its files and their upload.
    Recorder,
    /// A push or an RTP output.
    Output,
    /// An RTP relay.
    Relay,
    /// A reload of the configuration.
    Configuration,
    /// An entry of a station's schedule that begins or ends.
    Schedule,
    /// The insert of a station, bypassed or not.
    Insert,
}

/// The names of the kinds in the API.
pub const EVENT_KINDS: &[&str] = &[
    "switch",
    "source",
    "silence",
    "level",
    "client",
    "listener",
    "login",
    "recorder",
    "output",
    "relay",
    "configuration",
    "schedule",
    "insert",
];

impl EventKind {
    /// Its name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        EVENT_KINDS[self as usize]
    }

    /// The least role that may see it.
    const fn role(self) -> Role {
        match self {
            Self::Login => Role::Admin,
            _ => Role::Listen,
        }
    }

    /// Whether peers can cause it as often as they want.
    const fn is_caused_by_peers(self) -> bool {
        matches!(self, Self::Client | Self::Listener | Self::Login)
    }
}

/// How urgent an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventSeverity {
    /// The normal course of things.
    Info,
    /// Something is not as configured, and listeners may not notice.
    Warning,
    /// Sound is missing, or a recording.
    Error,
}

/// The names of the severities in the API, from the least.
pub const EVENT_SEVERITIES: &[&str] = &["info", "warning", "error"];

/// What has happened, before it has a number and a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// What it is about.
    pub kind: EventKind,
    /// How urgent it is.
    pub severity: EventSeverity,
    /// Its station; none if it concerns the server.
    pub station: Option<String>,
    /// The source, client, recorder or output; may be empty.
    pub subject: String,
    /// One sentence for users.
    pub text: String,
}

/// An event in the history.
#[derive(Clone, Debug)]
struct StoredEvent {
    id: u64,
    /// The revision of the history that last changed it.
    revision: u64,
    /// Milliseconds since the Unix epoch.
    at_ms: u64,
    is_acknowledged: bool,
    event: NewEvent,
}

/// Which events a reader wants.
#[derive(Clone, Copy, Debug)]
pub struct EventQuery<'a> {
    /// The reader's role.
    pub role: Role,
    /// Only events with a greater number, the oldest first; otherwise the newest.
    pub after: Option<u64>,
    /// Only events of this station.
    pub station: Option<&'a str>,
    /// Only events of this kind.
    pub kind: Option<&'a str>,
    /// Only events of at least this severity.
    pub severity: Option<&'a str>,
    /// At most this many.
    pub limit: usize,
}

/// The rings.
#[derive(Debug)]
pub(crate) struct EventHistory {
    state: Mutex<HistoryState>,
    /// The revision, for readers that wait for a change.
    revision: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct HistoryState {
    /// Events that peers cause, and all others; each sorted by number.
    rings: [VecDeque<StoredEvent>; 2],
    last_id: u64,
    revision: u64,
    dropped: u64,
}

impl Default for EventHistory {
    fn default() -> Self {
        Self { state: Mutex::default(), revision: watch::Sender::new(0) }
    }
}

impl EventHistory {
    /// A poisoned lock is taken all the same: each change is a single step.
    fn lock(&self) -> MutexGuard<'_, HistoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, event: NewEvent, now: SystemTime) {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let revision = self.lock().add(event, u64::try_from(since.as_millis()).unwrap_or(0));
        self.revision.send_replace(revision);
    }

    /// The events of a query as JSON, the oldest first, with the figures of the whole history.
    pub(crate) fn find(&self, query: &EventQuery<'_>) -> Value {
        let state = self.lock();
        let found = state.find(query);
        json!({
            "events": found.into_iter().map(StoredEvent::json).collect::<Vec<_>>(),
            "newest": state.last_id,
            "unacknowledged": state.unacknowledged(query.role),
            "dropped": state.dropped,
        })
    }

    /// Acknowledges the events that a role sees, match a query and are not newer than `through`;
    /// returns their number.
    pub(crate) fn acknowledge(&self, query: &EventQuery<'_>, through: u64) -> usize {
        let mut state = self.lock();
        let count = state.acknowledge(query, through);
        if count > 0 {
            self.revision.send_replace(state.revision);
        }
        count
    }

    /// The number of events that have been dropped because a ring was full.
    pub(crate) fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// The warnings and errors that a role sees and that are not acknowledged.
    pub(crate) fn unacknowledged(&self, role: Role) -> usize {
        self.lock().unacknowledged(role)
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// The parameters of `Aulos.OnEvents` with what has changed since a revision, and the revision
    /// up to which they go; `None` if a role sees no change.
    pub(crate) fn changes_since(&self, since: u64, role: Role) -> (u64, Option<Value>) {
        let state = self.lock();
        let mut changed: Vec<_> = state
            .all()
            .filter(|stored| stored.revision > since && stored.is_visible_to(role))
            .collect();
        if changed.is_empty() {
            return (state.revision, None);
        }
        changed.sort_by_key(|stored| stored.revision);
        changed.truncate(MAX_CHANGES);
        let last = changed.last().map_or(state.revision, |stored| stored.revision);
        let params = json!({
            "events": changed.into_iter().map(StoredEvent::json).collect::<Vec<_>>(),
            "unacknowledged": state.unacknowledged(role),
        });
        (last, Some(params))
    }
}

impl HistoryState {
    fn add(&mut self, mut event: NewEvent, at_ms: u64) -> u64 {
        self.last_id += 1;
        self.revision += 1;
        event.text = in_one_line(&event.text, MAX_TEXT_BYTES);
        event.subject = in_one_line(&event.subject, MAX_SUBJECT_BYTES);
        let ring = &mut self.rings[usize::from(event.kind.is_caused_by_peers())];
        if ring.len() >= MAX_EVENTS {
            ring.pop_front();
            self.dropped += 1;
        }
        // What is normal needs no acknowledgement.
        let is_acknowledged = event.severity == EventSeverity::Info;
        let (id, revision) = (self.last_id, self.revision);
        ring.push_back(StoredEvent { id, revision, at_ms, is_acknowledged, event });
        revision
    }

    fn all(&self) -> impl Iterator<Item = &StoredEvent> {
        self.rings.iter().flatten()
    }

    fn find(&self, query: &EventQuery<'_>) -> Vec<&StoredEvent> {
        let mut found: Vec<_> = self.all().filter(|stored| stored.matches(query)).collect();
        found.sort_by_key(|stored| stored.id);
        if query.after.is_some() {
            found.truncate(query.limit);
        } else {
            found.drain(..found.len().saturating_sub(query.limit));
        }
        found
    }

    fn acknowledge(&mut self, query: &EventQuery<'_>, through: u64) -> usize {
        let mut count = 0;
        for stored in self.rings.iter_mut().flatten() {
            if stored.id <= through && !stored.is_acknowledged && stored.matches(query) {
                self.revision += 1;
                (stored.is_acknowledged, stored.revision) = (true, self.revision);
                count += 1;
            }
        }
        count
    }

    fn unacknowledged(&self, role: Role) -> usize {
        self.all().filter(|stored| !stored.is_acknowledged && stored.is_visible_to(role)).count()
    }
}

impl StoredEvent {
    fn is_visible_to(&self, role: Role) -> bool {
        role >= self.event.kind.role()
    }

    fn matches(&self, query: &EventQuery<'_>) -> bool {
        let EventQuery { role, after, station, kind, severity, .. } = *query;
        let least = severity.and_then(|name| EVENT_SEVERITIES.iter().position(|one| *one == name));
        self.is_visible_to(role)
            && after.is_none_or(|after| self.id > after)
            && station.is_none_or(|station| self.event.station.as_deref() == Some(station))
            && kind.is_none_or(|kind| self.event.kind.name() == kind)
            && self.event.severity as usize >= least.unwrap_or(0)
    }

    fn json(&self) -> Value {
        let NewEvent { kind, severity, station, subject, text } = &self.event;
        let time = Utc::from_unix(self.at_ms / 1_000).to_string();
        let time = time.trim_end_matches('Z');
        json!({
            "id": self.id,
            "time": format!("{time}.{:03}Z", self.at_ms % 1_000),
            "station": station,
            "kind": kind.name(),
            "severity": EVENT_SEVERITIES[*severity as usize],
            "subject": subject,
            "text": text,
            "acknowledged": self.is_acknowledged,
        })
    }
}

/// A text without control characters, which may come from a peer, of at most `limit` bytes.
fn in_one_line(text: &str, limit: usize) -> String {
    let is_end = |at: &usize| text.is_char_boundary(*at);
    let end = (0..=limit.min(text.len())).rev().find(is_end).unwrap_or(0);
    let mut line = text[..end].replace(char::is_control, " ");
    if end < text.len() {
        line.push('\u{2026}');
    }
    line
}

/// Events in each of the two rings: some days of a normal server, and at most 2 MB.
const MAX_EVENTS: usize = 1_000;
/// Longest text; a reason may quote a file or a server.
const MAX_TEXT_BYTES: usize = 500;
/// Longest name of a subject.
const MAX_SUBJECT_BYTES: usize = 120;
/// Most events in one notification; more follow in the next one.
const MAX_CHANGES: usize = 200;
/// Most events that a query returns, and how many it returns without a limit.
pub(crate) const MAX_LIMIT: usize = 1_000;
pub(crate) const DEFAULT_LIMIT: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, severity: EventSeverity, text: &str) -> NewEvent {
        let station = Some("a".to_owned());
        NewEvent { kind, severity, station, subject: String::new(), text: text.to_owned() }
    }

    fn query(role: Role) -> EventQuery<'static> {
        EventQuery { role, after: None, station: None, kind: None, severity: None, limit: 10 }
    }

    fn texts(found: &Value) -> Vec<&str> {
        found["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["text"].as_str().unwrap())
            .collect()
    }

    #[test]
    fn a_flood_of_clients_displaces_no_failure_and_is_counted() {
        let history = EventHistory::default();
        history.add(event(EventKind::Source, EventSeverity::Warning, "source failed"), UNIX_EPOCH);
        for number in 0..MAX_EVENTS + 5 {
            history.add(
                event(EventKind::Client, EventSeverity::Info, &number.to_string()),
                UNIX_EPOCH,
            );
        }
        let found = history.find(&EventQuery { kind: Some("source"), ..query(Role::Listen) });
        assert_eq!(texts(&found), ["source failed"]);
        assert_eq!((&found["dropped"], &found["newest"]), (&json!(5), &json!(MAX_EVENTS + 6)));
        assert_eq!(history.dropped(), 5);
    }

    #[test]
    fn without_a_start_the_newest_are_returned_and_with_one_the_next() {
        let history = EventHistory::default();
        for number in 0..20 {
            let kind = if number % 2 == 0 { EventKind::Client } else { EventKind::Switch };
            history.add(event(kind, EventSeverity::Info, &number.to_string()), UNIX_EPOCH);
        }
        let newest = history.find(&EventQuery { limit: 3, ..query(Role::Listen) });
        assert_eq!(texts(&newest), ["17", "18", "19"]);
        let next = history.find(&EventQuery { after: Some(5), limit: 2, ..query(Role::Listen) });
        assert_eq!(texts(&next), ["5", "6"]);
        let none = history.find(&EventQuery { station: Some("b"), ..query(Role::Listen) });
        assert_eq!(texts(&none), Vec::<&str>::new());
    }

    #[test]
    fn warnings_stay_until_they_are_acknowledged_and_logins_are_for_administrators() {
        let history = EventHistory::default();
        history.add(event(EventKind::Login, EventSeverity::Warning, "login refused"), UNIX_EPOCH);
        history.add(event(EventKind::Silence, EventSeverity::Error, "silence"), UNIX_EPOCH);
        history.add(event(EventKind::Silence, EventSeverity::Info, "sound"), UNIX_EPOCH);
        history.add(event(EventKind::Level, EventSeverity::Warning, "peak"), UNIX_EPOCH);
        assert_eq!(history.unacknowledged(Role::Admin), 3);
        let found = history.find(&EventQuery { severity: Some("warning"), ..query(Role::Control) });
        assert_eq!((texts(&found), &found["unacknowledged"]), (vec!["silence", "peak"], &json!(2)));
        // A role acknowledges what it sees.
        assert_eq!(history.acknowledge(&query(Role::Control), 3), 1);
        assert_eq!(history.acknowledge(&query(Role::Control), 3), 0);
        assert_eq!(history.unacknowledged(Role::Control), 1);
        assert_eq!(history.unacknowledged(Role::Admin), 2);
    }

    #[test]
    fn a_change_is_told_once_and_an_acknowledgement_is_a_change() {
        let history = EventHistory::default();
        history.add(event(EventKind::Level, EventSeverity::Warning, "peak"), UNIX_EPOCH);
        history.add(event(EventKind::Login, EventSeverity::Warning, "login refused"), UNIX_EPOCH);
        let (revision, told) = history.changes_since(0, Role::Listen);
        assert_eq!(texts(&told.unwrap()), ["peak"]);
        assert_eq!(history.changes_since(revision, Role::Listen), (2, None));
        history.acknowledge(&query(Role::Listen), 9);
        let (_, told) = history.changes_since(2, Role::Listen);
        let told = told.unwrap();
        assert_eq!(
            (&told["events"][0]["acknowledged"], &told["unacknowledged"]),
            (&json!(true), &json!(0))
        );
        // A reader that is far behind gets all of it in parts.
        for number in 0..MAX_CHANGES + 1 {
            history.add(
                event(EventKind::Switch, EventSeverity::Info, &number.to_string()),
                UNIX_EPOCH,
            );
        }
        let (part, told) = history.changes_since(3, Role::Listen);
        assert_eq!(told.unwrap()["events"].as_array().unwrap().len(), MAX_CHANGES);
        let (_, rest) = history.changes_since(part, Role::Listen);
        assert_eq!(texts(&rest.unwrap()), [MAX_CHANGES.to_string()]);
    }

    #[test]
    fn texts_of_peers_are_one_line_of_bounded_length() {
        let history = EventHistory::default();
        history.add(
            event(EventKind::Source, EventSeverity::Info, &"a\nü".repeat(MAX_TEXT_BYTES)),
            UNIX_EPOCH,
        );
        let found = history.find(&query(Role::Listen));
        let text = texts(&found)[0];
        assert!(text.len() <= MAX_TEXT_BYTES + 3 && text.starts_with("a ü"), "{text}");
        assert_eq!(EventKind::Configuration.name(), "configuration");
    }
}
