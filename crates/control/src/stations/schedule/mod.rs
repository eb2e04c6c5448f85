//! The schedule of a station: which entry is active, and when that changes.
//!
//! The station is told the change in effect and the next one, by its own clock, so that the change
//! falls on its frame however late this module is called. Entries are evaluated anew at each change
//! and whenever the wall clock has been set; meanwhile only the wall clock's drift is followed.

pub(crate) mod calls;
pub(crate) mod json;
pub(crate) mod occurrence;
pub(crate) mod order;

use std::sync::Arc;

use aulos_config::{ScheduleSettings, StationSettings};
use aulos_core::Span;
use aulos_engine::recorder::WallClock;
use aulos_engine::switch::{MAX_SCHEDULED_CHANGES, ScheduledChange, SwitchSchedule};
use jiff::{SignedDuration, Timestamp};

use crate::hooks::HookEvent;
use occurrence::{active, rfc3339, timestamp, unix_time, upcoming};
use order::{MAX_ORDERS, OrderTime, PlannedItem, PlannedSwitch, SwitchOrder, zone};

/// What a schedule says from a moment until the next change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SchedulePlan {
    /// The moment for which it was made.
    made: Timestamp,
    /// When the active entry became that, or the last one ended.
    since: Timestamp,
    pub(crate) active: Option<PlannedSwitch>,
    /// The next change: the beginning of an entry, or the end of the active one.
    change: Option<Timestamp>,
    /// The entry that is active from then on.
    after: Option<PlannedSwitch>,
    /// The next entries that begin.
    pub(crate) upcoming: Vec<PlannedSwitch>,
    /// The switches that calls have asked for.
    orders: Vec<SwitchOrder>,
}

impl SchedulePlan {
    /// The plan at `now`, which follows `last`.
    fn new(
        settings: &ScheduleSettings,
        orders: &[SwitchOrder],
        now: Timestamp,
        last: Option<&Self>,
    ) -> Self {
        let active_at = |at| {
            let ordered = orders.iter().map(PlannedSwitch::from).filter(|one| one.is_active(at));
            let entry = active(settings, at).map(PlannedSwitch::from);
            ordered.chain(entry).max_by_key(PlannedSwitch::rank)
        };
        let entries = upcoming(settings, now, SHOWN_ENTRIES).into_iter().map(PlannedSwitch::from);
        let ordered = orders.iter().map(PlannedSwitch::from).filter(|order| order.from > now);
        let mut upcoming: Vec<_> = entries.chain(ordered).collect();
        upcoming.sort_by_key(PlannedSwitch::rank);
        upcoming.truncate(SHOWN_ENTRIES);
        let active = active_at(now);
        let end = active.and_then(|active| active.until);
        let change = upcoming.first().map(|next| next.from).into_iter().chain(end).min();
        // A change that has just passed may still lie before the station's next frame.
        let passed = last.and_then(|last| last.change).filter(|change| *change <= now);
        Self {
            made: now,
            since: match (passed, active) {
                (passed, Some(active)) => passed.map_or(active.from, |at| at.max(active.from)),
                (passed, None) => passed.unwrap_or(now),
            },
            active,
            change,
            after: change.and_then(active_at),
            upcoming,
            orders: orders.to_vec(),
        }
    }

    fn holds_at(&self, now: Timestamp) -> bool {
        self.made <= now && self.change.is_none_or(|change| now < change)
    }

    /// The changes by the station's clock.
    fn changes(
        &self,
        settings: &ScheduleSettings,
        station: &StationSettings,
        clock: &WallClock,
    ) -> SwitchSchedule {
        let change = |at: Timestamp, active: Option<PlannedSwitch>| {
            let beginning = active.filter(|active| active.from == at);
            let order = active.and_then(|active| self.order(active));
            let ended = self.orders.iter().find(|order| order.until() == Some(at));
            // A frame is not found again by way of the wall clock.
            let exact = match (beginning, order) {
                (Some(_), Some(order)) => Some(order.begins(clock)),
                _ => ended.and_then(|order| order.ends(clock)),
            };
            ScheduledChange {
                at: exact.unwrap_or_else(|| clock.local_at(unix_time(at))),
                input: match (active.map(|active| active.item), order) {
                    (Some(PlannedItem::Entry(entry)), _) => {
                        settings.entries.get(entry).map(|entry| entry.source)
                    }
                    (_, Some(order)) => order.input(station).flatten(),
                    _ => None,
                },
                begins: beginning.map(|one| one.number()),
            }
        };
        let next = self.change.map(|at| change(at, self.after));
        [Some(change(self.since, self.active)), next]
    }

