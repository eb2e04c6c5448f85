//! Clock recovery for a live source.
//!
//! The sender's clock and ours always differ. The difference shows as a buffer that slowly fills or
//! drains. Skipping or repeating frames would be audible (`docs/decisions/clock-recovery.md`).
//!
//! The resampling ratio is the sum of two terms. The first is the rate of the sender's clock,
//! estimated from the arrival times (`rate`): with that alone the fill level stays constant. The
//! second returns the fill to its target; it is proportional to the error, bounded and without
//! memory, so that it cannot wind up. The sum changes slowly.
//!
//! The audio of a sender that is exact, or that is held back by us and so follows our clock, stays
//! bit-exact as long as the fill stays near its target.

mod rate;

use aulos_core::{Frames, Instant, Ppm, SampleRate, Span};

use rate::RateEstimator;

/// Computes the drift to resample by from arrivals and the fill of a buffer: the sender's drift, up
/// to plus or minus [`Servo::MAX_DRIFT`], and at most [`Servo::MAX_CORRECTION`] more or less to bring the
/// buffer to its target.
#[derive(Clone, Debug)]
pub struct Servo {
    target: f64,
    /// A fill above the target is kept, up to this.
    max_target: Option<f64>,
    /// The fill that is kept, once it is determined.
    kept_fill: Option<f64>,
    rate: RateEstimator,
    /// The largest errors of the last seconds, oldest first.
    peaks: [f64; PEAKS],
    len: usize,
    /// The largest error of the current second, and its elapsed part.
    peak_error: f64,
    elapsed: f64,
    /// Error of the fill, and whether it is being corrected.
    error: f64,
    correcting: bool,
    /// Time for which the buffer has been full without missing audio.
    full_s: f64,
    /// The drift to resample by, as it was returned last.
    output: f64,
}

impl Servo {
    /// The largest drift of a sender that is followed.
    pub const MAX_DRIFT: Ppm = Ppm::from_ppm(2_000);

    /// Maximum correction of the fill, two thirds of a cent: inaudible.
    pub const MAX_CORRECTION: Ppm = Ppm::from_ppm(400);

    /// A servo that keeps a buffer at `target`, or at the fill it finds above that, up to `keeps`.
    #[must_use]
    pub fn new(target: Span, keeps: Option<Span>) -> Self {
        Self {
            target: target.as_secs_f64(),
            max_target: keeps.map(Span::as_secs_f64),
            kept_fill: None,
            rate: RateEstimator::new(),
            peaks: [0.0; PEAKS],
            len: 0,
            peak_error: f64::NEG_INFINITY,
            elapsed: 0.0,
            error: 0.0,
            correcting: false,
            full_s: 0.0,
            output: 0.0,
        }
    }

    /// Reading of the buffer begins. The sender's rate is known already, or from the last time.
    pub const fn restart(&mut self) {
        self.kept_fill = None;
        self.clear_error();
        self.correcting = false;
        self.output = self.rate.rate();
    }

    /// The next arrivals do not continue the previous ones: the sender has gone, or its audio was
    /// discarded. Its rate is kept.
    pub const fn mark_discontinuity(&mut self) {
        self.rate.mark_discontinuity();
    }

    /// Adds an arrival of `frames` frames of the sender's `rate` at `at`.
    ///
    /// # Real-time
    /// A few multiplications; once a second one pass over 32 numbers.
    pub fn push_arrival(&mut self, at: Instant, frames: Frames, rate: SampleRate) {
        self.rate.push_arrival(at, frames, rate);
    }

    /// The buffer is full at `now`: the sender waits for us, so its arrival times carry no
    /// information.
    pub fn mark_full(&mut self, now: Instant) {
        self.rate.mark_full(now);
    }

    /// Updates with the `fill` after `elapsed` time; returns the drift to resample by: positive
    /// when more must be consumed.
    ///
    /// # Real-time
    /// A few multiplications.
    pub fn update(&mut self, fill: Span, elapsed: Span) -> Ppm {
        let fill = fill.as_secs_f64();
        let kept = self.kept_fill(fill);
        self.full_s = 0.0;
        // The fill of the most punctual arrival: late audio will still arrive.
        self.peak_error = self.peak_error.max(fill - kept);
        self.elapsed += elapsed.as_secs_f64();
        if self.elapsed >= PEAK_S {
            self.finish_peak_second();
        }
        let rate = self.rate.rate();
        if rate != 0.0 || self.error.abs() > self.tolerance() {
            self.correcting = true;
        } else if self.error.abs() < SETTLED_S {
            self.correcting = false;
        }
        let correction = if self.correcting { self.correction(self.error) } else { 0.0 };
        self.slew(rate + correction, elapsed)
    }

