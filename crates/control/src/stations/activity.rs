//! What metrics and health need of a station over time. The audio side publishes only its last
//! status; this module compares the statuses that the control plane polls ten times a second.

use std::time::{Duration, Instant};

use aulos_core::{Db, MediaTime};
use aulos_engine::status::StepTimes;

use crate::backend::{ConnectionHealth, StationReport};
use crate::views::run_statistics::Histogram;

/// What metrics and health need of a station over time.
#[derive(Clone, Debug)]
pub struct StationActivity {
    position: MediaTime,
    advanced_at: Option<Instant>,
    /// The highest true peak of each second, with that second.
    peaks: Vec<(u64, Db)>,
    began: Option<Instant>,
    over_ceiling: Duration,
    /// Seconds of audio that the clients had in reserve, observed with each report about one.
    pub client_ahead: Histogram,
    /// Their round-trip times in seconds.
    pub client_round_trip: Histogram,
    /// Seconds that the steps of the station took, counted by its worker.
    pub steps: Histogram,
}

impl Default for StationActivity {
    fn default() -> Self {
        Self {
            position: MediaTime::default(),
            advanced_at: None,
            peaks: Vec::new(),
            began: None,
            over_ceiling: Duration::ZERO,
            client_ahead: Histogram::new(&AHEAD_SECONDS),
            client_round_trip: Histogram::new(&ROUND_TRIP_SECONDS),
            steps: Histogram::new(&STEP_SECONDS),
        }
    }
}

impl StationActivity {
    /// Takes over a status; called every [`TICK`].
    pub(crate) fn update(&mut self, status: &StationReport, ceiling: Db, now: Instant) {
        if status.machine.position != self.position {
            (self.position, self.advanced_at) = (status.machine.position, Some(now));
        }
        self.steps
            .set_counts(&status.machine.steps.counts, status.machine.steps.total.as_secs_f64());
        let second = self.second(now);
        self.peaks.retain(|(at, _)| second.saturating_sub(*at) < PEAK_HOLD_S);
        let Some(peak) = status.machine.loudness.current_true_peak else { return };
        match self.peaks.last_mut().filter(|(at, _)| *at == second) {
            Some((_, highest)) => *highest = Db::new(highest.get().max(peak.get())),
            None => self.peaks.push((second, peak)),
        }
        if peak.get() > ceiling.get() + CEILING_TOLERANCE_DB {
            self.over_ceiling += TICK;
        }
    }

    /// Takes over a report about a client.
    pub(crate) fn observe_client(&mut self, health: &ConnectionHealth) {
        // Minutes in milliseconds and microseconds are far below 2^53.
        #[allow(clippy::cast_precision_loss, reason = "see above")]
        let seconds = |count: i64, per_second: f64| count as f64 / per_second;
        if let Some(ahead) = health.buffered {
            self.client_ahead.observe(seconds(ahead.as_millis(), 1e3));
        }
        self.client_round_trip.observe(seconds(health.round_trip.as_micros(), 1e6));
    }

    /// The highest true peak of the last 15 seconds, sampled ten times a second. A maximum since
    /// the last scrape would be wrong for the second of two scrapers.
    #[must_use]
    pub fn held_peak(&self) -> Option<Db> {
        let peaks = self.peaks.iter().map(|(_, peak)| peak.get());
        peaks.reduce(f64::max).map(Db::new)
    }

    /// How long the true peak has been above the ceiling so far.
    #[must_use]
    pub const fn over_ceiling(&self) -> Duration {
        self.over_ceiling
    }

    /// How long its clock has stood still; `None` before its first step.
    pub(crate) fn idle_for(&self, now: Instant) -> Option<Duration> {
        self.advanced_at.map(|at| now.saturating_duration_since(at))
    }

    fn second(&mut self, now: Instant) -> u64 {
        now.saturating_duration_since(*self.began.get_or_insert(now)).as_secs()
    }
}

/// Seconds for which a true peak is held: the usual interval between two scrapes.
const PEAK_HOLD_S: u64 = 15;

/// The meter's tolerance (EBU Tech 3341, 2.11, allows 0.2 dB above).
pub(crate) const CEILING_TOLERANCE_DB: f64 = 0.2;

/// A client below 0 plays its chunks late; one second is the default buffer.
const AHEAD_SECONDS: [f64; 8] = [0.0, 0.05, 0.1, 0.2, 0.5, 0.8, 1.0, 2.0];

/// From a wired network to a distant one.
const ROUND_TRIP_SECONDS: [f64; 8] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5];

/// The bounds of [`StepTimes`], in seconds.
const STEP_SECONDS: [f64; StepTimes::BOUNDS.len()] =
    [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025];

/// Interval of [`Control::tick`](crate::Control::tick): ten times a second, the rate of the page's
/// meters.
pub const TICK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Loudness;

    #[test]
    fn the_bounds_of_steps_are_those_of_the_station() {
        for (seconds, bound) in STEP_SECONDS.into_iter().zip(StepTimes::BOUNDS) {
            assert!((seconds - bound.as_secs_f64()).abs() < 1e-9, "{seconds} {bound:?}");
        }
        let mut steps = StepTimes::default();
        steps.record(aulos_core::Span::from_micros(300));
        let mut activity = StationActivity::default();
        let mut status = StationReport::default();
        status.machine.steps = steps;
        activity.update(&status, Db::ZERO, Instant::now());
        let counts: Vec<u64> = activity.steps.cumulative().map(|(_, count)| count).collect();
        assert_eq!(counts, [0, 0, 0, 1, 1, 1, 1, 1, 1, 1]);
        assert!((activity.steps.sum() - 0.000_3).abs() < 1e-9);
    }

    fn status(position: u64, peak: Option<f64>) -> StationReport {
        let current_true_peak = peak.map(Db::new);
        let loudness = Loudness { current_true_peak, ..Loudness::NONE };
        let mut status = StationReport::default();
        (status.machine.position, status.machine.loudness) = (MediaTime(position), loudness);
        status
    }

    #[test]
    fn a_peak_is_held_for_fifteen_seconds_and_time_above_the_ceiling_is_counted() {
        let (start, ceiling) = (Instant::now(), Db::new(-1.0));
        let mut activity = StationActivity::default();
        activity.update(&status(1, None), ceiling, start);
        assert_eq!(activity.held_peak(), None);
        for (tenth, peak) in [(1, -3.0), (2, -0.5), (3, -0.5), (4, -0.9), (15, -6.0)] {
            let now = start + TICK * tenth;
            activity.update(&status(1, Some(peak)), ceiling, now);
        }
        assert_eq!(activity.held_peak(), Some(Db::new(-0.5)));
        assert_eq!(activity.over_ceiling(), TICK * 2, "0.1 dB is within the tolerance");
        activity.update(&status(1, None), ceiling, start + Duration::from_millis(14_900));
        assert_eq!(activity.held_peak(), Some(Db::new(-0.5)));
        activity.update(&status(1, None), ceiling, start + Duration::from_secs(15));
        assert_eq!(activity.held_peak(), Some(Db::new(-6.0)));
        activity.update(&status(1, None), ceiling, start + Duration::from_secs(16));
        assert_eq!(activity.held_peak(), None);
    }

    #[test]
    fn a_clock_that_stands_still_is_seen() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut activity = StationActivity::default();
        assert_eq!(activity.idle_for(start), None);
        for (ms, position) in [(0, 960), (100, 1_920), (200, 1_920), (900, 1_920)] {
            activity.update(&status(position, None), Db::new(0.0), at(ms));
        }
        assert_eq!(activity.idle_for(at(900)), Some(Duration::from_millis(800)));
    }
}
