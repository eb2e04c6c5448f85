//! Complete recordings in real folders and virtual time.

mod crash;
mod disk;
mod folder;
mod killed;
mod logged;
mod logged_day;
mod logged_faults;
mod markers;
mod test_recorder;

use std::sync::Arc;
use std::time::Duration;

use aulos_core::{ChannelLayout, Frames, MediaTime, SampleRate, Span};
use aulos_engine::recorder::{
    ClockAlignment, ClockZone, CommandTime, DEFAULT_CAPACITY, PauseMode, RecorderCommand,
    RecordingState, Rotation, SegmentReason, TapPoint, record_tap,
};

use super::store::RecordingStore as _;
use super::*;
use test_recorder::{TestRecorder, check_frames, decode, json};

#[test]
fn joined_segments_are_the_whole_stream_and_each_has_a_sidecar() {
    let mut recorder = TestRecorder::new("segments", |config| {
        config.recorder.rotation.duration = Some(Span::from_secs(1));
    });
    recorder.run(3_000);
    let start = recorder
        .command(RecorderCommand::Start, CommandTime::Ago(Span::from_millis(1_234)))
        .unwrap()
        .unwrap();
    recorder.run(2_500);
    recorder.command(RecorderCommand::Cut, CommandTime::Now).unwrap();
    recorder.run(1_500);
    let stop = recorder.command(RecorderCommand::Stop, CommandTime::Now).unwrap().unwrap();
    recorder.run(500);
    let closed = recorder.finish();
    let mut at = start;
    for segment in &closed {
        assert_eq!(segment.start, at);
        at = segment.end;
        let samples = decode(&segment.path);
        assert_eq!(Frames::from(samples.len()), segment.frames);
        check_frames(&samples, segment.start.0);
        let sidecar = json(&segment.path);
        assert_eq!(sidecar["start_frame"], segment.start.0);
        assert_eq!(sidecar["frames"], segment.frames.0);
        assert_eq!(sidecar["bytes"], std::fs::metadata(&segment.path).unwrap().len());
        assert_eq!(sidecar["sha256"], test_recorder::sha256sum(&segment.path));
        assert!(sidecar["loudness"]["true_peak_dbtp"].is_number(), "{sidecar}");
        assert_eq!(sidecar["state"], "closed");
    }
    assert_eq!(at, stop);
    let causes: Vec<_> = closed.iter().map(|segment| segment.cause).collect();
    let cut = causes.iter().position(|cause| *cause == SegmentReason::Command).unwrap();
    assert!(causes[..cut].iter().all(|cause| *cause == SegmentReason::Duration));
    assert_eq!(causes.last(), Some(&SegmentReason::Stop));
    assert_eq!(recorder.files(), 2 * closed.len());
}

#[test]
fn a_wave_file_states_the_same_loudness_as_its_sidecar() {
    let mut recorder = TestRecorder::new("loud", |config| config.recorder.rotation.duration = None);
    recorder.run(100);
    recorder.command(RecorderCommand::Start, CommandTime::Now).unwrap();
    recorder.run(6_000);
    recorder.command(RecorderCommand::Stop, CommandTime::Now).unwrap();
    recorder.run(500);
    let closed = recorder.finish();
    let [segment] = &closed[..] else { panic!("{closed:?}") };
    let bytes = std::fs::read(&segment.path).unwrap();
    let sidecar = json(&segment.path);
    // `RIFF`, the placeholder of 64-bit sizes, `bext`.
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
        let stored = i16::from_le_bytes([bytes[at], bytes[at + 1]]);
        // The sound of this test is below the gate, so it has no integrated loudness.
        match sidecar["loudness"][key].as_f64() {
            Some(expected) => {
                assert!(
                    (f64::from(stored) - expected * 100.0).abs() < 0.51,
                    "{key}: {stored}, {sidecar}"
                );
            }
            None => assert_eq!((stored, key), (0x7fff, "integrated_lufs"), "{sidecar}"),
        }
    }
}

