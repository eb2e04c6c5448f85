//! A target in virtual time: it fails, is slow, is gone for hours, and another server writes to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use aulos_proto::m3u8::Playlist;

use super::window::{set, window};
use super::*;

/// A folder or a storage.
#[derive(Default)]
struct Target {
    objects: BTreeMap<HlsObject, Arc<[u8]>>,
    is_gone: bool,
    /// Probability of a failure, in percent.
    fails: u64,
    rng: Option<Rng>,
    /// It permits neither listing nor removing.
    is_put_only: bool,
    attempts: u64,
    /// Until when a segment has to stay, because a playlist has named it.
    needed: BTreeMap<String, Instant>,
}

impl Target {
    fn perform(&mut self, now: Instant, action: PublishAction) -> PublishResult {
        self.attempts += 1;
        let roll = self.rng.as_mut().map_or(100, |rng| rng.next_u64() % 100);
        if self.is_gone || roll < self.fails {
            return PublishResult::Failed("gone".to_owned());
        }
        if self.is_put_only && matches!(action, PublishAction::List | PublishAction::Remove(_)) {
            return PublishResult::Failed("denied".to_owned());
        }
        match action {
            PublishAction::List => PublishResult::Found(self.objects.keys().cloned().collect()),
            PublishAction::Read(object) => {
                PublishResult::Contents(self.objects.get(&object).map(|bytes| bytes.to_vec()))
            }
            PublishAction::Put { object, bytes, only_if_absent } => {
                if !(only_if_absent && self.objects.contains_key(&object)) {
                    self.objects.insert(object, bytes);
                }
                self.check(now);
                PublishResult::Done
            }
            PublishAction::Remove(object) => {
                let needed = self.needed.get(&object.to_string());
                assert!(needed.is_none_or(|until| *until <= now), "{object} is needed");
                self.objects.remove(&object);
                self.check(now);
                PublishResult::Done
            }
        }
    }

    /// What a player can load at any moment: whatever a playlist names is there.
    fn check(&mut self, now: Instant) {
        let names = |address: &str| self.objects.contains_key(&HlsObject::parse(address).unwrap());
        let mut named = Vec::new();
        for (object, text) in &self.objects {
            let Some(rendition) = object.rendition() else { continue };
            let HlsObject::Playlist(_) = object else { continue };
            let Ok(Playlist::Media(list)) = Playlist::parse(text) else { panic!("{object}") };
            for segment in list.segments.iter().filter(|segment| !segment.is_gap) {
                let map = &segment.map.as_ref().unwrap().uri;
                assert!(names(&format!("{rendition}/{map}")), "{rendition}/{map}");
                named.push((format!("{rendition}/{}", segment.uri), list.segments.len()));
            }
        }
        for (address, count) in named {
            assert!(names(&address), "{address} is named and not there");
            let until = now + SPAN * (i64::try_from(count).unwrap() + 1);
            self.needed.insert(address, until);
        }
        let master = self.objects.get(&HlsObject::Multivariant).map(|text| text.to_vec());
        for line in String::from_utf8(master.unwrap_or_default()).unwrap().lines() {
            assert!(line.starts_with('#') || names(line), "{line} is named and not there");
        }
    }

    fn numbers(&self, rendition: &str) -> Vec<u64> {
        let number = |object: &HlsObject| match object {
            HlsObject::Segment { rendition: own, number, .. } if **own == *rendition => {
                Some(*number)
            }
            _ => None,
        };
        self.objects.keys().filter_map(number).collect()
    }

    /// First and last number of a playlist.
    fn playlist(&self, rendition: &str) -> Option<(u64, u64)> {
        let text = self.objects.get(&HlsObject::Playlist(rendition.into()))?;
        let Ok(Playlist::Media(list)) = Playlist::parse(text) else { panic!() };
        Some((list.sequence, list.sequence + list.segments.len() as u64 - 1))
    }
}

