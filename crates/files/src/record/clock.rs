//! The wall clock, read together with the monotonic clock. File names and sidecars need it; no
//! frame depends on it.

use std::time::{SystemTime, UNIX_EPOCH};

use aulos_core::{Instant, Span};
use aulos_engine::recorder::{ClockZone, OffsetChange, UnixTime, WallClock};
use aulos_io::SystemClock;
use jiff::tz::{TimeZone, TimeZoneTransition};

use super::file_name::{time_zone, timestamp, utc_offset};

/// Reads the clocks within a millisecond of each other, so that their difference shows whether the
/// wall clock was set.
#[must_use]
pub fn wall_clock() -> WallClock {
    let mut attempts = 0..MAX_ATTEMPTS;
    let (local, wall) = loop {
        let (before, wall, local) = (SystemClock::now(), SystemTime::now(), SystemClock::now());
        // The thread may have been interrupted between the two.
        if local - before < MAX_READING || attempts.next().is_none() {
            break (local, wall);
        }
    };
    let since = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    let utc = UnixTime::from_nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX));
    let zone = time_zone(ClockZone::Local);
    let (offset, offset_changes) = (utc_offset(utc, &zone), offset_changes(utc, &zone));
    WallClock { local, utc, offset, offset_changes, suspended: SystemClock::suspended() }
}

/// The last change of a zone's offset from UTC before `utc`, and the first one after it.
fn offset_changes(utc: UnixTime, zone: &TimeZone) -> [Option<OffsetChange>; 2] {
    let change = |transition: TimeZoneTransition<'_>| {
        let at = transition.timestamp().as_nanosecond();
        let at = UnixTime::from_nanos(i64::try_from(at).ok()?);
        let just_before = UnixTime::from_nanos(at.as_nanos().saturating_sub(1));
        let (before, after) = (utc_offset(just_before, zone), utc_offset(at, zone));
        // Some transitions change the zone's name alone.
        (before != after).then_some(OffsetChange { at, before, after })
    };
    let now = timestamp(utc);
    [zone.preceding(now).next().and_then(change), zone.following(now).next().and_then(change)]
}

/// The monotonic time at which the wall clock shows `utc`, unless it is set meanwhile.
#[must_use]
pub fn local_at(utc: UnixTime) -> Instant {
    wall_clock().local_at(utc)
}

/// Parses an RFC 3339 time: `2026-11-22T10:15:00Z`, or with an offset.
#[must_use]
pub fn parse_utc(text: &str) -> Option<UnixTime> {
    let at: jiff::Timestamp = text.parse().ok()?;
    i64::try_from(at.as_nanosecond()).ok().map(UnixTime::from_nanos)
}

/// The clocks are not read further apart than this, unless the machine is too busy for it.
const MAX_READING: Span = Span::from_millis(1);

/// After this many readings a thread that is always interrupted takes the last one.
const MAX_ATTEMPTS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_changes_of_a_zones_offset_around_a_moment_are_found() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let utc = |text: &str| parse_utc(text).unwrap();
        let (winter, summer) = (Span::from_secs(3_600), Span::from_secs(7_200));
        // By python: `datetime(..., tzinfo=ZoneInfo("Europe/Berlin")).utcoffset()`.
        let spring =
            OffsetChange { at: utc("2026-03-29T01:00:00Z"), before: winter, after: summer };
        let autumn =
            OffsetChange { at: utc("2026-10-25T01:00:00Z"), before: summer, after: winter };
        for now in ["2026-03-29T01:00:01Z", "2026-07-01T12:00:00Z", "2026-10-25T00:59:59.99Z"] {
            assert_eq!(offset_changes(utc(now), &zone), [Some(spring), Some(autumn)], "{now}");
        }
        let [before, _] = offset_changes(utc("2026-10-25T01:00:00.01Z"), &zone);
        assert_eq!(before, Some(autumn));
        assert_eq!(offset_changes(utc("2026-10-25T01:00:00Z"), &TimeZone::UTC), [None, None]);
    }
}