#[test]
fn a_pause_is_listed_whether_it_is_silent_or_left_out() {
    for gap in [PauseMode::Silence, PauseMode::Closed] {
        let mut recorder =
            TestRecorder::new("pause", |config| config.recorder.pre_roll = Span::from_millis(100));
        recorder.run(100);
        recorder.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
        recorder
            .command(RecorderCommand::Pause(gap), CommandTime::Frame(MediaTime(48_000)))
            .unwrap();
        recorder.run(3_000);
        let at = recorder.command(RecorderCommand::Resume, CommandTime::Now).unwrap().unwrap();
        recorder.command(RecorderCommand::Stop, CommandTime::Frame(at + Frames(9_600))).unwrap();
        recorder.run(1_000);
        let closed = recorder.finish();
        assert_eq!(closed.len(), 1);
        let samples = decode(&closed[0].path);
        let silent = if gap == PauseMode::Silence { at.0 - 48_000 } else { 0 };
        assert_eq!(samples.len() as u64, 48_000 + silent + 9_600);
        let (before, rest) = samples.split_at(48_000);
        let (between, after) = rest.split_at(usize::try_from(silent).unwrap());
        check_frames(before, 0);
        assert!(between.iter().all(|sample| sample.abs() == 0.0));
        check_frames(after, at.0);
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
fn an_interruption_of_the_source_is_lost_and_its_cause_is_not_the_disk() {
    for interruptions in [PauseMode::Silence, PauseMode::Closed] {
        let mut recorder = TestRecorder::new("interrupted", |config| {
            config.recorder.interruptions = interruptions;
        });
        let (rate, layout) = (SampleRate::HZ_48000, ChannelLayout::MONO);
        let (mut tap, reader) = record_tap(TapPoint::Input(0), rate, layout, DEFAULT_CAPACITY);
        // Its station is not used.
        recorder.handle.replace_tap(reader);
        recorder.poll_recorder();
        let missing = Frames(72_000);
        tap.push_samples(&[0.25; 48_000], rate, recorder.now, Frames::ZERO);
        recorder.poll_recorder();
        recorder.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
        tap.push_samples(&[0.5; 48_000], rate, recorder.now, missing);
        let closed = recorder.finish();
        let [segment] = &closed[..] else { panic!("{closed:?}") };
        assert_eq!((segment.lost, recorder.lost()), (missing, missing));
        let is_silence = interruptions == PauseMode::Silence;
        let silence = vec![0.0; if is_silence { 72_000 } else { 0 }];
        let expected = [&[0.25; 48_000][..], &silence, &[0.5; 48_000]].concat();
        assert!(decode(&segment.path) == expected, "{interruptions:?}");
        let sidecar = json(&segment.path);
        let gap = serde_json::json!({
            "at_frame": 48_000, "frames": 72_000, "kind": "interrupted", "position": 48_000,
            "seconds": 1.5, "silence": is_silence,
        });
        assert_eq!(sidecar["gaps"], serde_json::json!([gap]), "{sidecar}");
        assert_eq!(sidecar["lost_frames"], 72_000);
        let causes = recorder.events_seen.iter().filter_map(|event| match event {
            RecorderEventKind::FramesLost { frames, cause, .. } => Some((*frames, *cause)),
            _ => None,
        });
        assert_eq!(causes.collect::<Vec<_>>(), [(missing, LossCause::Source)]);
    }
}

#[test]
fn segments_are_cut_at_full_minutes_even_if_the_clock_is_set_back() {
    let mut recorder = TestRecorder::new("clock", |config| {
        let clock = ClockAlignment::new(Span::from_secs(60), ClockZone::Utc);
        config.recorder.rotation = Rotation { clock, ..Rotation::default() };
    });
    // It is 12:00:50.
    recorder.run(100);
    recorder.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    recorder.run(20_000);
    recorder.clock_shift = Span::from_secs(-3_600);
    recorder.run(100_000);
    let closed = recorder.finish();
    let names: Vec<_> =
        closed.iter().map(|segment| test_recorder::file_name(&segment.path)).collect();
    assert_eq!(
        names,
        [
            "hall-2026-11-22T120050Z.wav",
            "hall-2026-11-22T120100Z.wav",
            "hall-2026-11-22T110202Z.wav",
        ],
    );
    let all: Vec<f32> = closed.iter().flat_map(|segment| decode(&segment.path)).collect();
    check_frames(&all, 0);
}

#[test]
fn the_maximum_size_is_exceeded_by_at_most_one_step() {
    let mut recorder =
        TestRecorder::new("size", |config| config.recorder.rotation.bytes = Some(400_000));
    recorder.run(100);
    recorder.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    recorder.run(9_000);
    let closed = recorder.finish();
    assert!(closed.len() >= 4);
    for segment in &closed[..closed.len() - 1] {
        assert!((400_000..430_000).contains(&segment.bytes), "{}", segment.bytes);
        assert_eq!(segment.cause, SegmentReason::Size);
    }
    let all: Vec<f32> = closed.iter().flat_map(|segment| decode(&segment.path)).collect();
    check_frames(&all, 0);
}

#[test]
fn a_restarted_station_begins_another_segment_even_if_its_time_would_continue() {
    let mut recorder = TestRecorder::new("anew", |_| {});
    recorder.run(100);
    recorder.command(RecorderCommand::Start, CommandTime::Frame(MediaTime(2_400))).unwrap();
    recorder.run(2_900);
    recorder.restart_station();
    recorder.run(1_000);
    recorder.restart_station();
    // It runs for longer than the last one has, while the recorder does not poll.
    recorder.run_without_polling(3_000);
    recorder.run(1_000);
    let closed = recorder.finish();
    let found: Vec<_> = closed.iter().map(|it| (it.start.0, it.frames.0, it.cause)).collect();
    let (break_reason, stop) = (SegmentReason::Break, SegmentReason::Stop);
    assert_eq!(
        found,
        [(2_400, 141_600, break_reason), (0, 48_000, break_reason), (0, 192_000, stop)]
    );
    for segment in closed {
        check_frames(&decode(&segment.path), segment.start.0);
    }
    assert_eq!(recorder.lost(), Frames::ZERO);
}

#[test]
fn the_status_describes_the_current_segment() {
    let mut recorder = TestRecorder::new("status", |_| {});
    recorder.run(1_000);
    assert_eq!(recorder.handle.status().state, RecordingState::Idle);
    recorder.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    recorder.run(1_000);
    let status = recorder.handle.status();
    assert_eq!(status.state, RecordingState::Recording { since: MediaTime::ZERO });
    let segment = status.segment.unwrap();
    assert_eq!(test_recorder::file_name(&segment.path), "hall-2026-11-22T120050Z.wav");
    assert_eq!(segment.frames, Frames(96_000));
    assert!(segment.bytes > 4 * 96_000 && status.bytes == segment.bytes);
    assert!(status.free_bytes.is_some_and(|free| free > 0));
    assert!(status.fault.is_none());
}

/// Uses the real threads, clocks and disk.
#[test]
fn all_accepted_sound_is_written_before_the_service_stops() {
    let folder = aulos_blackbox::scratch::ScratchDir::new("recorders").unwrap();
    let (mut service, mut events) = RecorderService::start().unwrap();
    let mut station = test_recorder::TestStation::new();
    let formats = ["wav:f32", "flac:24", "opus", "mp3"];
    let handles: Vec<_> = formats
        .iter()
        .map(|format| {
            let name = format.replace(':', " ");
            let config =
                RecordingConfig::new(&name, folder.path().into(), format.parse().unwrap()).unwrap();
            service.add(config, Vec::new(), station.record_tap_reader()).unwrap()
        })
        .collect();
    station.run(2_000);
    for handle in &handles {
        handle.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    }
    station.run(3_000);
    assert_eq!(service.stop(Span::from_secs(60)), Vec::<String>::new());
    let mut closed = Vec::new();
    while let Ok(event) = events.try_recv() {
        if let RecorderEventKind::SegmentClosed(it) = event.kind {
            closed.push(it);
        }
    }
    assert_eq!(closed.len(), 4);
    for segment in closed {
        assert_eq!((segment.start, segment.frames), (MediaTime::ZERO, Frames(240_000)));
        let samples = decode(&segment.path);
        assert_eq!(samples.len(), 240_000);
        if ["opus", "mp3"]
            .iter()
            .any(|name| test_recorder::file_name(&segment.path).ends_with(name))
        {
            continue;
        }
        check_frames(&samples, 0);
    }
    assert!(handles.iter().all(RecorderHandle::is_done));
}

/// A disk that needs longer for all files than the limit, but less for each.
#[test]
fn many_recorders_are_completed_as_long_as_the_disk_proceeds() {
    let folder = aulos_blackbox::scratch::ScratchDir::new("many").unwrap();
    let (mut service, _events) = RecorderService::start().unwrap();
    let mut station = test_recorder::TestStation::new();
    let disk = test_recorder::TestDisk::new(folder.path());
    disk.set(|faults| faults.publish_time = Duration::from_millis(150));
    let disk: Arc<test_recorder::TestDisk> = Arc::new(disk);
    let handles = (0..10).map(|number| {
        let name = format!("recorder {number}");
        let format = "wav:16".parse().unwrap();
        let config = RecordingConfig::new(&name, folder.path().into(), format).unwrap();
        let handle = service
            .add_to((config, Vec::new()), station.record_tap_reader(), 0, disk.clone())
            .unwrap();
        handle.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
        handle
    });
    let handles: Vec<_> = handles.collect();
    station.run(1_000);
    assert_eq!(service.stop(Span::from_secs(1)), Vec::<String>::new());
    let names = disk.real.list(1_000).unwrap();
    assert_eq!(names.iter().filter(|file| file.name.ends_with(".wav")).count(), 10, "{names:?}");
    assert!(handles.iter().all(RecorderHandle::is_done));
}
