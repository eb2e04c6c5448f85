//! Estimates the rate of a sender's clock from the arrival times of its frames.
//!
//! The sender's lead over our clock - the duration of the frames received so far, minus the time
//! since the first of them - is a line whose slope is the drift. A frame can be late but never
//! early, so the line is the upper envelope of the arrivals: in each second the most punctual
//! arrival counts. Pauses, catching up after a pause and jitter do not move that envelope. A second
//! that is far from the line is ignored; when several in a row are, the sender has lost or skipped
//! audio, and a new line begins there, which is assumed to have the same slope until the arrivals
//! refute it.
//!
//! The fill of the buffer cannot tell a pause from a slow clock
//! (`docs/decisions/clock-recovery.md`).

use aulos_core::{Frames, Instant, SampleRate, Span};

/// A least-squares line through the punctual arrivals of the last quarter of an hour.
#[derive(Clone, Debug)]
pub(super) struct RateEstimator {
    origin: Option<Instant>,
    /// Frames received since the origin, and their sample rate.
    frames: u64,
    hz: f64,
    /// The last arrival, accepted or not.
    last: ArrivalPoint,
    /// Start and most punctual arrival of the current second.
    slot: Option<(f64, ArrivalPoint)>,
    /// Arrivals before this time were paced by our buffer, not by the sender.
    held_until: f64,
    /// Last known position on the line.
    anchor: Option<ArrivalPoint>,
    /// Typical distance of a second from the line.
    deviation: f64,
    /// Consecutive seconds that were ignored.
    outliers: u32,
    /// Seconds that were accepted.
    accepted: u32,
    points: [ArrivalPoint; POINTS],
    len: usize,
    /// The next point, the seconds it represents so far, and how many it will represent.
    open: Option<ArrivalPoint>,
    seconds: u32,
    seconds_per_point: u32,
    /// The assumed rate until the points refute it; `None` while the rate follows them.
    prior: Option<f64>,
    rate: f64,
}

/// An arrival: seconds since the origin, and the sender's lead over our clock in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct ArrivalPoint {
    at: f64,
    ahead: f64,
}

/// A line through the points.
struct LineFit {
    slope: f64,
    /// The time from the first to the last point.
    span: f64,
    /// The mean distance of a point from the line.
    noise: f64,
}

impl RateEstimator {
    /// An estimator without data, which assumes an exact sender.
    pub(super) const fn new() -> Self {
        Self {
            origin: None,
            frames: 0,
            hz: 1.0,
            last: ArrivalPoint { at: 0.0, ahead: 0.0 },
            slot: None,
            held_until: 0.0,
            anchor: None,
            deviation: USUAL_DEVIATION_S,
            outliers: 0,
            accepted: 0,
            points: [ArrivalPoint { at: 0.0, ahead: 0.0 }; POINTS],
            len: 0,
            open: None,
            seconds: 0,
            seconds_per_point: 1,
            prior: Some(0.0),
            rate: 0.0,
        }
    }

    /// The fraction by which the sender's clock is fast.
    pub(super) const fn rate(&self) -> f64 {
        self.rate
    }

    /// The next arrivals do not continue the previous ones. The rate is kept: it belongs to a
    /// clock, which is probably the same one.
    pub(super) const fn mark_discontinuity(&mut self) {
        let rate = self.rate;
        *self = Self::new();
        self.rate = rate;
        self.prior = Some(rate);
    }

    /// The sender has turned out to be paced by us.
    pub(super) const fn reset(&mut self) {
        *self = Self::new();
    }

