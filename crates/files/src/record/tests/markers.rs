//! Markers: their positions, that they are on the disk before they are accepted, and their
//! survival.

use std::path::Path;
use std::process::Command as Program;
use std::sync::Arc;

use aulos_core::{Frames, MediaTime, Span};
use aulos_engine::recorder::{CommandError, CommandTime, PauseMode, RecorderCommand};

use super::test_recorder::{TestRecorder, check_frames, decode, json, sidecar_of};
use crate::record::RecorderEventKind;
use crate::record::marker::{
    MAX_LABEL_BYTES, MAX_MARKERS, MAX_PENDING_MARKERS, Marker, MarkerError, MarkerRequest,
};

impl TestRecorder {
    fn add_marker(&self, label: &str, frame: u64) -> Result<Arc<MarkerRequest>, MarkerError> {
        self.handle.shared.request_marker(label, self.now, CommandTime::Frame(MediaTime(frame)))
    }
}

fn outcome_of(request: &MarkerRequest) -> Result<Marker, MarkerError> {
    request.outcome().expect("it is settled")
}

/// Start times and titles of the chapters that ffprobe finds.
fn chapters(path: &Path) -> Vec<(String, String)> {
    let mut program = Program::new("ffprobe");
    let output = program.args(["-v", "error", "-show_chapters", "-of", "json"]).arg(path).output();
    let output: serde_json::Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let all = output["chapters"].as_array().unwrap().iter();
    all.map(|it| (text(&it["start_time"]), text(&it["tags"]["title"]))).collect()
}

fn chapter(at: &str, label: &str) -> (String, String) {
    (at.to_owned(), label.to_owned())
}

#[test]
fn a_marker_is_in_the_file_that_has_its_frame() {
    for format in ["wav:24", "flac:24"] {
        let mut recorder = TestRecorder::new("rotated", |config| {
            config.format = format.parse().unwrap();
            config.recorder.rotation.duration = Some(Span::from_secs(2));
        });
        recorder.run(100);
        recorder.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
        recorder.run(1_900);
        // Two seconds have played; the frames on both sides of the cut are requested before it.
        let requests = [("back", 24_000), ("last", 95_999), ("first", 96_000), ("next", 120_000)];
        let requests = requests.map(|(label, frame)| recorder.add_marker(label, frame).unwrap());
        recorder.run(1_000);
        let found = requests.each_ref().map(|request| outcome_of(request).unwrap());
        let places = found.each_ref().map(|marker| (marker.frame.0, marker.position.0));
        assert_eq!(places, [(24_000, 24_000), (95_999, 95_999), (96_000, 0), (120_000, 24_000)]);
        assert_eq!(found[0].utc.as_nanos() % 1_000_000_000, 500_000_000);
        let named = recorder
            .events_seen
            .iter()
            .filter(|kind| matches!(kind, RecorderEventKind::MarkerAdded(_)))
            .count();
        assert_eq!(named, 4);
        let closed = recorder.finish();
        assert_eq!(found[1].path, closed[0].path);
        assert_eq!(found[2].path, closed[1].path);
        let sidecar = &json(&closed[1].path)["markers"];
        assert_eq!(sidecar.as_array().unwrap().len(), 2, "{sidecar}");
        assert_eq!(
            (&sidecar[1]["frame"], &sidecar[1]["position"]),
            (&120_000.into(), &24_000.into())
        );
        assert_eq!(
            (&sidecar[1]["label"], &sidecar[1]["time"]),
            (&"next".into(), &"2026-11-22T12:00:52.500000Z".into())
        );
        let read = chapters(&closed[0].path);
        assert_eq!((&read[0], &*read[1].1), (&chapter("0.500000", "back"), "last"));
        let expected = [chapter("0.000000", "first"), chapter("0.500000", "next")];
        assert_eq!(chapters(&closed[1].path), expected);
        for segment in &closed {
            check_frames(&decode(&segment.path), segment.start.0);
            assert_eq!(
                json(&segment.path)["sha256"],
                super::test_recorder::sha256sum(&segment.path)
            );
        }
    }
}

