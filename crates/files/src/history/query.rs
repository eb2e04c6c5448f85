//! What a reader asks for, and the answer: columns over equal steps of time.

use std::collections::BTreeMap;
use std::fmt;

use super::record::{HistoryFigure, HistoryFlags, HistoryRecord};
use super::tier::HistoryTier;

/// The most points of an answer: one for each pixel of a wide screen.
pub const MAX_POINTS: u32 = 2_000;

/// The longest span of a query in seconds: ten years, 350,000 records of the coarsest tier.
pub const MAX_SPAN_S: u32 = 3_660 * 86_400;

/// A span of time, and in how many points it is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryRange {
    from: u32,
    to: u32,
    points: u32,
}

/// What is wrong with a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidRange {
    /// It ends before it begins, or is empty.
    Empty,
    /// It is longer than [`MAX_SPAN_S`].
    TooLong,
    /// The number of points is 0 or above [`MAX_POINTS`].
    Points,
}

impl fmt::Display for InvalidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("`from` has to be before `to`"),
            Self::TooLong => write!(f, "the range is longer than {MAX_SPAN_S} seconds"),
            Self::Points => write!(f, "`points` has to be 1 to {MAX_POINTS}"),
        }
    }
}

impl HistoryRange {
    /// From `from` to `to` in Unix time, in at most `points` points. There is one more if the first
    /// begins before the range, because points begin at multiples of their step.
    ///
    /// # Errors
    /// [`InvalidRange`].
    pub const fn new(from: u32, to: u32, points: u32) -> Result<Self, InvalidRange> {
        if from >= to {
            return Err(InvalidRange::Empty);
        }
        if to - from > MAX_SPAN_S {
            return Err(InvalidRange::TooLong);
        }
        if points == 0 || points > MAX_POINTS {
            return Err(InvalidRange::Points);
        }
        Ok(Self { from, to, points })
    }

    /// Its first second.
    #[must_use]
    pub const fn from(&self) -> u32 {
        self.from
    }

    /// The second after its last.
    #[must_use]
    pub const fn to(&self) -> u32 {
        self.to
    }

    /// The step between points: the least multiple of the tier's record that divides the range into
    /// no more parts than wanted.
    fn step(&self, tier: HistoryTier) -> u32 {
        let records = (self.to - self.from).div_ceil(self.points).div_ceil(tier.step_s());
        records.max(1).saturating_mul(tier.step_s())
    }

    /// The time of the first point, which may begin before the range.
    pub(super) fn start(&self, tier: HistoryTier) -> u32 {
        self.from - self.from % self.step(tier)
    }

    /// The tier that has about as many records as there are points. `oldest` is the begin of what
    /// is kept of a tier: where the wanted tier does not reach back far enough, a coarser one that
    /// does.
    pub(super) fn tier(&self, oldest: impl Fn(HistoryTier) -> Option<u32>) -> HistoryTier {
        let wanted = HistoryTier::for_step(f64::from(self.to - self.from) / f64::from(self.points));
        let reach = |tier: &HistoryTier| oldest(*tier).unwrap_or(u32::MAX).max(self.from);
        let usable = HistoryTier::ALL.into_iter().filter(|tier| *tier >= wanted);
        // The first of equals is the finest.
        usable.min_by_key(reach).unwrap_or(wanted)
    }
}

/// The answer to a query: for each step of time what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The tier that was read.
    pub tier: HistoryTier,
    /// Unix time of the first point.
    pub start: u32,
    /// Seconds between two points.
    pub step_s: u32,
    /// The points; one without a measurement is absent.
    pub points: Vec<HistoryRecord>,
    /// Which share of each point was measured, 0 to 1.
    pub measured: Vec<f32>,
}

impl Series {
    /// Puts records of a tier, whose times are keys, into points. Points begin at multiples of
    /// their step, so that they stay the same when the range moves on.
    pub(super) fn new(
        range: &HistoryRange,
        tier: HistoryTier,
        records: &BTreeMap<u32, HistoryRecord>,
    ) -> Self {
        let (start, step) = (range.start(tier), range.step(tier));
        let mut series =
            Self { tier, start, step_s: step, points: Vec::new(), measured: Vec::new() };
        let mut at = u64::from(start);
        while at < u64::from(range.to) {
            // Below `to`, which is a u32.
            let first = u32::try_from(at).unwrap_or(u32::MAX);
            let within = records.range(first..first.saturating_add(step));
            let within: Vec<&HistoryRecord> = within.map(|(_, record)| record).collect();
            // At most as many records as a step has seconds.
            #[allow(clippy::cast_precision_loss, reason = "see above")]
            let share = (within.len() * tier.step_s() as usize) as f32 / step as f32;
            series.points.push(HistoryRecord::combine(within));
            series.measured.push(share);
            at += u64::from(step);
        }
        series
    }

    /// The figures of all points, by their place in [`HistoryRecord::FIGURE_NAMES`].
    pub fn figures(&self, place: usize) -> impl Iterator<Item = Option<f64>> + '_ {
        let figure = move |record: &HistoryRecord| record.figures().get(place).copied();
        self.points.iter().map(move |record| figure(record).and_then(HistoryFigure::get))
    }

    /// The flags of all points.
    pub fn flags(&self) -> impl Iterator<Item = HistoryFlags> + '_ {
        self.points.iter().map(|record| record.flags)
    }
}
