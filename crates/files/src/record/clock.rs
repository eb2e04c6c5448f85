//! The wall clock, read together with the monotonic clock. File names and sidecars need it; no
//! frame depends on it.

use std::time::{SystemTime, UNIX_EPOCH};

use aulos_core::{Instant, Span};
use aulos_engine::recorder::{UnixTime, WallClock};
use aulos_io::SystemClock;

use super::file_name;

/// Reads both clocks.
pub(super) fn wall_clock() -> WallClock {
    let local = SystemClock::now();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let utc = UnixTime::from_nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX));
    WallClock { local, utc, offset: Span::from_nanos(file_name::utc_offset_nanos(utc)) }
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