#[test]
fn a_marker_in_a_pause_that_is_left_out_is_at_the_frame_that_follows() {
    let mut recorder =
        TestRecorder::new("pauses", |config| config.recorder.pre_roll = Span::from_millis(100));
    recorder.run(100);
    recorder.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    recorder
        .command(RecorderCommand::Pause(PauseMode::Closed), CommandTime::Frame(MediaTime(48_000)))
        .unwrap();
    recorder.run(3_000);
    let refused = recorder.add_marker("paused", recorder.position().0);
    assert!(matches!(refused, Err(MarkerError::Recorder(CommandError::Paused))), "{refused:?}");
    let resumed = recorder.command(RecorderCommand::Resume, CommandTime::Now).unwrap().unwrap();
    recorder.run(1_000);
    let requests =
        [20_000, 100_000, resumed.0 + 4_800].map(|frame| recorder.add_marker("it", frame).unwrap());
    recorder.run(100);
    let found = requests.map(|request| outcome_of(&request).unwrap().position);
    assert_eq!(found, [20_000, 48_000, 52_800].map(Frames));
}

#[test]
fn invalid_markers_are_rejected() {
    let mut recorder = TestRecorder::new("refused", |_| {});
    recorder.run(100);
    assert!(matches!(
        recorder.add_marker("idle", 0),
        Err(MarkerError::Recorder(CommandError::Idle))
    ));
    recorder.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    recorder.run(1_000);
    for label in ["", "a\nb", "\u{7f}", &"x".repeat(MAX_LABEL_BYTES + 1)] {
        assert!(
            matches!(recorder.add_marker(label, 0), Err(MarkerError::InvalidLabel)),
            "{label:?}"
        );
    }
    assert!(matches!(
        recorder.add_marker("far", 200_000),
        Err(MarkerError::Recorder(CommandError::Ahead))
    ));
    let longest = "\u{fc}".repeat(MAX_LABEL_BYTES / 2);
    let mut placed = Vec::new();
    while placed.len() < MAX_MARKERS {
        for _ in 0..MAX_PENDING_MARKERS {
            placed.push(recorder.add_marker(&longest, placed.len() as u64).unwrap());
        }
        let busy = recorder.add_marker("one more", 0);
        assert!(matches!(busy, Err(MarkerError::TooManyPending)), "{busy:?}");
        recorder.run(20);
    }
    assert!(placed.iter().all(|request| outcome_of(request).is_ok()));
    let more = recorder.add_marker("too many", 10).unwrap();
    // The recording ends before this frame.
    let late = recorder.add_marker("late", recorder.position().0 + 40_000).unwrap();
    recorder.command(RecorderCommand::Stop, CommandTime::Now).unwrap();
    recorder.run(100);
    let full = outcome_of(&more).unwrap_err();
    assert!(
        matches!(full, MarkerError::TooManyMarkers) && full.to_string().contains("256"),
        "{full}"
    );
    assert!(matches!(outcome_of(&late), Err(MarkerError::RecordingEnded)));
    let closed = recorder.finish();
    assert_eq!(chapters(&closed[0].path).len(), MAX_MARKERS);
    assert_eq!(json(&closed[0].path)["markers"].as_array().unwrap().len(), MAX_MARKERS);
}

/// The header of a FLAC file has space for 47 of the longest markers, and the sidecar has all.
#[test]
fn a_flac_file_has_the_first_chapters_that_fit() {
    let mut recorder =
        TestRecorder::new("most", |config| config.format = "flac:24".parse().unwrap());
    recorder.run(100);
    recorder.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    recorder.run(1_000);
    for _ in 0..MAX_MARKERS / MAX_PENDING_MARKERS {
        for frame in 0..MAX_PENDING_MARKERS as u64 {
            drop(recorder.add_marker(&"y".repeat(MAX_LABEL_BYTES), 48 * frame).unwrap());
        }
        recorder.run(20);
    }
    let closed = recorder.finish();
    let read = chapters(&closed[0].path);
    assert_eq!(read.len(), 47);
    assert_eq!(json(&closed[0].path)["markers"].as_array().unwrap().len(), MAX_MARKERS);
    assert!(read.iter().all(|(_, label)| label.len() == MAX_LABEL_BYTES));
    check_frames(&decode(&closed[0].path), 0);
}

