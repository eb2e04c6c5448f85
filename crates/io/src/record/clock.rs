//! The clock on the wall, read beside the house's own. File names and sidecars need it; no frame
//! follows it.

use std::time::{SystemTime, UNIX_EPOCH};

use aulos_core::Span;
use aulos_engine::recorder::{UnixTime, Wall};

use super::name;
use crate::SystemClock;

/// What both clocks show.
pub(super) fn wall() -> Wall {
    let local = SystemClock::now();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let utc = UnixTime::from_nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX));
    Wall { local, utc, offset: Span::from_nanos(name::offset(utc)) }
}
