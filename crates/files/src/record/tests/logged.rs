//! A recorder with the index of the logger: kills, exports, holds, and changes made afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::sync::Arc;

use aulos_blackbox::scratch::ScratchDir;
use aulos_core::{Block, ChannelLayout, MediaTime, Rng, SampleRate, Span};
use aulos_engine::recorder::{CommandTime, RecorderCommand, UnixTime};
use aulos_engine::source::BLOCK_SAMPLES;

use super::logged_day::expected;
use super::test_recorder::{TestRecorder, decode, json, number};
use crate::decode::{FileDecodeOptions, FileDecodeStatus, FileDecoder};
use crate::logger::{
    LogGapCause, LoggerCatalog, LoggerIndex, VerifyProblem, add_hold, export_log, list_holds,
    release_hold, verify_log,
};
use crate::record::{CompletionObserver as _, RecordingConfig};

/// Seconds from the start of one run to the start of the next.
const RUN_EVERY_S: i64 = 25;

pub(super) fn logged(
    folder: &Arc<ScratchDir>,
    change: impl FnOnce(&mut RecordingConfig),
) -> TestRecorder {
    logged_at(folder.path(), folder, change)
}

pub(super) fn logged_at(
    path: &Path,
    folder: &Arc<ScratchDir>,
    change: impl FnOnce(&mut RecordingConfig),
) -> TestRecorder {
    let index = LoggerIndex::new(path, "hall", |error| panic!("{error}"));
    let change = |config: &mut RecordingConfig| {
        config.format = "flac:24".parse().unwrap();
        config.recorder.rotation.duration = Some(Span::from_secs(2));
        change(config);
    };
    TestRecorder::observed(path, folder.clone(), change, vec![Arc::new(index)])
}

/// A run of the program that begins `after` the first one, and is killed.
fn run_and_kill(folder: &Arc<ScratchDir>, after: i64, millis: u64) -> u64 {
    let mut recorder = logged(folder, |_| {});
    recorder.clock_shift = Span::from_secs(after);
    recorder.run(100);
    recorder.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    recorder.run(millis);
    recorder.position().0
}

/// Some runs that were killed, and one that ended by itself.
fn recorded_day(name: &str, runs: i64) -> Arc<ScratchDir> {
    let folder = Arc::new(ScratchDir::new(name).unwrap());
    for run in 0..runs {
        let position = run_and_kill(&folder, run * RUN_EVERY_S, 9_000 + 1_370 * run.unsigned_abs());
        assert!(position > 400_000);
    }
    let mut last = logged(&folder, |_| {});
    last.clock_shift = Span::from_secs(runs * RUN_EVERY_S);
    last.run(100);
    last.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    last.run(5_000);
    assert!(!last.finish().is_empty());
    folder
}

/// The complete files by their sidecars: start in nanoseconds, first frame, frames.
pub(super) fn sidecars(folder: &ScratchDir) -> Vec<(i64, u64, u64, PathBuf)> {
    let paths = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "flac"))
        .map(|path| {
            let json = json(&path);
            let number = |key: &str| json[key].as_u64().unwrap();
            let start = json["start_unix_ns"].as_i64().unwrap();
            (start, number("start_frame"), number("frames"), path)
        })
        .collect();
    all.sort();
    all
}

fn samples_of(path: &Path) -> Vec<f32> {
    let mut decoder = FileDecoder::open(path, FileDecodeOptions::default()).unwrap();
    let mut block = Block::with_capacity(SampleRate::HZ_48000, ChannelLayout::MONO, BLOCK_SAMPLES);
    let mut samples = Vec::new();
    while decoder.next(&mut block).unwrap() == FileDecodeStatus::Block {
        samples.extend_from_slice(block.samples());
    }
    samples
}

