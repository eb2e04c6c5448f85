//! `schedule`: sources that have precedence at times of the week or on a date.
//!
//! Only what is written is checked here: which entry is active at a moment is decided by the
//! control plane, which has the time.

use aulos_core::Span;
use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;

use crate::keys::values::{parsed, quoted};
use crate::keys::{ConfigRead, ReadContext, ValueKind, hint_for, keys};
use crate::limits::{MAX_SCHEDULE_ENTRIES, SCHEDULE_FOR};
use crate::problem::{ConfigValue, Problems};
use crate::tree::Node;

keys! {
    /// An entry of a schedule: a source that has precedence over the others for some time. Where
    /// entries overlap, the one that began later counts; of two that begin together, the later one
    /// in the list.
    pub(crate) struct ScheduleEntryConfig {
        /// When it begins, in local time: days and a time, as in `Mon-Fri 07:00`, `Sat,Sun
        /// 09:30:30` or `daily 18:00`, or a date, as in `2026-12-24 18:00`.
        begin: Option<ScheduleTime>, required "{ at = \"Mon-Fri 07:00\", for = \"1h\", source = \"news\" }", key "at";
        /// Its duration, from `1s` to `7d`.
        length: Option<ConfigValue<Span>>, required "{ at = \"Mon-Fri 07:00\", for = \"1h\", source = \"news\" }", key "for";
        /// Name of a source of the station.
        source: Option<ConfigValue<String>>, required "{ at = \"Mon-Fri 07:00\", for = \"1h\", source = \"news\" }";
    }
}

/// The schedule of a station.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleSettings {
    /// The zone of its times.
    pub zone: TimeZone,
    /// At least one, in the order of the file.
    pub entries: Vec<ScheduleEntry>,
}

/// An entry of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleEntry {
    /// When it begins.
    pub at: ScheduleTime,
    /// Its duration, in elapsed time; at most a week.
    pub length: Span,
    /// Index of its source in the station.
    pub source: usize,
}

/// When an entry begins: days and a time of day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleTime {
    /// The days.
    pub days: ScheduleDays,
    /// The time of day, in whole seconds.
    pub time: Time,
    /// As written.
    pub text: String,
}

/// The days on which an entry begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleDays {
    /// Days of each week, Monday first; at least one.
    Week([bool; 7]),
    /// One day.
    Date(Date),
}

impl ScheduleDays {
    /// Whether an entry begins on this day.
    #[must_use]
    pub fn contains(&self, date: Date) -> bool {
        match self {
            Self::Week(days) => days[day_index(date.weekday())],
            Self::Date(day) => *day == date,
        }
    }
}

fn day_index(day: Weekday) -> usize {
    usize::from(day.to_monday_zero_offset().unsigned_abs())
}

impl std::str::FromStr for ScheduleTime {
    type Err = String;

    /// Parses `DAYS TIME`, or a time alone, which is daily.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let (days, time) = match (words.next(), words.next(), words.next()) {
            (Some(time), None, None) => ("daily", time),
            (Some(days), Some(time), None) => (days, time),
            _ => return Err("not days and a time".to_owned()),
        };
        let text = text.trim().to_owned();
        Ok(Self { days: parse_days(days)?, time: parse_time(time)?, text })
    }
}

/// Parses `daily`, a date, or a list of days and ranges of days; `Sat-Mon` is three days.
fn parse_days(text: &str) -> Result<ScheduleDays, String> {
    if text.eq_ignore_ascii_case("daily") {
        return Ok(ScheduleDays::Week([true; 7]));
    }
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        let date = text.parse().ok().filter(|_| text.len() == "2026-12-24".len());
        return date.map(ScheduleDays::Date).ok_or_else(|| format!("{text} is not a date"));
    }
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (mut day, last) = (parse_day(first)?, parse_day(last)?);
        days[day] = true;
        while day != last {
            day = (day + 1) % days.len();
            days[day] = true;
        }
    }
    Ok(ScheduleDays::Week(days))
}

fn parse_day(text: &str) -> Result<usize, String> {
    let found = DAYS.iter().position(|day| day.eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("unknown day `{}`", text.escape_debug()))
}

/// Parses `HH:MM` or `HH:MM:SS`.
fn parse_time(text: &str) -> Result<Time, String> {
    let wrong = || format!("`{}` is not a time of day", text.escape_debug());
    let is_two_digits = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
    let parts: Vec<&str> = text.split(':').collect();
    if !(2..=3).contains(&parts.len()) || !parts.iter().all(|part| is_two_digits(part)) {
        return Err(wrong());
    }
    let number = |index: usize| parts.get(index).map_or(Ok(0), |part| part.parse::<i8>());
    let (Ok(hour), Ok(minute), Ok(second)) = (number(0), number(1), number(2)) else {
        return Err(wrong());
    };
    Time::new(hour, minute, second, 0).map_err(|_| wrong())
}

