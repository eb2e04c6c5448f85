//! Whole recordings, on real folders and in virtual time.

mod crash;
mod disk;
mod folder;
mod killed;
mod markers;
mod world;

use aulos_core::{Frames, MediaTime, Span};
use aulos_engine::recorder::{
    ClockAlignment, ClockZone, CommandTime, PauseMode, RecorderCommand, RecordingState, Rotation,
    SegmentReason,
};

use super::*;
use world::{Rig, check_run, json, sound};

#[test]
fn segments_joined_are_the_stream_and_each_has_a_sidecar() {
    let mut rig = Rig::new("segments", |wish| {
        wish.config.rotation.duration = Some(Span::from_secs(1));
    });
    rig.run(3_000);
    let start = rig
        .tell(RecorderCommand::Start, CommandTime::Ago(Span::from_millis(1_234)))
        .unwrap()
        .unwrap();
    rig.run(2_500);
    rig.tell(RecorderCommand::Cut, CommandTime::Now).unwrap();
    rig.run(1_500);
    let stop = rig.tell(RecorderCommand::Stop, CommandTime::Now).unwrap().unwrap();
    rig.run(500);
    let closed = rig.finish();
    let mut at = start;
    for segment in &closed {
        assert_eq!(segment.start, at);
        at = segment.end;
        let samples = sound(&segment.path);
        assert_eq!(Frames::from(samples.len()), segment.frames);
        check_run(&samples, segment.start.0);
        let note = json(&segment.path);
        assert_eq!(note["start_frame"], segment.start.0);
        assert_eq!(note["frames"], segment.frames.0);
        assert_eq!(note["bytes"], std::fs::metadata(&segment.path).unwrap().len());
        assert_eq!(note["sha256"], world::sha256sum(&segment.path));
        assert!(note["loudness"]["true_peak_dbtp"].is_number(), "{note}");
        assert_eq!(note["state"], "closed");
    }
    assert_eq!(at, stop);
    let causes: Vec<_> = closed.iter().map(|segment| segment.cause).collect();
    let cut = causes.iter().position(|cause| *cause == SegmentReason::Command).unwrap();
    assert!(causes[..cut].iter().all(|cause| *cause == SegmentReason::Duration));
    assert_eq!(causes.last(), Some(&SegmentReason::Stop));
    assert_eq!(rig.files(), 2 * closed.len());
}

#[test]
fn a_wave_file_says_how_loud_it_is_as_its_sidecar_does() {
    let mut rig = Rig::new("loud", |wish| wish.config.rotation.duration = None);
    rig.run(100);
    rig.tell(RecorderCommand::Start, CommandTime::Now).unwrap();
    rig.run(6_000);
    rig.tell(RecorderCommand::Stop, CommandTime::Now).unwrap();
    rig.run(500);
    let closed = rig.finish();
    let [segment] = &closed[..] else { panic!("{closed:?}") };
    let bytes = std::fs::read(&segment.path).unwrap();
    let note = json(&segment.path);
    // `RIFF`, the placeholder of long sizes, `bext`.
    assert_eq!(&bytes[48..52], b"bext");
    for (index, key) in [
        "integrated_lufs",
        "range_lu",
        "true_peak_dbtp",
        "max_momentary_lufs",
        "max_short_term_lufs",
    ]
    .into_iter()
    .enumerate()
    {
        let at = 48 + 8 + 412 + 2 * index;
        let told = i16::from_le_bytes([bytes[at], bytes[at + 1]]);
        // The sound of this test is below the gate, so that it has no integrated loudness.
        match note["loudness"][key].as_f64() {
            Some(wanted) => {
                assert!((f64::from(told) - wanted * 100.0).abs() < 0.51, "{key}: {told}, {note}");
            }
            None => assert_eq!((told, key), (0x7fff, "integrated_lufs"), "{note}"),
        }
    }
}

