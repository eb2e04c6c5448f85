//! Local monotonic time, always passed in as an argument.
//!
//! `std::time::Instant` cannot be constructed, so a test could not simulate an hour in a
//! millisecond, and it has no number to send on a wire. These types are plain nanoseconds.
//! Arithmetic saturates: an absurd time from a peer must not cause a panic.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Neg, Sub, SubAssign};

/// A point in time on the local monotonic clock, in nanoseconds since the clock's origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);

    /// The instant `nanos` nanoseconds after the origin of the clock.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin of the clock.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time elapsed since `earlier`; zero if `earlier` is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Span {
        (self - earlier).max(Span::ZERO)
    }
}

/// A signed duration in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(i64);

impl Span {
    /// Zero duration.
    pub const ZERO: Self = Self(0);
    /// 292 years.
    pub const MAX: Self = Self(i64::MAX);

    /// `nanos` nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// `micros` microseconds; saturates.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// `millis` milliseconds; saturates.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// `secs` seconds; saturates.
    #[must_use]
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// `secs` seconds, rounded towards zero, as people write them; saturates, and is zero for NaN.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "the cast saturates")]
    pub const fn from_secs_f64(secs: f64) -> Self {
        Self((secs * 1e9) as i64)
    }

    /// Whole nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Whole microseconds, rounded down (towards the past).
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// Whole milliseconds, rounded down (towards the past).
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// Seconds as a float, for displays and filters; never for media time.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "for people and filters")]
    pub const fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// The absolute value.
    #[must_use]
    pub const fn abs(self) -> Self {
        Self(self.0.saturating_abs())
    }
}

/// A negative span becomes zero.
impl From<Span> for core::time::Duration {
    fn from(span: Span) -> Self {
        Self::from_nanos(u64::try_from(span.0).unwrap_or(0))
    }
}

impl Add<Span> for Instant {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add_signed(span.0))
    }
}

impl Sub<Span> for Instant {
    type Output = Self;
    fn sub(self, span: Span) -> Self {
        self + -span
    }
}

impl Sub for Instant {
    type Output = Span;
    fn sub(self, other: Self) -> Span {
        let nanos = i128::from(self.0) - i128::from(other.0);
        Span(i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX }))
    }
}

impl AddAssign<Span> for Instant {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Span {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Neg for Span {
    type Output = Self;
    fn neg(self) -> Self {
        Self(self.0.saturating_neg())
    }
}

impl Mul<i64> for Span {
    type Output = Self;
    fn mul(self, by: i64) -> Self {
        Self(self.0.saturating_mul(by))
    }
}

impl Div<i64> for Span {
    type Output = Self;
    /// # Panics
    /// If `by` is 0, which only a bug of the caller can cause.
    fn div(self, by: i64) -> Self {
        Self(self.0.saturating_div(by))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms", self.as_secs_f64() * 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_wraps() {
        let end = Instant::from_nanos(u64::MAX);
        assert_eq!(end + Span::MAX, end);
        assert_eq!(Instant::ZERO - Span::from_secs(1), Instant::ZERO);
        assert_eq!(end - Instant::ZERO, Span::MAX);
        assert_eq!(Instant::ZERO - end, Span::from_nanos(i64::MIN));
        assert_eq!(-Span::from_nanos(i64::MIN), Span::MAX);
    }

    #[test]
    fn micros_round_towards_the_past() {
        assert_eq!(Span::from_nanos(-1).as_micros(), -1);
        assert_eq!(Span::from_nanos(1_999).as_micros(), 1);
    }

    #[test]
    fn since_is_never_negative() {
        assert_eq!(Instant::from_nanos(5).since(Instant::from_nanos(9)), Span::ZERO);
    }
}
