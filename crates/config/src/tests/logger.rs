//! `logger` of a station.

use aulos_core::Span;

use super::*;

fn logger(keys: &str) -> String {
    station(&format!("sources = [\"demo://\"]\nlogger = {{ {keys} }}"))
}

#[test]
fn a_log_is_a_recorder_of_hours_that_is_kept_as_long_as_a_country_wants() {
    for (keys, days) in [
        ("dir = \"/srv/log\"", 92),
        ("dir = \"/srv/log\", keep = \"uk\"", 42),
        ("dir = \"/srv/log\", keep = \"ch\"", 123),
        ("dir = \"/srv/log\", keep = \"7d\"", 7),
    ] {
        let resolved = load_text(&logger(keys), &[]).unwrap();
        let [record] = &resolved.stations[0].records[..] else { panic!("{keys}") };
        assert!(record.is_logger && record.start);
        assert_eq!(record.recording.name, "a-log");
        assert_eq!(record.recording.retention.max_age, Some(Span::from_secs(days * 86_400)));
        assert!(record.recording.recorder.rotation.clock.is_some());
        assert_eq!(record.recording.format.extension(), "opus");
    }
}

#[test]
fn a_log_without_a_directory_or_with_an_unknown_country_is_refused() {
    for (keys, part) in [
        ("keep = \"uk\"", "dir"),
        ("dir = \"/srv/log\", keep = \"atlantis\"", "keep"),
        ("dir = \"/srv/log\", format = \"aac\"", "format"),
    ] {
        let problems = load_text(&logger(keys), &[]).unwrap_err();
        assert!(format!("{problems:?}").contains(part), "{keys}: {problems:?}");
    }
}