/// Lets the publisher do what it can at this moment.
fn run(publisher: &mut HlsPublisher, now: Instant, window: &HlsWindow, target: &mut Target) {
    publisher.handle_window(now, window);
    while let Some(action) = publisher.poll_output() {
        assert!(publisher.poll_output().is_none(), "one at a time");
        let result = target.perform(now, action);
        publisher.handle_input(now, result);
    }
}

/// Lets a second pass, four times.
fn run_for(
    seconds: i64,
    now: &mut Instant,
    publisher: &mut HlsPublisher,
    window: &HlsWindow,
    target: &mut Target,
) {
    for _ in 0..seconds * 4 {
        *now += Span::from_millis(250);
        run(publisher, *now, window, target);
    }
}

fn publisher(window: &HlsWindow) -> HlsPublisher {
    HlsPublisher::new(window.config(), 7)
}

/// A segment.
const SPAN: Span = Span::from_millis(5_760);

#[test]
fn segments_are_there_before_the_playlists_that_name_them_and_stay_as_long_as_players_may_need_them()
 {
    let (mut window, mut target, mut now) = (window(4), Target::default(), Instant::ZERO);
    let mut publisher = publisher(&window);
    run(&mut publisher, now, &window, &mut target);
    assert!(target.objects.is_empty(), "there is no segment yet");
    for number in 0..20 {
        window.push(set(number));
        run_for(6, &mut now, &mut publisher, &window, &mut target);
        assert_eq!(target.playlist("flac"), Some((number.saturating_sub(3), number)));
        assert_eq!(target.playlist("opus-96k"), target.playlist("flac"));
    }
    // Those of the playlist, and those that have left it for five segments or less.
    assert_eq!(target.numbers("flac"), (12..20).collect::<Vec<_>>());
    let status = publisher.status();
    assert_eq!((status.segments, status.dropped, status.failures), (40, 0, 0));
    assert_eq!(status.removed, 24);
    assert_eq!(status.playlists, 41, "two for each segment, and the multivariant one");
    // A title changes the playlists alone.
    window.set_title(1, MediaTime(19 * SEGMENT.0), "new");
    run(&mut publisher, now, &window, &mut target);
    assert_eq!((publisher.status().segments, publisher.status().playlists), (40, 43));
}

#[test]
fn whatever_fails_players_find_what_is_named() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let (mut window, mut now) = (window(5), Instant::ZERO);
        let mut target =
            Target { rng: Some(Rng::new(seed + 100)), fails: seed * 2, ..Target::default() };
        let mut publisher = publisher(&window);
        let mut number = 100;
        for _ in 0..300 {
            number += 1 + u64::from(rng.next_u64().is_multiple_of(10)) * (rng.next_u64() % 4);
            window.push(set(number));
            target.is_gone = rng.next_u64().is_multiple_of(8);
            if rng.next_u64().is_multiple_of(50) {
                // The server is started again: it knows nothing, and the window is empty.
                window = window::window(5);
                publisher = self::publisher(&window);
            }
            run_for(6, &mut now, &mut publisher, &window, &mut target);
        }
        target.is_gone = false;
        target.fails = 0;
        for _ in 0..30 {
            number += 1;
            window.push(set(number));
            run_for(6, &mut now, &mut publisher, &window, &mut target);
        }
        assert_eq!(target.playlist("flac"), Some((number - 4, number)), "seed {seed}");
        assert!(target.numbers("flac").len() <= 12, "seed {seed}: {:?}", target.numbers("flac"));
        let known = publisher.objects.len();
        assert_eq!(known, target.objects.len(), "seed {seed}: nothing is forgotten");
    }
}

