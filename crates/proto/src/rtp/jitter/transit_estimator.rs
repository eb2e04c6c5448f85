//! Statistics of arrival times: transit, its variation, and the drift of the sender's clock.
//!
//! The *transit* of a packet is its arrival time minus its media time. The send time is unknown, so
//! only differences are meaningful: the transit of the fastest packets of the last seconds is the
//! *base*, and the delay of other packets is relative to it. A plain minimum over a window would be
//! wrong by a millisecond for clocks 100 ppm apart, so the minimum of each second is extrapolated
//! to the current time with the slope of the last minutes. This slope is also the drift that a
//! servo needs.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    reason = "slopes are made of floats and their results are clamped; one index, modulo its array"
)]

use aulos_core::Ppm;

use super::histogram::DelayHistogram;

/// Transit statistics. Times are nanoseconds of the local clock, or differences.
#[derive(Debug)]
pub(super) struct TransitEstimator {
    histogram: DelayHistogram,
    minima: [TransitSample; WINDOW],
    /// Index in `minima` of the current second.
    current: usize,
    current_since: i64,
    base: TransitSample,
    drift_line: DriftLine,
    jitter: i64,
    last: Option<TransitSample>,
    spikes: DelaySpikes,
    quantile: f32,
    /// Delay at the configured quantile, and at [`SPIKE_BASELINE_QUANTILE`], as of the last update.
    quantile_delay: i64,
    spike_baseline: i64,
    until_update: u8,
}

/// A transit and its arrival time.
#[derive(Clone, Copy, Debug)]
struct TransitSample {
    transit: i64,
    at: i64,
}

impl TransitEstimator {
    /// Resolves delays up to `most` above the base, initialized with `guess`; `quantile` is the
    /// share of the packets that must arrive in time.
    pub(super) fn new(most: i64, guess: i64, quantile: f32) -> Self {
        let histogram = DelayHistogram::new(most, guess);
        let quantile_delay = histogram.quantile(quantile);
        Self {
            histogram,
            minima: [NEVER; WINDOW],
            current: 0,
            current_since: 0,
            base: NEVER,
            drift_line: DriftLine::default(),
            jitter: 0,
            last: None,
            spikes: DelaySpikes::default(),
            quantile,
            quantile_delay,
            spike_baseline: quantile_delay,
            until_update: UPDATE_EVERY,
        }
    }

    /// Records a packet with the given transit that arrived at `at`; returns its delay relative to
    /// the fastest packets.
    pub(super) fn record(&mut self, transit: i64, at: i64) -> i64 {
        let elapsed = self.last.map_or(0, |last| at.saturating_sub(last.at));
        if let Some(last) = self.last {
            let change = transit.saturating_sub(last.transit).saturating_abs();
            self.jitter += (change - self.jitter) / 16;
        }
        self.last = Some(TransitSample { transit, at });
        self.update_minimum(transit, at);
        let delay = transit.saturating_sub(self.base(at)).max(0);
        self.histogram.record(delay, seconds(elapsed.clamp(0, SECOND)) as f32);
        self.until_update -= 1;
        if self.until_update == 0 {
            self.until_update = UPDATE_EVERY;
            (self.quantile_delay, self.spike_baseline) = self.quantiles();
        }
        self.spikes.record(delay, self.spike_baseline, at);
        delay
    }

    /// The next timestamp is not related to the last one.
    pub(super) const fn restart(&mut self) {
        self.last = None;
    }

    /// Resets the delay statistics to `guess`.
    pub(super) fn reset_lateness(&mut self, guess: i64) {
        self.histogram.restart(guess);
        (self.quantile_delay, self.spike_baseline) = self.quantiles();
        self.spikes = DelaySpikes::default();
    }

    /// Whether nothing was recorded.
    pub(super) const fn is_new(&self) -> bool {
        self.base.at == NEVER.at
    }

    /// Transit of the fastest packets, extrapolated to `at`.
    pub(super) fn base(&self, at: i64) -> i64 {
        self.carried(self.base, at)
    }

    /// Delay to allow for: the quantile, or the height of expected spikes.
    pub(super) fn lateness(&self, now: i64) -> i64 {
        self.quantile_delay.max(self.spikes.expected_height(now))
    }

