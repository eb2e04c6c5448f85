//! File names, other files in the folder, files left behind, and retention.

use std::fs;
use std::sync::Arc;

use aulos_core::{Frames, MediaTime, Rng, Span};
use aulos_engine::recorder::{ClockZone, CommandTime, RecorderCommand};

use super::test_recorder::{self, TestRecorder, check_frames, decode, file_name, json, sidecar_of};
use crate::record::{
    ClosedSegment, FileNamePattern, RecorderEventKind, RetentionReason, SyncPolicy,
};

fn record(recorder: &mut TestRecorder, millis: u64) {
    recorder.run(100);
    recorder.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    recorder.run(millis);
}

#[test]
fn two_recorders_of_one_name_overwrite_nothing() {
    let mut one = TestRecorder::new("two", |_| {});
    let mut two = TestRecorder::in_folder(one.folder.clone(), |_| {});
    let foreign_file = one.folder.join("hall-2026-11-22T120050Z-2.wav");
    fs::write(&foreign_file, "theirs").unwrap();
    record(&mut one, 1_000);
    record(&mut two, 1_000);
    // A third program takes the name while the file is being written.
    fs::write(one.folder.join("hall-2026-11-22T120050Z.wav"), "as well").unwrap();
    let (one, two) = (one.finish(), two.finish());
    assert_eq!(fs::read(&foreign_file).unwrap(), b"theirs");
    let names = [file_name(&one[0].path), file_name(&two[0].path)];
    assert_eq!(names, ["hall-2026-11-22T120050Z-4.wav", "hall-2026-11-22T120050Z-3.wav"]);
    for closed in [one, two] {
        check_frames(&decode(&closed[0].path), 0);
        assert_eq!(json(&closed[0].path)["frames"], closed[0].frames.0);
    }
}

#[test]
fn a_pattern_with_slashes_creates_folders() {
    let mut recorder = TestRecorder::new("folders", |config| {
        config.pattern = FileNamePattern::new("%Y/{name}/%H-{index}", ClockZone::Utc).unwrap();
        config.recorder.rotation.duration = Some(Span::from_secs(1));
    });
    record(&mut recorder, 1_500);
    let closed = recorder.finish();
    assert!(closed[0].path.ends_with("2026/hall/12-000000.wav"));
    assert!(closed[1].path.ends_with("2026/hall/12-000001.wav"));
}

#[test]
fn files_left_by_a_crash_are_repaired_and_files_in_use_are_not() {
    let folder = {
        let mut recorder = TestRecorder::new("left", |_| {});
        record(&mut recorder, 3_000);
        // Another recorder that starts now finds the file locked.
        let mut other = TestRecorder::in_folder(recorder.folder.clone(), |_| {});
        other.poll_recorder();
        assert!(other.events_seen.is_empty(), "{:?}", other.events_seen);
        recorder.folder.clone()
    };
    let part = folder.join("hall-2026-11-22T120050Z.wav.part");
    assert!(part.exists());
    fs::write(folder.join("other.wav.part"), "no sound").unwrap();
    let mut recorder = TestRecorder::in_folder(folder.clone(), |_| {});
    recorder.poll_recorder();
    assert!(!part.exists());
    let whole = folder.join("hall-2026-11-22T120050Z.wav");
    let repaired = recorder
        .events_seen
        .iter()
        .any(|kind| matches!(kind, RecorderEventKind::FileRepaired { path } if path.ends_with(file_name(&whole))));
    assert!(repaired, "{:?}", recorder.events_seen);
    assert!(
        recorder
            .events_seen
            .iter()
            .any(|kind| matches!(kind, RecorderEventKind::RepairFailed { .. }))
    );
    let samples = decode(&whole);
    check_frames(&samples, 0);
    assert!(samples.len() >= (3_100 - 500) * 48, "{}", samples.len());
    let sidecar = json(&whole);
    assert_eq!(
        (&sidecar["state"], &sidecar["frames"]),
        (&"repaired".into(), &samples.len().into())
    );
    assert_eq!(sidecar["start_utc"], "2026-11-22T12:00:50.000000Z");
}