#[test]
#[allow(clippy::cast_possible_truncation, reason = "nanoseconds of some minutes")]
fn a_thousand_random_ranges_over_kills_are_exported_to_the_frame() {
    let folder = recorded_day("logged-ranges", 4);
    let files = sidecars(&folder);
    let catalog = LoggerCatalog::open(folder.path(), None).unwrap();
    // Each run begins with frame 0: what was played at a time follows from its first file.
    let starts = files.iter().filter(|file| file.1 == 0).map(|file| file.0);
    let runs: Vec<(i64, u64)> = starts
        .map(|start| {
            let of_run =
                files.iter().filter(|file| (0..20_000_000_000).contains(&(file.0 - start)));
            (start, of_run.map(|file| file.1 + file.2).max().unwrap())
        })
        .collect();
    assert_eq!(runs.len(), 5);
    let (from, to) = (files[0].0, files.last().unwrap().0 + 1_500_000_000);
    let mut rng = Rng::new(0x10_66e2);
    let mut random = |below: i64| i64::try_from(rng.next_u64() >> 2).unwrap() % below;
    let (mut compared, mut silent) = (0, 0);
    while compared < 1_000 {
        let start = from + random(to - from);
        let end = start + 1_000_000 + random(1_500_000_000);
        let range = (UnixTime::from_nanos(start), UnixTime::from_nanos(end));
        let path = folder.join("export.wav");
        let mut output = fs::File::create(&path).unwrap();
        let Ok(summary) = export_log(&catalog, range, "wav:24".parse().unwrap(), &mut output)
        else {
            assert!(catalog.find(range.0, range.1).is_empty());
            silent += 1;
            continue;
        };
        let samples = if compared < 5 { decode(&path) } else { samples_of(&path) };
        assert_eq!(samples.len() as u64, summary.frames.0);
        let wanted = (end - start) as f64 * 48e3 / 1e9;
        assert!((samples.len() as f64 - wanted).abs() <= 3.0, "{} of {wanted}", samples.len());
        // Each frame is at the place of its time.
        let wanted = expected(&runs, SampleRate::HZ_48000, (start, end), number);
        assert_eq!(samples.len(), wanted.len(), "{compared}");
        let wrong = samples.iter().zip(&wanted).position(|(a, b)| a.to_bits() != b.to_bits());
        assert_eq!(wrong, None, "{compared}: {range:?}");
        compared += 1;
    }
    // Most of the time nothing was recorded.
    assert!(silent > 100, "{silent}");
    // Each kill is a gap.
    let last = UnixTime::from_nanos(files.last().unwrap().0);
    let gaps = catalog.gaps(UnixTime::from_nanos(from), last);
    assert_eq!(gaps.iter().map(|gap| gap.cause).collect::<Vec<_>>(), [LogGapCause::ServerDown; 4]);
    let report = verify_log(folder.path(), None, None).unwrap();
    assert_eq!((report.problems, report.lines), (vec![], files.len()));
}

/// Runs the commands of the guide, for an index that has the name that they expect.
fn strangers_check(folder: &ScratchDir) -> bool {
    let guide = include_str!("../../../../../docs/how-to/logger.md");
    let block = guide.split("```sh\n").find(|block| block.contains("sha256sum --check")).unwrap();
    let script = block.split("```").next().unwrap().replace("hall-log.logger", "hall.logger");
    let output = Program::new("sh").args(["-e", "-c", &script]).current_dir(folder.path()).output();
    output.unwrap().status.success()
}

#[test]
fn changes_and_removals_are_found_by_verify_and_by_sha256sum() {
    let folder = recorded_day("logged-verify", 1);
    let verify = |head: Option<&str>| verify_log(folder.path(), Some("hall"), head).unwrap();
    let head = verify(None).head;
    assert_eq!(verify(Some(&head)).problems, []);
    assert!(strangers_check(&folder));
    let index = folder.join("hall.logger.jsonl");
    let text = fs::read_to_string(&index).unwrap();

    // A flipped bit in an old file.
    let files = sidecars(&folder);
    let name = |at: usize| files[at].3.file_name().unwrap().to_str().unwrap().to_owned();
    let bytes = fs::read(&files[1].3).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    fs::write(&files[1].3, flipped).unwrap();
    assert_eq!(verify(None).problems, [VerifyProblem::ChangedFile(name(1))]);
    assert!(!strangers_check(&folder));
    fs::write(&files[1].3, &bytes).unwrap();

    // A changed line, and a removed one.
    fs::write(&index, text.replacen("\"lost\":0", "\"lost\":1", 1)).unwrap();
    assert_eq!(verify(None).problems, [VerifyProblem::ChangedLine(1)]);
    assert!(!strangers_check(&folder));
    let without_second: Vec<&str> =
        text.lines().enumerate().filter(|(at, _)| *at != 1).map(|(_, line)| line).collect();
    fs::write(&index, without_second.join("\n") + "\n").unwrap();
    let expected = [VerifyProblem::BrokenChain(2), VerifyProblem::UnlistedFile(name(1))];
    assert_eq!(verify(None).problems, expected);
    assert!(!strangers_check(&folder));

    // The last file, alone, and with its line and sidecar: only a head kept elsewhere shows that.
    fs::write(&index, &text).unwrap();
    let last = files.len() - 1;
    fs::remove_file(&files[last].3).unwrap();
    assert_eq!(verify(None).problems, [VerifyProblem::MissingFile(name(last))]);
    assert!(!strangers_check(&folder));
    fs::remove_file(files[last].3.with_extension("flac.json")).unwrap();
    let shorter = text.trim_end().rsplit_once('\n').unwrap().0;
    fs::write(&index, format!("{shorter}\n")).unwrap();
    assert_eq!(verify(None).problems, []);
    assert_eq!(verify(Some(&head)).problems, [VerifyProblem::HeadNotFound(head.clone())]);
}