#[test]
fn an_accepted_marker_survives_a_kill() {
    for format in ["wav:f32", "flac:24", "opus:96k"] {
        let (folder, path) = {
            let mut recorder =
                TestRecorder::new("killed-marks", |config| config.format = format.parse().unwrap());
            recorder.run(100);
            recorder.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
            recorder.run(2_000);
            let now = recorder.position().0;
            let requests = [("one", 4_800), ("two", 48_000), ("end", now)];
            let requests =
                requests.map(|(label, frame)| recorder.add_marker(label, frame).unwrap());
            recorder.run(20);
            let path = outcome_of(&requests[0]).unwrap().path;
            assert!(requests.iter().all(|request| outcome_of(request).is_ok()), "{format}");
            let sidecar = json(&path);
            assert_eq!(sidecar["markers"].as_array().unwrap().len(), 3, "{format}: {sidecar}");
            // Like a killed process, it writes nothing more.
            (recorder.folder.clone(), path)
        };
        let mut next =
            TestRecorder::in_folder(folder, |config| config.format = format.parse().unwrap());
        next.poll_recorder();
        assert!(
            next.events_seen
                .iter()
                .all(|kind| matches!(kind, RecorderEventKind::FileRepaired { .. }))
        );
        let sidecar = json(&path);
        assert_eq!(sidecar["state"], "repaired");
        assert_eq!(sidecar["sha256"], super::test_recorder::sha256sum(&path));
        let markers = sidecar["markers"].as_array().unwrap();
        let positions: Vec<_> = markers.iter().map(|it| it["position"].as_u64().unwrap()).collect();
        let samples = decode(&path);
        assert_eq!(positions[..2], [4_800, 48_000], "{format}");
        assert!(positions[2] < samples.len() as u64 && positions[2] > 60_000, "{positions:?}");
        if format.starts_with("opus") {
            continue;
        }
        check_frames(&samples, 0);
        let read = chapters(&path);
        let labels: Vec<_> = read.iter().map(|(_, label)| &**label).collect();
        assert_eq!(labels, ["one", "two", "end"], "{format}");
        assert_eq!(read[1].0, "1.000000");
    }
}

/// The process is killed after the sidecar has its markers and the file some bytes of its chunks.
#[test]
fn a_kill_while_a_file_is_completed_loses_neither_sound_nor_markers() {
    let mut recorder =
        TestRecorder::new("completing", |config| config.format = "wav:24".parse().unwrap());
    recorder.run(100);
    recorder.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    recorder.run(500);
    let request = recorder.add_marker("here", 4_801).unwrap();
    recorder.run(20);
    let path = outcome_of(&request).unwrap().path;
    let begun = std::fs::read(sidecar_of(&path)).unwrap();
    recorder.command(RecorderCommand::Stop, CommandTime::Frame(MediaTime(38_401))).unwrap();
    recorder.run(500);
    let closed = recorder.finish();
    assert_eq!(closed[0].frames, Frames(38_401));
    let whole = std::fs::read(&path).unwrap();
    let chunks = whole.windows(4).rposition(|four| four == b"cue ").unwrap();
    // The tests of the format check every byte.
    for end in (chunks..=whole.len()).step_by(5) {
        let scratch = Arc::new(aulos_blackbox::scratch::ScratchDir::new("completing").unwrap());
        let name = super::test_recorder::file_name(&path);
        std::fs::write(scratch.join(format!("{name}.part")), &whole[..end]).unwrap();
        std::fs::write(scratch.join(format!("{name}.json")), &begun).unwrap();
        let next = TestRecorder::in_folder(scratch.clone(), |_| {});
        drop(next);
        // Except for the loudness, which is written when the sound is complete, it is the same.
        assert!(std::fs::read(scratch.join(name)).unwrap() == whole, "{end}");
        let sidecar = json(&scratch.join(name));
        assert_eq!(
            (&sidecar["frames"], &sidecar["markers"][0]["position"]),
            (&38_401.into(), &4_801.into())
        );
    }
}