#[test]
fn what_is_lost_while_the_target_is_gone_is_counted_and_little_is_tried() {
    let (mut window, mut target, mut now) = (window(4), Target::default(), Instant::ZERO);
    let mut publisher = publisher(&window);
    (0..4).for_each(|number| window.push(set(number)));
    run_for(6, &mut now, &mut publisher, &window, &mut target);
    (target.is_gone, target.attempts) = (true, 0);
    // A gap is no loss.
    for number in (4..104).filter(|number| *number != 50) {
        window.push(set(number));
        run_for(6, &mut now, &mut publisher, &window, &mut target);
    }
    let status = publisher.status();
    assert_eq!(status.error.as_deref(), Some("gone"));
    assert!(status.retry_at > Some(now) && status.failing_since.is_some(), "{status:?}");
    assert!(target.attempts < 40, "{} attempts in ten minutes", target.attempts);
    target.is_gone = false;
    run_for(61, &mut now, &mut publisher, &window, &mut target);
    assert_eq!(target.playlist("flac"), Some((100, 103)));
    let status = publisher.status();
    // Segments 4 to 99 without the gap, of two renditions.
    assert_eq!((status.dropped, status.segments), (190, 16));
    assert_eq!((&status.error, status.failing_since, status.retry_at), (&None, None, None));
}

#[test]
fn what_must_not_be_removed_stays_and_is_reported_and_segments_are_written_all_the_same() {
    let mut target = Target { is_put_only: true, ..Target::default() };
    let (mut window, mut now) = (window(4), Instant::ZERO);
    let mut publisher = publisher(&window);
    for number in 0..40 {
        window.push(set(number));
        run_for(6, &mut now, &mut publisher, &window, &mut target);
        assert_eq!(target.playlist("flac"), Some((number.saturating_sub(3), number)));
    }
    let status = publisher.status();
    assert_eq!((status.segments, status.dropped, status.removed), (80, 0, 0));
    assert_eq!(status.error.as_deref(), Some("denied"));
    assert!(status.failures < 15, "{status:?}");
    target.is_put_only = false;
    run_for(61, &mut now, &mut publisher, &window, &mut target);
    assert_eq!(target.numbers("flac"), [36, 37, 38, 39]);
    assert_eq!((&publisher.status().error, publisher.status().retry_at), (&None, None));
}

#[test]
fn a_slow_target_has_complete_playlists_all_the_same() {
    let (mut window, mut target, mut now) = (window(6), Target::default(), Instant::ZERO);
    let mut publisher = publisher(&window);
    let (mut number, mut complete) = (0, Vec::new());
    // Each action takes 5 s, and two segments in 5.76 s are more than that.
    let mut next = now;
    while number < 200 {
        if now >= next {
            window.push(set(number));
            (number, next) = (number + 1, next + SPAN);
        }
        publisher.handle_window(now, &window);
        let Some(action) = publisher.poll_output() else {
            now = now.max(next);
            continue;
        };
        now += Span::from_secs(5);
        let result = target.perform(now, action);
        publisher.handle_input(now, result);
        complete.extend(target.playlist("flac").filter(|last| complete.last() != Some(last)));
    }
    assert!(complete.len() > 10, "{complete:?}");
    assert!(complete.is_sorted(), "{complete:?}");
    assert!(publisher.status().dropped > 100, "{:?}", publisher.status());
}

#[test]
fn files_of_an_earlier_run_are_removed_when_players_can_have_no_use_for_them() {
    let (mut old, mut target, mut now) = (window(4), Target::default(), Instant::ZERO);
    let mut first = publisher(&old);
    (0..9).for_each(|number| old.push(set(number)));
    run(&mut first, now, &old, &mut target);
    // It had another rendition too, and a stranger's file is none of ours.
    for address in ["aac/7.m4s", "aac/index.m3u8", "aac/init-00000000000000ff.mp4"] {
        target.objects.insert(HlsObject::parse(address).unwrap(), Arc::from(&b"#EXTM3U"[..]));
    }
    target.objects.remove(&HlsObject::parse("aac/index.m3u8").unwrap());
    let mut window = window(4);
    let mut publisher = publisher(&window);
    now += Span::from_secs(3);
    run(&mut publisher, now, &window, &mut target);
    assert_eq!(target.playlist("flac"), Some((5, 8)), "what was there can be played meanwhile");
    window.push(set(20));
    run_for(28, &mut now, &mut publisher, &window, &mut target);
    assert_eq!(target.numbers("flac"), [5, 6, 7, 8, 20], "5 segments have not passed");
    run_for(2, &mut now, &mut publisher, &window, &mut target);
    assert_eq!(target.numbers("flac"), [20]);
    let left: Vec<_> = target.objects.keys().filter_map(HlsObject::rendition).collect();
    assert!(!left.contains(&"aac"), "{left:?}");
}

