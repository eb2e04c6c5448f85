//! Statistics of the control plane itself: its start, reloads and calls.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use aulos_core::Span;
use aulos_engine::recorder::{ClockMonitor, WallClock};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Observations counted by size.
#[derive(Clone, Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One more than there are bounds.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// A histogram without observations. The bounds are in ascending order; an observation belongs
    /// to the first one that is not below it.
    #[must_use]
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// Counts an observation.
    pub fn observe(&mut self, value: f64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
            self.sum += value;
        }
    }

    /// Replaces all observations by counts that something else has made with the same bounds.
    pub(crate) fn set_counts(&mut self, counts: &[u64], sum: f64) {
        debug_assert_eq!(counts.len(), self.counts.len());
        self.counts.clear();
        self.counts.extend_from_slice(counts);
        self.sum = sum;
    }

    /// Each bound with the number of observations that do not exceed it; infinity is last.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(&self.counts).scan(0, |total, (bound, count)| {
            *total += count;
            Some((bound, *total))
        })
    }

    /// The sum of all observations.
    #[must_use]
    pub const fn sum(&self) -> f64 {
        self.sum
    }

    /// The number of bounds, without infinity.
    #[must_use]
    pub const fn bounds(&self) -> &'static [f64] {
        self.bounds
    }
}

/// Statistics of the control plane itself.
#[derive(Debug)]
pub(crate) struct RunStatistics {
    state: Mutex<RunState>,
    /// Wakes those that wait for a tick.
    ticked: Notify,
}

#[derive(Debug)]
struct RunState {
    /// By the wall clock as it is now: times of the past move when the clock is set.
    started: SystemTime,
    clock_monitor: ClockMonitor,
    reload_succeeded: bool,
    configured_at: SystemTime,
    last_tick: Option<Instant>,
    /// Calls by method. The names come from the table of methods, so their number is fixed.
    calls: BTreeMap<&'static str, u64>,
    call_seconds: Histogram,
}

/// A copy of what changes while the server runs.
#[derive(Debug)]
pub(crate) struct CallStatistics {
    pub(crate) started: SystemTime,
    pub(crate) reload_succeeded: bool,
    pub(crate) configured_at: SystemTime,
    pub(crate) calls: Vec<(&'static str, u64)>,
    pub(crate) call_seconds: Histogram,
}

impl RunStatistics {
    pub(crate) fn new(started: SystemTime, clock: WallClock) -> Self {
        let mut clock_monitor = ClockMonitor::default();
        clock_monitor.observe(clock);
        let state = RunState {
            started,
            clock_monitor,
            reload_succeeded: true,
            configured_at: started,
            last_tick: None,
            calls: BTreeMap::new(),
            call_seconds: Histogram::new(&CALL_SECONDS),
        };
        Self { state: Mutex::new(state), ticked: Notify::new() }
    }

    /// Counts a call of a method, or of an unknown one.
    pub(crate) fn count_call(&self, method: Option<&'static str>, took: Span) {
        let mut state = self.lock();
        *state.calls.entry(method.unwrap_or("other")).or_default() += 1;
        state.call_seconds.observe(took.as_secs_f64());
    }

    /// Notes a tick of the control loop.
    pub(crate) fn set_ticked(&self, now: Instant) {
        self.lock().last_tick = Some(now);
        self.ticked.notify_waiters();
    }

    /// Whether the control loop runs: it has ticked within a second, or does within another one.
    pub(crate) async fn is_ticking(&self, now: Instant) -> bool {
        let next = self.ticked.notified();
        let last = self.lock().last_tick;
        last.is_some_and(|last| now.saturating_duration_since(last) < TICK_TIMEOUT)
            || timeout(TICK_TIMEOUT, next).await.is_ok()
    }

    /// Notes the outcome of a reload.
    pub(crate) fn set_reload(&self, outcome: Result<SystemTime, ()>) {
        let mut state = self.lock();
        state.reload_succeeded = outcome.is_ok();
        state.configured_at = outcome.unwrap_or(state.configured_at);
    }

    /// Takes a reading of the clocks. When the wall clock was set, the times of the past are
    /// corrected: a server that started before its machine knew the time has not run for weeks.
    pub(crate) fn observe_clock(&self, now: WallClock) {
        let mut state = self.lock();
        let Some(change) = state.clock_monitor.observe(now) else { return };
        state.started = moved(state.started, change.set_by);
        state.configured_at = moved(state.configured_at, change.set_by);
    }

