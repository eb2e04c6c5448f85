//! The line between two clocks, from measurements that can only be too late.
//!
//! A message of the peer says how its clock stood, but arrives later by an unknown delay, so it
//! gives a lower bound of the offset (peer minus own). A message to the peer gives an upper bound.
//! A position that a sound card reports is such a bound too, because a program wakes up late and
//! never early. No delay is negative, so the true line lies between both clouds of bounds; chosen
//! is the line with the widest margin to both. For delays with an exponential distribution it is
//! the most likely line. Its error falls with the number of bounds and not with the root of it, and
//! queues that delay one direction do not move it.
//!
//! A median was rejected because it lags behind a drift by half of its window, a least-squares line
//! and a Kalman filter because one burst of delays moves them.
//!
//! What no filter can see is a constant difference between the two directions: half of it is an
//! error of the offset.

use std::collections::VecDeque;

use crate::{Instant, Ppm, Span};

/// Bounds of the offset between a peer's clock and the own one.
#[derive(Clone, Debug)]
pub struct ClockBounds {
    /// The times of all bounds are relative to this one, so that they are exact as `f64`.
    origin: Instant,
    base: Span,
    upper: Cloud,
    lower: Cloud,
    line: Option<ClockLine>,
    restarts: u64,
}

/// Offset of a peer's clock: it reads `offset` more than the own clock, and `drift` more each
/// second.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClockLine {
    /// The own time at which the peer is ahead by [`offset`](Self::offset).
    pub at: Instant,
    /// Peer minus own clock at that time.
    pub offset: Span,
    /// How much faster the peer's clock runs.
    pub drift: Ppm,
    /// Error that the offset exceeds about once in twenty times, as the delays are distributed. A
    /// constant difference between the directions is not in it.
    pub error: Span,
    /// Smallest delay of a direction; zero if there are bounds of one kind only.
    pub delay: Span,
}

impl ClockLine {
    /// A clock that is ahead by `offset` and does not drift, of unknown error.
    #[must_use]
    pub const fn constant(at: Instant, offset: Span) -> Self {
        Self { at, offset, drift: Ppm::ZERO, error: Span::MAX, delay: Span::ZERO }
    }

    /// Peer minus own clock at the own time `at`.
    #[must_use]
    pub fn offset_at(&self, at: Instant) -> Span {
        let nanos = i128::from((at - self.at).as_nanos()) * i128::from(self.drift.as_ppb());
        self.offset + Span::from_nanos(i64::try_from(nanos / BILLION).unwrap_or(0))
    }

    /// The peer's time at the own time `at`.
    #[must_use]
    pub fn peer_time(&self, at: Instant) -> Instant {
        at + self.offset_at(at)
    }

    /// The own time at the peer's time `peer`.
    #[must_use]
    pub fn own_time(&self, peer: Instant) -> Instant {
        // One step is exact to drift squared: 0.4 ns for each ms of the offset's change.
        let guess = peer - self.offset;
        peer - self.offset_at(peer - self.offset_at(guess))
    }
}

impl ClockBounds {
    /// Keeps at most `window` bounds of each kind, which is all that it allocates.
    #[must_use]
    pub fn new(window: usize) -> Self {
        Self {
            origin: Instant::ZERO,
            base: Span::ZERO,
            upper: Cloud::new(window.max(1)),
            lower: Cloud::new(window.max(1)),
            line: None,
            restarts: 0,
        }
    }

