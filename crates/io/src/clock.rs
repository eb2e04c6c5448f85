//! The clock of the server.

use aulos_core::{Instant, Span};
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// `CLOCK_MONOTONIC`: Snapcast's clients synchronize to it, and an administrator cannot set it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// The current time.
    ///
    /// # Real-time
    /// Reads the kernel's shared page (vDSO); no system call on the usual platforms.
    #[must_use]
    pub fn now() -> Instant {
        let time = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Instant::from_nanos(seconds * NANOS + nanos)
    }

    /// How long the machine has been suspended since it was started: this clock stands still
    /// meanwhile.
    #[must_use]
    pub fn suspended() -> Span {
        let boot = clock_gettime(ClockId::Boottime);
        let since_start = Span::from_secs(boot.tv_sec) + Span::from_nanos(boot.tv_nsec);
        // The readings are not of the same moment: less than the resolution of a suspension.
        let suspended = since_start - (Self::now() - Instant::ZERO);
        Span::from_millis(suspended.max(Span::ZERO).as_millis())
    }

    /// The CPU time of the calling thread. A system call.
    pub(crate) fn thread_time() -> Span {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Span::from_secs(time.tv_sec) + Span::from_nanos(time.tv_nsec)
    }

    /// Sleeps until `deadline`; a signal may end the sleep early.
    pub fn sleep_until(deadline: Instant) {
        // The result only reports a signal, and the caller reads the clock anyway.
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &timespec(deadline.as_nanos()));
    }
}

/// Converts nanoseconds to the kernel's format.
pub(crate) fn timespec(nanos: u64) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(nanos / NANOS).unwrap_or(i64::MAX),
        #[allow(clippy::cast_possible_wrap, reason = "below a billion")]
        tv_nsec: (nanos % NANOS) as _,
    }
}

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