    /// The source of a switch, `None` for automatic selection, and its time as written.
    fn describe<'a>(
        &'a self,
        station: &'a StationSettings,
        settings: &ScheduleSettings,
        planned: PlannedSwitch,
    ) -> Option<(Option<&'a str>, String)> {
        Some(match planned.item {
            PlannedItem::Entry(entry) => {
                let entry = settings.entries.get(entry)?;
                (Some(&*station.sources.get(entry.source)?.name), entry.at.text.clone())
            }
            PlannedItem::Order(_) => {
                let order = self.order(planned)?;
                (order.source.as_deref(), rfc3339(settings, order.from))
            }
        })
    }

    /// The order of this switch, if it is one.
    fn order(&self, planned: PlannedSwitch) -> Option<&SwitchOrder> {
        self.orders.iter().find(|order| PlannedItem::Order(order.id) == planned.item)
    }
}

/// An entry that became active, or is active no longer, for the log and for hooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ActiveEntry {
    pub(crate) source: String,
    /// Its time as written.
    pub(crate) at: String,
    from: Timestamp,
    /// When it ends, after RFC 3339; `None` for an order without a duration.
    pub(crate) until: Option<String>,
}

impl ActiveEntry {
    fn new(
        station: &StationSettings,
        settings: &ScheduleSettings,
        plan: &SchedulePlan,
    ) -> Option<Self> {
        let active = plan.active?;
        let (source, at) = plan.describe(station, settings, active)?;
        let source = source.unwrap_or("automatic selection").to_owned();
        let until = active.until.map(|until| rfc3339(settings, until));
        Some(Self { source, at, from: active.from, until })
    }
}

/// What has to be done for a schedule.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ScheduleUpdate {
    /// The new changes for the station.
    pub(crate) send: Option<SwitchSchedule>,
    /// The entry that is active no longer.
    pub(crate) ended: Option<ActiveEntry>,
    /// The entry that became active.
    pub(crate) began: Option<ActiveEntry>,
}

impl ScheduleUpdate {
    /// The events for the log and for hooks.
    pub(crate) fn events(&self) -> Vec<HookEvent> {
        let ended = self.ended.iter().map(|ActiveEntry { source, at, .. }| {
            HookEvent::ScheduleEnded { source: source.clone(), at: at.clone() }
        });
        let began = self.began.iter().map(|ActiveEntry { source, at, until, .. }| {
            let (source, at, until) = (source.clone(), at.clone(), until.clone());
            HookEvent::ScheduleBegan { source, at, until }
        });
        ended.chain(began).collect()
    }
}

/// The schedule of a running station.
#[derive(Debug, Default)]
pub(crate) struct ScheduleState {
    plan: Option<Arc<SchedulePlan>>,
    sent: Option<SwitchSchedule>,
    reported: Option<ActiveEntry>,
    /// The switches that calls have asked for, and that have not ended.
    orders: Vec<SwitchOrder>,
    last_order: u64,
}

impl ScheduleState {
    /// Follows the schedule of a station; called about ten times a second.
    pub(crate) fn update(
        &mut self,
        station: &StationSettings,
        clock: &WallClock,
    ) -> ScheduleUpdate {
        let now = timestamp(clock.utc);
        self.orders.iter_mut().for_each(|order| order.follow(clock));
        self.remove_ended_orders(station, now);
        let settings = zone(station);
        let settings =
            (station.schedule.is_some() || !self.orders.is_empty()).then_some(&*settings);
        self.plan = settings.map(|settings| match self.plan.take() {
            Some(plan) if plan.holds_at(now) && plan.orders == self.orders => plan,
            last => Arc::new(SchedulePlan::new(settings, &self.orders, now, last.as_deref())),
        });
        let plan = self.plan.as_deref();
        let planned = settings.zip(plan);
        let wanted = planned.map(|(settings, plan)| plan.changes(settings, station, clock));
        let send = match (&self.sent, wanted) {
            (None, None) => None,
            (Some(_), None) => {
                self.sent = None;
                Some([None; MAX_SCHEDULED_CHANGES])
            }
            (Some(sent), Some(wanted)) if is_same(sent, &wanted, clock) => None,
            (_, Some(wanted)) => {
                self.sent = Some(wanted);
                self.sent
            }
        };
        let active = planned.and_then(|(settings, plan)| ActiveEntry::new(station, settings, plan));
        if active == self.reported {
            return ScheduleUpdate { send, ended: None, began: None };
        }
        let ended = std::mem::replace(&mut self.reported, active.clone());
        ScheduleUpdate { send, ended, began: active }
    }

