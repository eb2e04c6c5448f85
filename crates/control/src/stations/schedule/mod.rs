//! The schedule of a station: which entry is active, and when that changes.
//!
//! The station is told the change in effect and the next one, by its own clock, so that the change
//! falls on its frame however late this module is called. Entries are evaluated anew at each change
//! and whenever the wall clock has been set; meanwhile only the wall clock's drift is followed.

pub(crate) mod json;
pub(crate) mod occurrence;

use std::sync::Arc;

use aulos_config::{ScheduleSettings, StationSettings};
use aulos_core::Span;
use aulos_engine::recorder::{UnixTime, WallClock};
use aulos_engine::switch::{MAX_SCHEDULED_CHANGES, ScheduledChange, SwitchSchedule};
use jiff::Timestamp;

use crate::hooks::HookEvent;
use occurrence::{Occurrence, active, rfc3339, upcoming};

/// What a schedule says from a moment until the next change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SchedulePlan {
    /// The moment for which it was made.
    made: Timestamp,
    /// When the active entry became that, or the last one ended.
    since: Timestamp,
    pub(crate) active: Option<Occurrence>,
    /// The next change: the beginning of an entry, or the end of the active one.
    change: Option<Timestamp>,
    /// The entry that is active from then on.
    after: Option<Occurrence>,
    /// The next entries that begin.
    pub(crate) upcoming: Vec<Occurrence>,
}

impl SchedulePlan {
    /// The plan at `now`, which follows `last`.
    fn new(settings: &ScheduleSettings, now: Timestamp, last: Option<&Self>) -> Self {
        let active = active(settings, now);
        let upcoming = upcoming(settings, now, SHOWN_ENTRIES);
        let end = active.map(|active| active.until);
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
            after: change.and_then(|at| occurrence::active(settings, at)),
            upcoming,
        }
    }

    fn holds_at(&self, now: Timestamp) -> bool {
        self.made <= now && self.change.is_none_or(|change| now < change)
    }

    /// The changes by the station's clock.
    fn changes(&self, settings: &ScheduleSettings, clock: &WallClock) -> SwitchSchedule {
        let change = |at: Timestamp, active: Option<Occurrence>| ScheduledChange {
            at: clock.local_at(unix_time(at)),
            input: active.and_then(|active| settings.entries.get(active.entry)).map(|e| e.source),
            begins: active.filter(|active| active.from == at).map(number),
        };
        let next = self.change.map(|at| change(at, self.after));
        [Some(change(self.since, self.active)), next]
    }
}

/// An entry that became active, or is active no longer, for the log and for hooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ActiveEntry {
    pub(crate) source: String,
    /// Its time as written.
    pub(crate) at: String,
    from: Timestamp,
    /// When it ends, after RFC 3339.
    pub(crate) until: String,
}

impl ActiveEntry {
    fn new(station: &StationSettings, occurrence: Occurrence) -> Option<Self> {
        let settings = station.schedule.as_ref()?;
        let entry = settings.entries.get(occurrence.entry)?;
        Some(Self {
            source: station.sources.get(entry.source)?.name.clone(),
            at: entry.at.text.clone(),
            from: occurrence.from,
            until: rfc3339(settings, occurrence.until),
        })
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
}

impl ScheduleState {
    /// Follows the schedule of a station; called about ten times a second.
    pub(crate) fn update(
        &mut self,
        station: &StationSettings,
        clock: &WallClock,
    ) -> ScheduleUpdate {
        let settings = station.schedule.as_ref();
        let now = timestamp(clock.utc);
        self.plan = settings.map(|settings| match self.plan.take() {
            Some(plan) if plan.holds_at(now) => plan,
            last => Arc::new(SchedulePlan::new(settings, now, last.as_deref())),
        });
        let plan = self.plan.as_deref();
        let wanted = settings.zip(plan).map(|(settings, plan)| plan.changes(settings, clock));
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
        let active = plan.and_then(|plan| ActiveEntry::new(station, plan.active?));
        if active == self.reported {
            return ScheduleUpdate { send, ended: None, began: None };
        }
        let ended = std::mem::replace(&mut self.reported, active.clone());
        ScheduleUpdate { send, ended, began: active }
    }

    /// Plans anew, because the settings have changed, or the station starts anew and knows nothing.
    pub(crate) fn renew(&mut self, is_new_station: bool) {
        self.plan = None;
        if is_new_station {
            self.sent = None;
        }
    }

    /// Whether nothing is left to do once the station has no schedule.
    pub(crate) const fn is_idle(&self) -> bool {
        self.plan.is_none() && self.sent.is_none() && self.reported.is_none()
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

/// A number of its own for each beginning of an entry.
fn number(occurrence: Occurrence) -> u64 {
    let seconds = occurrence.from.as_second().unsigned_abs();
    seconds << ENTRY_BITS | occurrence.entry as u64
}

fn timestamp(utc: UnixTime) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(utc.as_nanos())).unwrap_or(Timestamp::MAX)
}

fn unix_time(at: Timestamp) -> UnixTime {
    UnixTime::from_nanos(i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX))
}

/// Entries to come in the status.
const SHOWN_ENTRIES: usize = 5;

/// A change is sent again when the wall clock has moved by this much against the station's.
const TOLERANCE: Span = Span::from_nanos(100_000);

/// Enough for the number of an entry.
const ENTRY_BITS: u32 = 10;

#[cfg(test)]
mod tests;
