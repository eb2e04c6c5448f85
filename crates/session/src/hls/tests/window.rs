//! The playlists of a window over time.

use aulos_core::{Frames, MediaTime};

use super::{SEGMENT, formats};
use crate::hls::{HlsWindow, SegmentSet, WindowConfig};

pub(super) fn window(listed: usize) -> HlsWindow {
    let formats = formats(&["flac", "opus:96k"]);
    HlsWindow::new(WindowConfig { formats, segment: SEGMENT, listed, first_listed: 1 }).unwrap()
}

pub(super) fn set(number: u64) -> SegmentSet {
    let body = |rendition: u8| [&[rendition], number.to_be_bytes().as_slice()].concat();
    SegmentSet {
        number,
        bodies: vec![body(0), body(1)],
        is_discontinuous: false,
        is_filled: number == 13,
    }
}

fn text(window: &HlsWindow, rendition: &str) -> String {
    String::from_utf8(window.playlist(rendition).unwrap().bytes.to_vec()).unwrap()
}

fn tag(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.strip_prefix(':')?.parse().unwrap())
}

fn uris(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn the_media_sequence_is_the_number_of_the_first_segment_and_grows_by_those_removed() {
    let mut window = window(4);
    assert!(window.playlist("flac").is_none() && window.multivariant().is_none());
    for number in 10..40 {
        window.push(set(number));
        let text = text(&window, "flac");
        let first = number.saturating_sub(3).max(10);
        assert_eq!(tag(&text, "#EXT-X-MEDIA-SEQUENCE"), Some(first));
        let expected: Vec<_> = (first..=number).map(|one| format!("{one}.m4s")).collect();
        assert_eq!(uris(&text), expected);
        assert_eq!(tag(&text, "#EXT-X-TARGETDURATION"), Some(6), "never changes");
        assert!(!text.contains("ENDLIST") && !text.contains("DISCONTINUITY"));
        assert_eq!(text.matches("#EXT-X-PROGRAM-DATE-TIME").count(), expected.len());
        let other = self::text(&window, "opus-96k");
        assert_eq!(uris(&other), uris(&text), "the same boundaries in all renditions");
        assert_eq!(tag(&other, "#EXT-X-MEDIA-SEQUENCE"), tag(&text, "#EXT-X-MEDIA-SEQUENCE"));
    }
}

#[test]
fn a_removed_segment_can_be_fetched_for_its_duration_and_that_of_the_playlist() {
    let mut window = window(4);
    (0..20).for_each(|number| window.push(set(number)));
    let has = |window: &HlsWindow, number: u64| {
        window.body("flac", &format!("{number}.m4s")).map(|body| body.bytes.to_vec())
    };
    // Segment 15 leaves the playlist with 19; a playlist that has it is in use for 4 + 1 more.
    for number in 20..=24 {
        assert_eq!(has(&window, 15), Some(set(15).bodies[0].clone()), "with {}", number - 1);
        window.push(set(number));
    }
    assert_eq!(has(&window, 15), None, "and then it is freed");
    assert!(has(&window, 24).is_some() && has(&window, 25).is_none());
    for odd in ["", ".m4s", "-1.m4s", "99999999999999999999.m4s", "24", "init.mp4"] {
        assert!(window.body("flac", odd).is_none(), "{odd}");
    }
    assert!(window.body("mp3", "24.m4s").is_none());
    assert!(window.bytes() <= 9 * 18, "{}", window.bytes());
}

#[test]
fn a_restart_is_one_discontinuity_and_what_is_missing_a_gap() {
    let mut window = window(5);
    (0..6).for_each(|number| window.push(set(number)));
    window.push(SegmentSet { is_discontinuous: true, ..set(8) });
    let lines = text(&window, "flac");
    assert_eq!(uris(&lines), ["4.m4s", "5.m4s", "6.m4s", "7.m4s", "8.m4s"]);
    assert_eq!(lines.matches("#EXT-X-GAP\n").count(), 2);
    assert!(window.body("flac", "6.m4s").is_none());
    assert_eq!(lines.matches("#EXT-X-DISCONTINUITY\n").count(), 1);
    assert_eq!(tag(&lines, "#EXT-X-DISCONTINUITY-SEQUENCE"), None);
    (9..13).for_each(|number| window.push(set(number)));
    assert_eq!(tag(&text(&window, "flac"), "#EXT-X-DISCONTINUITY-SEQUENCE"), None);
    window.push(set(13));
    let lines = text(&window, "flac");
    assert_eq!(tag(&lines, "#EXT-X-DISCONTINUITY-SEQUENCE"), Some(1), "it has left the playlist");
    assert!(!lines.contains("#EXT-X-DISCONTINUITY\n"));
}

#[test]
fn a_station_that_begins_anew_without_a_pause_is_discontinuous_all_the_same() {
    let mut window = window(4);
    window.restart();
    window.push(set(1));
    assert!(!text(&window, "flac").contains("DISCONTINUITY"), "there was nothing before");
    window.restart();
    window.push(set(2));
    window.push(set(3));
    let text = text(&window, "flac");
    assert_eq!(text.matches("#EXT-X-DISCONTINUITY\n").count(), 1);
    assert!(text.split("1.m4s\n").nth(1).unwrap().starts_with("#EXT-X-DISCONTINUITY\n"));
}

#[test]
fn a_jump_beyond_the_window_or_back_empties_it() {
    for to in [500, 3] {
        let mut window = window(4);
        (0..6).for_each(|number| window.push(set(number)));
        window.push(set(to));
        let lines = text(&window, "flac");
        assert_eq!(uris(&lines), [format!("{to}.m4s")]);
        assert!(lines.contains("#EXT-X-DISCONTINUITY\n"), "{lines}");
    }
}

#[test]
fn bandwidth_is_the_greatest_segment_and_the_bound_and_average_what_is_there() {
    let mut window = window(4);
    (0..4).for_each(|number| window.push(set(number)));
    let read = |window: &HlsWindow| {
        String::from_utf8(window.multivariant().unwrap().bytes.to_vec()).unwrap()
    };
    let lines = read(&window);
    assert!(lines.contains("BANDWIDTH=1692000,AVERAGE-BANDWIDTH=1000,CODECS=\"fLaC\"\nflac/index"));
    assert!(lines.contains("CODECS=\"Opus\"\nopus-96k/index.m3u8\n"), "{lines}");
    window.push(SegmentSet { bodies: vec![vec![0; 2_000_000], vec![0; 10]], ..set(4) });
    let lines = read(&window);
    assert!(lines.contains("BANDWIDTH=2778000,AVERAGE-BANDWIDTH=695000"), "{lines}");
}

#[test]
fn dates_follow_the_grid_and_the_offset_of_the_origin() {
    let mut window = window(4);
    window.set_date_offset(-1_250);
    window.push(set(1_000));
    window.set_title(7, MediaTime(1_000 * SEGMENT.0) + Frames(48_000), "a title");
    let text = text(&window, "flac");
    assert!(text.contains("#EXT-X-PROGRAM-DATE-TIME:1970-01-01T01:35:58.750Z\n"), "{text}");
    assert!(
        text.contains("ID=\"title-7\"") && text.contains("START-DATE=\"1970-01-01T01:35:59.750Z\"")
    );
}

#[test]
fn a_title_leaves_the_playlist_when_the_next_one_holds_for_all_of_it() {
    let mut window = window(4);
    window.push(set(0));
    window.set_title(1, MediaTime(0), "old");
    window.set_title(2, MediaTime(3 * SEGMENT.0), "new");
    (1..7).for_each(|number| window.push(set(number)));
    let lines = text(&window, "flac");
    assert!(lines.contains("X-TITLE=\"new\"") && !lines.contains("X-TITLE=\"old\""), "{lines}");
}

#[test]
fn bytes_have_a_tag_of_their_own_and_filled_ones_are_marked() {
    let mut window = window(4);
    (10..14).for_each(|number| window.push(set(number)));
    let body = |name: &str, number: u64| window.body(name, &format!("{number}.m4s")).unwrap();
    assert_ne!(body("flac", 11).tag, body("flac", 12).tag);
    assert_ne!(body("flac", 11).tag, body("opus-96k", 11).tag);
    assert!(body("flac", 13).is_filled && !body("flac", 12).is_filled);
    let lines = text(&window, "flac");
    let map = lines.split("#EXT-X-MAP:URI=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(window.body("flac", map).unwrap().bytes.starts_with(&[0, 0, 0]), "{map}");
    assert!(window.body("opus-96k", map).is_none());
}

#[test]
fn a_paired_server_waits_for_three_segments() {
    let config = WindowConfig { first_listed: 3, ..window(4).config().clone() };
    let mut window = HlsWindow::new(config).unwrap();
    (0..2).for_each(|number| window.push(set(number)));
    assert!(window.playlist("flac").is_none() && window.multivariant().is_none());
    assert!(window.body("flac", "1.m4s").is_some(), "its segments can be fetched");
    window.push(set(2));
    assert!(window.playlist("flac").is_some());
}