#[test]
fn two_servers_write_to_one_target_and_the_playlist_never_goes_back() {
    let pair = || {
        let config = WindowConfig { first_listed: 3, ..window(6).config().clone() };
        let window = HlsWindow::new(config).unwrap();
        let publisher = publisher(&window);
        (window, publisher)
    };
    let (mut target, mut now) = (Target::default(), Instant::ZERO);
    let mut servers = [Some(pair()), Some(pair())];
    let mut before = (0, 0);
    for number in 100..200 {
        match number {
            // The second one is started again, the first one fails later.
            130 => servers[1] = Some(pair()),
            160 => servers[0] = None,
            _ => {}
        }
        for _ in 0..24 {
            now += Span::from_millis(250);
            for (index, server) in servers.iter_mut().enumerate() {
                let Some((window, publisher)) = server else { continue };
                if window.listed_segments().last().is_none_or(|(last, _)| last < number) {
                    // Segment 120 has not arrived at the first one.
                    let is_filled = index == 0 && number == 120;
                    let mut set = set(number);
                    if is_filled {
                        (set.bodies, set.is_filled) = (vec![b"filled".to_vec(); 2], true);
                    }
                    window.push(set);
                }
                run(publisher, now, window, &mut target);
            }
            let Some(shown) = target.playlist("flac") else { continue };
            assert!(shown.0 >= before.0 && shown.1 >= before.1, "{before:?}, then {shown:?}");
            before = shown;
        }
        if number == 122 {
            let object = HlsObject::parse("flac/120.m4s").unwrap();
            assert_eq!(*target.objects[&object], *set(120).bodies[0], "the genuine one");
        }
        // A server that was lost costs no segment; its successor needs a moment to be sure.
        assert!(before.1 + 4 > number || number < 103, "{before:?} at {number}");
    }
    assert_eq!(before, (194, 199));
}

#[test]
fn addresses_are_those_of_the_http_server_and_nothing_else_is_taken_for_one() {
    let mut window = window(4);
    window.push(set(13));
    for (object, body) in window.inits().chain(window.playlists()) {
        assert_eq!(HlsObject::parse(&object.to_string()), Some(object.clone()));
        let served = match &object {
            HlsObject::Multivariant => window.multivariant(),
            HlsObject::Playlist(rendition) => window.playlist(rendition),
            HlsObject::Init { rendition, .. } => window.body(rendition, &object.name()),
            HlsObject::Segment { .. } => unreachable!(),
        };
        assert_eq!(served, Some(body), "{object}");
    }
    let segment = HlsObject::parse("opus-96k/13.m4s").unwrap();
    assert!(window.body("opus-96k", &segment.name()).is_some());
    for odd in [
        "",
        "/",
        "other.m3u8",
        "flac",
        "flac/",
        "flac/index.html",
        "flac/+1.m4s",
        "flac/01.m4s",
        "flac/-1.m4s",
        "music/1.m4s",
        "flac/1.m4s/",
        "../flac/1.m4s",
        "flac/../1.m4s",
        "flac/init-1.mp4",
        "flac/1.mp4",
        "flac/init-00000000000000FF.mp4",
        "flac/1.m4s.new",
        "flac-a/b/1.m4s",
    ] {
        assert_eq!(HlsObject::parse(odd), None, "{odd}");
    }
}