    /// Adds a message to the peer, sent at the own time `at`, where the peer's clock at its arrival
    /// read `offset` more. [`update`](Self::update) makes it count.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn push_upper(&mut self, at: Instant, offset: Span) {
        let point = self.point(at, offset);
        self.upper.push(point);
    }

    /// Adds a message from the peer: when it was sent, the peer's clock read `offset` more than the
    /// own clock at its arrival, `at`.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn push_lower(&mut self, at: Instant, offset: Span) {
        let point = self.point(at, offset);
        self.lower.push(point);
    }

    /// The line through all bounds so far. Bounds that contradict each other, because a clock was
    /// set or a stamp was too early, are dropped: the older half first, then all but the newest.
    ///
    /// # Real-time
    /// Does not allocate. Takes time in proportion to the number of bounds: some microseconds for a
    /// thousand.
    pub fn update(&mut self) -> Option<ClockLine> {
        let is_known = self.len() >= MIN_KNOWN;
        if is_known && self.line.is_some_and(|line| self.contradicts(line)) {
            self.drop_older_half();
        }
        let mut fit = self.fit();
        for _ in 0..2 {
            if fit.is_none_or(|fit| fit.overlap <= MAX_OVERLAP) || self.len() < 2 {
                break;
            }
            match self.line.take() {
                Some(_) => self.drop_older_half(),
                None => self.keep_newest(),
            }
            fit = self.fit();
        }
        self.line = fit.map(|fit| self.line_of(fit));
        self.line
    }

    /// The line of the last update.
    #[must_use]
    pub const fn line(&self) -> Option<ClockLine> {
        self.line
    }

    /// Number of bounds of the more frequent kind.
    #[must_use]
    pub fn len(&self) -> usize {
        self.upper.points.len().max(self.lower.points.len())
    }

    /// Whether there are no bounds.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How often bounds contradicted each other and were dropped.
    #[must_use]
    pub const fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Drops all bounds.
    pub fn clear(&mut self) {
        self.upper.points.clear();
        self.lower.points.clear();
        self.line = None;
    }

    fn point(&mut self, at: Instant, offset: Span) -> Point {
        if self.is_empty() {
            (self.origin, self.base) = (at, offset);
        } else if at - self.origin > MAX_AGE_OF_ORIGIN {
            self.move_origin();
        }
        Point {
            at: float((at - self.origin).as_nanos()),
            offset: float((offset - self.base).as_nanos()),
        }
    }

    /// Moves the origin to the oldest bound, so that times stay exact for ever.
    fn move_origin(&mut self) {
        let first = |cloud: &Cloud| cloud.points.front().map_or(f64::MAX, |point| point.at);
        let by = first(&self.upper).min(first(&self.lower));
        for cloud in [&mut self.upper, &mut self.lower] {
            cloud.points.iter_mut().for_each(|point| point.at -= by);
        }
        self.origin += nanos(by);
    }

    fn time(&self, point: Point) -> Instant {
        self.origin + nanos(point.at)
    }

    /// Whether one of the newest bounds is far on the wrong side of the line.
    fn contradicts(&self, line: ClockLine) -> bool {
        let limit = MAX_CONTRADICTION + 4.0 * float(line.error.as_nanos());
        let is_beyond = |cloud: &Cloud, sign: f64| {
            cloud.points.back().is_some_and(|point| {
                let expected = line.offset_at(self.time(*point)) - self.base;
                (point.offset - float(expected.as_nanos())) * sign < -limit
            })
        };
        is_beyond(&self.upper, 1.0) || is_beyond(&self.lower, -1.0)
    }

    fn drop_older_half(&mut self) {
        self.restarts += 1;
        for cloud in [&mut self.upper, &mut self.lower] {
            let half = cloud.points.len().div_ceil(2);
            cloud.points.drain(..half.min(cloud.points.len().saturating_sub(1)));
        }
    }

    fn keep_newest(&mut self) {
        self.restarts += 1;
        for cloud in [&mut self.upper, &mut self.lower] {
            cloud.points.drain(..cloud.points.len().saturating_sub(1));
        }
    }

    /// The slope with the widest margin. The margin is a concave function of the slope, so a search
    /// by the golden section finds its maximum.
    fn fit(&mut self) -> Option<Fit> {
        self.upper.find_hull(1.0);
        self.lower.find_hull(-1.0);
        // Over a short time any slope fits: it stays near to zero, as clocks do.
        let excess = self.edges(0.0)?.mean_excess().max(RESOLUTION);
        let weight = excess / (2.0 * float_of(self.len()) * USUAL_DRIFT);
        let value = |slope: f64| {
            self.edges(slope).map_or(f64::MIN, |edges| edges.margin() - weight * slope.abs())
        };
        let (mut low, mut high) = (-MAX_DRIFT, MAX_DRIFT);
        let (mut left, mut right) = (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
        let (mut at_left, mut at_right) = (value(left), value(right));
        for _ in 0..SEARCH_STEPS {
            if at_left >= at_right {
                (high, right, at_right) = (right, left, at_left);
                left = high - GOLDEN * (high - low);
                at_left = value(left);
            } else {
                (low, left, at_left) = (left, right, at_right);
                right = low + GOLDEN * (high - low);
                at_right = value(right);
            }
        }
        let mut slope = low.midpoint(high);
        if value(0.0) >= value(slope) {
            slope = 0.0;
        }
        let edges = self.edges(slope)?;
        let (height, overlap) = (edges.height(), edges.overlap());
        Some(Fit { slope, height, overlap, excess: edges.mean_excess() })
    }

    /// The lines of a slope that touch the clouds.
    fn edges(&self, slope: f64) -> Option<Edges> {
        let [above, below] = [self.upper.edge(slope, 1.0), self.lower.edge(slope, -1.0)];
        above.or(below).map(|_| Edges { above, below })
    }

    fn line_of(&self, fit: Fit) -> ClockLine {
        let last = |cloud: &Cloud| cloud.points.back().map_or(f64::MIN, |point| point.at);
        let at = last(&self.upper).max(last(&self.lower));
        #[allow(clippy::cast_possible_truncation, reason = "at most 600,000")]
        let drift = (fit.slope * 1e9).round() as i32;
        ClockLine {
            at: self.origin + nanos(at),
            offset: self.base + nanos(fit.height + fit.slope * at),
            drift: Ppm::from_ppb(drift),
            error: nanos(RESOLUTION + ERROR_OF_MEAN * fit.excess / float_of(self.len())),
            delay: nanos((-fit.overlap).max(0.0)),
        }
    }
}

