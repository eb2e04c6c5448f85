//! Hooks: what to report when a station fails or recovers, to whom, and when to try again.
//!
//! ```text
//!  status, ten times a second -> StationWatch --HookEvent--> Hooks -> HookQueue (one per hook)
//!  every switch of a source ---^  (one per station)                      |  ^
//!                                              DeliveryStep::Deliver     v  | result
//!                                               a task per hook, outside of this crate
//! ```
//!
//! `StationWatch` and `HookQueue` decide and use no clock; the task runs the command or sends the
//! request, and reports the result to [`HookState`]. Calling the program from the control task at
//! the time of the event was the alternative: a program that hangs would delay the next alarm, and
//! losses could not be counted.

pub(crate) mod calls;

mod event;
mod insert_watch;
mod queue;
#[cfg(test)]
mod tests;
mod watch;

pub use event::HookEvent;
pub(crate) use event::HookMessage;
pub use queue::{Delivery, DeliveryError};
pub(crate) use watch::{Observation, StationWatch};

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use aulos_core::{Span, Utc};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use crate::control::clock::Clock;

use aulos_config::{Hook, HookAction};
use event::tenths;
use queue::{HookQueue, QueueInput};

/// All hooks, with their queues and counters.
pub struct Hooks {
    host: String,
    /// Prefix of all ids of this run of the server.
    stamp: u64,
    next: AtomicU64,
    hooks: Mutex<Vec<Arc<HookState>>>,
    clock: Clock,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("told", &self.next).finish_non_exhaustive()
    }
}

/// The queue of one hook, shared by the control plane and the task that delivers its events.
#[derive(Debug)]
pub struct HookState {
    queue: Mutex<HookQueue>,
    /// Wakes the task.
    wake: Notify,
    clock: Clock,
}

impl HookState {
    fn new(hook: &Hook, clock: Clock) -> Self {
        let seed = RandomState::new().hash_one(&hook.name);
        Self {
            queue: Mutex::new(HookQueue::new(Arc::new(hook.clone()), seed)),
            wake: Notify::new(),
            clock,
        }
    }

    /// A panic with the lock held is a bug that was reported; the queue and its counters are
    /// consistent at any moment.
    fn queue(&self) -> MutexGuard<'_, HookQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, input: QueueInput) {
        self.queue().handle_input(self.clock.local(), input);
        self.wake.notify_one();
    }

    /// What the task has to do now.
    #[must_use]
    pub fn next_step(&self) -> DeliveryStep {
        let now = self.clock.local();
        let mut queue = self.queue();
        queue.handle_timeout(now);
        if queue.is_over() {
            return DeliveryStep::End;
        }
        match queue.poll_output() {
            Some(delivery) => DeliveryStep::Deliver(delivery),
            None => DeliveryStep::Wait(queue.poll_timeout().map(|until| until.since(now))),
        }
    }

    /// Reports the result of the last delivery.
    pub fn finish(&self, result: Result<(), DeliveryError>) {
        self.queue().handle_input(self.clock.local(), QueueInput::Finished(result));
    }

    /// Starts no more deliveries.
    pub fn stop(&self) {
        self.push(QueueInput::Stop);
    }

    /// Waits until the next step may be another one.
    pub async fn changed(&self) {
        self.wake.notified().await;
    }

    /// The name of the hook.
    #[must_use]
    pub fn name(&self) -> String {
        self.queue().hook().name.clone()
    }

    /// The number of events that have been neither delivered nor given up.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue().waiting()
    }
}

/// A hook at one moment.
#[derive(Clone, Debug)]
pub struct HookSnapshot {
    /// Its name.
    pub name: String,
    /// Events by result: delivered, given up, dropped from a full queue.
    pub events: [u64; 3],
    /// Repeated attempts.
    pub retries: u64,
    /// Events that wait.
    pub waiting: usize,
}

/// What the task of a hook has to do.
#[derive(Debug)]
pub enum DeliveryStep {
    /// Make this attempt, and report its result with [`HookState::finish`].
    Deliver(Delivery),
    /// Wait for [`HookState::changed`], but no longer than this.
    Wait(Option<Span>),
    /// End: no attempt will follow.
    End,
}