/// A file that is complete but waits for its name is not a file that a crash left.
#[test]
fn a_file_that_another_program_completes_is_not_repaired() {
    for sync in [SyncPolicy::Never, SyncPolicy::Every(Span::from_secs(1))] {
        let mut recorder = TestRecorder::new("completed", |config| config.durability.sync = sync);
        record(&mut recorder, 1_000);
        recorder.store.faults.lock().unwrap().publish = Some(std::io::ErrorKind::Other);
        recorder.handle.close();
        recorder.run(200);
        let part = recorder.folder.join("hall-2026-11-22T120050Z.wav.part");
        assert!(part.exists());
        let mut other = TestRecorder::in_folder(recorder.folder.clone(), |_| {});
        other.poll_recorder();
        assert!(other.events_seen.is_empty(), "{:?}", other.events_seen);
        recorder.store.faults.lock().unwrap().publish = None;
        let closed = recorder.finish();
        assert_eq!(file_name(&closed[0].path), "hall-2026-11-22T120050Z.wav");
        assert_eq!(json(&closed[0].path)["state"], "closed");
    }
}

#[test]
fn only_files_of_this_recorder_are_deleted() {
    let folder = Arc::new(aulos_blackbox::scratch::ScratchDir::new("retain").unwrap());
    fs::write(folder.join("hall-2020-01-01T000000Z.wav"), "a treasure").unwrap();
    let sidecar = r#"{"written_by":"aulos","recorder":"foyer","state":"closed","start_unix_ns":0,"rate":48000}"#;
    fs::write(folder.join("foyer.wav"), "theirs").unwrap();
    fs::write(folder.join("foyer.wav.json"), sidecar).unwrap();
    let rules = |config: &mut crate::record::RecordingConfig| {
        config.retention.max_files = Some(3);
        config.recorder.rotation.duration = Some(Span::from_secs(1));
    };
    let mut recorder = TestRecorder::in_folder(folder.clone(), rules);
    record(&mut recorder, 6_500);
    let closed = recorder.finish();
    let deleted: Vec<_> = recorder
        .events_seen
        .iter()
        .filter_map(|kind| match kind {
            RecorderEventKind::FileDeleted { path, reason } => Some((path.clone(), *reason)),
            _ => None,
        })
        .collect();
    assert_eq!(closed.len(), 7);
    assert_eq!(deleted.len(), 4);
    assert_eq!(recorder.handle.status().deleted, 4);
    for (segment, (path, reason)) in closed.iter().zip(&deleted) {
        assert_eq!((&segment.path, *reason), (path, RetentionReason::Count));
        assert!(!path.exists() && !sidecar_of(path).exists());
    }
    // Files of an earlier run are identified by their sidecars.
    let mut recorder =
        TestRecorder::in_folder(folder.clone(), |config| config.retention.max_files = Some(1));
    recorder.poll_recorder();
    assert_eq!(recorder.handle.status().deleted, 2);
    assert!(closed[6].path.exists() && !closed[5].path.exists());
    assert_eq!(fs::read(folder.join("foyer.wav")).unwrap(), b"theirs");
    assert_eq!(fs::read(folder.join("hall-2020-01-01T000000Z.wav")).unwrap(), b"a treasure");
}

#[test]
fn a_clock_that_is_set_deletes_nothing_and_is_noted_in_the_sidecars() {
    let day = Span::from_secs(86_400);
    let rules = |config: &mut crate::record::RecordingConfig| {
        config.retention.max_age = Some(day * 7);
        config.recorder.rotation.duration = Some(Span::from_secs(2));
    };
    let mut recorder = TestRecorder::new("clock-set", rules);
    recorder.clock_shift = day * -40;
    record(&mut recorder, 6_900);
    recorder.clock_shift = Span::ZERO;
    // Long enough for a check of the folder.
    recorder.run(7_000);
    let closed = recorder.finish();
    assert_eq!(recorder.handle.status().deleted, 0);
    assert_eq!(closed.len(), 7);
    let set_by = 40.0 * 86_400.0;
    for (segment, sidecar) in closed.iter().map(|segment| (segment, json(&segment.path))) {
        let changes = sidecar["clock_changes"].as_array().unwrap();
        let during = segment.number == 3;
        assert_eq!(changes.len(), usize::from(during), "{sidecar}");
        if during {
            assert_eq!(changes[0]["set_by_s"], set_by);
            assert_eq!(changes[0]["suspended_s"], 0.0);
            assert_eq!(changes[0]["at_frame"], 7 * 48_000);
        }
        let later = &sidecar["clock_set_later_s"];
        assert_eq!(later.as_f64(), (segment.number < 3).then_some(set_by), "{sidecar}");
        let early = sidecar["start_utc"].as_str().unwrap().starts_with("2026-10-13");
        assert_eq!(early, segment.number <= 3, "{sidecar}");
    }
    // The file's own time is right again after the change.
    let date = decode_date(&closed[4].path);
    assert!(date.starts_with("2026-11-22"), "{date}");
    // The next run knows that these files are a few seconds old.
    let mut next = TestRecorder::in_folder(recorder.folder.clone(), rules);
    next.run(6_000);
    assert_eq!(next.handle.status().deleted, 0);
}

