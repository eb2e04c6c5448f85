//! Dates of playlists (ISO 8601, as RFC 8216, section 4.3.2.6 wants them).

use core::fmt;

use aulos_core::Utc;

/// A moment in milliseconds since the Unix epoch. Displays as `2026-11-28T12:00:00.040Z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(clippy::exhaustive_structs, reason = "a number")]
pub struct HlsDate(pub u64);

impl fmt::Display for HlsDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Utc { year, month, day, hour, minute, second } = Utc::from_unix(self.0 / 1_000);
        let millis = self.0 % 1_000;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}