    pub(crate) fn calls(&self) -> CallStatistics {
        let state = self.lock();
        CallStatistics {
            started: state.started,
            reload_succeeded: state.reload_succeeded,
            configured_at: state.configured_at,
            calls: state.calls.iter().map(|(name, count)| (*name, *count)).collect(),
            call_seconds: state.call_seconds.clone(),
        }
    }

    /// A poisoned lock is taken all the same: each change is a single step.
    fn lock(&self) -> MutexGuard<'_, RunState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn moved(time: SystemTime, by: Span) -> SystemTime {
    let length = Duration::from(by.abs());
    let moved = if by < Span::ZERO { time.checked_sub(length) } else { time.checked_add(length) };
    moved.unwrap_or(time)
}

/// Ten ticks.
const TICK_TIMEOUT: Duration = Duration::from_secs(1);

/// Bounds of the times of control calls in seconds: from a plain setter to the status of a full
/// server.
pub const CALL_SECONDS: [f64; 9] = [1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1];

#[cfg(test)]
mod tests {
    use aulos_engine::recorder::UnixTime;

    use super::*;

    #[test]
    fn an_observation_counts_below_every_bound_that_it_does_not_exceed() {
        let mut histogram = Histogram::new(&[0.0, 1.0]);
        for value in [-2.0, 0.0, 0.5, 1.0, 7.0] {
            histogram.observe(value);
        }
        let cumulative: Vec<_> = histogram.cumulative().collect();
        assert_eq!(cumulative, [(0.0, 2), (1.0, 4), (f64::INFINITY, 5)]);
        assert!((histogram.sum() - 6.5).abs() < 1e-12);
    }

    #[tokio::test]
    async fn a_loop_that_has_stopped_is_noticed_and_one_that_is_late_is_waited_for() {
        let statistics = RunStatistics::new(SystemTime::UNIX_EPOCH, WallClock::default());
        let now = Instant::now();
        statistics.set_ticked(now);
        let later = now + TICK_TIMEOUT;
        assert!(statistics.is_ticking(later - Duration::from_millis(1)).await);
        assert!(!statistics.is_ticking(later).await);
        let (is_ticking, ()) =
            tokio::join!(statistics.is_ticking(later), async { statistics.set_ticked(later) });
        assert!(is_ticking);
    }

    #[test]
    fn a_clock_that_is_set_moves_the_start_and_time_that_passes_does_not() {
        let at = |local: i64, utc: i64, suspended: i64| WallClock {
            local: aulos_core::Instant::ZERO + Span::from_secs(local),
            utc: UnixTime::from_nanos(utc * 1_000_000_000),
            suspended: Span::from_secs(suspended),
            ..WallClock::default()
        };
        let statistics = RunStatistics::new(SystemTime::UNIX_EPOCH, at(5, 0, 0));
        for (reading, started) in [
            (at(5, 0, 0), 0),
            (at(9, 104, 0), 100),
            (at(10, 205, 100), 100),
            (at(11, 156, 100), 50),
        ] {
            statistics.observe_clock(reading);
            let wanted = SystemTime::UNIX_EPOCH + Duration::from_secs(started);
            assert_eq!(statistics.calls().started, wanted, "{reading:?}");
            assert_eq!(statistics.calls().configured_at, wanted, "{reading:?}");
        }
    }

    #[test]
    fn calls_are_counted_by_method_and_a_failed_reload_keeps_the_time_of_the_last_good_one() {
        let statistics = RunStatistics::new(SystemTime::UNIX_EPOCH, WallClock::default());
        statistics.count_call(Some("A"), Span::from_millis(2));
        statistics.count_call(Some("A"), Span::from_millis(2));
        statistics.count_call(None, Span::ZERO);
        let later = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
        statistics.set_reload(Ok(later));
        statistics.set_reload(Err(()));
        let calls = statistics.calls();
        assert_eq!(calls.calls, [("A", 2), ("other", 1)]);
        assert_eq!((calls.reload_succeeded, calls.configured_at), (false, later));
        assert_eq!(calls.call_seconds.cumulative().last(), Some((f64::INFINITY, 3)));
    }
}