#[test]
fn a_marker_after_a_change_of_the_clock_has_the_new_time() {
    let mut recorder = TestRecorder::new("clock-marker", |_| {});
    record(&mut recorder, 1_000);
    let hour = Span::from_secs(3_600);
    recorder.suspended = hour;
    recorder.run(1_000);
    recorder.handle.shared.request_marker("after", recorder.now, CommandTime::Now).unwrap();
    recorder.run(200);
    // The sidecar of a process that is killed now has the change as well.
    let part = recorder.folder.join("hall-2026-11-22T120050Z.wav");
    assert_eq!(json(&part)["clock_changes"][0]["suspended_s"], 3_600.0);
    let closed = recorder.finish();
    let sidecar = json(&closed[0].path);
    let time = sidecar["markers"][0]["time"].as_str().unwrap();
    assert!(time.starts_with("2026-11-22T13:00:52"), "{sidecar}");
    let changed = recorder
        .events_seen
        .iter()
        .filter(|kind| matches!(kind, RecorderEventKind::ClockChanged { change, .. } if change.suspended == hour));
    assert_eq!(changed.count(), 1);
}

/// The date in a file's own metadata, as ffprobe reads it.
fn decode_date(path: &std::path::Path) -> String {
    let mut program = std::process::Command::new("ffprobe");
    program.args(["-v", "error", "-show_entries", "format_tags=date", "-of", "csv=p=0"]);
    String::from_utf8(program.arg(path).output().unwrap().stdout).unwrap()
}

/// The samples of all files, decoded by ffmpeg as one.
fn decode_joined(recorder: &TestRecorder, closed: &[ClosedSegment]) -> Vec<f32> {
    let lines = closed.iter().map(|it| format!("file '{}'\n", it.path.display()));
    let list = recorder.folder.path().join("list.txt");
    fs::write(&list, lines.collect::<String>()).unwrap();
    let list = list.display().to_string();
    test_recorder::decode_inputs(&["-f", "concat", "-safe", "0", "-i", &list])
}

#[test]
fn a_thousand_files_cut_at_random_join_to_the_stream() {
    for (format, seed) in [("wav:f32", 1), ("flac:24", 2)] {
        let mut rng = Rng::new(seed);
        let mut recorder = TestRecorder::new("thousand", |config| {
            config.format = format.parse().unwrap();
            config.pattern = FileNamePattern::new("{index}", ClockZone::Utc).unwrap();
            config.durability.sync = SyncPolicy::Never;
            config.keep_sidecar = false;
        });
        recorder.run(100);
        recorder.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
        for _ in 0..500 {
            recorder.run(20 * (1 + rng.next_u64() % 4));
            // At the current frame, in the next block, or some blocks later.
            let ahead = Frames(rng.next_u64() % 3_000);
            let when = if ahead.0 < 500 {
                CommandTime::Now
            } else {
                CommandTime::Frame(recorder.position() + ahead)
            };
            recorder.command(RecorderCommand::Cut, when).unwrap();
        }
        recorder.run(200);
        let closed = recorder.finish();
        // Two cuts at the same frame leave an empty segment between them, which has no file.
        assert!(closed.len() > 450, "{}", closed.len());
        let mut at = MediaTime::ZERO;
        for segment in &closed {
            assert_eq!(segment.start, at, "{format}");
            at = segment.end;
        }
        let samples = decode_joined(&recorder, &closed);
        assert_eq!(samples.len() as u64, at.0, "{format}");
        check_frames(&samples, 0);
        assert_eq!(recorder.lost(), Frames::ZERO);
    }
}

#[test]
fn links_in_the_folder_are_not_followed() {
    use std::os::unix::fs::symlink;

    use crate::record::store::{RecordingFolder, RecordingStore};

    let path = aulos_blackbox::scratch::ScratchDir::new("record-links").unwrap();
    let folder = RecordingFolder::new(&path.join("in")).unwrap();
    let secret = path.join("secret");
    fs::write(&secret, "secret").unwrap();
    symlink(&secret, path.join("in/a.wav.json.new")).unwrap();
    folder.write_atomic("a.wav.json", b"note").unwrap();
    assert_eq!(fs::read(path.join("in/a.wav.json")).unwrap(), b"note");
    symlink(&secret, path.join("in/b.wav.part")).unwrap();
    assert!(folder.open("b.wav.part").is_err());
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let fifo = path.join("in/c.wav.part");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(folder.open("c.wav.part").is_err());
    assert_eq!(fs::read(&secret).unwrap(), b"secret");
}
