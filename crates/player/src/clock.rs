//! The player's clock, in the kernel's formats.

use aulos_core::{Instant, Span};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// The current time of `CLOCK_MONOTONIC`, which an administrator cannot set.
pub(crate) fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Instant::from_nanos(seconds * NANOS + nanos)
}

/// A timeout for `ppoll`; none if the time has come.
pub(crate) fn timeout(span: Span) -> Timespec {
    let nanos = span.max(Span::ZERO).as_nanos();
    #[allow(clippy::cast_possible_wrap, reason = "a billion")]
    let second = NANOS as i64;
    Timespec {
        tv_sec: nanos / second,
        #[allow(clippy::cast_possible_truncation, reason = "below a billion")]
        tv_nsec: (nanos % second) as _,
    }
}

const NANOS: u64 = 1_000_000_000;
