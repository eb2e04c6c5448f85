//! Markers: where they are, that they are on the disk before they are promised, and what a kill leaves.

use std::path::Path;
use std::process::Command as Program;
use std::sync::Arc;

use aulos_core::{Frames, MediaTime, Span};
use aulos_engine::recorder::{CommandError, CommandTime, PauseMode, RecorderCommand};

use super::world::{Rig, check_run, json, sidecar_of, sound};
use crate::record::What;
use crate::record::marker::{
    MAX_LABEL, MAX_MARKERS, MAX_WAITING, Marker, MarkerRefused, MarkerRequest,
};

impl Rig {
    fn mark(&self, label: &str, frame: u64) -> Result<Arc<MarkerRequest>, MarkerRefused> {
        self.deck.shared.mark(label, self.now, CommandTime::Frame(MediaTime(frame)))
    }
}

fn settled(request: &MarkerRequest) -> Result<Marker, MarkerRefused> {
    request.outcome().expect("it is settled")
}

/// Where ffprobe finds chapters, and what they are called.
fn chapters(path: &Path) -> Vec<(String, String)> {
    let mut program = Program::new("ffprobe");
    let output = program.args(["-v", "error", "-show_chapters", "-of", "json"]).arg(path).output();
    let told: serde_json::Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let all = told["chapters"].as_array().unwrap().iter();
    all.map(|it| (text(&it["start_time"]), text(&it["tags"]["title"]))).collect()
}

fn chapter(at: &str, label: &str) -> (String, String) {
    (at.to_owned(), label.to_owned())
}

