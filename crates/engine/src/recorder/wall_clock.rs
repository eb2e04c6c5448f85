//! Wall-clock time, given from outside as everything else: where it stands against the local clock.

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

/// What the wall clock shows at one local instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// The local instant.
    pub local: Instant,
    /// What the clock on the wall shows then.
    pub utc: UnixTime,
    /// How far the time of the house's zone is ahead of UTC then.
    pub offset: Span,
}

impl WallClock {
    /// What the clock shows at `local`, if nobody sets it in between.
    #[must_use]
    pub fn utc_at(&self, local: Instant) -> UnixTime {
        UnixTime(self.utc.0.saturating_add((local - self.local).as_nanos()))
    }

    /// When the clock shows `utc`, if nobody sets it in between.
    #[must_use]
    pub fn local_at(&self, utc: UnixTime) -> Instant {
        self.local + Span::from_nanos(utc.0.saturating_sub(self.utc.0))
    }
}

/// Cuts at full hours, or every so many minutes, of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockAlignment {
    interval: Span,
    zone: ClockZone,
}

/// Whose day it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockZone {
    /// Everybody's.
    #[default]
    Utc,
    /// The house's; a day of 23 or 25 hours has one short or one long piece at most.
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

    /// The number of the piece into which `utc` falls.
    pub(super) fn slot(&self, wall: &WallClock, utc: UnixTime) -> i64 {
        utc.0.saturating_add(self.offset(wall)).div_euclid(self.interval.as_nanos())
    }

    /// When a piece begins.
    pub(super) fn slot_start(&self, wall: &WallClock, piece: i64) -> UnixTime {
        UnixTime(piece.saturating_mul(self.interval.as_nanos()).saturating_sub(self.offset(wall)))
    }

    /// How long a piece is.
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

/// The shortest piece by the clock.
const MINUTE: Span = Span::from_secs(60);

const DAY: Span = Span::from_secs(86_400);