    /// The same while the buffer is full. A sender with its own clock was held up and delivers
    /// audio that came too late to be played in time: that is drained once. Any other sender
    /// follows our clock.
    ///
    /// # Real-time
    /// A few multiplications.
    pub fn update_full(&mut self, fill: Span, elapsed: Span) -> Ppm {
        let Some(backlog) = self.rate.backlog() else { return self.slew(0.0, elapsed) };
        let kept = self.kept_fill(fill.as_secs_f64());
        self.clear_error();
        self.error = (fill + backlog).as_secs_f64() - kept;
        self.correcting = self.error > SETTLED_S;
        if self.correcting {
            self.full_s = 0.0;
            return self.slew(self.rate.rate() + self.correction(self.error), elapsed);
        }
        // A small buffer may be filled by one burst.
        self.full_s += elapsed.as_secs_f64();
        if self.full_s >= PACED_AFTER_S {
            self.rate.reset();
        }
        self.slew(self.rate.rate(), elapsed)
    }

    /// The same for arrivals with exact times, as those of a source with ready chunks: keeps `fill`
    /// within a fraction of a millisecond of its target.
    ///
    /// # Real-time
    /// A few multiplications.
    pub fn follow(&mut self, fill: Span, elapsed: Span) -> Ppm {
        let error = fill.as_secs_f64() - self.target;
        let most = f64::from(Self::MAX_CORRECTION.as_ppb()) * 1e-9;
        let wanted = if error.abs() < EXACT_S { 0.0 } else { error / FOLLOW_TIME_S };
        self.slew(wanted.clamp(-most, most), elapsed)
    }

    /// The estimated drift of the sender's clock: positive when it is fast.
    #[must_use]
    pub const fn drift(&self) -> Ppm {
        ppm(self.rate.rate())
    }

    fn kept_fill(&mut self, fill: f64) -> f64 {
        let keeps = self.max_target.unwrap_or(self.target);
        *self.kept_fill.get_or_insert_with(|| fill.min(keeps).max(self.target))
    }

    fn finish_peak_second(&mut self) {
        if self.len == PEAKS {
            self.peaks.copy_within(1.., 0);
            self.len -= 1;
        }
        self.peaks[self.len] = self.peak_error;
        self.len += 1;
        (self.peak_error, self.elapsed) = (f64::NEG_INFINITY, 0.0);
        let mut sorted = self.peaks;
        let sorted = &mut sorted[..self.len];
        sorted.sort_unstable_by(f64::total_cmp);
        self.error = sorted[self.len / 2];
    }

    const fn clear_error(&mut self) {
        (self.len, self.peak_error, self.elapsed, self.error) = (0, f64::NEG_INFINITY, 0.0, 0.0);
    }

    fn tolerance(&self) -> f64 {
        TOLERANCE_S.max(self.target * TOLERANCE)
    }

    fn correction(&self, error: f64) -> f64 {
        let time = (self.target * TIME_CONSTANT_FACTOR).clamp(MIN_TIME_S, MAX_TIME_S);
        let most = f64::from(Self::MAX_CORRECTION.as_ppb()) * 1e-9;
        (error / time).clamp(-most, most)
    }

    /// Moves the drift towards `wanted`, no faster than pitch may change.
    fn slew(&mut self, wanted: f64, elapsed: Span) -> Ppm {
        let most = SLEW_PER_S * elapsed.as_secs_f64();
        self.output += (wanted - self.output).clamp(-most, most);
        ppm(self.output)
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a few thousand ppm at most")]
const fn ppm(fraction: f64) -> Ppm {
    Ppm::from_ppb((fraction * 1e9) as i32)
}

/// An error of exact arrivals that is not corrected, so that the samples stay unchanged.
const EXACT_S: f64 = 100e-6;

/// In which time an error of exact arrivals is corrected.
const FOLLOW_TIME_S: f64 = 5.0;

/// The error is the median of this many seconds, so that audio that is late for less than half of
/// them is not corrected.
const PEAKS: usize = 5;
const PEAK_S: f64 = 1.0;

/// For a sender that counts as exact, an error up to this, or up to this part of the target, is
/// ignored. An input goes on air at the first quantum that finds its buffer filled, and that
/// quantum is read from it at once: it starts up to 20 ms below its target, or a sender's period
/// above it.
const TOLERANCE_S: f64 = 0.025;
const TOLERANCE: f64 = 0.0625;

/// A correction in progress continues down to this error.
const SETTLED_S: f64 = 0.002;

/// A small error decays to a third within this many times the target (80 s for 400 ms), which
/// limits the pitch jitter to a few hundredths of a cent.
const TIME_CONSTANT_FACTOR: f64 = 200.0;
const MIN_TIME_S: f64 = 40.0;
const MAX_TIME_S: f64 = 400.0;

/// A sender whose buffer is full for this long without a pause, and that owes no audio, is paced by
/// us.
const PACED_AFTER_S: f64 = 5.0;

/// A third of a cent per second.
const SLEW_PER_S: f64 = 200e-6;

#[cfg(test)]
mod tests;
