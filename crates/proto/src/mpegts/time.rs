//! Times in ticks of 90 kHz that wrap after 26.5 hours (ISO/IEC 13818-1, 2.4.3.7).

use aulos_core::Span;

/// A time stamp, in ticks of 90 kHz modulo 2^33.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TsTime(u64);

impl TsTime {
    /// The low 33 bits of a number of ticks.
    #[must_use]
    pub const fn from_ticks(ticks: u64) -> Self {
        Self(ticks & MASK)
    }

    /// Ticks, below 2^33.
    #[must_use]
    pub const fn ticks(self) -> u64 {
        self.0
    }

    /// The five bytes of a PES header; the marker bits are not checked, because some senders leave
    /// them out.
    pub(super) fn parse([a, b, c, d, e]: [u8; 5]) -> Self {
        let [a, b, c, d, e] = [a, b, c, d, e].map(u64::from);
        Self((a >> 1 & 7) << 30 | b << 22 | (c >> 1) << 15 | d << 7 | e >> 1)
    }

    /// Ticks from `earlier` to this time, on the shorter way around: -2^32 to 2^32 - 1.
    #[must_use]
    pub const fn diff(self, earlier: Self) -> i64 {
        let forward = self.0.wrapping_sub(earlier.0) & MASK;
        let turn = if forward > MASK / 2 { MASK + 1 } else { 0 };
        forward.wrapping_sub(turn).cast_signed()
    }
}

/// Continues the times of one stream over their wrap.
#[derive(Clone, Copy, Debug, Default)]
pub struct TsTimeline {
    /// The last time, and its ticks on the line.
    last: Option<(TsTime, i64)>,
}

impl TsTimeline {
    /// The time on the line: nanoseconds, which saturate after 292 years. The first is that of the
    /// stamp; a later one is at most 13 hours from the one before.
    pub fn extend(&mut self, time: TsTime) -> Span {
        let ticks = match self.last {
            Some((last, ticks)) => ticks.saturating_add(time.diff(last)),
            None => time.0.cast_signed(),
        };
        self.last = Some((time, ticks));
        let nanos = i128::from(ticks) * 100_000 / 9;
        let end = if nanos < 0 { i64::MIN } else { i64::MAX };
        Span::from_nanos(i64::try_from(nanos).unwrap_or(end))
    }
}

const MASK: u64 = (1 << 33) - 1;
