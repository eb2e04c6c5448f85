//! A disk that is slow, full, broken or missing: no frame more is lost than necessary.

use std::io::ErrorKind;

use aulos_core::{Frames, MediaTime, Span};
use aulos_engine::recorder::{CommandTime, RecorderCommand};

use super::test_recorder::{SOURCE_DELAY, TestRecorder, check_frames, decode, json, number};
use crate::record::{ClosedSegment, RecorderEventKind};

fn troubles(recorder: &TestRecorder) -> usize {
    recorder.events_seen.iter().filter(|kind| matches!(kind, RecorderEventKind::Failed(_))).count()
}

fn begin(name: &str, seconds: i64) -> TestRecorder {
    let mut recorder = TestRecorder::new(name, |config| {
        config.recorder.rotation.duration = Some(Span::from_secs(seconds));
    });
    recorder.run(100);
    recorder.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    recorder
}

/// Checks that each frame that is not silent has its value; returns the number of silent frames.
fn check(closed: &[ClosedSegment]) -> u64 {
    let mut at = MediaTime::ZERO;
    let mut silent = 0;
    for segment in closed {
        assert_eq!(segment.start, at);
        at = segment.end;
        let samples = decode(&segment.path);
        assert_eq!(samples.len() as u64, segment.end.0 - segment.start.0);
        for (sample, frame) in samples.iter().zip(segment.start.0..) {
            if sample.abs() == 0.0 {
                silent += 1;
            } else {
                assert!((sample - number(frame)).abs() == 0.0, "frame {frame} is {sample}");
            }
        }
    }
    silent - SOURCE_DELAY
}

#[test]
fn ten_seconds_without_polling_lose_nothing() {
    let mut recorder = begin("stall", 4);
    for _ in 0..3 {
        recorder.run(1_000);
        recorder.run_without_polling(10_000);
    }
    recorder.run(1_000);
    let closed = recorder.finish();
    assert_eq!(recorder.lost(), Frames::ZERO);
    assert_eq!(check(&closed), 0);
    assert_eq!(closed.iter().map(|it| it.frames.0).sum::<u64>(), 34_100 * 48);
}

#[test]
fn frames_lost_at_a_full_disk_are_replaced_by_silence() {
    for kind in [ErrorKind::StorageFull, ErrorKind::Other, ErrorKind::ReadOnlyFilesystem] {
        let mut recorder = begin("full", 15);
        recorder.run(2_000);
        recorder.store.set(|faults| faults.append = Some(kind));
        recorder.run(7_000);
        recorder.store.set(|faults| faults.append = None);
        recorder.run(6_000);
        // The ring has buffered it; nothing is lost, and the failure was reported once.
        assert_eq!((recorder.lost(), troubles(&recorder)), (Frames::ZERO, 1));
        assert!(
            recorder.events_seen.iter().any(|kind| matches!(kind, RecorderEventKind::Recovered))
        );
        recorder.store.set(|faults| faults.append = Some(kind));
        recorder.run(40_000);
        let status = recorder.handle.status();
        assert_eq!(status.fault.unwrap().error.kind(), kind);
        recorder.store.set(|faults| faults.append = None);
        recorder.run(8_000);
        assert!(recorder.handle.status().fault.is_none());
        let closed = recorder.finish();
        let (silent, lost) = (check(&closed), recorder.lost());
        assert_eq!(silent, lost.0);
        // 12 s fit into the ring, whose size is rounded up.
        assert!((10..30).contains(&(lost.0 / 48_000)), "{lost}");
        assert_eq!(closed.iter().map(|it| it.lost.0).sum::<u64>(), lost.0);
        assert_eq!(closed.iter().map(|it| it.frames.0).sum::<u64>(), 63_100 * 48);
        let events_seen: u64 =
            recorder
                .events_seen
                .iter()
                .map(|kind| {
                    if let RecorderEventKind::FramesLost { frames, .. } = kind {
                        frames.0
                    } else {
                        0
                    }
                })
                .sum();
        assert_eq!((events_seen, troubles(&recorder)), (lost.0, 2));
    }
}

#[test]
fn short_writes_are_completed() {
    let mut recorder = begin("short", 3);
    recorder.store.set(|faults| faults.max_append = Some(777));
    recorder.run(10_000);
    let closed = recorder.finish();
    assert_eq!(check(&closed), 0);
}

#[test]
fn a_file_that_cannot_be_created_is_created_later() {
    let mut recorder = begin("create", 2);
    recorder.store.set(|faults| faults.create = Some(ErrorKind::StorageFull));
    recorder.run(5_000);
    recorder.store.set(|faults| faults.create = None);
    recorder.run(8_000);
    recorder.store.set(|faults| faults.publish = Some(ErrorKind::Other));
    recorder.run(8_000);
    recorder.store.set(|faults| faults.publish = None);
    let mut closed = recorder.finish();
    closed.sort_by_key(|segment| segment.start);
    assert_eq!((check(&closed), recorder.lost()), (0, Frames::ZERO));
}

#[test]
fn recording_continues_when_a_removed_folder_is_back() {
    let mut recorder = begin("vanish", 3_600);
    recorder.run(3_000);
    std::fs::remove_dir_all(recorder.folder.path()).unwrap();
    recorder.run(8_000);
    assert!(
        recorder
            .events_seen
            .iter()
            .any(|kind| matches!(kind, RecorderEventKind::FileRemoved { .. }))
    );
    let error = recorder.handle.status().fault.unwrap();
    assert_eq!(error.error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("mounted"), "{error}");
    std::fs::create_dir_all(recorder.folder.path()).unwrap();
    recorder.run(6_000);
    let closed = recorder.finish();
    assert_eq!(closed.len(), 1);
    assert_eq!((closed[0].number, recorder.lost()), (1, Frames::ZERO));
    check_frames(&decode(&closed[0].path), closed[0].start.0);
    assert_eq!(closed[0].end.0, 17_100 * 48);
}

#[test]
fn time_for_which_the_process_stood_still_is_silence_in_the_file() {
    let mut recorder = begin("stopped", 100);
    recorder.run(2_000);
    recorder.stop_for(Span::from_secs(12));
    recorder.run(2_000);
    recorder.handle.shared.request_marker("after", recorder.now, CommandTime::Now).unwrap();
    recorder.run(200);
    let closed = recorder.finish();
    let stalled = 12 * 48_000;
    let [segment] = &closed[..] else { panic!("{closed:?}") };
    // To a quantum: the stall is counted from when the next one was due.
    let wanted = 4_300 * 48 + stalled;
    assert!(segment.frames.0.abs_diff(wanted) <= 960, "{} instead of {wanted}", segment.frames.0);
    assert_eq!(segment.lost, recorder.lost());
    assert!(segment.lost.0.abs_diff(stalled) <= 960, "{}", segment.lost.0);
    let samples = decode(&segment.path);
    assert_eq!(samples.len() as u64, segment.frames.0);
    let lost = usize::try_from(segment.lost.0).unwrap();
    check_frames(&samples[..2_100 * 48], 0);
    check_frames(&samples[2_100 * 48 + lost..], 2_100 * 48);
    let sidecar = json(&segment.path);
    assert_eq!(sidecar["gaps"][0]["kind"], "stalled", "{sidecar}");
    let marker = &sidecar["markers"][0];
    assert!(marker["position"].as_u64().unwrap() > 16 * 48_000, "{sidecar}");
    assert!(marker["time"].as_str().unwrap().starts_with("2026-11-22T12:01:06"), "{sidecar}");
}
