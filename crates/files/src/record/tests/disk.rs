//! A disk that is slow, full, broken or gone costs what it must, and no frame more.

use std::io::ErrorKind;

use aulos_core::{Frames, MediaTime, Span};
use aulos_engine::recorder::{CommandTime, RecorderCommand};

use super::world::{LATE, Rig, check_run, number, sound};
use crate::record::{Closed, What};

fn troubles(rig: &Rig) -> usize {
    rig.told.iter().filter(|what| matches!(what, What::Trouble(_))).count()
}

fn begin(name: &str, seconds: i64) -> Rig {
    let mut rig = Rig::new(name, |wish| {
        wish.config.rotation.duration = Some(Span::from_secs(seconds));
    });
    rig.run(100);
    rig.tell(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    rig
}

/// Each frame that is not silent is itself; gives how many are silent.
fn check(closed: &[Closed]) -> u64 {
    let mut at = MediaTime::ZERO;
    let mut silent = 0;
    for segment in closed {
        assert_eq!(segment.start, at);
        at = segment.end;
        let samples = sound(&segment.path);
        assert_eq!(samples.len() as u64, segment.end.0 - segment.start.0);
        for (sample, frame) in samples.iter().zip(segment.start.0..) {
            if sample.abs() == 0.0 {
                silent += 1;
            } else {
                assert!((sample - number(frame)).abs() == 0.0, "frame {frame} is {sample}");
            }
        }
    }
    silent - LATE
}

#[test]
fn ten_seconds_of_standing_still_cost_nothing() {
    let mut rig = begin("stall", 4);
    for _ in 0..3 {
        rig.run(1_000);
        rig.stand_still(10_000);
    }
    rig.run(1_000);
    let closed = rig.finish();
    assert_eq!(rig.lost(), Frames::ZERO);
    assert_eq!(check(&closed), 0);
    assert_eq!(closed.iter().map(|it| it.frames.0).sum::<u64>(), 34_100 * 48);
}

#[test]
fn a_full_disk_is_waited_for_and_what_the_ring_cannot_hold_is_silence() {
    for kind in [ErrorKind::StorageFull, ErrorKind::Other, ErrorKind::ReadOnlyFilesystem] {
        let mut rig = begin("full", 15);
        rig.run(2_000);
        rig.disk.set(|faults| faults.append = Some(kind));
        rig.run(7_000);
        rig.disk.set(|faults| faults.append = None);
        rig.run(6_000);
        // It held for so long; nothing is lost, and it was said once.
        assert_eq!((rig.lost(), troubles(&rig)), (Frames::ZERO, 1));
        assert!(rig.told.iter().any(|what| matches!(what, What::Recovered)));
        rig.disk.set(|faults| faults.append = Some(kind));
        rig.run(40_000);
        let status = rig.deck.status();
        assert_eq!(status.trouble.unwrap().error.kind(), kind);
        rig.disk.set(|faults| faults.append = None);
        rig.run(8_000);
        assert!(rig.deck.status().trouble.is_none());
        let closed = rig.finish();
        let (silent, lost) = (check(&closed), rig.lost());
        assert_eq!(silent, lost.0);
        // 12 s fit into the ring, and its size is rounded up.
        assert!((10..30).contains(&(lost.0 / 48_000)), "{lost}");
        assert_eq!(closed.iter().map(|it| it.lost.0).sum::<u64>(), lost.0);
        assert_eq!(closed.iter().map(|it| it.frames.0).sum::<u64>(), 63_100 * 48);
        let told: u64 = rig
            .told
            .iter()
            .map(|what| if let What::Lost { frames, .. } = what { frames.0 } else { 0 })
            .sum();
        assert_eq!((told, troubles(&rig)), (lost.0, 2));
    }
}

#[test]
fn a_disk_that_takes_a_little_at_a_time_gets_all() {
    let mut rig = begin("short", 3);
    rig.disk.set(|faults| faults.short = Some(777));
    rig.run(10_000);
    let closed = rig.finish();
    assert_eq!(check(&closed), 0);
}

#[test]
fn a_file_that_cannot_be_made_is_made_later() {
    let mut rig = begin("create", 2);
    rig.disk.set(|faults| faults.create = Some(ErrorKind::StorageFull));
    rig.run(5_000);
    rig.disk.set(|faults| faults.create = None);
    rig.run(8_000);
    rig.disk.set(|faults| faults.publish = Some(ErrorKind::Other));
    rig.run(8_000);
    rig.disk.set(|faults| faults.publish = None);
    let mut closed = rig.finish();
    closed.sort_by_key(|segment| segment.start);
    assert_eq!((check(&closed), rig.lost()), (0, Frames::ZERO));
}

#[test]
fn a_folder_that_vanishes_costs_what_was_in_it_and_is_waited_for() {
    let mut rig = begin("vanish", 3_600);
    rig.run(3_000);
    std::fs::remove_dir_all(rig.folder.path()).unwrap();
    rig.run(8_000);
    assert!(rig.told.iter().any(|what| matches!(what, What::Vanished { .. })));
    let error = rig.deck.status().trouble.unwrap();
    assert_eq!(error.error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("mounted"), "{error}");
    std::fs::create_dir_all(rig.folder.path()).unwrap();
    rig.run(6_000);
    let closed = rig.finish();
    assert_eq!(closed.len(), 1);
    assert_eq!((closed[0].number, rig.lost()), (1, Frames::ZERO));
    check_run(&sound(&closed[0].path), closed[0].start.0);
    assert_eq!(closed[0].end.0, 17_100 * 48);
}
