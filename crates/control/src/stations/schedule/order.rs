//! Switches at a time that calls have asked for (`Aulos.SwitchAt`).
//!
//! An order counts as an entry of the schedule that begins at its time. It is kept until it has
//! ended, and not over a restart of the server.

use std::borrow::Cow;

use aulos_config::{ScheduleSettings, StationSettings};
use aulos_core::{Instant, Span};
use aulos_engine::recorder::WallClock;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::occurrence::{Occurrence, rfc3339, timestamp, unix_time};

/// A switch that a call has asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SwitchOrder {
    /// Unique in its station.
    pub(crate) id: u64,
    /// The name of the source; `None` is automatic selection.
    pub(crate) source: Option<String>,
    time: OrderTime,
    /// When it begins, by the wall clock.
    pub(crate) from: Timestamp,
    /// How long it lasts; `None` until another entry begins.
    length: Option<Span>,
}

/// The clock that an order goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderTime {
    /// A time of the wall clock, also after that has been set.
    Wall(Timestamp),
    /// An instant of the station's clock.
    Local(Instant),
}

impl SwitchOrder {
    pub(super) fn new(
        id: u64,
        source: Option<String>,
        time: OrderTime,
        length: Option<Span>,
        clock: &WallClock,
    ) -> Self {
        let from = match time {
            OrderTime::Wall(at) => at,
            OrderTime::Local(at) => timestamp(clock.utc_at(at)),
        };
        Self { id, source, time, from, length }
    }

    /// Follows a wall clock that has been set. What two readings of the clocks differ by is no
    /// other time.
    pub(super) fn follow(&mut self, clock: &WallClock) {
        let OrderTime::Local(at) = self.time else { return };
        let from = timestamp(clock.utc_at(at));
        if from.duration_since(self.from).abs() > SET_BY {
            self.from = from;
        }
    }

    /// When it begins, by the station's clock.
    pub(super) fn begins(&self, clock: &WallClock) -> Instant {
        match self.time {
            OrderTime::Wall(at) => clock.local_at(unix_time(at)),
            OrderTime::Local(at) => at,
        }
    }

    /// When it ends, if it has a duration.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        let length = SignedDuration::from_nanos(self.length?.as_nanos());
        self.from.checked_add(length).ok()
    }

    /// When it ends, by the station's clock, if it has a duration.
    pub(super) fn ends(&self, clock: &WallClock) -> Option<Instant> {
        Some(self.begins(clock) + self.length?)
    }

    /// Index of its source; `None` if the station has it no longer.
    pub(super) fn input(&self, station: &StationSettings) -> Option<Option<usize>> {
        let Some(name) = &self.source else { return Some(None) };
        station.sources.iter().position(|source| source.name == *name).map(Some)
    }

    /// The order in the status and in answers, with times in the zone of the schedule.
    pub(crate) fn json(&self, settings: &ScheduleSettings) -> Value {
        json!({
            "id": self.id,
            "source": self.source,
            "at": rfc3339(settings, self.from),
            "until": self.until().map(|until| rfc3339(settings, until)),
        })
    }
}

/// An entry of the schedule at its time, or an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedSwitch {
    pub(super) item: PlannedItem,
    pub(super) from: Timestamp,
    /// `None` until another one begins.
    pub(super) until: Option<Timestamp>,
}

/// In the order of precedence among those that begin together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PlannedItem {
    /// Index of an entry of the configuration.
    Entry(usize),
    /// Id of an order.
    Order(u64),
}

impl PlannedSwitch {
    /// Of overlapping ones the greatest counts.
    pub(super) const fn rank(&self) -> (Timestamp, PlannedItem) {
        (self.from, self.item)
    }

    /// Whether it has begun and not ended.
    pub(super) fn is_active(&self, now: Timestamp) -> bool {
        self.from <= now && self.until.is_none_or(|until| now < until)
    }

    /// A number of its own for each beginning.
    pub(super) fn number(&self) -> u64 {
        match self.item {
            PlannedItem::Entry(entry) => {
                self.from.as_second().unsigned_abs() << ENTRY_BITS | entry as u64
            }
            PlannedItem::Order(id) => ORDER_BIT | id,
        }
    }
}

impl From<Occurrence> for PlannedSwitch {
    fn from(occurrence: Occurrence) -> Self {
        let Occurrence { entry, from, until } = occurrence;
        Self { item: PlannedItem::Entry(entry), from, until: Some(until) }
    }
}

impl From<&SwitchOrder> for PlannedSwitch {
    fn from(order: &SwitchOrder) -> Self {
        Self { item: PlannedItem::Order(order.id), from: order.from, until: order.until() }
    }
}

/// The schedule whose zone the times of a station are written in; UTC without one.
pub(super) fn zone(station: &StationSettings) -> Cow<'_, ScheduleSettings> {
    match &station.schedule {
        Some(settings) => Cow::Borrowed(settings),
        None => Cow::Owned(ScheduleSettings { zone: TimeZone::UTC, entries: Vec::new() }),
    }
}

/// The two clocks are read within a millisecond; a clock that is off by more was set.
const SET_BY: SignedDuration = SignedDuration::from_millis(10);

/// Enough for the number of an entry.
const ENTRY_BITS: u32 = 10;

/// Numbers of entries are below: seconds since 1970.
const ORDER_BIT: u64 = 1 << 63;

/// Orders of one station: a day with one each half an hour, and some.
pub(crate) const MAX_ORDERS: usize = 64;
