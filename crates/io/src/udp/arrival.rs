//! Arrival times of datagrams.

use aulos_core::Instant;

/// Converts the kernel's time stamps, which use the wall clock, to monotonic time.
///
/// The wall clock may be set between the stamp and its conversion. The result is therefore clamped
/// to the interval from the last poll that left nothing unread to the time of the read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivalClock {
    /// Nanoseconds from the monotonic clock to the wall clock.
    pub(super) ahead: i64,
    pub(super) earliest_unread: Instant,
    pub(super) now: Instant,
}

impl ArrivalClock {
    #[inline]
    pub(super) fn received(&self, stamp: Option<u64>) -> Instant {
        let Some(stamp) = stamp else { return self.now };
        let at = stamp.checked_add_signed(self.ahead.saturating_neg()).unwrap_or(0);
        Instant::from_nanos(at).clamp(self.earliest_unread.min(self.now), self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_is_between_the_last_poll_and_now() {
        let at = Instant::from_nanos;
        let clock = ArrivalClock { ahead: 1_000_000, earliest_unread: at(500), now: at(900) };
        assert_eq!(clock.received(Some(1_000_700)), at(700));
        assert_eq!(clock.received(Some(1_000_950)), at(900));
        // The wall clock was set: forward by a year, and back to its origin.
        assert_eq!(clock.received(Some(31_536_000_000_000_000)), at(900));
        assert_eq!(clock.received(Some(0)), at(500));
        assert_eq!(clock.received(None), at(900));
    }
}
