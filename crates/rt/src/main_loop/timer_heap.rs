//! The timers that a loop completes, and their side in the loop.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use atomic_waker::AtomicWaker;
use portable_atomic::AtomicU64;

/// End of a timer, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) enum TimerExpiry {
    At(u64),
    /// Relative to the poll in which the loop receives the timer.
    In(u64),
}

impl TimerExpiry {
    pub(super) fn after(span: Duration) -> Self {
        Self::In(nanos(span))
    }
}

pub(super) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// State that the waiting future and the loop share.
pub(super) struct TimerState {
    expiry: TimerExpiry,
    planned: AtomicU64,
    ended: AtomicU64,
    has_ended: AtomicBool,
    is_cancelled: AtomicBool,
    waker: AtomicWaker,
}

impl TimerState {
    pub(super) fn new(expiry: TimerExpiry) -> Self {
        Self {
            expiry,
            planned: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
            is_cancelled: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        }
    }

    pub(super) fn expiry(&self) -> TimerExpiry {
        self.expiry
    }

    /// Has `waker` woken when the timer ends.
    pub(super) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// The planned and the actual end; `None` if the loop is gone.
    pub(super) fn times(&self) -> Option<(u64, u64)> {
        let is_lost = self.is_cancelled.load(Ordering::Relaxed);
        let time = |time: &AtomicU64| time.load(Ordering::Relaxed);
        if is_lost { None } else { Some((time(&self.planned), time(&self.ended))) }
    }

    fn end(&self) {
        // Release: a thread that sees it sees the times.
        self.has_ended.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// The loop's side of a timer. Dropping it early cancels the timer.
pub(super) struct ArmedTimer(Arc<TimerState>);

impl ArmedTimer {
    pub(super) fn new(state: Arc<TimerState>) -> Self {
        Self(state)
    }

    fn fire(&self, planned: u64, now: u64) {
        self.0.planned.store(planned, Ordering::Relaxed);
        self.0.ended.store(now, Ordering::Relaxed);
        self.0.end();
    }

    /// Whether no future waits for the timer any more.
    fn is_orphaned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl Drop for ArmedTimer {
    fn drop(&mut self) {
        if !self.0.has_ended() {
            self.0.is_cancelled.store(true, Ordering::Relaxed);
            self.0.end();
        }
    }
}

/// The timers of a loop, by time and then in the order of arming.
#[derive(Default)]
pub(super) struct TimerHeap {
    heap: BinaryHeap<Reverse<TimerEntry>>,
    armed: u64,
    /// Number of timers at which orphaned ones are removed.
    sweep_at: usize,
}

impl TimerHeap {
    pub(super) fn insert(&mut self, now: u64, alarm: ArmedTimer) {
        let at = match alarm.0.expiry {
            TimerExpiry::At(at) => at,
            TimerExpiry::In(span) => now.saturating_add(span),
        };
        self.armed += 1;
        self.heap.push(Reverse(TimerEntry { at, number: self.armed, armed: alarm }));
        // Unused timeouts are many and far in the future: they must not accumulate.
        if self.heap.len() > self.sweep_at {
            self.heap.retain(|Reverse(timer)| !timer.armed.is_orphaned());
            self.sweep_at = MIN_SWEEP.max(self.heap.len() * 2);
        }
    }

    /// Ends all timers that are due.
    pub(super) fn fire(&mut self, now: u64) {
        while self.heap.peek().is_some_and(|Reverse(timer)| timer.at <= now) {
            if let Some(Reverse(timer)) = self.heap.pop() {
                timer.armed.fire(timer.at, now);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Time of the next timer.
    pub(super) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(timer)| timer.at)
    }
}

/// A sweep of fewer timers is not worth its cost.
const MIN_SWEEP: usize = 64;

impl fmt::Debug for TimerHeap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers").field("set", &self.len()).finish_non_exhaustive()
    }
}

struct TimerEntry {
    at: u64,
    number: u64,
    armed: ArmedTimer,
}

impl TimerEntry {
    fn key(&self) -> (u64, u64) {
        (self.at, self.number)
    }
}

impl Ord for TimerEntry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for TimerEntry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for TimerEntry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for TimerEntry {}
