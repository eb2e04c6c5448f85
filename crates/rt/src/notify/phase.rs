//! Prediction of the next callback end: a loop that is locked to one stream.
//!
//! The nominal period (frames per callback divided by rate) is taken as true; measurements only
//! correct it, slowly and within bounds, because on a busy machine single measurements are wrong by
//! half a period. Unbounded averaging of the period, and waking early to spin, were tried and
//! rejected: both are worse than a plain timer as soon as the scheduler interferes.

use std::time::Duration;

/// Tracks the callback ends of one stream. All times in nanoseconds.
#[derive(Debug)]
pub(super) struct PhaseTracker {
    nominal: u64,
    /// The corrected period.
    period: f64,
    /// Added to the expected end: too early costs a second wake, too late costs latency. Negative
    /// if the system delays wakes, which it always does.
    guard: f64,
    last_end: u64,
    /// Time of the next poll.
    due: u64,
    /// Delay until the next poll after an unsuccessful one.
    step: u64,
    /// Time at which the latest callback end was seen, or the start.
    last_seen: u64,
}

impl PhaseTracker {
    pub(super) fn new(nominal: Duration, now: u64) -> Self {
        let nominal =
            u64::try_from(nominal.as_nanos()).unwrap_or(u64::MAX).clamp(SHORTEST, LONGEST);
        let period = to_float(nominal);
        let (last_end, due) = (0, now);
        Self {
            nominal,
            period,
            guard: START_GUARD,
            last_end,
            due,
            step: FIRST_STEP,
            last_seen: now,
        }
    }

    /// Takes the latest callback end (0: none yet) and returns the time of the next poll.
    pub(super) fn poll(&mut self, now: u64, beat: u64) -> u64 {
        if beat != self.last_end {
            self.callback_ended(now, beat);
        } else if now >= self.due {
            self.poll_missed(now);
        }
        self.due
    }

    fn callback_ended(&mut self, now: u64, beat: u64) {
        let gap = to_float(beat.saturating_sub(self.last_end));
        let error = gap - self.period;
        if self.last_end != 0 && error.abs() < self.period * PLAUSIBLE {
            let limit = to_float(self.nominal) * MAX_DRIFT;
            let (low, high) = (to_float(self.nominal) - limit, to_float(self.nominal) + limit);
            self.period = (self.period + error * SLOW).clamp(low, high);
        }
        self.last_end = beat;
        self.last_seen = now;
        self.step = FIRST_STEP;
        self.guard += (MIN_GUARD - self.guard) * GUARD_PULL;
        // If this poll is whole periods late, the next end after now counts.
        let after = to_float(now.saturating_sub(beat));
        let periods = ((after - self.guard) / self.period).floor().max(0.0) + 1.0;
        self.due = beat + to_nanos(periods * self.period + self.guard);
    }

    /// No callback end was found: it is late, or the device has stopped.
    fn poll_missed(&mut self, now: u64) {
        if self.step == FIRST_STEP {
            // Once per callback: a longer delay carries no information about its jitter.
            self.guard = (self.guard + GUARD_STEP).min(MAX_GUARD);
        }
        if now.saturating_sub(self.last_seen) > STOPPED {
            self.due = now + STOPPED_STEP;
            return;
        }
        self.due = now + self.step;
        self.step = (self.step * 2).min(self.nominal);
    }
}

/// Bounds of a nominal period: no device has less than 50 us or more than 10 s.
const SHORTEST: u64 = 50_000;
const LONGEST: u64 = 10_000_000_000;

/// A gap that deviates by more than a quarter is caused by the scheduler, not by the device.
const PLAUSIBLE: f64 = 0.25;
/// Weight of one measurement; with 5 ms periods the time constant is half a second.
const SLOW: f64 = 0.01;
/// Sound cards deviate from their nominal rate by at most 100 ppm, the host clock by less.
const MAX_DRIFT: f64 = 0.001;

