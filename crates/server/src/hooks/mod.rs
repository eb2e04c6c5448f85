//! Who is told when a station is in trouble, and comes out of it: commands and webhooks.
//!
//! ```text
//!  status, ten times a second -> Watch (one per station) --News--> Hooks -> Line (one per hook)
//!  every switch of a source ---^                                              |  ^
//!                                                  a task per hook:   attempt v  | how it ended
//!                                                                     Command, Post
//! ```
//!
//! `Watch` and `Line` decide and know no clock; the task does what the line says and nothing
//! else. A task of control calling a program where the event happens was the alternative: then a
//! program that hangs would hold up the next alarm, and nobody could count what was lost.

mod command;
mod post;
mod queue;
mod run;
#[cfg(test)]
mod tests;
mod watch;

pub use run::{HookRunner, SHUTDOWN_TIMEOUT};
pub(crate) use watch::{Observation, StationWatch};

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use aulos_core::{Db, Span, Utc};
use aulos_io::SystemClock;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use aulos_config::{Hook, HookAction, HookEventKind};
use queue::{HookQueue, QueueInput};

/// What has happened to a station, with its reason and figures. Sources are named.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HookEvent {
    /// A source failed; none in `to` is the last resort.
    Fallback { from: Option<String>, to: Option<String>, cause: &'static str },
    /// A better one than the one that was heard is back; `complete` is as good as before the
    /// failure, which was `after` ago.
    Recovered {
        from: Option<String>,
        to: Option<String>,
        cause: &'static str,
        after: Span,
        complete: bool,
    },
    /// Nothing has been heard for so long.
    Silence { source: Option<String>, cause: &'static str, lasted: Span },
    /// Something can be heard again, after so long.
    Sound { source: Option<String>, lasted: Span },
    /// The highest peak since this was told last, and how many looks found one.
    OverCeiling { source: Option<String>, peak: Db, ceiling: Db, times: u64 },
    /// Something has happened to a recorder: of which kind, in words, and with what figures.
    Recorder { kind: HookEventKind, text: String, figures: Value },
    /// Nothing has.
    Test,
}

impl HookEvent {
    const fn kind(&self) -> HookEventKind {
        match self {
            Self::Fallback { .. } => HookEventKind::Fallback,
            Self::Recovered { .. } => HookEventKind::Recovered,
            Self::Silence { .. } => HookEventKind::Silence,
            Self::Sound { .. } => HookEventKind::Sound,
            Self::OverCeiling { .. } => HookEventKind::OverCeiling,
            Self::Recorder { kind, .. } => *kind,
            Self::Test => HookEventKind::Test,
        }
    }

    /// For people.
    fn text(&self) -> String {
        let named = |source: &Option<String>| {
            source.clone().unwrap_or_else(|| "the last resort".to_owned())
        };
        match self {
            Self::Fallback { from, to, cause } => {
                format!("{} is lost ({cause}), {} plays", named(from), named(to))
            }
            Self::Recovered { to, after, complete, .. } => {
                let part = if *complete { "" } else { ", which is not yet what was lost" };
                format!("{} is back after {:.1} s{part}", named(to), after.as_secs_f64())
            }
            Self::Silence { lasted, .. } => {
                format!("nothing has been heard for {:.1} s", lasted.as_secs_f64())
            }
            Self::Sound { lasted, .. } => {
                format!("sound again after {:.1} s", lasted.as_secs_f64())
            }
            Self::OverCeiling { peak, ceiling, .. } => {
                let (peak, ceiling) = (peak.get(), ceiling.get());
                format!("true peak {peak:+.1} dBTP, above the ceiling of {ceiling:+.1} dBTP")
            }
            Self::Recorder { text, .. } => text.clone(),
            Self::Test => "this is a test".to_owned(),
        }
    }

    fn figures(&self) -> Value {
        match self {
            Self::Fallback { from, to, cause } => json!({ "from": from, "to": to, "cause": cause }),
            Self::Recovered { from, to, cause, after, complete } => json!({
                "from": from,
                "to": to,
                "cause": cause,
                "after_s": tenths(after.as_secs_f64()),
                "complete": complete,
            }),
            Self::Silence { source, cause, lasted } => json!({
                "source": source,
                "cause": cause,
                "silent_s": tenths(lasted.as_secs_f64()),
            }),
            Self::Sound { source, lasted } => {
                json!({ "source": source, "silent_s": tenths(lasted.as_secs_f64()) })
            }
            Self::OverCeiling { source, peak, ceiling, times } => json!({
                "source": source,
                "true_peak_dbtp": tenths(peak.get()),
                "ceiling_dbtp": tenths(ceiling.get()),
                "times": times,
            }),
            Self::Recorder { figures, .. } => figures.clone(),
            Self::Test => json!({}),
        }
    }
}

/// News as hooks are told it.
#[derive(Debug)]
pub(crate) struct HookMessage {
    kind: HookEventKind,
    station: Option<String>,
    /// Never used twice, by any server.
    id: String,
    /// All of it but what differs from hook to hook.
    body: Map<String, Value>,
}

/// Every hook, what it waits for and how it did.
pub struct Hooks {
    host: String,
    /// Begins every id of this life of the server.
    stamp: u64,
    next: AtomicU64,
    hooks: Mutex<Vec<Arc<HookState>>>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("told", &self.next).finish_non_exhaustive()
    }
}

