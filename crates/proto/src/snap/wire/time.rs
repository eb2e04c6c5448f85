//! Times on the wire: seconds and microseconds.

use aulos_core::{Instant, Span};

/// An instant or a difference on the wire: two signed 32-bit numbers.
///
/// An instant counts from the start of the sender's monotonic clock. A negative difference has
/// negative seconds and microseconds of 0 to 999,999, as in `timeval` arithmetic; received values
/// may be arbitrary, and their sum counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WireTime {
    /// Whole seconds.
    pub sec: i32,
    /// Additional microseconds.
    pub usec: i32,
}

impl WireTime {
    /// Unset.
    pub const ZERO: Self = Self { sec: 0, usec: 0 };

    /// An instant, rounded down to a microsecond; saturates after 68 years.
    #[must_use]
    pub fn from_instant(instant: Instant) -> Self {
        Self::from_micros(i64::try_from(instant.as_nanos() / 1_000).unwrap_or(i64::MAX))
    }

    /// A difference, rounded down to a microsecond; saturates at 68 years.
    #[must_use]
    pub fn from_span(span: Span) -> Self {
        Self::from_micros(span.as_micros())
    }

    /// A number of microseconds, normalized; saturates at 68 years.
    #[must_use]
    pub fn from_micros(micros: i64) -> Self {
        let sec = micros.div_euclid(MICROS);
        match i32::try_from(sec) {
            #[allow(clippy::cast_possible_truncation, reason = "a remainder below one million")]
            Ok(sec) => Self { sec, usec: micros.rem_euclid(MICROS) as i32 },
            Err(_) if sec < 0 => Self { sec: i32::MIN, usec: 0 },
            Err(_) => Self { sec: i32::MAX, usec: 999_999 },
        }
    }

    /// The total in microseconds.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.sec as i64 * MICROS + self.usec as i64
    }

    /// As a difference.
    #[must_use]
    pub const fn to_span(self) -> Span {
        Span::from_micros(self.as_micros())
    }

    /// As an instant; times before the start of the clock become its start.
    #[must_use]
    pub fn to_instant(self) -> Instant {
        Instant::ZERO + self.to_span()
    }

    pub(crate) const fn to_le_bytes(self) -> [u8; 8] {
        let [a, b, c, d] = self.sec.to_le_bytes();
        let [e, f, g, h] = self.usec.to_le_bytes();
        [a, b, c, d, e, f, g, h]
    }

    pub(crate) const fn from_le_bytes([a, b, c, d, e, f, g, h]: [u8; 8]) -> Self {
        Self { sec: i32::from_le_bytes([a, b, c, d]), usec: i32::from_le_bytes([e, f, g, h]) }
    }
}

const MICROS: i64 = 1_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_negative_difference_has_positive_microseconds() {
        assert_eq!(WireTime::from_micros(-1), WireTime { sec: -1, usec: 999_999 });
        assert_eq!(WireTime { sec: -1, usec: 999_999 }.to_span(), Span::from_micros(-1));
    }

    #[test]
    fn absurd_times_saturate() {
        let end = Instant::from_nanos(u64::MAX);
        assert_eq!(WireTime::from_instant(end), WireTime { sec: i32::MAX, usec: 999_999 });
        assert_eq!(WireTime { sec: i32::MIN, usec: i32::MIN }.to_instant(), Instant::ZERO);
        assert_eq!(WireTime::from_span(-Span::MAX), WireTime { sec: i32::MIN, usec: 0 });
    }

    proptest! {
        #[test]
        fn times_round_trip_to_the_microsecond(nanos in 0..2_000_000_000_000_000_000_u64) {
            let wire = WireTime::from_instant(Instant::from_nanos(nanos));
            prop_assert!((0..1_000_000).contains(&wire.usec));
            prop_assert_eq!(wire.to_instant(), Instant::from_nanos(nanos / 1_000 * 1_000));
        }

        #[test]
        fn any_two_words_are_one_time(sec: i32, usec: i32) {
            let micros = i64::from(sec) * 1_000_000 + i64::from(usec);
            prop_assert_eq!(WireTime { sec, usec }.as_micros(), micros);
            let bytes = WireTime { sec, usec }.to_le_bytes();
            prop_assert_eq!(WireTime::from_le_bytes(bytes), WireTime { sec, usec });
        }
    }
}
