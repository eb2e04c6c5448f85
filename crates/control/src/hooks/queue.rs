//! The delivery queue of one hook: its capacity, the time of the next attempt, and when to give up.
//!
//! ```text
//!  Idle -> Trying -> Idle               delivered, or given up
//!             ^ \--> Pause (0.5 s, 1 s ... 30 s)
//!             \________/
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use aulos_core::{Backoff, Instant, Span};

use aulos_config::Hook;
use aulos_config::HookEventKind;
use serde_json::{Map, Value, json};

use super::HookMessage;

/// Maximum number of waiting events; the oldest is dropped.
pub(super) const MAX_WAITING: usize = 64;
/// Maximum number of events per minute, so that a flapping source does not flood a mailbox.
pub(super) const PER_MINUTE: usize = 30;
/// The pause before the second attempt, doubled up to the maximum.
const FIRST_PAUSE: Span = Span::from_millis(500);
const LAST_PAUSE: Span = Span::from_secs(30);
const MINUTE: Span = Span::from_secs(60);

/// The queue of one hook.
#[derive(Debug)]
pub(super) struct HookQueue {
    hook: Arc<Hook>,
    waiting: VecDeque<Arc<HookMessage>>,
    /// Times of the events accepted in the last minute.
    taken: VecDeque<Instant>,
    state: DeliveryState,
    /// Dropped events that were not reported yet.
    dropped_unreported: u64,
    backoff: Backoff,
    stopping: bool,
    counts: DeliveryCounts,
}

/// State of the first event.
#[derive(Debug)]
enum DeliveryState {
    /// There is none, or it has not been taken yet.
    Idle,
    /// An attempt is due.
    Due(Delivery),
    /// An attempt is in progress.
    Trying(Delivery),
    /// An attempt has failed, and the next one is due at this time.
    Pause(Delivery, Instant),
}

/// An event in delivery: one attempt.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub(super) hook: Arc<Hook>,
    pub(super) event: Arc<HookMessage>,
    /// Events dropped before it.
    pub(super) dropped: u64,
    /// The number of this attempt, from 1.
    pub(super) attempt: u32,
}

impl Delivery {
    /// The hook, as it was configured when the attempt began.
    #[must_use]
    pub fn hook(&self) -> &Hook {
        &self.hook
    }

    /// The event's id, the same in each attempt and unique across servers.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.event.id
    }

    /// The message for this hook.
    #[must_use]
    pub fn body(&self) -> Map<String, Value> {
        let mut body = self.event.body.clone();
        body.insert("hook".to_owned(), json!(self.hook.name));
        body.insert("dropped".to_owned(), json!(self.dropped));
        body
    }
}

/// Inputs of the queue.
#[derive(Debug)]
pub(super) enum QueueInput {
    /// An event to deliver.
    Event(Arc<HookMessage>),
    /// The result of the attempt in progress.
    Finished(Result<(), DeliveryError>),
    /// The hook's configuration changed; an attempt in progress uses the old one.
    ConfigChanged(Arc<Hook>),
    /// Start no more attempts.
    Stop,
}

/// Delivery counters of a hook.
#[derive(Debug, Default)]
pub(super) struct DeliveryCounts {
    pub(super) delivered: u64,
    /// Given up.
    pub(super) failed: u64,
    /// Never attempted, because there were too many.
    pub(super) dropped: u64,
    pub(super) retries: u64,
    pub(super) last_error: Option<(DeliveryError, Instant)>,
    pub(super) last_event: Option<Arc<HookMessage>>,
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryError {
    /// The program could not be started.
    Start(std::io::ErrorKind),
    /// The program returned a failure status.
    Exit(std::process::ExitStatus),
    /// It took longer than `timeout_s`.
    TimedOut(u32),
    /// The host name has no address.
    Name,
    /// Too many name lookups are in progress.
    Busy,
    /// The host cannot be reached.
    Connect(std::io::ErrorKind),
    /// The certificate is not trusted, or the host does not speak TLS.
    Tls(String),
    /// The connection broke, or the answer is not HTTP.
    Broken,
    /// The answer has an error status.
    Status(u16),
}

impl DeliveryError {
    /// Whether a retry would have the same result.
    const fn is_final(&self) -> bool {
        matches!(self, Self::Status(status) if matches!(status, 300..=499) && !matches!(status, 408 | 429))
    }
}

impl fmt::Display for DeliveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(kind) => write!(f, "the program cannot be started: {kind}"),
            Self::Exit(status) => write!(f, "the program ended with {status}"),
            Self::TimedOut(seconds) => write!(f, "timed out after {seconds} s"),
            Self::Name => f.write_str("the host name has no address"),
            Self::Busy => f.write_str("too many concurrent name lookups"),
            Self::Connect(kind) => write!(f, "the host cannot be reached: {kind}"),
            Self::Tls(why) => write!(f, "TLS: {why}"),
            Self::Broken => f.write_str("the connection broke before an answer"),
            Self::Status(status @ 300..=399) => {
                write!(f, "the answer was {status}; redirects are not followed")
            }
            Self::Status(status) => write!(f, "the answer was {status}"),
        }
    }
}