const START_GUARD: f64 = 5_000.0;
/// As early as a typical wake is late.
const MIN_GUARD: f64 = -60_000.0;
const MAX_GUARD: f64 = 60_000.0;
const GUARD_STEP: f64 = 3_000.0;
/// Together with `GUARD_STEP` this limits too early polls to one in ten.
const GUARD_PULL: f64 = 0.005;

/// 20, 40, 80 us ... up to one period: a stopped device costs no more wakes than a running one.
const FIRST_STEP: u64 = 20_000;
/// After this time without a callback end the device counts as stopped,
const STOPPED: u64 = 200_000_000;
/// and is polled 20 times a second.
const STOPPED_STEP: u64 = 50_000_000;

#[allow(clippy::cast_precision_loss, reason = "spans below 2^52 ns (52 days) are exact")]
fn to_float(nanos: u64) -> f64 {
    nanos as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; positive")]
fn to_nanos(span: f64) -> u64 {
    span as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u64 = 5_333_333;

    /// Simulates callbacks that end at `ends`; returns the delay from each end to the poll that
    /// found it, and the number of polls.
    fn follow(ends: &[u64], until: u64) -> (Vec<u64>, usize) {
        let mut phase = PhaseTracker::new(Duration::from_nanos(PERIOD), 0);
        let (mut now, mut seen, mut delays, mut looks) = (0, 0, Vec::new(), 0);
        while now < until {
            let beat = ends.iter().copied().take_while(|&end| end <= now).last().unwrap_or(0);
            if beat != seen {
                seen = beat;
                delays.push(now - beat);
            }
            now = phase.poll(now, beat).max(now + 1);
            looks += 1;
        }
        (delays, looks)
    }

    /// Callback ends of a device whose clock is off by `ppm`, each up to `jitter` late.
    fn device(count: u64, ppm: f64, jitter: u64) -> Vec<u64> {
        let period = to_float(PERIOD) * (1.0 + ppm * 1e-6);
        let mut random = 1_u64;
        (1..=count)
            .map(|i| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                to_nanos(to_float(i) * period) + (random >> 33) % (jitter + 1)
            })
            .collect()
    }

    #[test]
    fn looks_just_after_every_callback() {
        for ppm in [-300.0, 0.0, 300.0] {
            let ends = device(2000, ppm, 0);
            let (delays, looks) = follow(&ends, 2000 * PERIOD);
            assert!(delays.len() >= 1995, "{ppm}: {} seen", delays.len());
            let settled = &delays[200..];
            assert!(
                settled.iter().all(|&delay| delay < 25_000),
                "{ppm}: {:?}",
                settled.iter().max()
            );
            assert!(looks < 2600, "{ppm}: {looks} looks");
        }
    }

    #[test]
    fn jitter_costs_its_own_size() {
        let ends = device(2000, 100.0, 100_000);
        let (delays, looks) = follow(&ends, 2000 * PERIOD);
        let mean = delays.iter().sum::<u64>() / delays.len() as u64;
        assert!(mean < 100_000, "{mean}");
        assert!(looks < 6000, "{looks} looks");
    }

    #[test]
    fn a_stopped_device_is_left_alone() {
        let ends = device(100, 0.0, 0);
        let (_, running) = follow(&ends, 100 * PERIOD);
        let (_, then_stopped) = follow(&ends, 100 * PERIOD + 10_000_000_000);
        assert!(then_stopped - running < 300, "{then_stopped} - {running}");
    }

    #[test]
    fn a_device_that_returns_is_tracked_again() {
        let mut ends = device(100, 0.0, 0);
        let pause = 3_000_000_000;
        ends.extend(device(100, 0.0, 0).iter().map(|end| end + pause));
        let (delays, _) = follow(&ends, pause + 100 * PERIOD);
        assert!(delays[delays.len() - 50..].iter().all(|&delay| delay < 25_000));
    }
}
