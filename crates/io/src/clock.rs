//! The one clock of the house.

use aulos_core::{Instant, Span};
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// `CLOCK_MONOTONIC`, the clock that Snapcast's clients synchronise to and that no administrator
/// can set.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// The present moment.
    ///
    /// # Real-time
    /// A read of the kernel's shared page; no system call on the machines that we know.
    #[must_use]
    pub fn now() -> Instant {
        let time = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Instant::from_nanos(seconds * NANOS + nanos)
    }

    /// How far the wall clock, whose stamps the kernel puts on datagrams, is ahead of this one, in
    /// nanoseconds. It may jump.
    pub(crate) fn wall_ahead() -> i64 {
        let mut best = (Span::MAX, 0);
        // Whoever is interrupted between two clocks reads nonsense, and tries again.
        for _ in 0..WALL_READS {
            let before = Self::now();
            let wall = clock_gettime(ClockId::Realtime);
            let apart = Self::now() - before;
            let wall = wall.tv_sec.saturating_mul(1_000_000_000).saturating_add(wall.tv_nsec);
            let here = i64::try_from((before + apart / 2).as_nanos()).unwrap_or(i64::MAX);
            best = best.min((apart, wall.saturating_sub(here)));
            if apart <= WALL_APART {
                break;
            }
        }
        best.1
    }

    /// How long the calling thread has run on a processor. A system call.
    pub(crate) fn thread_time() -> Span {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Span::from_secs(time.tv_sec) + Span::from_nanos(time.tv_nsec)
    }

    /// Sleeps until `deadline`; a signal may end the sleep early.
    pub fn sleep_until(deadline: Instant) {
        // The answer only tells whether a signal came, and the caller looks at the clock anyway.
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &timespec(deadline.as_nanos()));
    }
}

/// Nanoseconds as the kernel takes them.
pub(crate) fn timespec(nanos: u64) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(nanos / NANOS).unwrap_or(i64::MAX),
        #[allow(clippy::cast_possible_wrap, reason = "below a billion")]
        tv_nsec: (nanos % NANOS) as _,
    }
}

const WALL_READS: usize = 4;

/// The three reads take a tenth of this.
const WALL_APART: Span = Span::from_micros(2);

const NANOS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_ends_at_its_deadline_and_not_before() {
        let deadline = SystemClock::now() + Span::from_millis(3);
        SystemClock::sleep_until(deadline);
        assert!(SystemClock::now() >= deadline);
    }
}
