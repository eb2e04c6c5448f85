//! When the entries of a schedule begin and end.
//!
//! Entries are times on a wall clock; only here they become moments. A time that a change to
//! daylight saving skips begins at the first moment after it, so that no programme is lost; one
//! that comes twice begins once, at the first, so that none is repeated. Durations are elapsed
//! time: an hour has 3,600 seconds on every day.

use aulos_config::{ScheduleDays, ScheduleEntry, ScheduleSettings};
use aulos_engine::recorder::UnixTime;
use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

/// An entry on one of its days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Occurrence {
    /// Index of the entry.
    pub(crate) entry: usize,
    /// When it begins.
    pub(crate) from: Timestamp,
    /// When it ends.
    pub(crate) until: Timestamp,
}

impl Occurrence {
    /// The entry on this day.
    fn on(settings: &ScheduleSettings, entry: usize, date: Date) -> Option<Self> {
        let config = settings.entries.get(entry)?;
        let from = begin(&settings.zone, date.to_datetime(config.at.time))?;
        let length = SignedDuration::from_nanos(config.length.as_nanos());
        Some(Self { entry, from, until: from.checked_add(length).ok()? })
    }

    /// Of overlapping occurrences the greatest counts: the one that began later, and of two that
    /// began together the later one of the file.
    const fn rank(&self) -> (Timestamp, usize) {
        (self.from, self.entry)
    }
}

/// The occurrence that is active at `now`.
pub(crate) fn active(settings: &ScheduleSettings, now: Timestamp) -> Option<Occurrence> {
    let entries = (0..settings.entries.len()).filter_map(|entry| current(settings, entry, now));
    entries.max_by_key(Occurrence::rank)
}

/// The next occurrences that begin after `now`, at most `count`, in order of time.
pub(crate) fn upcoming(
    settings: &ScheduleSettings,
    now: Timestamp,
    count: usize,
) -> Vec<Occurrence> {
    let entries = 0..settings.entries.len();
    let mut first: Vec<_> = entries.filter_map(|entry| following(settings, entry, now)).collect();
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        let earliest = (0..first.len()).min_by_key(|index| first[*index].rank());
        let Some(earliest) = earliest else { break };
        let found = first[earliest];
        all.push(found);
        match following(settings, found.entry, found.from) {
            Some(next) => first[earliest] = next,
            None => drop(first.swap_remove(earliest)),
        }
    }
    all
}

/// A moment with the offset of the schedule's zone, after RFC 3339.
pub(crate) fn rfc3339(settings: &ScheduleSettings, at: Timestamp) -> String {
    at.display_with_offset(settings.zone.to_offset(at)).to_string()
}

/// A moment of the wall clock.
pub(super) fn timestamp(utc: UnixTime) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(utc.as_nanos())).unwrap_or(Timestamp::MAX)
}

/// The same for the audio side.
pub(super) fn unix_time(at: Timestamp) -> UnixTime {
    UnixTime::from_nanos(i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX))
}

/// The last occurrence of an entry that has begun, unless it has ended.
fn current(settings: &ScheduleSettings, entry: usize, now: Timestamp) -> Option<Occurrence> {
    // From tomorrow: a skipped time can begin on another day than its own.
    let mut day = local_date(settings, now).tomorrow().ok()?;
    for _ in 0..LONGEST_DAYS {
        if settings.entries.get(entry)?.at.days.contains(day)
            && let Some(found) = Occurrence::on(settings, entry, day)
            && found.from <= now
        {
            return Some(found).filter(|found| found.until > now);
        }
        day = day.yesterday().ok()?;
    }
    None
}

/// The first occurrence of an entry that begins after `now`.
fn following(settings: &ScheduleSettings, entry: usize, now: Timestamp) -> Option<Occurrence> {
    let ScheduleEntry { at, .. } = settings.entries.get(entry)?;
    let is_later = |found: &Occurrence| found.from > now;
    if let ScheduleDays::Date(date) = at.days {
        return Occurrence::on(settings, entry, date).filter(is_later);
    }
    let mut day = local_date(settings, now).yesterday().ok()?;
    for _ in 0..LONGEST_DAYS {
        if at.days.contains(day)
            && let Some(found) = Occurrence::on(settings, entry, day).filter(is_later)
        {
            return Some(found);
        }
        day = day.tomorrow().ok()?;
    }
    None
}

fn local_date(settings: &ScheduleSettings, now: Timestamp) -> Date {
    settings.zone.to_datetime(now).date()
}

/// The moment at which a wall clock of this zone first shows `time` or a later one.
fn begin(zone: &TimeZone, time: DateTime) -> Option<Timestamp> {
    let shown = zone.to_ambiguous_timestamp(time);
    let AmbiguousOffset::Gap { after, .. } = shown.offset() else {
        return shown.earlier().ok();
    };
    // In the offset that begins with the change, the time lies before the change.
    let before_change = after.to_timestamp(time).ok()?;
    let mut changes = zone.following(before_change).map(|change| change.timestamp());
    changes.next().or_else(|| shown.later().ok())
}

/// The longest entry has a week; a day more at each end is for changes of the offset.
const LONGEST_DAYS: usize = 10;

#[cfg(test)]
mod tests;
