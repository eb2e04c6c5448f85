//! Occurrences over the changes of the clock.

use super::*;

fn settings(zone: &str, entries: &[(&str, &str)]) -> ScheduleSettings {
    let entries = entries.iter().map(|(at, length)| ScheduleEntry {
        at: at.parse().unwrap(),
        length: aulos_config::units::parse_span(length).unwrap(),
        source: 0,
    });
    ScheduleSettings { zone: TimeZone::get(zone).unwrap(), entries: entries.collect() }
}

fn utc(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The beginnings after a moment, without the year and the seconds.
fn beginnings(settings: &ScheduleSettings, after: &str, count: usize) -> Vec<String> {
    let found = upcoming(settings, utc(after), count);
    found.iter().map(|one| one.from.to_string()[5..16].replace('T', " ")).collect()
}

/// The changes of the active entry in a year, in minutes.
fn changes(settings: &ScheduleSettings, year: i16) -> Vec<String> {
    let new_year = |year| utc(&format!("{year}-01-01T00:00:00Z"));
    let (start, end) = (new_year(year), new_year(year + 1));
    let (mut all, mut now) = (Vec::new(), start);
    loop {
        let next = upcoming(settings, now, 1).first().map(|next| next.from);
        let until = active(settings, now).map(|active| active.until);
        let Some(change) = next.into_iter().chain(until).min().filter(|at| *at < end) else {
            return all;
        };
        assert!(change > now, "{change} is not after {now}");
        now = change;
        let minutes = now.duration_since(start).as_mins();
        let entry =
            active(settings, now).map_or_else(|| "-".to_owned(), |one| one.entry.to_string());
        all.push(format!("{minutes}:{entry}"));
    }
}

/// Python's zoneinfo watched the clock of each place for a year (`tests/vectors/schedule.py`).
#[test]
fn a_year_of_entries_is_as_the_wall_clock_shows_it() {
    let vectors = include_str!("../../../../tests/vectors/schedule.txt");
    let lines: Vec<&str> = vectors.lines().collect();
    assert_eq!(lines.len(), 6);
    for pair in lines.chunks_exact(2) {
        let (zone, year) = pair[0].split_once(' ').unwrap();
        let christmas = format!("{year}-12-24 18:00");
        let settings = settings(
            zone,
            &[
                ("Mon-Fri 07:00", "1h"),
                ("Sat,Sun 22:30", "4h"),
                ("daily 02:30", "45min"),
                ("Sun 02:00", "30min"),
                ("Sun 01:45", "2h"),
                (&christmas, "7d"),
            ],
        );
        let expected: Vec<&str> = pair[1].split(' ').collect();
        assert!(expected.len() > 1_000);
        let found = changes(&settings, year.parse().unwrap());
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "{zone}");
        }
        assert_eq!(found.len(), expected.len(), "{zone}");
    }
}

#[test]
fn a_time_that_is_skipped_begins_at_the_first_moment_after_it() {
    // In Vienna the clock goes from 02:00 to 03:00 at 01:00 UTC.
    let schedule = settings("Europe/Vienna", &[("daily 02:30", "1h"), ("daily 02:00", "1h")]);
    let after = "2026-03-27T12:00:00Z";
    let expected =
        ["03-28 01:00", "03-28 01:30", "03-29 01:00", "03-29 01:00", "03-30 00:00", "03-30 00:30"];
    assert_eq!(beginnings(&schedule, after, 6), expected);
    // Both begin there; the later one of the list counts.
    let active = active(&schedule, utc("2026-03-29T01:00:00Z")).unwrap();
    assert_eq!((active.entry, active.until), (1, utc("2026-03-29T02:00:00Z")));
    // Where a whole day was skipped, it begins with the next one.
    let apia = settings("Pacific/Apia", &[("2011-12-30 07:00", "1h")]);
    assert_eq!(beginnings(&apia, "2011-12-29T00:00:00Z", 2), ["12-30 10:00"]);
}

#[test]
fn a_time_that_comes_twice_begins_once_at_the_first() {
    // From 03:00 back to 02:00 at 01:00 UTC.
    let schedule = settings("Europe/Vienna", &[("daily 02:30", "1h")]);
    let expected = ["10-24 00:30", "10-25 00:30", "10-26 01:30"];
    assert_eq!(beginnings(&schedule, "2026-10-23T12:00:00Z", 3), expected);
    // An hour is an hour, although the clock shows 02:30 again at its end.
    let is_active = |text| active(&schedule, utc(text)).is_some();
    assert!(is_active("2026-10-25T01:29:59Z") && !is_active("2026-10-25T01:30:00Z"));
}

#[test]
fn of_overlapping_entries_the_one_that_began_later_counts() {
    let schedule = settings(
        "UTC",
        &[("Mon 10:00", "1h"), ("Mon 09:00", "4h"), ("Mon 10:30", "10min"), ("Mon 09:00", "4h")],
    );
    for (time, expected) in [
        ("08:59:59", None),
        ("09:00:00", Some(3)),
        ("10:00:00", Some(0)),
        ("10:30:00", Some(2)),
        ("10:40:00", Some(0)),
        ("11:00:00", Some(3)),
        ("13:00:00", None),
    ] {
        let found = active(&schedule, utc(&format!("2026-11-30T{time}Z")));
        assert_eq!(found.map(|found| found.entry), expected, "{time}");
    }
}

#[test]
fn an_entry_may_last_over_midnight_and_for_a_week() {
    let schedule = settings("UTC", &[("Sat 23:00", "2h"), ("2026-12-24 18:00", "7d")]);
    let entry = |text| active(&schedule, utc(text)).map(|found| found.entry);
    assert_eq!(entry("2026-11-29T00:59:59Z"), Some(0), "Sunday");
    assert_eq!(entry("2026-11-29T01:00:00Z"), None);
    assert_eq!(entry("2026-12-26T22:59:59Z"), Some(1));
    assert_eq!(entry("2026-12-26T23:00:00Z"), Some(0));
    assert_eq!(entry("2026-12-31T17:59:59Z"), Some(1));
    assert_eq!(entry("2026-12-31T18:00:00Z"), None);
}

#[test]
fn a_daily_entry_of_a_week_never_ends() {
    let schedule = settings("Europe/Vienna", &[("daily 12:00", "7d")]);
    let mut now = utc("2026-03-01T00:00:00Z");
    while now < utc("2026-12-01T00:00:00Z") {
        let active = active(&schedule, now).unwrap();
        assert!(active.from <= now && now.duration_since(active.from).as_hours() < 25, "{now}");
        now += SignedDuration::from_hours(7);
    }
}

#[test]
fn a_date_comes_once() {
    let schedule = settings("UTC", &[("2026-12-24 18:00", "1h")]);
    assert_eq!(beginnings(&schedule, "2020-01-01T00:00:00Z", 5), ["12-24 18:00"]);
    assert_eq!(beginnings(&schedule, "2026-12-24T18:00:00Z", 5), [""; 0]);
}

#[test]
fn the_ends_of_the_calendar_have_no_entries() {
    let schedule = settings("UTC", &[("daily 00:00", "7d"), ("9999-12-31 23:59", "7d")]);
    for now in [Timestamp::MIN, Timestamp::MAX] {
        active(&schedule, now);
        upcoming(&schedule, now, 5);
    }
    assert_eq!(active(&schedule, Timestamp::MAX), None);
}