impl ConfigRead for ScheduleTime {
    const KIND: &'static ValueKind = &ValueKind::Text;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        parsed(node, context, str::parse::<Self>)
    }

    fn toml(&self) -> Option<String> {
        Some(quoted(&self.text))
    }
}

/// A time zone of the system's database, by its name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ZoneConfig(TimeZone);

impl ConfigRead for ZoneConfig {
    const KIND: &'static ValueKind = &ValueKind::Text;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        let parse = |name: &str| {
            let unknown = "unknown time zone: write a name of the zone database, as in \
                           \"Europe/Vienna\" (package tzdata), or \"UTC\"";
            TimeZone::get(name).map(Self).map_err(|_| unknown)
        };
        parsed(node, context, parse)
    }

    fn toml(&self) -> Option<String> {
        self.0.iana_name().map(quoted)
    }
}

/// Checks the entries of a station with these sources.
pub(crate) fn resolve(
    entries: &[ScheduleEntryConfig],
    zone: Option<&ZoneConfig>,
    sources: &[&str],
    problems: &Problems,
) -> Option<ScheduleSettings> {
    if let Some(entry) = entries.get(MAX_SCHEDULE_ENTRIES) {
        let message = format!("a schedule has at most {MAX_SCHEDULE_ENTRIES} entries");
        problems.add(entry.at, message);
    }
    let entries: Vec<_> =
        entries.iter().filter_map(|entry| resolve_entry(entry, sources, problems)).collect();
    let zone = zone.map_or_else(TimeZone::system, |zone| zone.0.clone());
    (!entries.is_empty()).then_some(ScheduleSettings { zone, entries })
}

fn resolve_entry(
    entry: &ScheduleEntryConfig,
    sources: &[&str],
    problems: &Problems,
) -> Option<ScheduleEntry> {
    let length = entry.length?;
    if !SCHEDULE_FOR.contains(&length.value) {
        let message = "`for` is out of range: it must be 1s to 7d";
        problems.add_with_hint(length.at, message, "for = \"1h\"");
    }
    let ConfigValue { value: name, at } = entry.source.as_ref()?;
    let source = sources.iter().position(|source| source == name);
    if source.is_none() {
        let message = format!("`source` is \"{name}\": the station has no such source");
        problems.add_with_hint(*at, message, hint_for(name, sources));
    }
    let at = entry.begin.as_ref()?.clone();
    Some(ScheduleEntry { at, length: length.value, source: source? })
}

/// Names of the days, Monday first.
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

#[cfg(test)]
mod tests {
    use super::*;

    fn days(text: &str) -> String {
        let ScheduleDays::Week(days) = parse_days(text).unwrap() else { panic!("{text}") };
        days.map(|day| if day { 'x' } else { '-' }).iter().collect()
    }

    #[test]
    fn days_are_names_lists_and_ranges() {
        for (text, expected) in [
            ("daily", "xxxxxxx"),
            ("Mon", "x------"),
            ("mon-FRI", "xxxxx--"),
            ("Sat,Sun", "-----xx"),
            ("Sat-Mon", "x----xx"),
            ("Tue-Tue", "-x-----"),
            ("Mon,Wed-Thu,Sun", "x-xx--x"),
        ] {
            assert_eq!(days(text), expected, "{text}");
        }
        let date = ScheduleDays::Date(jiff::civil::date(2026, 12, 24));
        assert_eq!(parse_days("2026-12-24"), Ok(date));
    }

    #[test]
    fn a_time_has_days_or_is_daily() {
        let at: ScheduleTime = " Mon-Fri  07:00 ".parse().unwrap();
        assert_eq!((at.time, at.text.as_str()), (jiff::civil::time(7, 0, 0, 0), "Mon-Fri  07:00"));
        let daily: ScheduleTime = "23:59:59".parse().unwrap();
        assert_eq!(daily.days, ScheduleDays::Week([true; 7]));
        assert_eq!(daily.time, jiff::civil::time(23, 59, 59, 0));
    }

    #[test]
    fn what_is_no_time_is_refused_with_the_part_that_is_wrong() {
        for (text, expected) in [
            ("", "not days and a time"),
            ("Mon 07:00 CET", "not days and a time"),
            ("Mun 07:00", "unknown day `Mun`"),
            ("Mon- 07:00", "unknown day ``"),
            ("Mon,, 07:00", "unknown day ``"),
            ("Monday 07:00", "unknown day `Monday`"),
            ("2026-02-30 07:00", "2026-02-30 is not a date"),
            ("2026-12-24T18:00 07:00", "2026-12-24T18:00 is not a date"),
            ("Mon 7:00", "`7:00` is not a time of day"),
            ("Mon 24:00", "`24:00` is not a time of day"),
            ("Mon 07:60", "`07:60` is not a time of day"),
            ("Mon 07:00:60", "`07:00:60` is not a time of day"),
            ("Mon +7:00", "`+7:00` is not a time of day"),
            ("Mon", "`Mon` is not a time of day"),
        ] {
            assert_eq!(text.parse::<ScheduleTime>(), Err(expected.to_owned()), "{text}");
        }
    }
}
