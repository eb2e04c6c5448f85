//! What arrival times tell: how long packets are under way, how much that varies, and whose clock is
//! fast.
//!
//! A packet's *transit* is the time of its arrival minus its media time. Nobody knows when it was
//! sent, so only differences mean anything: the fastest packets of the last seconds are the *base*,
//! and the others are so much later than it. The base is not a plain minimum of a window, because
//! with two clocks 100 ppm apart that would be a millisecond old news; each second's minimum is
//! carried on to now by the slope of the last minutes, which is also the drift that a servo wants.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    reason = "slopes are made of floats and their results are clamped; one index, modulo its array"
)]

use aulos_core::Ppm;

use super::histogram::DelayHistogram;

/// Times in here are nanoseconds, of the local clock or between two of its readings.
#[derive(Debug)]
pub(super) struct TransitEstimator {
    histogram: DelayHistogram,
    lows: [TransitSample; WINDOW],
    /// Which of `lows` is of the current second.
    open: usize,
    opened: i64,
    base: TransitSample,
    line: DriftLine,
    jitter: i64,
    last: Option<TransitSample>,
    spikes: DelaySpikes,
    quantile: f32,
    /// The quantile, and what nine of ten packets keep, as of some packets ago.
    usual: i64,
    ordinary: i64,
    until_usual: u8,
}

/// A transit, and when it was seen.
#[derive(Clone, Copy, Debug)]
struct TransitSample {
    transit: i64,
    at: i64,
}

impl TransitEstimator {
    /// Delays up to `most` above the base are told apart, and are `guess` as long as nothing is
    /// known; `quantile` is the part of the packets that are to come in time.
    pub(super) fn new(most: i64, guess: i64, quantile: f32) -> Self {
        let histogram = DelayHistogram::new(most, guess);
        let usual = histogram.quantile(quantile);
        Self {
            histogram,
            lows: [NEVER; WINDOW],
            open: 0,
            opened: 0,
            base: NEVER,
            line: DriftLine::default(),
            jitter: 0,
            last: None,
            spikes: DelaySpikes::default(),
            quantile,
            usual,
            ordinary: usual,
            until_usual: UPDATE_EVERY,
        }
    }

    /// Takes a packet that came at `at` after `transit`; returns how much later it is than the
    /// fastest.
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
        self.until_usual -= 1;
        if self.until_usual == 0 {
            self.until_usual = UPDATE_EVERY;
            (self.usual, self.ordinary) = self.quantiles();
        }
        self.spikes.record(delay, self.ordinary, at);
        delay
    }

    /// The next packet's timestamp has nothing to do with the last one's.
    pub(super) const fn restart(&mut self) {
        self.last = None;
    }

    /// How late packets were is forgotten, and guessed to be `guess`.
    pub(super) fn reset_lateness(&mut self, guess: i64) {
        self.histogram.restart(guess);
        (self.usual, self.ordinary) = self.quantiles();
        self.spikes = DelaySpikes::default();
    }

    /// Nothing has been recorded.
    pub(super) const fn is_new(&self) -> bool {
        self.base.at == NEVER.at
    }

    /// The transit of the fastest packets, carried on to `at`.
    pub(super) fn base(&self, at: i64) -> i64 {
        self.carried(self.base, at)
    }

    /// How much later than the fastest packets come, but for the few that the quantile leaves out
    /// and that no spikes foretell.
    pub(super) fn lateness(&self, now: i64) -> i64 {
        self.usual.max(self.spikes.expected_height(now))
    }

    /// The interarrival jitter of RFC 3550 section 6.4.1.
    pub(super) const fn jitter(&self) -> i64 {
        self.jitter
    }

    /// How fast the sender's clock is.
    pub(super) fn drift(&self) -> Ppm {
        Ppm::from_ppb(-self.line.slope() as i32)
    }

    /// The change of the base, in nanoseconds per second.
    pub(super) fn slope(&self) -> f64 {
        self.line.slope()
    }

    fn quantiles(&self) -> (i64, i64) {
        (self.histogram.quantile(self.quantile), self.histogram.quantile(SPIKE_BASELINE_QUANTILE))
    }

    fn update_minimum(&mut self, transit: i64, at: i64) {
        if self.is_new() {
            self.opened = at;
        }
        let over = at.saturating_sub(self.opened);
        if over >= SECOND {
            self.close_second(over, at);
        }
        let seen = TransitSample { transit, at };
        let open = &mut self.lows[self.open];
        if open.at == NEVER.at || transit < open.transit {
            *open = seen;
        }
        if self.is_new() || transit < self.base(at) {
            self.base = seen;
        }
    }

    /// Ends a second that has lasted `over`.
    fn close_second(&mut self, over: i64, at: i64) {
        self.line.add(self.lows[self.open]);
        self.opened = at;
        self.open = (self.open + 1) % WINDOW;
        self.lows[self.open] = NEVER;
        // After a pause longer than the window only the line is left, carried on.
        if over > SECOND.saturating_mul(WINDOW as i64) {
            let newest = TransitSample { transit: self.base(at), at };
            self.lows = [NEVER; WINDOW];
            self.lows[(self.open + WINDOW - 1) % WINDOW] = newest;
        }
        let lows = self.lows.iter().filter(|low| low.at != NEVER.at);
        if let Some(&base) = lows.min_by_key(|&&low| self.carried(low, at)) {
            self.base = base;
        }
    }

    fn carried(&self, low: TransitSample, at: i64) -> i64 {
        let moved = self.line.slope() * seconds(at.saturating_sub(low.at));
        low.transit.saturating_add(moved as i64)
    }
}

