//! Wall-clock time, passed in by the caller: its relation to the local clock.

use aulos_core::{Instant, Span};

/// A moment of UTC in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(i64);

impl UnixTime {
    /// The moment `nanos` after the start of 1970.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the start of 1970.
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }
}

/// The reading of the wall clock at one local instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// The local instant.
    pub local: Instant,
    /// The wall clock's UTC at that instant.
    pub utc: UnixTime,
    /// Offset of the local time zone from UTC at that instant.
    pub offset: Span,
}

impl WallClock {
    /// UTC at `local`, unless the clock is set in between.
    #[must_use]
    pub fn utc_at(&self, local: Instant) -> UnixTime {
        UnixTime(self.utc.0.saturating_add((local - self.local).as_nanos()))
    }

    /// The local instant of `utc`, unless the clock is set in between.
    #[must_use]
    pub fn local_at(&self, utc: UnixTime) -> Instant {
        self.local + Span::from_nanos(utc.0.saturating_sub(self.utc.0))
    }
}

/// Segment cuts aligned to the clock: at full hours, or at a fixed interval of the day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockAlignment {
    interval: Span,
    zone: ClockZone,
}

/// The time zone of the alignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockZone {
    /// UTC.
    #[default]
    Utc,
    /// The local time zone; a day of 23 or 25 hours has at most one short or one long slot.
    Local,
}

impl ClockAlignment {
    /// A cut every `every`, counted from midnight: a minute or more, and a whole number of times in
    /// a day. `None` when it is not.
    #[must_use]
    pub fn new(every: Span, zone: ClockZone) -> Option<Self> {
        let fits = every >= MINUTE && DAY.as_nanos() % every.as_nanos() == 0;
        fits.then_some(Self { interval: every, zone })
    }

    /// The number of the slot that contains `utc`.
    pub(super) fn slot(&self, wall: &WallClock, utc: UnixTime) -> i64 {
        utc.0.saturating_add(self.offset(wall)).div_euclid(self.interval.as_nanos())
    }

    /// Start of a slot.
    pub(super) fn slot_start(&self, wall: &WallClock, piece: i64) -> UnixTime {
        UnixTime(piece.saturating_mul(self.interval.as_nanos()).saturating_sub(self.offset(wall)))
    }

    /// Length of a slot.
    pub(super) const fn interval(&self) -> Span {
        self.interval
    }

    const fn offset(&self, wall: &WallClock) -> i64 {
        match self.zone {
            ClockZone::Utc => 0,
            ClockZone::Local => wall.offset.as_nanos(),
        }
    }
}

/// The shortest slot.
const MINUTE: Span = Span::from_secs(60);

const DAY: Span = Span::from_secs(86_400);
