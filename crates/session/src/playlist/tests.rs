use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const SAME: fn(u32) -> Option<u32> = Some;

fn queue(order: PlayOrder, no_repeat: u32, len: u32) -> PlaylistQueue {
    let config = PlaylistConfig { order, no_repeat, ..PlaylistConfig::default() };
    let mut queue = PlaylistQueue::new(&config, 7);
    queue.set_tracks(len, SAME);
    queue
}

fn tracks(queue: &mut PlaylistQueue, count: usize) -> Vec<u32> {
    let next = |_| match queue.next(0) {
        Some(TrackRef::Track(track)) => Some(track),
        other => other.map(|jingle| panic!("{jingle:?}")),
    };
    (0..count).map_while(next).collect()
}

#[test]
fn in_order_again_and_again_or_once() {
    assert_eq!(tracks(&mut queue(PlayOrder::Loop, 0, 3), 7), [0, 1, 2, 0, 1, 2, 0]);
    assert_eq!(tracks(&mut queue(PlayOrder::Once, 0, 3), 7), [0, 1, 2]);
    assert_eq!(tracks(&mut queue(PlayOrder::Loop, 0, 0), 7), [0; 0]);
    assert_eq!(tracks(&mut queue(PlayOrder::Shuffle, 5, 1), 3), [0, 0, 0]);
}

#[test]
fn what_is_shown_as_next_is_played_next() {
    for order in [PlayOrder::Loop, PlayOrder::Shuffle] {
        for len in [1, 2, 9, 10, 11, 100] {
            let mut queue = queue(order, 3, len);
            for _ in 0..250 {
                let shown: Vec<u32> = queue.upcoming().take(UPCOMING).collect();
                assert_eq!(shown.len(), UPCOMING);
                assert_eq!(tracks(&mut queue, 1), shown[..1]);
                let rest: Vec<u32> = queue.upcoming().take(UPCOMING - 1).collect();
                assert_eq!(rest, shown[1..]);
            }
        }
    }
}

#[test]
fn a_changed_list_goes_on_after_the_file_that_plays() {
    // a b c d e; c plays; a and d go, x comes before c, y behind e: b x c e y.
    let new_number = |old: u32| [None, Some(0), Some(2), None, Some(3)][old as usize];
    let mut list = queue(PlayOrder::Loop, 0, 5);
    assert_eq!(tracks(&mut list, 3), [0, 1, 2]);
    list.set_tracks(5, new_number);
    assert_eq!(tracks(&mut list, 6), [3, 4, 0, 1, 2, 3]);
    // What plays has gone: the files behind it follow.
    list.set_tracks(3, |old| [Some(0), Some(1), Some(2), None, None][old as usize]);
    assert_eq!(tracks(&mut list, 2), [0, 1]);
    // All have gone, and others came.
    list.set_tracks(0, |_| None);
    assert_eq!(tracks(&mut list, 1), [0; 0]);
    list.set_tracks(2, |_| None);
    assert_eq!(tracks(&mut list, 3), [0, 1, 0]);
}

#[test]
fn new_files_are_shuffled_into_the_round() {
    let mut list = queue(PlayOrder::Shuffle, 0, 100);
    let first = tracks(&mut list, 50);
    list.set_tracks(200, SAME);
    let rest = tracks(&mut list, 150);
    let all: BTreeSet<u32> = first.iter().chain(&rest).copied().collect();
    assert_eq!(all.len(), 200, "each once");
    assert!(rest[..50].iter().any(|file| *file >= 100), "not at the end");
    list.set_tracks(10, |old| (old < 10).then_some(old));
    assert!(tracks(&mut list, 1_000).iter().all(|file| *file < 10));
}

#[test]
fn jingles_after_files_and_at_minutes() {
    let rule = JingleRule { every: Some(2), at_minutes: vec![] };
    let config = PlaylistConfig { jingles: rule, ..PlaylistConfig::default() };
    let mut list = PlaylistQueue::new(&config, 7);
    list.set_tracks(3, SAME);
    let mut next = |minute| list.next(minute).unwrap();
    // Without a jingle there is nothing to wait for.
    assert!([next(0), next(0), next(0)].iter().all(|it| matches!(it, TrackRef::Track(_))));
    list.set_jingles(2, SAME);
    let played: Vec<_> = (0..7).filter_map(|_| list.next(0)).collect();
    let (track, jingle) = (TrackRef::Track, TrackRef::Jingle);
    let expected = [jingle(0), track(0), track(1), jingle(1), track(2), track(0), jingle(0)];
    assert_eq!(played, expected);

    let rule = JingleRule { every: None, at_minutes: vec![0, 30] };
    let config = PlaylistConfig { jingles: rule, ..PlaylistConfig::default() };
    let mut list = PlaylistQueue::new(&config, 7);
    list.set_tracks(3, SAME);
    list.set_jingles(1, SAME);
    let mut is_jingle = |minute| matches!(list.next(minute), Some(TrackRef::Jingle(_)));
    // Started at half past: not due. A file of nine minutes passes the hour; one jingle follows.
    assert_eq!(
        [30, 34, 55, 64, 64, 68].map(&mut is_jingle),
        [false, false, false, true, false, false]
    );
    // A day later it is one jingle, and a clock that is set back gives none.
    assert_eq!(
        [1_500, 1_500, 1_400, 1_409, 1_410].map(&mut is_jingle),
        [true, false, false, false, true]
    );
}

proptest! {
    #[test]
    fn shuffled_rounds_have_every_file_once_and_keep_their_distance(
        len in 1..60_u32, no_repeat in 0..80_u32, seed: u64,
    ) {
        let config = PlaylistConfig { order: PlayOrder::Shuffle, no_repeat, ..Default::default() };
        let mut list = PlaylistQueue::new(&config, seed);
        list.set_tracks(len, SAME);
        let played = tracks(&mut list, 5 * len as usize);
        for round in played.chunks(len as usize) {
            prop_assert_eq!(round.iter().collect::<BTreeSet<_>>().len(), len as usize);
        }
        let distance = no_repeat.min(len - 1) as usize;
        for (at, file) in played.iter().enumerate() {
            let before = &played[at.saturating_sub(distance)..at];
            prop_assert!(!before.contains(file), "{} in {:?}", file, before);
        }
    }

    #[test]
    fn any_changes_leave_numbers_below_the_length(
        changes in prop::collection::vec((0..20_u32, any::<u64>(), 0..15_usize), 1..20),
        order in prop::sample::select(vec![PlayOrder::Loop, PlayOrder::Once, PlayOrder::Shuffle]),
    ) {
        let mut list = queue(order, 4, 0);
        let mut len = 0;
        for (new_len, removed, count) in changes {
            let kept: Vec<u32> = (0..len).filter(|old| removed >> (old % 64) & 1 == 0).collect();
            let kept = &kept[..kept.len().min(new_len as usize)];
            let number = |old| (0..).zip(kept).find(|(_, it)| **it == old).map(|(at, _)| at);
            list.set_tracks(new_len, number);
            len = new_len;
            let played = tracks(&mut list, count);
            prop_assert!(played.iter().all(|file| *file < len));
            prop_assert!(order == PlayOrder::Once || len == 0 || played.len() == count);
        }
    }
}