#[test]
fn an_index_that_was_lost_or_cut_off_is_written_again_with_the_same_hashes() {
    let folder = recorded_day("logged-rebuilt", 2);
    let index = folder.join("hall.logger.jsonl");
    let text = fs::read_to_string(&index).unwrap();
    for left in ["", &text[..text.len() / 2], &text[..text.len() - 1]] {
        fs::write(&index, left).unwrap();
        drop(logged(&folder, |_| {}));
        assert_eq!(fs::read_to_string(&index).unwrap(), text);
    }
    fs::remove_file(&index).unwrap();
    drop(logged(&folder, |_| {}));
    assert_eq!(fs::read_to_string(&index).unwrap(), text);
}

#[test]
fn retention_keeps_held_files_and_the_index_records_what_it_deletes() {
    let folder = recorded_day("logged-holds", 1);
    let files = sidecars(&folder);
    let second = UnixTime::from_nanos(files[1].0 + 1_000_000_000);
    let behind = UnixTime::from_nanos(second.as_nanos() + 1);
    let hold = add_hold(folder.path(), "hall", (second, behind), "complaint 7", None).unwrap();
    assert_eq!(list_holds(folder.path(), "hall").unwrap(), core::slice::from_ref(&hold));
    // Files within a minute of the hold are kept, and of the others the newest.
    run_and_kill(&folder, 400, 9_000);
    drop(logged(&folder, |_| {}));
    let all = sidecars(&folder).len();
    assert!(all > files.len() + 2);
    drop(logged(&folder, |config| config.retention.max_files = Some(1)));
    let left = sidecars(&folder);
    assert_eq!(left.len(), files.len() + 1);
    assert!(left.iter().zip(&files).all(|(left, file)| left.3 == file.3), "{left:?}");
    // While the holds cannot be read, nothing is deleted.
    let holds = folder.join("hall.holds.jsonl");
    let text = fs::read_to_string(&holds).unwrap();
    fs::write(&holds, "{").unwrap();
    let index = LoggerIndex::new(folder.path(), "hall", |_| {});
    assert_eq!(index.held_files(&[files[0].3.clone()]), [true]);
    fs::write(&holds, text).unwrap();
    release_hold(folder.path(), "hall", hold.id).unwrap();
    assert!(release_hold(folder.path(), "hall", hold.id).is_err());
    drop(logged(&folder, |config| config.retention.max_files = Some(1)));
    assert_eq!(sidecars(&folder).len(), 1);
    let report = verify_log(folder.path(), None, None).unwrap();
    assert_eq!((report.problems, report.files), (vec![], 1));
    // Each file but the last has a second line, of its deletion.
    assert_eq!(report.lines, 2 * all - 1);
    let catalog = LoggerCatalog::open(folder.path(), None).unwrap();
    let gaps = catalog.gaps(UnixTime::from_nanos(files[0].0), second);
    assert!(
        gaps.iter().all(|gap| gap.cause == LogGapCause::Deleted) && !gaps.is_empty(),
        "{gaps:?}"
    );
    let empty = add_hold(folder.path(), "hall", (second, second), "nothing", None);
    assert_eq!(empty.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
}