    /// Interarrival jitter of RFC 3550 section 6.4.1.
    pub(super) const fn jitter(&self) -> i64 {
        self.jitter
    }

    /// Drift of the sender's clock.
    pub(super) fn drift(&self) -> Ppm {
        Ppm::from_ppb(-self.drift_line.slope() as i32)
    }

    /// Slope of the base, in nanoseconds per second.
    pub(super) fn slope(&self) -> f64 {
        self.drift_line.slope()
    }

    fn quantiles(&self) -> (i64, i64) {
        (self.histogram.quantile(self.quantile), self.histogram.quantile(SPIKE_BASELINE_QUANTILE))
    }

    fn update_minimum(&mut self, transit: i64, at: i64) {
        if self.is_new() {
            self.current_since = at;
        }
        let over = at.saturating_sub(self.current_since);
        if over >= SECOND {
            self.close_second(over, at);
        }
        let seen = TransitSample { transit, at };
        let current = &mut self.minima[self.current];
        if current.at == NEVER.at || transit < current.transit {
            *current = seen;
        }
        if self.is_new() || transit < self.base(at) {
            self.base = seen;
        }
    }

    /// Ends the current second, which has lasted `over`.
    fn close_second(&mut self, over: i64, at: i64) {
        self.drift_line.add(self.minima[self.current]);
        self.current_since = at;
        self.current = (self.current + 1) % WINDOW;
        self.minima[self.current] = NEVER;
        // After a pause longer than the window, only the extrapolated line remains.
        if over > SECOND.saturating_mul(WINDOW as i64) {
            let newest = TransitSample { transit: self.base(at), at };
            self.minima = [NEVER; WINDOW];
            self.minima[(self.current + WINDOW - 1) % WINDOW] = newest;
        }
        let minima = self.minima.iter().filter(|low| low.at != NEVER.at);
        if let Some(&base) = minima.min_by_key(|&&low| self.carried(low, at)) {
            self.base = base;
        }
    }

    fn carried(&self, low: TransitSample, at: i64) -> i64 {
        let moved = self.drift_line.slope() * seconds(at.saturating_sub(low.at));
        low.transit.saturating_add(moved as i64)
    }
}

/// Least-squares line through the minimum of each second, with exponential forgetting over minutes.
/// Its sums are relative to the newest point.
///
/// The slope has a prior of about 50 ppm: without it, the line would show a thousand ppm after a
/// few seconds on a bad network.
#[derive(Debug, Default)]
struct DriftLine {
    points: f64,
    t: f64,
    y: f64,
    tt: f64,
    ty: f64,
    newest: Option<TransitSample>,
    slope: f64,
    /// Prior of the slope: the slope of the previous line.
    prior_slope: f64,
    /// Mean distance of the points from the line.
    spread: f64,
    /// Number of consecutive outliers.
    outliers: u8,
}

impl DriftLine {
    const fn slope(&self) -> f64 {
        self.slope
    }

    fn add(&mut self, low: TransitSample) {
        if low.at == NEVER.at {
            return;
        }
        let Some(newest) = self.newest else {
            return self.begin(low);
        };
        let dt = seconds(low.at.saturating_sub(newest.at)).max(0.0);
        let dy = low.transit.saturating_sub(newest.transit) as f64;
        let expected = self.height() + self.slope * dt - dy;
        if expected.abs() > OUTLIER_NS + 4.0 * self.spread && self.points > 3.0 {
            self.outliers += 1;
            if self.outliers >= OUTLIERS_TO_RESTART {
                self.begin(low);
            }
            return;
        }
        self.outliers = 0;
        if self.points > 1.0 {
            self.spread += (expected.abs() - self.spread) / self.points.min(30.0);
        }
        let keep = (-dt / LINE_S).exp();
        let n = self.points;
        // Moves the origin of the sums to the new point.
        self.ty = keep * (self.ty - dt * self.y - dy * self.t + dt * dy * n);
        self.tt = keep * (self.tt - 2.0 * dt * self.t + dt * dt * n);
        self.t = keep * (self.t - dt * n);
        self.y = keep * (self.y - dy * n);
        self.points = keep * n + 1.0;
        self.newest = Some(low);
        let across = self.tt - self.t * self.t / self.points;
        let along = self.ty - self.t * self.y / self.points;
        let doubt = (self.spread.max(MIN_SPREAD_NS) / USUAL_DRIFT).powi(2);
        let learnt = (along - self.prior_slope * across) / (across + doubt);
        self.slope = (self.prior_slope + learnt).clamp(-MAX_DRIFT, MAX_DRIFT);
    }

