//! The clock on the wall, read beside the house's own. File names and sidecars need it; no frame
//! follows it.

use std::time::{SystemTime, UNIX_EPOCH};

use aulos_core::{Instant, Span};
use aulos_engine::recorder::{UnixTime, WallClock};
use aulos_io::SystemClock;

use super::name;

/// What both clocks show.
pub(super) fn wall() -> WallClock {
    let local = SystemClock::now();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let utc = UnixTime::from_nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX));
    WallClock { local, utc, offset: Span::from_nanos(name::offset(utc)) }
}

/// When the house's clock shows what the one on the wall calls `utc`, if nobody sets that meanwhile.
#[must_use]
pub fn local_at(utc: UnixTime) -> Instant {
    wall().local_at(utc)
}

/// A moment as people write it, RFC 3339: `2026-11-22T10:15:00Z`, or with an offset.
#[must_use]
pub fn parse_utc(text: &str) -> Option<UnixTime> {
    let at: jiff::Timestamp = text.parse().ok()?;
    i64::try_from(at.as_nanosecond()).ok().map(UnixTime::from_nanos)
}
