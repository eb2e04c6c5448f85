//! Dates as Icecast and access logs write them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aulos_core::Utc;

/// The date of an access log: `29/Feb/2000:11:59:59 +0000`.
pub(crate) fn log_date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let Utc { year, month, day, hour, minute, second } = Utc::from_unix(seconds);
    let name = text_at(&MONTHS, u64::from(month) - 1);
    format!("{day:02}/{name}/{year}:{hour:02}:{minute:02}:{second:02} +0000")
}

/// A date as Icecast writes it.
pub(super) struct IcecastDate {
    pub(super) rfc_822: String,
    pub(super) iso_8601: String,
}

impl IcecastDate {
    pub(super) fn new(time: SystemTime) -> Self {
        let seconds = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let Utc { year, month, day, hour, minute, second } = Utc::from_unix(seconds);
        // 1970-01-01 was a Thursday.
        let weekday = text_at(&WEEKDAYS, (seconds / 86_400) % 7);
        let name = text_at(&MONTHS, u64::from(month) - 1);
        let time = format!("{hour:02}:{minute:02}:{second:02}");
        Self {
            rfc_822: format!("{weekday}, {day:02} {name} {year} {time} +0000"),
            iso_8601: format!("{year:04}-{month:02}-{day:02}T{time}+0000"),
        }
    }
}

fn text_at<'a>(texts: &[&'a str], at: u64) -> &'a str {
    usize::try_from(at).ok().and_then(|at| texts.get(at)).copied().unwrap_or_default()
}

const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_icecasts() {
        let date = IcecastDate::new(UNIX_EPOCH + Duration::from_secs(951_825_599));
        assert_eq!(date.rfc_822, "Tue, 29 Feb 2000 11:59:59 +0000");
        assert_eq!(date.iso_8601, "2000-02-29T11:59:59+0000");
        let early = IcecastDate::new(UNIX_EPOCH - Duration::from_secs(1));
        assert_eq!(early.rfc_822, "Thu, 01 Jan 1970 00:00:00 +0000");
    }
}
