//! Calendar dates for users and file names. The media path does not use them.

use core::fmt;

/// A calendar date and time in UTC, to the second. Displays in RFC 3339 format:
/// `2026-11-22T10:15:00Z`.
///
/// # Examples
/// ```
/// let utc = aulos_core::Utc::from_unix(951_825_599);
/// assert_eq!(utc.to_string(), "2000-02-29T11:59:59Z");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(clippy::exhaustive_structs, reason = "a date has no more parts")]
pub struct Utc {
    /// The year.
    pub year: u64,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59.
    pub second: u8,
}

impl Utc {
    /// The date and time `seconds` after the Unix epoch (1970-01-01).
    ///
    /// The computation starts years in March, so that the leap day is the last day of a year; 400
    /// years have 146,097 days.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "each is within its range")]
    pub const fn from_unix(seconds: u64) -> Self {
        let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        Self {
            year: era * 400 + year + next,
            month: month as u8,
            day: day as u8,
            hour: (second / 3_600) as u8,
            minute: (second / 60 % 60) as u8,
            second: (second % 60) as u8,
        }
    }
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, hour, minute, second } = self;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(Utc::from_unix(seconds).to_string(), date);
        }
    }
}
