//! The wall clock, read together with the monotonic clock. File names and sidecars need it; no
//! frame depends on it.

use std::time::{SystemTime, UNIX_EPOCH};

use aulos_core::{Instant, Span};
use aulos_engine::recorder::{UnixTime, WallClock};
use aulos_io::SystemClock;

use super::file_name;

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
    let offset = Span::from_nanos(file_name::utc_offset_nanos(utc));
    WallClock { local, utc, offset, suspended: SystemClock::suspended() }
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
