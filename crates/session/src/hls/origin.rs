//! The place on the grid of a chunk that another server has recorded.
//!
//! Its timestamp is on the origin's clock, which counts from an arbitrary moment. Every server
//! sees the same timestamps; what they must agree on besides is that moment, as a date. Each
//! estimates it by its own wall clock, and takes the nearest whole minute: so servers agree unless
//! the true date is as near to the middle of a minute as their clocks differ. What is lost by the
//! rounding is corrected in the dates that clients see.

use aulos_core::{Frames, Instant, MediaTime, SampleRate};

/// The grid as the clock of an origin has it.
#[derive(Debug)]
pub struct OriginGrid {
    rate: SampleRate,
    /// The date of the origin's zero, in nanoseconds since the Unix epoch.
    zero: Option<i64>,
    /// Where the next chunk belongs if none is lost, and its time on the origin's clock.
    next: Option<(MediaTime, i128)>,
}

/// Where a chunk belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a place and a date")]
pub struct OriginPlace {
    /// The place of its first sample.
    pub at: MediaTime,
    /// What must be added to the date of that place, in milliseconds.
    pub date_offset_ms: i64,
}

impl OriginGrid {
    /// The grid of samples of this rate.
    #[must_use]
    pub const fn new(rate: SampleRate) -> Self {
        Self { rate, zero: None, next: None }
    }

    /// The place of a chunk of `duration` whose first sample was recorded at `timestamp` of the
    /// origin's clock, which is the date `recorded` in nanoseconds since the Unix epoch.
    ///
    /// Chunks are numbered, not samples: the place is a multiple of `duration`. So the rounding of
    /// a timestamp cannot make two servers differ by a sample.
    pub fn place(&mut self, timestamp: Instant, duration: Frames, recorded: i64) -> OriginPlace {
        let own = i64::try_from(timestamp.as_nanos()).unwrap_or(i64::MAX);
        let estimate = recorded.saturating_sub(own);
        let zero = match self.zero {
            Some(zero) if zero.abs_diff(estimate) < MAX_CLOCK_CHANGE => zero,
            _ => {
                self.next = None;
                estimate
            }
        };
        self.zero = Some(zero);
        let rounded = round(zero.into(), MINUTE.into()) * i128::from(MINUTE);
        let nanos = (i128::from(own) + rounded).max(0);
        let chunk = i128::from(duration.0.max(1)) * i128::from(NANOS_PER_SECOND);
        let number = round(nanos * i128::from(self.rate.hz()), chunk);
        let place = MediaTime(u64::try_from(number).unwrap_or(0).saturating_mul(duration.0));
        // A timestamp between two numbers may be rounded to either, so chunks are counted from one
        // to the next; a lost one counts too.
        let at = match self.next {
            Some((next, expected)) => {
                let late = (i128::from(own) - expected) * i128::from(self.rate.hz());
                let steps = i64::try_from(round(late, chunk)).unwrap_or(i64::MAX);
                let moved = steps.saturating_mul(i64::try_from(duration.0).unwrap_or(i64::MAX));
                let counted = MediaTime(next.0.saturating_add_signed(moved));
                if counted.0.abs_diff(place.0) <= duration.0 { counted } else { place }
            }
            None => place,
        };
        self.next = Some((at + duration, i128::from(own) + chunk / i128::from(self.rate.hz())));
        let offset = i128::from(zero) - rounded;
        let date_offset_ms = i64::try_from(offset / 1_000_000).unwrap_or(0);
        OriginPlace { at, date_offset_ms }
    }
}

/// The quotient of positive or negative numbers, rounded to the nearest integer.
const fn round(number: i128, by: i128) -> i128 {
    (number + by / 2).div_euclid(by)
}

const NANOS_PER_SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * NANOS_PER_SECOND;

/// A greater change of the estimate is another clock: the origin's machine was started anew, or
/// another node has taken over.
const MAX_CLOCK_CHANGE: u64 = 5 * NANOS_PER_SECOND as u64;