/// Bounds of one kind, in the order of their arrival.
#[derive(Clone, Debug)]
struct Cloud {
    points: VecDeque<Point>,
    window: usize,
    /// The points that are nearest for some slope.
    hull: Vec<Point>,
    mean: Point,
}

/// Nanoseconds from the origin.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    at: f64,
    offset: f64,
}

impl Point {
    /// Height at time zero of the line of this slope through the point.
    fn height(self, slope: f64) -> f64 {
        self.offset - slope * self.at
    }
}

impl Cloud {
    fn new(window: usize) -> Self {
        let (points, hull) = (VecDeque::with_capacity(window), Vec::with_capacity(window));
        Self { points, window, hull, mean: Point::default() }
    }

    fn push(&mut self, point: Point) {
        if self.points.len() == self.window {
            self.points.pop_front();
        }
        // The hull needs the order of time.
        let at = self.points.back().map_or(point.at, |last| last.at.max(point.at));
        self.points.push_back(Point { at, ..point });
    }

    /// The lower hull (`sign` 1) or the upper one (-1), by A. M. Andrew's monotone chain (1979).
    fn find_hull(&mut self, sign: f64) {
        self.hull.clear();
        let mut sum = Point::default();
        for &point in &self.points {
            sum = Point { at: sum.at + point.at, offset: sum.offset + point.offset };
            while let [.., a, b] = self.hull.as_slice() {
                let turn = (b.at - a.at) * (point.offset - a.offset)
                    - (b.offset - a.offset) * (point.at - a.at);
                if turn * sign > 0.0 {
                    break;
                }
                self.hull.pop();
            }
            self.hull.push(point);
        }
        let count = float_of(self.points.len().max(1));
        self.mean = Point { at: sum.at / count, offset: sum.offset / count };
    }

    /// The line of this slope that touches the cloud from below (`sign` 1) or from above (-1).
    fn edge(&self, slope: f64, sign: f64) -> Option<Edge> {
        let heights = self.hull.iter().map(|point| point.height(slope) * sign);
        let nearest = heights.reduce(f64::min)? * sign;
        Some(Edge { nearest, mean_excess: (self.mean.height(slope) - nearest) * sign })
    }
}

#[derive(Clone, Copy)]
struct Edge {
    /// Height at time zero.
    nearest: f64,
    /// Mean distance of the bounds from the line.
    mean_excess: f64,
}

/// The lines of one slope that touch the clouds.
#[derive(Clone, Copy)]
struct Edges {
    above: Option<Edge>,
    below: Option<Edge>,
}

impl Edges {
    /// What the best line has most of.
    fn margin(self) -> f64 {
        match (self.above, self.below) {
            (Some(_), Some(_)) => -self.overlap(),
            // Bounds of one kind: the line that is nearest to all of them.
            _ => -self.mean_excess(),
        }
    }

    fn overlap(self) -> f64 {
        let (Some(above), Some(below)) = (self.above, self.below) else { return 0.0 };
        (below.nearest - above.nearest) / 2.0
    }