    /// Value of the line at the newest point, relative to that point.
    fn height(&self) -> f64 {
        (self.y - self.slope * self.t) / self.points.max(1.0)
    }

    /// Begins a new line with the slope of the last one as prior.
    fn begin(&mut self, low: TransitSample) {
        let (slope, prior_slope) = (self.slope, self.slope);
        *self = Self { points: 1.0, newest: Some(low), slope, prior_slope, ..Self::default() };
    }
}

/// Delay spikes: several consecutive packets are late and arrive together, because the network
/// stalled. A single spike is ignored; when they recur, the delay allows for the next one. A single
/// late packet is handled by the histogram.
#[derive(Debug, Default)]
struct DelaySpikes {
    past: [Option<TransitSample>; SPIKES],
    /// Current spike: its start, height and number of packets.
    now: Option<(TransitSample, u32)>,
}

impl DelaySpikes {
    fn record(&mut self, delay: i64, spike_baseline: i64, at: i64) {
        if delay > spike_baseline.saturating_add(SPIKE_NS) {
            let (spike, packets) =
                self.now.get_or_insert((TransitSample { transit: delay, at }, 0));
            spike.transit = spike.transit.max(delay);
            *packets = packets.saturating_add(1);
        } else if let Some((spike, packets)) = self.now.take()
            && packets >= SPIKE_PACKETS
        {
            self.past.rotate_right(1);
            self.past[0] = Some(spike);
        }
    }

    /// Height of spikes to expect, with a margin; 0 when none are expected.
    fn expected_height(&self, now: i64) -> i64 {
        let recent = |low: &&TransitSample| now.saturating_sub(low.at) < SPIKES_REMEMBERED;
        let recent = self.past.iter().flatten().filter(recent);
        let (count, height) =
            recent.fold((0, 0), |(count, height), low| (count + 1, low.transit.max(height)));
        if count < 2 { 0 } else { height + height / 16 }
    }
}

fn seconds(nanos: i64) -> f64 {
    nanos as f64 * 1e-9
}

const NEVER: TransitSample = TransitSample { transit: i64::MAX, at: i64::MIN };
const SECOND: i64 = 1_000_000_000;

/// Number of seconds whose minima form the base: several hundred packets, at least one of which is
/// nearly always among the fastest.
const WINDOW: usize = 10;

/// The quantiles are updated after this many packets; they do not change faster.
const UPDATE_EVERY: u8 = 8;

/// Time constant of the line in seconds: with 1 ms of noise, the slope is accurate to about one
/// ppm.
const LINE_S: f64 = 120.0;

/// Distance from the line, in addition to four times its spread, from which a point is an outlier.
/// Three consecutive outliers mean a new route through the network.
const OUTLIER_NS: f64 = 5e6;
const OUTLIERS_TO_RESTART: u8 = 3;

/// Usual and maximum drift of crystal clocks, 50 and 500 ppm, in nanoseconds per second.
const USUAL_DRIFT: f64 = 50_000.0;
const MAX_DRIFT: f64 = 500_000.0;

/// Lower bound of the uncertainty of the minima: the polling interval of the reader.
const MIN_SPREAD_NS: f64 = 50_000.0;

/// Minimum height of a spike above the delay of nine tenths of the packets, and its minimum number
/// of packets.
const SPIKE_NS: i64 = 20_000_000;
const SPIKE_PACKETS: u32 = 3;
const SPIKE_BASELINE_QUANTILE: f32 = 0.9;
const SPIKES: usize = 4;
const SPIKES_REMEMBERED: i64 = 60 * SECOND;
