//! Conversion between media time in ticks and local time in nanoseconds.

use aulos_core::{Instant, Span};

/// Converts between ticks and nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct TickConverter {
    rate: i64,
}

impl TickConverter {
    /// A clock of `rate` ticks per second, clamped to the allowed range.
    pub(super) fn new(rate: u32) -> Self {
        Self { rate: i64::from(rate.clamp(1, MAX_CLOCK_RATE)) }
    }

    pub(super) const fn nanos_of(self, ticks: i64) -> i64 {
        let (seconds, rest) = (ticks.div_euclid(self.rate), ticks.rem_euclid(self.rate));
        seconds.saturating_mul(SECOND).saturating_add(rest * SECOND / self.rate)
    }

    pub(super) const fn ticks_in(self, nanos: i64) -> i64 {
        let (seconds, rest) = (nanos.div_euclid(SECOND), nanos.rem_euclid(SECOND));
        seconds.saturating_mul(self.rate).saturating_add(rest * self.rate / SECOND)
    }

    /// Number of ticks in `span`.
    pub(super) fn ticks_in_span(self, span: Span) -> u32 {
        u32::try_from(self.ticks_in(span.as_nanos())).unwrap_or(u32::MAX).max(1)
    }

    /// Length of a packet, at most [`LONGEST_PACKET`].
    pub(super) fn clamp_packet_length(self, ticks: u32) -> u32 {
        ticks.clamp(1, self.ticks_in_span(LONGEST_PACKET))
    }
}

/// An instant in nanoseconds, limited to 36 years so that sums do not overflow.
pub(super) fn to_nanos(instant: Instant) -> i64 {
    (instant - Instant::ZERO).as_nanos().min(1 << 60)
}

/// Inverse of [`to_nanos`].
pub(super) fn to_instant(nanos: i64) -> Instant {
    Instant::ZERO + Span::from_nanos(nanos.max(0))
}

/// Maximum duration of an audio packet; the longest in use are those of Opus with 120 ms.
pub const LONGEST_PACKET: Span = Span::from_secs(1);

pub(super) const SECOND: i64 = 1_000_000_000;
const MAX_CLOCK_RATE: u32 = 1_000_000;
