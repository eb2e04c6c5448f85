//! `schedule`.

use jiff::civil::{date, time};

use super::*;

fn scheduled(keys: &str) -> String {
    station(&format!(
        "sources = [{{ uri = \"demo://\", name = \"music\" }}, \
         {{ uri = \"tone://\", name = \"news\" }}]\n{keys}"
    ))
}

#[test]
fn a_mount_has_a_schedule_of_its_sources_and_its_station() {
    let text = "[[station]]\nname = \"day\"\nsources = [\"demo://\"]\n\
        [[mount]]\nname = \"live.mp3\"\nstation = \"day\"\ntimezone = \"UTC\"\n\
        sources = [{ uri = \"http://127.0.0.1:9/a\", name = \"studio\" }]\n\
        schedule = [{ at = \"daily 07:00\", for = \"1h\", source = \"day\" }]";
    let resolved = load_text(text, &[]).unwrap();
    let schedule = resolved.stations[1].schedule.as_ref().unwrap();
    assert_eq!((schedule.entries[0].source, schedule.zone.iana_name()), (1, Some("UTC")));
    let problems = load_text(&text.replace("source = \"day\"", "source = \"news\""), &[]);
    assert!(problems.unwrap_err().to_string().contains("news"));
}

#[test]
fn a_schedule_names_its_sources_and_its_zone() {
    let text = scheduled(
        "timezone = \"Europe/Vienna\"\n\
         schedule = [\n\
         { at = \"Mon-Fri 07:00\", for = \"1h\", source = \"news\" },\n\
         { at = \"2026-12-24 18:00\", for = \"7d\", source = \"music\" },\n]",
    );
    let resolved = load_text(&text, &[]).unwrap();
    let schedule = resolved.stations[0].schedule.as_ref().unwrap();
    assert_eq!(schedule.zone.iana_name(), Some("Europe/Vienna"));
    let [news, music] = &schedule.entries[..] else { panic!("{schedule:?}") };
    assert_eq!((news.source, news.length), (1, Span::from_secs(3_600)));
    let days = ScheduleDays::Week([true, true, true, true, true, false, false]);
    assert_eq!((news.at.days, news.at.time), (days, time(7, 0, 0, 0)));
    assert_eq!((music.source, music.length), (0, Span::from_secs(7 * 86_400)));
    assert_eq!(music.at.days, ScheduleDays::Date(date(2026, 12, 24)));
    let none = load_text(&scheduled("timezone = \"UTC\""), &[]).unwrap();
    assert_eq!(none.stations[0].schedule, None);
}

#[test]
fn what_is_wrong_with_a_schedule_is_said_with_its_place() {
    for (entry, place, expected) in [
        ("at = \"Mun 07:00\", for = \"1h\", source = \"news\"", "4:20", "unknown day `Mun`"),
        ("at = \"07:00\", for = \"8d\", source = \"news\"", "4:35", "must be 1s to 7d"),
        ("at = \"07:00\", for = \"0s\", source = \"news\"", "4:35", "must be 1s to 7d"),
        ("at = \"07:00\", for = \"long\", source = \"news\"", "4:35", "not a duration"),
        ("at = \"07:00\", for = \"1h\", source = \"new\"", "4:50", "no such source"),
        ("at = \"07:00\", for = \"1h\"", "4:13", "`source`"),
        ("for = \"1h\", source = \"news\"", "4:13", "`at`"),
        ("at = \"07:00\", source = \"news\"", "4:13", "`for`"),
    ] {
        let told = first_problem(&scheduled(&format!("schedule = [{{ {entry} }}]")), &[]);
        assert!(told.contains(expected), "{entry}: {told}");
        assert!(told.contains(&format!("aulos.toml:{place}")), "{entry}: {told}");
    }
    let told = first_problem(&scheduled("timezone = \"Europe/Viena\""), &[]);
    assert!(told.contains("unknown time zone") && told.contains("aulos.toml:4:12"), "{told}");
    let entry = "{ at = \"07:00\", for = \"1h\", source = \"news\" },";
    let told = first_problem(&scheduled(&format!("schedule = [{}]", entry.repeat(501))), &[]);
    assert!(told.contains("at most 500 entries"), "{told}");
}