#[test]
fn a_pause_is_noted_whether_it_is_silent_or_left_out() {
    for gap in [PauseMode::Silence, PauseMode::Closed] {
        let mut rig = Rig::new("pause", |wish| wish.config.pre_roll = Span::from_millis(100));
        rig.run(100);
        rig.tell(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
        rig.tell(RecorderCommand::Pause(gap), CommandTime::Frame(MediaTime(48_000))).unwrap();
        rig.run(3_000);
        let at = rig.tell(RecorderCommand::Resume, CommandTime::Now).unwrap().unwrap();
        rig.tell(RecorderCommand::Stop, CommandTime::Frame(at + Frames(9_600))).unwrap();
        rig.run(1_000);
        let closed = rig.finish();
        assert_eq!(closed.len(), 1);
        let samples = sound(&closed[0].path);
        let silent = if gap == PauseMode::Silence { at.0 - 48_000 } else { 0 };
        assert_eq!(samples.len() as u64, 48_000 + silent + 9_600);
        let (before, rest) = samples.split_at(48_000);
        let (between, after) = rest.split_at(usize::try_from(silent).unwrap());
        check_run(before, 0);
        assert!(between.iter().all(|sample| sample.abs() == 0.0));
        check_run(after, at.0);
        let gaps = &json(&closed[0].path)["gaps"];
        let kind = if gap == PauseMode::Silence { "paused" } else { "left out" };
        assert_eq!(gaps.as_array().unwrap().len(), 1, "{gaps}");
        assert_eq!(gaps[0]["kind"], kind);
        assert_eq!(
            (&gaps[0]["at_frame"], &gaps[0]["frames"]),
            (&48_000.into(), &(at.0 - 48_000).into())
        );
    }
}

#[test]
fn the_clock_cuts_at_full_minutes_and_may_be_set_back() {
    let mut rig = Rig::new("clock", |wish| {
        let clock = ClockAlignment::new(Span::from_secs(60), ClockZone::Utc);
        wish.config.rotation = Rotation { clock, ..Rotation::default() };
    });
    // It is 12:00:50.
    rig.run(100);
    rig.tell(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    rig.run(20_000);
    rig.shift = Span::from_secs(-3_600);
    rig.run(100_000);
    let closed = rig.finish();
    let names: Vec<_> = closed.iter().map(|segment| world::file_name(&segment.path)).collect();
    assert_eq!(
        names,
        [
            "hall-2026-11-22T120050Z.wav",
            "hall-2026-11-22T120100Z.wav",
            "hall-2026-11-22T110202Z.wav",
        ],
    );
    let all: Vec<f32> = closed.iter().flat_map(|segment| sound(&segment.path)).collect();
    check_run(&all, 0);
}

#[test]
fn a_size_is_kept_within_what_one_step_brings() {
    let mut rig = Rig::new("size", |wish| wish.config.rotation.bytes = Some(400_000));
    rig.run(100);
    rig.tell(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    rig.run(9_000);
    let closed = rig.finish();
    assert!(closed.len() >= 4);
    for segment in &closed[..closed.len() - 1] {
        assert!((400_000..430_000).contains(&segment.bytes), "{}", segment.bytes);
        assert_eq!(segment.cause, SegmentReason::Size);
    }
    let all: Vec<f32> = closed.iter().flat_map(|segment| sound(&segment.path)).collect();
    check_run(&all, 0);
}

#[test]
fn a_station_that_begins_anew_begins_another_segment_even_if_its_time_would_fit() {
    let mut rig = Rig::new("anew", |_| {});
    rig.run(100);
    rig.tell(RecorderCommand::Start, CommandTime::Frame(MediaTime(2_400))).unwrap();
    rig.run(2_900);
    rig.begin_anew();
    rig.run(1_000);
    rig.begin_anew();
    // It runs for longer than the last one has, while nobody looks.
    rig.stand_still(3_000);
    rig.run(1_000);
    let closed = rig.finish();
    let found: Vec<_> = closed.iter().map(|it| (it.start.0, it.frames.0, it.cause)).collect();
    let (brk, stop) = (SegmentReason::Break, SegmentReason::Stop);
    assert_eq!(found, [(2_400, 141_600, brk), (0, 48_000, brk), (0, 192_000, stop)]);
    for segment in closed {
        check_run(&sound(&segment.path), segment.start.0);
    }
    assert_eq!(rig.lost(), Frames::ZERO);
}

#[test]
fn the_status_tells_what_is_written() {
    let mut rig = Rig::new("status", |_| {});
    rig.run(1_000);
    assert_eq!(rig.deck.status().state, RecordingState::Idle);
    rig.tell(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    rig.run(1_000);
    let status = rig.deck.status();
    assert_eq!(status.state, RecordingState::Recording { since: MediaTime::ZERO });
    let segment = status.segment.unwrap();
    assert_eq!(world::file_name(&segment.path), "hall-2026-11-22T120050Z.wav");
    assert_eq!(segment.frames, Frames(96_000));
    assert!(segment.bytes > 4 * 96_000 && status.bytes == segment.bytes);
    assert!(status.free.is_some_and(|free| free > 0));
    assert!(status.trouble.is_none());
}

/// The threads, the clocks and the disk of this machine.
#[test]
fn what_was_accepted_is_written_before_the_recorders_stop() {
    let folder = aulos_blackbox::scratch::ScratchDir::new("recorders").unwrap();
    let (mut recorders, mut events) = Recorders::start().unwrap();
    let mut studio = world::Studio::new();
    let formats = ["wav:f32", "flac:24", "opus"];
    let decks: Vec<_> = formats
        .iter()
        .map(|format| {
            let name = format.replace(':', " ");
            let wish = Wish::new(&name, folder.path().into(), format.parse().unwrap()).unwrap();
            recorders.add(wish, studio.listen()).unwrap()
        })
        .collect();
    studio.run(2_000);
    for deck in &decks {
        deck.tell(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    }
    studio.run(3_000);
    assert_eq!(recorders.stop(Span::from_secs(60)), Vec::<String>::new());
    let mut closed = Vec::new();
    while let Ok(event) = events.try_recv() {
        if let What::Closed(it) = event.what {
            closed.push(it);
        }
    }
    assert_eq!(closed.len(), 3);
    for segment in closed {
        assert_eq!((segment.start, segment.frames), (MediaTime::ZERO, Frames(240_000)));
        let samples = sound(&segment.path);
        assert_eq!(samples.len(), 240_000);
        if world::file_name(&segment.path).ends_with("opus") {
            continue;
        }
        check_run(&samples, 0);
    }
    assert!(decks.iter().all(Deck::is_done));
}
