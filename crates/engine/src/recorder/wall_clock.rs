//! Wall-clock time, passed in by the caller: its relation to the local clock.

use core::fmt;

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WallClock {
    /// The local instant.
    pub local: Instant,
    /// The wall clock's UTC at that instant.
    pub utc: UnixTime,
    /// Offset of the local time zone from UTC at that instant.
    pub offset: Span,
    /// The last change of the offset before that instant, and the first one after it.
    pub offset_changes: [Option<OffsetChange>; 2],
    /// How long the machine has been suspended since it was started: the local clock stands still
    /// meanwhile, and the wall clock does not.
    pub suspended: Span,
}

/// A change of the offset of the local time zone from UTC, as at the beginning of summer time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a moment, and what is before and after it")]
pub struct OffsetChange {
    /// The moment.
    pub at: UnixTime,
    /// The offset until then.
    pub before: Span,
    /// The offset from then on.
    pub after: Span,
}

/// What has happened to the wall clock between two readings, besides passing time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockChange {
    /// By how much it was set; negative when it was set back.
    pub set_by: Span,
    /// How long the machine was suspended.
    pub suspended: Span,
}

impl ClockChange {
    /// By how much the wall clock has moved against the local one.
    #[must_use]
    pub fn total(self) -> Span {
        self.set_by + self.suspended
    }
}

impl WallClock {
    /// UTC at `local`, unless the clock is set in between.
    #[must_use]
    pub fn utc_at(&self, local: Instant) -> UnixTime {
        UnixTime(self.utc.0.saturating_add((local - self.local).as_nanos()))
    }

    /// The offset of the local time zone at `utc`, which is between the change before the previous
    /// one and the change after the next one.
    fn offset_at(&self, utc: UnixTime) -> Span {
        let [previous, next] = self.offset_changes;
        match (previous, next) {
            (Some(previous), _) if utc < previous.at => previous.before,
            (_, Some(next)) if utc >= next.at => next.after,
            (Some(previous), _) => previous.after,
            (None, Some(next)) => next.before,
            (None, None) => self.offset,
        }
    }

    /// The first change of the offset after `utc`.
    fn offset_change_after(&self, utc: UnixTime) -> Option<UnixTime> {
        self.offset_changes.iter().flatten().map(|change| change.at).find(|at| *at > utc)
    }

    /// What has happened to the clock since the reading `earlier`; `None` as long as that is less
    /// than [`MIN_CLOCK_CHANGE`].
    fn change_since(&self, earlier: &Self) -> Option<ClockChange> {
        let suspended = (self.suspended - earlier.suspended).max(Span::ZERO);
        let set_by = self.set_since(earlier);
        let noticeable = |span: Span| if span.abs() < MIN_CLOCK_CHANGE { Span::ZERO } else { span };
        let change = ClockChange { set_by: noticeable(set_by), suspended: noticeable(suspended) };
        (change != ClockChange::default()).then_some(change)
    }

    /// By how much the clock was set since the reading `earlier`.
    #[must_use]
    pub fn set_since(&self, earlier: &Self) -> Span {
        let shown = Span::from_nanos(self.utc.0.saturating_sub(earlier.utc.0));
        shown - (self.uptime() - earlier.uptime())
    }

    /// Time since the machine was started, its suspension included.
    #[must_use]
    pub fn uptime(&self) -> Span {
        self.local - Instant::ZERO + self.suspended
    }

    /// The local instant of `utc`, unless the clock is set in between.
    #[must_use]
    pub fn local_at(&self, utc: UnixTime) -> Instant {
        self.local + Span::from_nanos(utc.0.saturating_sub(self.utc.0))
    }
}

impl fmt::Display for ClockChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (set_by, suspended) = (self.set_by.as_secs_f64(), self.suspended.as_secs_f64());
        match (self.set_by == Span::ZERO, self.suspended == Span::ZERO) {
            (false, true) => write!(f, "the wall clock was set by {set_by:+.1} s"),
            (true, _) => write!(f, "the machine was suspended for {suspended:.1} s"),
            (false, false) => write!(
                f,
                "the machine was suspended for {suspended:.1} s, and its clock set by {set_by:+.1} s"
            ),
        }
    }
}

/// Finds changes of the wall clock in a series of readings.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockMonitor {
    /// Not the last reading: many small changes add up to one that is reported.
    reference: Option<WallClock>,
}

impl ClockMonitor {
    /// What has happened since the last change, or since the first reading.
    pub fn observe(&mut self, now: WallClock) -> Option<ClockChange> {
        let reference = self.reference.get_or_insert(now);
        let change = now.change_since(reference)?;
        *reference = now;
        Some(change)
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
    /// The local time zone. A slot also ends where the zone's offset from UTC changes, so no slot
    /// has times of two offsets, and none is longer than the interval.
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

    /// The end of the slot that contains `utc`.
    pub(super) fn slot_end(&self, wall: &WallClock, utc: UnixTime) -> UnixTime {
        let (offset, change) = match self.zone {
            ClockZone::Utc => (0, None),
            ClockZone::Local => (wall.offset_at(utc).as_nanos(), wall.offset_change_after(utc)),
        };
        let slot = utc.0.saturating_add(offset).div_euclid(self.interval.as_nanos());
        let next = slot.saturating_add(1).saturating_mul(self.interval.as_nanos());
        let end = UnixTime(next.saturating_sub(offset));
        change.map_or(end, |change| end.min(change))
    }

    /// Length of a slot.
    pub(super) const fn interval(&self) -> Span {
        self.interval
    }
}

/// The least change of the wall clock that is reported. Adjusting a clock gradually, as NTP does,
/// changes the local clock as well and is no change at all; a leap second is one.
pub const MIN_CLOCK_CHANGE: Span = Span::from_secs(1);

/// The shortest slot.
const MINUTE: Span = Span::from_secs(60);

const DAY: Span = Span::from_secs(86_400);