    fn mean_excess(self) -> f64 {
        let all = self.above.iter().chain(&self.below).map(|edge| edge.mean_excess);
        all.clone().sum::<f64>() / float_of(all.count().max(1))
    }

    /// Height of the line in the middle.
    fn height(self) -> f64 {
        let above = self.above.or(self.below).map_or(0.0, |edge| edge.nearest);
        self.below.map_or(above, |below| below.nearest.midpoint(above))
    }
}

#[derive(Clone, Copy)]
struct Fit {
    slope: f64,
    height: f64,
    overlap: f64,
    excess: f64,
}

#[allow(clippy::cast_precision_loss, reason = "days in nanoseconds have less than 53 bits")]
fn float(nanos: i64) -> f64 {
    nanos as f64
}

#[allow(clippy::cast_precision_loss, reason = "a few thousand")]
fn float_of(count: usize) -> f64 {
    count as f64
}

#[allow(clippy::cast_possible_truncation, reason = "saturates")]
fn nanos(value: f64) -> Span {
    Span::from_nanos(value.round() as i64)
}

/// Ten days; `f64` has integers up to 104 days of nanoseconds.
const MAX_AGE_OF_ORIGIN: Span = Span::from_secs(864_000);

const BILLION: i128 = 1_000_000_000;

/// Quartz clocks deviate by less; a clock that is being set by NTP, by up to 500 ppm.
const MAX_DRIFT: f64 = 600e-6;

/// What clocks of computers usually differ by.
const USUAL_DRIFT: f64 = 30e-6;

/// 40 steps reduce the range of slopes to 5e-12: 1.5 ns over five minutes.
const SEARCH_STEPS: usize = 40;

/// The inverse of the golden ratio.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// Clouds that overlap by more than 100 us contradict each other.
const MAX_OVERLAP: f64 = 100e3;

/// From this many bounds on, a line is known well enough to be contradicted.
const MIN_KNOWN: usize = 20;

/// A bound on the wrong side of the line by more than 1 ms, besides the line's own error,
/// contradicts it.
const MAX_CONTRADICTION: f64 = 1e6;

/// Stamps of the protocol are in microseconds.
const RESOLUTION: f64 = 1e3;