impl Hooks {
    /// The hooks of a configuration, on this host.
    #[must_use]
    pub fn new(host: &str, hooks: &[Hook], clock: Clock) -> Self {
        let all = Self {
            host: host.to_owned(),
            stamp: RandomState::new().hash_one(std::process::id()),
            next: AtomicU64::new(1),
            hooks: Mutex::default(),
            clock,
        };
        all.change(hooks);
        all
    }

    /// Replaces the hooks. One that keeps its name keeps its queue and its counters.
    pub fn change(&self, hooks: &[Hook]) {
        let mut desks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::take(&mut *desks);
        for hook in hooks {
            let known = old.iter().find(|state| state.queue().hook().name == hook.name);
            if let Some(state) = known {
                state.push(QueueInput::ConfigChanged(Arc::new(hook.clone())));
            }
            desks.push(
                known
                    .map_or_else(|| Arc::new(HookState::new(hook, self.clock.clone())), Arc::clone),
            );
        }
    }

    /// Queues an event for every hook that subscribes to it.
    pub fn notify(&self, station: &str, event: &HookEvent) {
        let desks = self.states();
        let wanted = |state: &Arc<HookState>| state.queue().matches(event.kind(), station);
        let wanted: Vec<_> = desks.into_iter().filter(wanted).collect();
        if wanted.is_empty() {
            return;
        }
        let event = Arc::new(self.message(Some(station), event));
        for state in wanted {
            state.push(QueueInput::Event(Arc::clone(&event)));
        }
    }

    /// Sends a test to one hook, by its name or its index from 0; returns its name and the event's
    /// id.
    #[must_use]
    pub fn test(&self, which: &Value) -> Option<(String, String)> {
        let desks = self.states();
        let number = which.as_u64().and_then(|number| usize::try_from(number).ok());
        let state = match which.as_str() {
            Some(name) => desks.iter().find(|state| state.queue().hook().name == name),
            None => number.and_then(|number| desks.get(number)),
        };
        let state = state?;
        let event = Arc::new(self.message(None, &HookEvent::Test));
        let told = (state.queue().hook().name.clone(), event.id.clone());
        state.push(QueueInput::Event(event));
        Some(told)
    }

    /// The status of each hook.
    #[must_use]
    pub fn status(&self) -> Value {
        let now = self.clock.local();
        let desks = self.states();
        let shown = desks.iter().map(|state| {
            let queue = state.queue();
            let (hook, counts) = (queue.hook(), queue.counts());
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
                "delivered": counts.delivered,
                "failed": counts.failed,
                "dropped": counts.dropped,
                "retries": counts.retries,
                "waiting": queue.waiting(),
                "last_error": counts.last_error.as_ref().map(|(fault, at)| json!({
                    "text": fault.to_string(),
                    "s_ago": tenths(now.since(*at).as_secs_f64()),
                })),
                "last_event": counts.last_event.as_ref().map(|event| json!({
                    "id": event.id,
                    "event": event.kind.name(),
                    "station": event.station,
                    "time": event.body.get("time"),
                })),
            })
        });
        shown.collect()
    }

    /// The counters of each hook.
    #[must_use]
    pub fn snapshots(&self) -> Vec<HookSnapshot> {
        let states = self.states();
        let snapshots = states.iter().map(|state| {
            let queue = state.queue();
            let counts = queue.counts();
            HookSnapshot {
                name: queue.hook().name.clone(),
                events: [counts.delivered, counts.failed, counts.dropped],
                retries: counts.retries,
                waiting: queue.waiting(),
            }
        });
        snapshots.collect()
    }

    /// The queue of each hook. One that keeps its name in a reload stays the same.
    #[must_use]
    pub fn states(&self) -> Vec<Arc<HookState>> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn message(&self, station: Option<&str>, event: &HookEvent) -> HookMessage {
        let since = self.clock.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:016x}-{number}", self.stamp);
        let mut body = Map::new();
        let head = json!({
            "id": id,
            "event": event.kind().name(),
            "station": station,
            "server": self.host,
            "time": Utc::from_unix(since.as_secs()).to_string(),
            "text": match station {
                Some(station) => format!("{station}: {}", event.text()),
                None => event.text(),
            },
        });
        // The head last: a figure never takes the place of one of its fields.
        for part in [event.figures(), head] {
            if let Value::Object(part) = part {
                body.extend(part);
            }
        }
        HookMessage { kind: event.kind(), station: station.map(str::to_owned), id, body }
    }
}
