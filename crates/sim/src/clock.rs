//! Local clocks with offset and drift.

use aulos_core::{Instant, Ppm, Span};

/// The monotonic clock of a simulated machine: with an offset and a drift in ppm.
#[derive(Clone, Copy, Debug)]
pub struct LocalClock {
    /// Its reading at the start of the simulation.
    start: Instant,
    drift: Ppm,
}

impl LocalClock {
    /// A clock that reads `start` at the start of the simulation and runs fast by `drift`.
    #[must_use]
    pub const fn new(start: Instant, drift: Ppm) -> Self {
        Self { start, drift }
    }

    /// The clock's reading at the simulated time `world`.
    #[must_use]
    pub fn read(self, world: Instant) -> Instant {
        let nanos = i128::from(world.as_nanos());
        self.start + span(nanos + (nanos * i128::from(self.drift.as_ppb())).div_euclid(BILLION))
    }

    /// The first simulated time at which the clock reads `local` or more.
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