    /// Adds the arrival of `frames` frames at `at`.
    ///
    /// # Real-time
    /// A few multiplications; once a second one pass over the points.
    pub(super) fn push_arrival(&mut self, at: Instant, frames: Frames, rate: SampleRate) {
        let origin = *self.origin.get_or_insert(at);
        self.hz = f64::from(rate.hz());
        self.frames += frames.0;
        let at = at.since(origin).as_secs_f64();
        // A time that goes backwards counts as no later than the one before.
        let at = at.max(self.last.at);
        #[allow(clippy::cast_precision_loss, reason = "exact for thousands of years")]
        let ahead = self.frames as f64 / self.hz - at;
        let point = ArrivalPoint { at, ahead };
        self.last = point;
        if let Some((start, best)) = self.slot
            && at >= start + SLOT_S
        {
            self.slot = None;
            self.take_slot(best);
        }
        if at < self.held_until {
            return;
        }
        match &mut self.slot {
            Some((_, best)) if best.height(self.rate) > point.height(self.rate) => {}
            Some((_, best)) => *best = point,
            None => self.slot = Some((at, point)),
        }
    }

    /// The buffer is full at `now`: arrivals around this time are paced by us.
    pub(super) fn mark_full(&mut self, now: Instant) {
        self.slot = None;
        if let Some(origin) = self.origin {
            self.held_until = now.since(origin).as_secs_f64() + SLOT_S;
        }
    }

    /// Audio that the sender has sent, or should have, beyond what has arrived; `None` while its
    /// clock is not known well enough.
    pub(super) fn backlog(&self) -> Option<Span> {
        let anchor = self.anchor.filter(|_| self.accepted >= ESTABLISHED_SLOTS)?;
        let expected = anchor.ahead + self.rate * (self.last.at - anchor.at);
        Some(Span::from_secs_f64(expected - self.last.ahead))
    }

    fn take_slot(&mut self, point: ArrivalPoint) {
        let Some(anchor) = self.anchor else {
            self.anchor = Some(point);
            return self.accept(point);
        };
        let expected = anchor.ahead + self.rate * (point.at - anchor.at);
        let residual = point.ahead - expected;
        let threshold = (DEVIATIONS * self.deviation).max(MIN_STEP_S);
        let distance = residual.abs().min(threshold);
        self.deviation += (distance - self.deviation) / DEVIATION_SLOTS;
        self.deviation = self.deviation.min(MAX_DEVIATION_S);
        if residual.abs() <= threshold {
            self.outliers = 0;
            self.anchor = Some(ArrivalPoint { at: point.at, ahead: expected + 0.5 * residual });
            return self.accept(point);
        }
        self.outliers += 1;
        if self.outliers >= STEP_SLOTS {
            self.restart_line(point);
        }
    }

    /// The sender has moved to another position for good. Earlier points no longer give its
    /// position, but its rate is unchanged.
    fn restart_line(&mut self, point: ArrivalPoint) {
        *self = Self {
            origin: self.origin,
            frames: self.frames,
            hz: self.hz,
            last: self.last,
            held_until: self.held_until,
            deviation: self.deviation,
            accepted: self.accepted,
            prior: Some(self.rate),
            rate: self.rate,
            anchor: Some(point),
            ..Self::new()
        };
        self.accept(point);
    }

    fn accept(&mut self, point: ArrivalPoint) {
        self.accepted = self.accepted.saturating_add(1);
        let better = |open: &ArrivalPoint| open.height(self.rate) > point.height(self.rate);
        self.open = Some(self.open.filter(better).unwrap_or(point));
        self.seconds += 1;
        if self.seconds < self.seconds_per_point {
            return;
        }
        self.seconds = 0;
        let Some(point) = self.open.take() else { return };
        if self.len == POINTS {
            self.compact_points();
        }
        self.points[self.len] = point;
        self.len += 1;
        self.estimate();
    }

    /// Doubles the seconds per point, up to a limit beyond which the oldest point is dropped.
    fn compact_points(&mut self) {
        if self.seconds_per_point >= MAX_SECONDS_PER_POINT {
            self.points.copy_within(1.., 0);
            self.len -= 1;
            return;
        }
        for index in 0..POINTS / 2 {
            let (a, b) = (self.points[2 * index], self.points[2 * index + 1]);
            let first = a.height(self.rate) > b.height(self.rate);
            self.points[index] = if first { a } else { b };
        }
        self.len = POINTS / 2;
        self.seconds_per_point *= 2;
    }