/// Error in units of mean excess delay per bound, which one in twenty exceeds: from simulations of
/// 50 to 1,200 bounds with a drift.
const ERROR_OF_MEAN: f64 = 15.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    /// A peer whose clock is off by `ppm`, behind a network with this mean jitter in microseconds:
    /// 50 quick exchanges, then four a second. Returns |error| and the error bar, in microseconds,
    /// from `after` seconds on.
    fn exchanges(ppm: f64, jitter: f64, seconds: f64, after: f64, seed: u64) -> Vec<(f64, f64)> {
        let mut random = Rng::new(seed);
        let mut bounds = ClockBounds::new(1_200);
        let start = Instant::ZERO + Span::from_secs(77);
        let truth = |at: f64| 5e9 + at * ppm * 1e-6;
        let (mut now, mut out) = (0.0, Vec::new());
        for number in 0.. {
            let mut delay = || 500e3 + random.exponential(jitter * 1e3) + random.exponential(30e3);
            let (there, back) = (delay(), delay());
            let sent = now;
            let arrived = sent + there + back;
            bounds.push_upper(start + nanos(sent), nanos(truth(sent) + there));
            bounds.push_lower(start + nanos(arrived), nanos(truth(arrived) - back));
            let line = bounds.update().unwrap();
            if arrived > after * 1e9 {
                let error =
                    line.offset_at(start + nanos(arrived)).as_nanos() as f64 - truth(arrived);
                out.push((error.abs() / 1e3, line.error.as_nanos() as f64 / 1e3));
            }
            now = if number < 50 { arrived + 100e3 } else { now.max(arrived - 250e6) + 250e6 };
            if now > seconds * 1e9 {
                break;
            }
        }
        assert_eq!(bounds.restarts(), 0);
        out
    }

    #[test]
    fn the_error_is_small_at_every_jitter_and_the_error_bar_says_so() {
        // Mean jitter, and limits for the 99th percentile after a minute and in the first 30 s.
        for (jitter, settled, early) in
            [(0.0, 2.0, 20.0), (1e3, 40.0, 500.0), (5e3, 200.0, 1e3), (20e3, 700.0, 3e3)]
        {
            for ppm in [-100.0, 0.0, 100.0] {
                let run = |seconds, after| {
                    let mut all: Vec<_> = (1..6)
                        .flat_map(|seed| exchanges(ppm, jitter, seconds, after, seed))
                        .collect();
                    let beyond = all.iter().filter(|(error, bar)| error > bar).count();
                    assert!(beyond * 10 < all.len(), "{beyond} of {}", all.len());
                    all.sort_by(|a, b| a.0.total_cmp(&b.0));
                    all[all.len() * 99 / 100].0
                };
                let p99 = [run(300.0, 60.0), run(30.0, 1.0)];
                assert!(p99[0] < settled && p99[1] < early, "{jitter} us, {ppm} ppm: {p99:?}");
            }
        }
    }

    const START: Instant = Instant::from_nanos(9_000_000_000);

    /// Adds a second of exchanges, four of them, over a way of 1 ms.
    fn second(bounds: &mut ClockBounds, from: i64, offset: Span) -> ClockLine {
        for quarter in 0..4 {
            let at = START + Span::from_secs(from) + Span::from_millis(250 * quarter);
            bounds.push_upper(at, offset + Span::from_millis(1));
            bounds.push_lower(at + Span::from_millis(2), offset - Span::from_millis(1));
            bounds.update();
        }
        bounds.line().unwrap()
    }

    #[test]
    fn a_clock_that_is_set_is_followed_within_a_second() {
        let mut bounds = ClockBounds::new(1_200);
        for from in 0..60 {
            assert_eq!(second(&mut bounds, from, Span::from_secs(3)).offset, Span::from_secs(3));
        }
        assert_eq!(bounds.restarts(), 0);
        let line = second(&mut bounds, 60, Span::from_secs(7));
        assert!((line.offset - Span::from_secs(7)).abs() < Span::from_micros(1), "{line:?}");
        assert_eq!(line.delay, Span::from_millis(1));
        assert!(bounds.restarts() > 0 && bounds.len() < 8, "{bounds:?}");
    }

    #[test]
    fn one_stamp_that_is_too_early_is_forgotten() {
        let mut bounds = ClockBounds::new(1_200);
        second(&mut bounds, 0, Span::ZERO);
        bounds.push_upper(START + Span::from_secs(1), Span::from_millis(-40));
        bounds.update();
        let line = (2..10).map(|from| second(&mut bounds, from, Span::ZERO)).last().unwrap();
        assert!(line.offset.abs() < Span::from_micros(1), "{line:?}");
    }

    /// A card that runs 80 ppm fast, and a program that wakes up late by 2 ms on average.
    #[test]
    fn bounds_of_one_kind_are_a_line_too() {
        let (mut bounds, mut random) = (ClockBounds::new(1_000), Rng::new(5));
        for number in 0..1_500 {
            let position = Span::from_millis(20 * number);
            let at = START + position - Span::from_nanos(position.as_nanos() / 1_000_000 * 80);
            let woken = at + nanos(random.exponential(2e6));
            bounds.push_lower(woken, START + position - woken);
        }
        let line = bounds.update().unwrap();
        let truth = Span::from_micros(1_499 * 20 * 80 / 1_000);
        assert!(
            (line.offset_at(START + Span::from_secs(30)) - truth).abs() < Span::from_micros(20)
        );
        assert!((line.drift.as_ppb() - 80_000).abs() < 2_000, "{line:?}");
        assert_eq!((line.delay, bounds.restarts()), (Span::ZERO, 0));
    }

    #[test]
    fn times_go_both_ways_and_a_year_changes_nothing() {
        let mut bounds = ClockBounds::new(100);
        let year = 365 * 86_400;
        for from in [0, year / 2, year] {
            second(&mut bounds, from, Span::from_secs(-5));
            let line = second(&mut bounds, from + 1, Span::from_secs(-5));
            assert!((line.offset - Span::from_secs(-5)).abs() < Span::from_micros(1), "{line:?}");
            let at = line.at + Span::from_secs(3);
            assert!((line.own_time(line.peer_time(at)) - at).abs() <= Span::from_nanos(1));
        }
        bounds.clear();
        assert!(bounds.is_empty() && bounds.line().is_none() && bounds.update().is_none());
    }
}
