//! The clocks of machines, none of which is right.

use aulos_core::{Instant, Ppm, Span};

/// The monotonic clock of one machine in the world: off by some time and wrong by some ppm.
#[derive(Clone, Copy, Debug)]
pub struct LocalClock {
    /// What it shows when the world is at zero.
    start: Instant,
    drift: Ppm,
}

impl LocalClock {
    /// A clock that shows `start` when the world is at zero and runs fast by `drift`.
    #[must_use]
    pub const fn new(start: Instant, drift: Ppm) -> Self {
        Self { start, drift }
    }

    /// What the clock shows when the world is at `world`.
    #[must_use]
    pub fn read(self, world: Instant) -> Instant {
        let nanos = i128::from(world.as_nanos());
        self.start + span(nanos + (nanos * i128::from(self.drift.as_ppb())).div_euclid(BILLION))
    }

    /// The first moment of the world at which the clock shows `local` or more.
    #[must_use]
    pub fn world_at(self, local: Instant) -> Instant {
        let nanos = i128::from((local - self.start).as_nanos()) * BILLION;
        let pace = BILLION + i128::from(self.drift.as_ppb());
        Instant::ZERO + span(-(-nanos).div_euclid(pace))
    }
}

fn span(nanos: i128) -> Span {
    Span::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX))
}

const BILLION: i128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_reads_back() {
        for ppm in [-300, 0, 100] {
            let clock = LocalClock::new(Instant::from_nanos(7_000), Ppm::from_ppm(ppm));
            for nanos in [0, 1, 999_999_937, 86_400_000_000_000] {
                let local = clock.read(Instant::from_nanos(nanos));
                let world = clock.world_at(local);
                assert_eq!(clock.read(world), local);
                assert!(world <= Instant::from_nanos(nanos));
            }
        }
    }

    #[test]
    fn a_hundred_ppm_are_a_hundred_microseconds_a_second() {
        let clock = LocalClock::new(Instant::ZERO, Ppm::from_ppm(100));
        let shown = clock.read(Instant::ZERO + Span::from_secs(10));
        assert_eq!(shown - Instant::ZERO, Span::from_micros(10_001_000));
    }
}