    fn estimate(&mut self) {
        // A slope steeper than any clock means a sender that stutters.
        let is_clock = |fit: &LineFit| fit.slope.abs() <= 1.1 * MAX_RATE;
        let Some(fit) = self.fit().filter(is_clock) else { return };
        let doubt = MIN_SHIFT_S.max(NOISES * fit.noise);
        let is_slope_of = |rate: f64| (fit.slope - rate).abs() * fit.span < doubt;
        let rests = fit.span >= REST_SPAN_S && fit.slope.abs() * fit.span < REST_SHIFT_S;
        self.prior = match self.prior {
            _ if rests => Some(0.0),
            Some(prior) if is_slope_of(prior) => Some(prior),
            Some(_) if is_slope_of(0.0) => Some(0.0),
            _ => None,
        };
        self.rate = match self.prior {
            Some(0.0) => 0.0,
            Some(prior) => {
                let cube = fit.span * fit.span * fit.span;
                let weight = cube / (cube + PRIOR_SPAN_S * PRIOR_SPAN_S * PRIOR_SPAN_S);
                prior + weight * (fit.slope - prior)
            }
            None => fit.slope,
        };
        self.rate = self.rate.clamp(-MAX_RATE, MAX_RATE);
    }

    fn fit(&self) -> Option<LineFit> {
        let points = &self.points[..self.len];
        let (first, last) = (points.first()?, points.last()?);
        if points.len() < MIN_POINTS {
            return None;
        }
        let count = f64::from(u32::try_from(points.len()).ok()?);
        let mean = |of: &dyn Fn(&ArrivalPoint) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (at, ahead) = (mean(&|point| point.at), mean(&|point| point.ahead));
        let spread = mean(&|point| (point.at - at) * (point.at - at));
        let slope = mean(&|point| (point.at - at) * (point.ahead - ahead)) / spread;
        let noise = mean(&|point| (point.ahead - ahead - slope * (point.at - at)).abs());
        Some(LineFit { slope, span: last.at - first.at, noise })
    }
}

impl ArrivalPoint {
    /// Its height above a line through the origin.
    fn height(self, slope: f64) -> f64 {
        self.ahead - slope * self.at
    }
}

/// Length of a slot, in which only the most punctual arrival counts: less than a page of Ogg is
/// useless.
const SLOT_S: f64 = 1.0;

/// At most a quarter of an hour, with one point per second at first.
const POINTS: usize = 32;
const MAX_SECONDS_PER_POINT: u32 = 32;
const MIN_POINTS: usize = 6;

/// A second is ignored when it is farther from the line than any sender's period, and than a few
/// times the typical distance, which is a mean over this many seconds.
const MIN_STEP_S: f64 = 0.015;
const DEVIATIONS: f64 = 4.0;
const DEVIATION_SLOTS: f64 = 16.0;
const USUAL_DEVIATION_S: f64 = 0.005;
const MAX_DEVIATION_S: f64 = 0.015;

/// This many such seconds in a row are more than a pause.
const STEP_SLOTS: u32 = 5;

/// The sender's clock counts as known after this many accepted seconds.
const ESTABLISHED_SLOTS: u32 = 10;

/// A slope is significant when the line has risen by more than a sender's period, by which polling
/// can shift arrivals, and by this many times the noise: a single step makes 7.9.
const MIN_SHIFT_S: f64 = 0.012;
const NOISES: f64 = 8.0;

/// A sender counts as exact again when it has moved by less than this in this time.
const REST_SPAN_S: f64 = 500.0;
const REST_SHIFT_S: f64 = 0.003;

/// After this time the points have the same weight as the prior.
const PRIOR_SPAN_S: f64 = 100.0;

/// Ten times the worst error of crystals; resamplers of sound cards can reach it.
const MAX_RATE: f64 = 2_000e-6;