/// A straight line through each second's minimum, by least squares, of which what is older than
/// some minutes is forgotten. Its sums are relative to the newest point.
///
/// It is drawn as if it were known beforehand that clocks differ by some 50 ppm: after a few
/// seconds on a bad network a free line would say a thousand.
#[derive(Debug, Default)]
struct DriftLine {
    points: f64,
    t: f64,
    y: f64,
    tt: f64,
    ty: f64,
    newest: Option<TransitSample>,
    slope: f64,
    /// What is believed of the slope before there are points: that of the line before.
    believed: f64,
    /// How far points are from the line, on average.
    spread: f64,
    /// So many points in a row were somewhere else.
    elsewhere: u8,
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
            self.elsewhere += 1;
            if self.elsewhere >= OUTLIERS_TO_RESTART {
                self.begin(low);
            }
            return;
        }
        self.elsewhere = 0;
        if self.points > 1.0 {
            self.spread += (expected.abs() - self.spread) / self.points.min(30.0);
        }
        let keep = (-dt / LINE_S).exp();
        let n = self.points;
        // Time and height are counted from the new point; each sum is moved there.
        self.ty = keep * (self.ty - dt * self.y - dy * self.t + dt * dy * n);
        self.tt = keep * (self.tt - 2.0 * dt * self.t + dt * dt * n);
        self.t = keep * (self.t - dt * n);
        self.y = keep * (self.y - dy * n);
        self.points = keep * n + 1.0;
        self.newest = Some(low);
        let across = self.tt - self.t * self.t / self.points;
        let along = self.ty - self.t * self.y / self.points;
        let doubt = (self.spread.max(LEAST_SPREAD_NS) / USUAL_DRIFT).powi(2);
        let learnt = (along - self.believed * across) / (across + doubt);
        self.slope = (self.believed + learnt).clamp(-MOST_DRIFT, MOST_DRIFT);
    }

    /// The line at the newest point, seen from that point.
    fn height(&self) -> f64 {
        (self.y - self.slope * self.t) / self.points.max(1.0)
    }

    /// Draws a new line from here, which goes on as the last one did until more is known.
    fn begin(&mut self, low: TransitSample) {
        let (slope, believed) = (self.slope, self.slope);
        *self = Self { points: 1.0, newest: Some(low), slope, believed, ..Self::default() };
    }
}

/// Moments at which the way stood still, and for how long: several packets in a row are late, and come
/// together. One is an accident; when they keep coming, it is better to be prepared for the next. A
/// packet that is late alone is the histogram's affair.
#[derive(Debug, Default)]
struct DelaySpikes {
    past: [Option<TransitSample>; SPIKES],
    /// One may be under way: when it began, how high it is, and of how many packets.
    now: Option<(TransitSample, u32)>,
}

impl DelaySpikes {
    fn record(&mut self, delay: i64, ordinary: i64, at: i64) {
        if delay > ordinary.saturating_add(SPIKE_NS) {
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

    /// The height to be prepared for, and a little more; 0 where nothing is to be expected.
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

/// Seconds whose minima make the base: some hundred packets, of which one is hardly ever not among
/// the fastest.
const WINDOW: usize = 10;

/// The quantile is taken anew after so many packets; it does not move faster.
const UPDATE_EVERY: u8 = 8;

/// What the line remembers, in seconds: with 1 ms of noise a slope good to about one ppm.
const LINE_S: f64 = 120.0;

/// What is this far from the line, and four times its spread, is not on it. Three such seconds in
/// a row are a new way through the network.
const OUTLIER_NS: f64 = 5e6;
const OUTLIERS_TO_RESTART: u8 = 3;

/// Crystals differ by tens of ppm, and none by more than 500. In nanoseconds per second.
const USUAL_DRIFT: f64 = 50_000.0;
const MOST_DRIFT: f64 = 500_000.0;

/// Minima are never better known than this: the tick of the reader's clock.
const LEAST_SPREAD_NS: f64 = 50_000.0;

/// How far beyond what nine of ten packets keep a spike begins, and how many packets it has at least.
const SPIKE_NS: i64 = 20_000_000;
const SPIKE_PACKETS: u32 = 3;
const SPIKE_BASELINE_QUANTILE: f32 = 0.9;
const SPIKES: usize = 4;
const SPIKES_REMEMBERED: i64 = 60 * SECOND;