/// One hook, shared by those who tell it something and the task that passes it on.
#[derive(Debug)]
pub(crate) struct HookState {
    queue: Mutex<HookQueue>,
    /// There is something new in the line.
    wake: Notify,
}

impl HookState {
    fn new(hook: &Hook) -> Self {
        let seed = RandomState::new().hash_one(&hook.name);
        Self {
            queue: Mutex::new(HookQueue::new(Arc::new(hook.clone()), seed)),
            wake: Notify::new(),
        }
    }

    /// A panic while it was held is a bug that was reported; counters and a queue are whole at any
    /// moment.
    fn queue(&self) -> MutexGuard<'_, HookQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, input: QueueInput) {
        self.queue().handle_input(SystemClock::now(), input);
        self.wake.notify_one();
    }
}

impl Hooks {
    /// Those of a configuration, of a server on this host.
    #[must_use]
    pub fn new(host: &str, hooks: &[Hook]) -> Self {
        let all = Self {
            host: host.to_owned(),
            stamp: RandomState::new().hash_one(std::process::id()),
            next: AtomicU64::new(1),
            hooks: Mutex::default(),
        };
        all.change(hooks);
        all
    }

    /// Has these from now on. One that keeps its name keeps what it waits for and its counters.
    pub fn change(&self, hooks: &[Hook]) {
        let mut desks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::take(&mut *desks);
        for hook in hooks {
            let known = old.iter().find(|desk| desk.queue().hook().name == hook.name);
            if let Some(desk) = known {
                desk.push(QueueInput::ConfigChanged(Arc::new(hook.clone())));
            }
            desks.push(known.map_or_else(|| Arc::new(HookState::new(hook)), Arc::clone));
        }
    }

    /// Tells every hook that wants to know.
    pub(crate) fn notify(&self, station: &str, news: &HookEvent) {
        let desks = self.states();
        let wanted = |desk: &Arc<HookState>| desk.queue().matches(news.kind(), station);
        let wanted: Vec<_> = desks.into_iter().filter(wanted).collect();
        if wanted.is_empty() {
            return;
        }
        let event = Arc::new(self.message(Some(station), news));
        for desk in wanted {
            desk.push(QueueInput::Event(Arc::clone(&event)));
        }
    }

    /// Sends a test to one hook, by its name or its number from 0; gives its name and the event's id.
    pub(crate) fn test(&self, which: &Value) -> Option<(String, String)> {
        let desks = self.states();
        let number = which.as_u64().and_then(|number| usize::try_from(number).ok());
        let desk = match which.as_str() {
            Some(name) => desks.iter().find(|desk| desk.queue().hook().name == name),
            None => number.and_then(|number| desks.get(number)),
        };
        let desk = desk?;
        let event = Arc::new(self.message(None, &HookEvent::Test));
        let told = (desk.queue().hook().name.clone(), event.id.clone());
        desk.push(QueueInput::Event(event));
        Some(told)
    }

    /// How each does.
    pub(crate) fn status(&self) -> Value {
        let now = SystemClock::now();
        let desks = self.states();
        let shown = desks.iter().map(|desk| {
            let line = desk.queue();
            let (hook, tally) = (line.hook(), line.counts());
            let (kind, target) = match &hook.action {
                HookAction::Run { program, .. } => ("command", program.display().to_string()),
                HookAction::Post(post) => ("webhook", post.origin()),
            };
            json!({
                "name": hook.name,
                "kind": kind,
                "target": target,
                "on": hook.on.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
                "stations": hook.stations,
                "delivered": tally.delivered,
                "failed": tally.failed,
                "dropped": tally.dropped,
                "retries": tally.retries,
                "waiting": line.waiting(),
                "last_error": tally.last_error.as_ref().map(|(fault, at)| json!({
                    "text": fault.to_string(),
                    "s_ago": tenths(now.since(*at).as_secs_f64()),
                })),
                "last_event": tally.last_event.as_ref().map(|event| json!({
                    "id": event.id,
                    "event": event.kind.name(),
                    "station": event.station,
                    "time": event.body.get("time"),
                })),
            })
        });
        shown.collect()
    }

    fn states(&self) -> Vec<Arc<HookState>> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn message(&self, station: Option<&str>, news: &HookEvent) -> HookMessage {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:016x}-{number}", self.stamp);
        let mut body = Map::new();
        let head = json!({
            "id": id,
            "event": news.kind().name(),
            "station": station,
            "server": self.host,
            "time": Utc::from_unix(since.as_secs()).to_string(),
            "text": match station {
                Some(station) => format!("{station}: {}", news.text()),
                None => news.text(),
            },
        });
        for part in [head, news.figures()] {
            if let Value::Object(part) = part {
                body.extend(part);
            }
        }
        HookMessage { kind: news.kind(), station: station.map(str::to_owned), id, body }
    }
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