impl HookQueue {
    /// An empty queue; `seed` randomizes the pauses.
    pub(super) fn new(hook: Arc<Hook>, seed: u64) -> Self {
        Self {
            hook,
            waiting: VecDeque::new(),
            taken: VecDeque::new(),
            state: DeliveryState::Idle,
            dropped_unreported: 0,
            backoff: Backoff::half_jitter(FIRST_PAUSE, LAST_PAUSE, seed),
            stopping: false,
            counts: DeliveryCounts::default(),
        }
    }

    /// Handles an input.
    pub(super) fn handle_input(&mut self, now: Instant, input: QueueInput) {
        match input {
            QueueInput::Event(event) => self.enqueue(now, event),
            QueueInput::Finished(outcome) => self.handle_finished(now, outcome),
            QueueInput::ConfigChanged(hook) => self.hook = hook,
            QueueInput::Stop => self.stopping = true,
        }
    }

    /// Ends a pause that is over.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.state = match std::mem::replace(&mut self.state, DeliveryState::Idle) {
            DeliveryState::Pause(delivery, until) if now >= until => DeliveryState::Due(delivery),
            same => same,
        };
    }

    /// The attempt to make now; report its result.
    pub(super) fn poll_output(&mut self) -> Option<Delivery> {
        if self.stopping {
            return None;
        }
        let delivery = match std::mem::replace(&mut self.state, DeliveryState::Idle) {
            DeliveryState::Idle => {
                let event = self.waiting.pop_front()?;
                let dropped = std::mem::take(&mut self.dropped_unreported);
                self.counts.last_event = Some(Arc::clone(&event));
                Delivery { hook: Arc::clone(&self.hook), event, dropped, attempt: 1 }
            }
            DeliveryState::Due(delivery) => {
                self.counts.retries += 1;
                let attempt = delivery.attempt + 1;
                Delivery { hook: Arc::clone(&self.hook), attempt, ..delivery }
            }
            same => {
                self.state = same;
                return None;
            }
        };
        self.state = DeliveryState::Trying(delivery.clone());
        Some(delivery)
    }

    /// Time of the next call without an input.
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            DeliveryState::Pause(_, until) => Some(until),
            _ => None,
        }
    }

    /// Whether no attempt is in progress and none will follow.
    pub(super) const fn is_over(&self) -> bool {
        self.stopping && !matches!(self.state, DeliveryState::Trying(_))
    }

    /// Whether the hook subscribes to this event.
    pub(super) fn matches(&self, kind: HookEventKind, station: &str) -> bool {
        let stations = self.hook.stations.as_ref();
        self.hook.on.contains(&kind)
            && stations.is_none_or(|names| names.iter().any(|name| name == station))
    }

    pub(super) fn hook(&self) -> &Hook {
        &self.hook
    }

    pub(super) const fn counts(&self) -> &DeliveryCounts {
        &self.counts
    }

    /// Events that have been neither delivered nor given up.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len() + usize::from(!matches!(self.state, DeliveryState::Idle))
    }

    fn enqueue(&mut self, now: Instant, event: Arc<HookMessage>) {
        while self.taken.front().is_some_and(|taken| now.since(*taken) >= MINUTE) {
            self.taken.pop_front();
        }
        // A user waits for the result of a test, so it is exempt from the rate limit.
        if event.kind != HookEventKind::Test {
            if self.taken.len() >= PER_MINUTE {
                return self.count_dropped();
            }
            self.taken.push_back(now);
        }
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.pop_front();
            self.count_dropped();
        }
        self.waiting.push_back(event);
    }

    const fn count_dropped(&mut self) {
        self.dropped_unreported += 1;
        self.counts.dropped += 1;
    }

    fn handle_finished(&mut self, now: Instant, outcome: Result<(), DeliveryError>) {
        let DeliveryState::Trying(delivery) =
            std::mem::replace(&mut self.state, DeliveryState::Idle)
        else {
            return;
        };
        let hook = Arc::clone(&self.hook);
        let (name, id) = (&hook.name, &delivery.event.id);
        let Err(fault) = outcome else {
            self.counts.delivered += 1;
            return tracing::debug!(hook = name, id, "delivered");
        };
        let words = fault.to_string();
        let last = fault.is_final() || delivery.attempt >= hook.tries;
        self.counts.last_error = Some((fault, now));
        let kind = delivery.event.kind.name();
        if last {
            self.counts.failed += 1;
            // The events dropped before it are still unreported.
            self.dropped_unreported += delivery.dropped;
            tracing::warn!(
                hook = name,
                id,
                kind,
                error = words,
                "cannot deliver an event; discarded"
            );
        } else {
            if delivery.attempt == 1 {
                self.backoff.reset();
            }
            let pause = self.backoff.failed(now);
            let seconds = pause.as_secs_f64();
            tracing::warn!(
                hook = name,
                id,
                kind,
                error = words,
                retry_s = format_args!("{seconds:.1}"),
                "cannot deliver an event; retrying"
            );
            self.state = DeliveryState::Pause(delivery, now + pause);
        }
    }
}