#[test]
fn a_marker_belongs_to_the_file_that_holds_its_frame() {
    for format in ["wav:24", "flac:24"] {
        let mut rig = Rig::new("rotated", |wish| {
            wish.format = format.parse().unwrap();
            wish.config.rotation.duration = Some(Span::from_secs(2));
        });
        rig.run(100);
        rig.tell(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
        rig.run(1_900);
        // Two seconds have sounded; the frames on both sides of the joint are asked for before it.
        let asked = [("back", 24_000), ("last", 95_999), ("first", 96_000), ("next", 120_000)];
        let asked = asked.map(|(label, frame)| rig.mark(label, frame).unwrap());
        rig.run(1_000);
        let found = asked.each_ref().map(|request| settled(request).unwrap());
        let places = found.each_ref().map(|marker| (marker.frame.0, marker.position.0));
        assert_eq!(places, [(24_000, 24_000), (95_999, 95_999), (96_000, 0), (120_000, 24_000)]);
        assert_eq!(found[0].utc.as_nanos() % 1_000_000_000, 500_000_000);
        let named = rig.told.iter().filter(|what| matches!(what, What::Marked(_))).count();
        assert_eq!(named, 4);
        let closed = rig.finish();
        assert_eq!(found[1].path, closed[0].path);
        assert_eq!(found[2].path, closed[1].path);
        let note = &json(&closed[1].path)["markers"];
        assert_eq!(note.as_array().unwrap().len(), 2, "{note}");
        assert_eq!((&note[1]["frame"], &note[1]["position"]), (&120_000.into(), &24_000.into()));
        assert_eq!(
            (&note[1]["label"], &note[1]["time"]),
            (&"next".into(), &"2026-11-22T12:00:52.500000Z".into())
        );
        let read = chapters(&closed[0].path);
        assert_eq!((&read[0], &*read[1].1), (&chapter("0.500000", "back"), "last"));
        let wanted = [chapter("0.000000", "first"), chapter("0.500000", "next")];
        assert_eq!(chapters(&closed[1].path), wanted);
        for segment in &closed {
            check_run(&sound(&segment.path), segment.start.0);
            assert_eq!(json(&segment.path)["sha256"], super::world::sha256sum(&segment.path));
        }
    }
}

#[test]
fn a_marker_behind_a_pause_that_is_left_out_is_where_the_sound_goes_on() {
    let mut rig = Rig::new("pauses", |wish| wish.config.pre_roll = Span::from_millis(100));
    rig.run(100);
    rig.tell(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    rig.tell(RecorderCommand::Pause(PauseMode::Closed), CommandTime::Frame(MediaTime(48_000)))
        .unwrap();
    rig.run(3_000);
    let refused = rig.mark("paused", rig.position().0);
    assert!(matches!(refused, Err(MarkerRefused::Recorder(CommandError::Paused))), "{refused:?}");
    let on = rig.tell(RecorderCommand::Resume, CommandTime::Now).unwrap().unwrap();
    rig.run(1_000);
    let asked = [20_000, 100_000, on.0 + 4_800].map(|frame| rig.mark("it", frame).unwrap());
    rig.run(100);
    let found = asked.map(|request| settled(&request).unwrap().position);
    assert_eq!(found, [20_000, 48_000, 52_800].map(Frames));
}

#[test]
fn what_cannot_be_a_marker_is_refused() {
    let mut rig = Rig::new("refused", |_| {});
    rig.run(100);
    assert!(matches!(rig.mark("idle", 0), Err(MarkerRefused::Recorder(CommandError::Idle))));
    rig.tell(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    rig.run(1_000);
    for label in ["", "a\nb", "\u{7f}", &"x".repeat(MAX_LABEL + 1)] {
        assert!(matches!(rig.mark(label, 0), Err(MarkerRefused::Label)), "{label:?}");
    }
    assert!(matches!(rig.mark("far", 200_000), Err(MarkerRefused::Recorder(CommandError::Ahead))));
    let longest = "\u{fc}".repeat(MAX_LABEL / 2);
    let mut placed = Vec::new();
    while placed.len() < MAX_MARKERS {
        for _ in 0..MAX_WAITING {
            placed.push(rig.mark(&longest, placed.len() as u64).unwrap());
        }
        let busy = rig.mark("one more", 0);
        assert!(matches!(busy, Err(MarkerRefused::Busy)), "{busy:?}");
        rig.run(20);
    }
    assert!(placed.iter().all(|request| settled(request).is_ok()));
    let more = rig.mark("too many", 10).unwrap();
    // The end comes before this one's frame.
    let late = rig.mark("late", rig.position().0 + 40_000).unwrap();
    rig.tell(RecorderCommand::Stop, CommandTime::Now).unwrap();
    rig.run(100);
    let full = settled(&more).unwrap_err();
    assert!(matches!(full, MarkerRefused::Full) && full.to_string().contains("256"), "{full}");
    assert!(matches!(settled(&late), Err(MarkerRefused::Ended)));
    let closed = rig.finish();
    assert_eq!(chapters(&closed[0].path).len(), MAX_MARKERS);
    assert_eq!(json(&closed[0].path)["markers"].as_array().unwrap().len(), MAX_MARKERS);
}

/// The head of a FLAC file has room for as many as there can be.
#[test]
fn a_flac_file_holds_the_most_and_longest_markers() {
    let mut rig = Rig::new("most", |wish| wish.format = "flac:24".parse().unwrap());
    rig.run(100);
    rig.tell(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    rig.run(1_000);
    for _ in 0..MAX_MARKERS / MAX_WAITING {
        for frame in 0..MAX_WAITING as u64 {
            drop(rig.mark(&"y".repeat(MAX_LABEL), 48 * frame).unwrap());
        }
        rig.run(20);
    }
    let closed = rig.finish();
    let read = chapters(&closed[0].path);
    assert_eq!(read.len(), MAX_MARKERS);
    assert!(read.iter().all(|(_, label)| label.len() == MAX_LABEL));
    check_run(&sound(&closed[0].path), 0);
}

#[test]
fn an_accepted_marker_survives_a_kill() {
    for format in ["wav:f32", "flac:24", "opus:96k"] {
        let (folder, path) = {
            let mut rig = Rig::new("killed-marks", |wish| wish.format = format.parse().unwrap());
            rig.run(100);
            rig.tell(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
            rig.run(2_000);
            let now = rig.position().0;
            let asked = [("one", 4_800), ("two", 48_000), ("end", now)];
            let asked = asked.map(|(label, frame)| rig.mark(label, frame).unwrap());
            rig.run(20);
            let path = settled(&asked[0]).unwrap().path;
            assert!(asked.iter().all(|request| settled(request).is_ok()), "{format}");
            let note = json(&path);
            assert_eq!(note["markers"].as_array().unwrap().len(), 3, "{format}: {note}");
            // As a process that is killed does, it writes nothing more.
            (rig.folder.clone(), path)
        };
        let mut next = Rig::in_folder(folder, |wish| wish.format = format.parse().unwrap());
        next.look();
        assert!(next.told.iter().all(|what| matches!(what, What::Repaired { .. })));
        let note = json(&path);
        assert_eq!(note["state"], "repaired");
        assert_eq!(note["sha256"], super::world::sha256sum(&path));
        let markers = note["markers"].as_array().unwrap();
        let positions: Vec<_> = markers.iter().map(|it| it["position"].as_u64().unwrap()).collect();
        let samples = sound(&path);
        assert_eq!(positions[..2], [4_800, 48_000], "{format}");
        assert!(positions[2] < samples.len() as u64 && positions[2] > 60_000, "{positions:?}");
        if format.starts_with("opus") {
            continue;
        }
        check_run(&samples, 0);
        let read = chapters(&path);
        let labels: Vec<_> = read.iter().map(|(_, label)| &**label).collect();
        assert_eq!(labels, ["one", "two", "end"], "{format}");
        assert_eq!(read[1].0, "1.000000");
    }
}

/// A kill after the sidecar has its markers and the file some of its chunks, at any byte.
#[test]
fn a_kill_while_a_file_is_completed_costs_neither_sound_nor_markers() {
    let mut rig = Rig::new("completing", |wish| wish.format = "wav:24".parse().unwrap());
    rig.run(100);
    rig.tell(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    rig.run(500);
    let asked = rig.mark("here", 4_801).unwrap();
    rig.run(20);
    let path = settled(&asked).unwrap().path;
    let begun = std::fs::read(sidecar_of(&path)).unwrap();
    rig.tell(RecorderCommand::Stop, CommandTime::Frame(MediaTime(38_401))).unwrap();
    rig.run(500);
    let closed = rig.finish();
    assert_eq!(closed[0].frames, Frames(38_401));
    let whole = std::fs::read(&path).unwrap();
    let chunks = whole.windows(4).rposition(|four| four == b"cue ").unwrap();
    // Every byte is for the tests of the format.
    for end in (chunks..=whole.len()).step_by(5) {
        let scratch = Arc::new(aulos_blackbox::scratch::ScratchDir::new("completing").unwrap());
        let name = super::world::file_name(&path);
        std::fs::write(scratch.join(&format!("{name}.part")), &whole[..end]).unwrap();
        std::fs::write(scratch.join(&format!("{name}.json")), &begun).unwrap();
        let next = Rig::in_folder(scratch.clone(), |_| {});
        drop(next);
        // But for the loudness, which is told when the sound is complete, it is the same.
        assert!(std::fs::read(scratch.join(name)).unwrap() == whole, "{end}");
        let note = json(&scratch.join(name));
        assert_eq!(
            (&note["frames"], &note["markers"][0]["position"]),
            (&38_401.into(), &4_801.into())
        );
    }
}