    /// Adds a switch; `None` if there are [`MAX_ORDERS`].
    pub(crate) fn order(
        &mut self,
        source: Option<String>,
        time: OrderTime,
        length: Option<Span>,
        clock: &WallClock,
    ) -> Option<&SwitchOrder> {
        if self.orders.len() >= MAX_ORDERS {
            return None;
        }
        self.last_order += 1;
        self.orders.push(SwitchOrder::new(self.last_order, source, time, length, clock));
        self.orders.last()
    }

    /// Removes a switch, before its time or while it is active; returns whether there was one.
    pub(crate) fn cancel(&mut self, id: u64) -> bool {
        let known = self.orders.len();
        self.orders.retain(|order| order.id != id);
        self.orders.len() < known
    }

    /// The switches that calls have asked for, in the order of the calls.
    pub(crate) fn orders(&self) -> &[SwitchOrder] {
        &self.orders
    }

    /// Removes the orders that ended a moment ago, that another entry has followed, and whose source
    /// is gone.
    fn remove_ended_orders(&mut self, station: &StationSettings, now: Timestamp) {
        let active = self.plan.as_ref().and_then(|plan| plan.active);
        let follower = active.filter(|active| active.from <= now);
        self.orders.retain(|order| {
            let planned = PlannedSwitch::from(order);
            let is_followed = || {
                follower.is_some_and(|one| one.item != planned.item && one.rank() > planned.rank())
            };
            let has_ended = match planned.until {
                Some(until) => now.duration_since(until) >= KEPT_AFTER,
                None => planned.from <= now && is_followed(),
            };
            !has_ended && order.input(station).is_some()
        });
    }

    /// Plans anew, because the settings have changed, or the station starts anew and knows nothing.
    pub(crate) fn renew(&mut self, is_new_station: bool) {
        self.plan = None;
        if is_new_station {
            self.sent = None;
        }
    }

    /// Whether nothing is left to do once the station has no schedule.
    pub(crate) fn is_idle(&self) -> bool {
        let Self { plan, sent, reported, orders, .. } = self;
        plan.is_none() && sent.is_none() && reported.is_none() && orders.is_empty()
    }

    /// The present plan.
    pub(crate) const fn plan(&self) -> Option<&Arc<SchedulePlan>> {
        self.plan.as_ref()
    }
}

/// Whether a station that was told `sent` need not be told `wanted`. The wall clock is disciplined
/// all the time, and a change that has passed does not move any more.
fn is_same(sent: &SwitchSchedule, wanted: &SwitchSchedule, clock: &WallClock) -> bool {
    sent.iter().zip(wanted).all(|(sent, wanted)| match (sent, wanted) {
        (Some(sent), Some(wanted)) => {
            let (apart, now) = (sent.at - wanted.at, clock.local);
            let near = apart <= TOLERANCE && -apart <= TOLERANCE;
            let passed = sent.at <= now && wanted.at <= now;
            (near || passed) && (sent.input, sent.begins) == (wanted.input, wanted.begins)
        }
        (None, None) => true,
        _ => false,
    })
}

/// An order is planned with for so long after its end, because the station may not have come to
/// that frame yet: without a plan it ends at the next quantum.
const KEPT_AFTER: SignedDuration = SignedDuration::from_millis(500);

/// Entries to come in the status.
const SHOWN_ENTRIES: usize = 5;

/// A change is sent again when the wall clock has moved by this much against the station's.
const TOLERANCE: Span = Span::from_nanos(100_000);

#[cfg(test)]
mod tests;
