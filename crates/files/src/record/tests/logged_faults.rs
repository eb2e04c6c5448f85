//! The log of a recorder whose disk fails, or whose clock is set: what is missing, and why.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aulos_blackbox::scratch::ScratchDir;
use aulos_core::{MediaTime, Span};
use aulos_engine::recorder::{CommandTime, RecorderCommand, UnixTime};

use super::logged::{logged, logged_at, sidecars};
use super::test_recorder::{TestRecorder, json, number};
use crate::logger::{LogGap, LogGapCause, LoggerCatalog, export_log, verify_log};
use crate::record::store::RecordingFolder;
use crate::record::{RecorderEventKind, RecordingConfig};

fn begin(
    folder: &Arc<ScratchDir>,
    shift: Span,
    change: impl FnOnce(&mut RecordingConfig),
) -> TestRecorder {
    let mut recorder = logged(folder, change);
    recorder.clock_shift = shift;
    recorder.run(100);
    recorder.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    recorder
}

fn folder(name: &str) -> Arc<ScratchDir> {
    Arc::new(ScratchDir::new(name).unwrap())
}

/// The gaps between the first and the last file.
fn gaps(folder: &Path) -> (LoggerCatalog, Vec<LogGap>) {
    let catalog = LoggerCatalog::open(folder, None).unwrap();
    let (from, to) = catalog.range();
    let gaps = catalog.gaps(from, to);
    (catalog, gaps)
}

fn millis(gap: &LogGap) -> i64 {
    gap.length().as_millis()
}

#[test]
fn frames_that_a_full_disk_has_lost_between_files_are_a_gap_of_the_disk() {
    let folder = folder("logged-full");
    let mut recorder = begin(&folder, Span::ZERO, |_| {});
    recorder.run(5_000);
    recorder.store.set(|faults| faults.create = Some(ErrorKind::StorageFull));
    recorder.run(40_000);
    recorder.store.set(|faults| faults.create = None);
    recorder.run(5_000);
    let lost = recorder.lost();
    recorder.finish();
    let (catalog, gaps) = gaps(folder.path());
    let disk: i64 = gaps.iter().filter(|gap| gap.cause == LogGapCause::Disk).map(millis).sum();
    let lost_millis = i64::try_from(lost.0 / 48).unwrap();
    assert!(lost_millis > 10_000 && (disk - lost_millis).abs() <= 100, "{disk}, {lost_millis}");
    assert!(gaps.iter().all(|gap| gap.cause == LogGapCause::Disk), "{gaps:?}");
    assert_eq!(verify_log(catalog.folder(), None, None).unwrap().problems, []);
}

#[test]
fn a_file_that_is_removed_while_it_is_written_is_a_gap_and_the_log_goes_on() {
    let folder = folder("logged-removed");
    let mut recorder = begin(&folder, Span::ZERO, |config| {
        config.recorder.rotation.duration = Some(Span::from_secs(10));
    });
    recorder.run(13_000);
    let part = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let part: Vec<PathBuf> =
        part.filter(|path| path.extension().is_some_and(|ending| ending == "part")).collect();
    fs::remove_file(&part[0]).unwrap();
    recorder.run(22_000);
    let removed = |kind: &RecorderEventKind| matches!(kind, RecorderEventKind::FileRemoved { .. });
    assert!(recorder.events_seen.iter().any(removed));
    recorder.finish();
    let (_, gaps) = gaps(folder.path());
    let [gap] = &gaps[..] else { panic!("{gaps:?}") };
    assert_eq!(gap.cause, LogGapCause::FileMissing);
    // Up to the next check of the folder.
    assert!((3_000..9_000).contains(&millis(gap)), "{gap:?}");
}

#[test]
fn another_disk_in_the_place_of_the_first_gets_the_log_with_its_index() {
    let folder = folder("logged-swapped");
    let place = folder.join("disk");
    let mut recorder = logged_at(&place, &folder, |config| {
        config.recorder.rotation.duration = Some(Span::from_secs(8));
    });
    recorder.run(100);
    recorder.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    recorder.run(10_000);
    let first = folder.join("first");
    fs::rename(&place, &first).unwrap();
    fs::create_dir(&place).unwrap();
    recorder.run(15_000);
    let removed = |kind: &RecorderEventKind| matches!(kind, RecorderEventKind::FileRemoved { .. });
    assert!(recorder.events_seen.iter().any(removed));
    recorder.finish();
    // Each disk has an index of its own files.
    for disk in [&first, &place] {
        let report = verify_log(disk, None, None).unwrap();
        assert!(report.lines >= 1 && report.files == report.lines, "{report:?}");
        assert_eq!(report.problems, [], "{}", disk.display());
    }
    let [first, second] = [&first, &place].map(|disk| LoggerCatalog::open(disk, None).unwrap());
    assert!(second.range().0 > first.range().1);
}

#[test]
fn the_time_without_a_usable_folder_has_the_disk_as_its_cause() {
    let folder = folder("logged-waited");
    let mut recorder = begin(&folder, Span::ZERO, |_| {});
    recorder.run(4_000);
    recorder.finish();
    let waited = |config: &mut RecordingConfig| config.waited = Some(Span::from_secs(20));
    let mut recorder = begin(&folder, Span::from_secs(100), waited);
    recorder.run(4_000);
    // A kill does not lose it, and only the first file says it.
    drop(recorder);
    drop(logged(&folder, |_| {}));
    let (_, gaps) = gaps(folder.path());
    let causes: Vec<_> = gaps.iter().map(|gap| (gap.cause, millis(gap) / 1_000)).collect();
    assert_eq!(causes, [(LogGapCause::ServerDown, 75), (LogGapCause::Disk, 20)], "{gaps:?}");
    assert_eq!(gaps[0].to, gaps[1].from);
    let said = sidecars(&folder).iter().filter(|file| !json(&file.3)["waited_s"].is_null()).count();
    assert_eq!(said, 1);
}

#[test]
fn a_clock_that_is_set_after_the_boot_hides_no_gap() {
    let folder = folder("logged-boot");
    let mut recorder = begin(&folder, Span::ZERO, |_| {});
    recorder.run(4_000);
    recorder.finish();
    let before = LoggerCatalog::open(folder.path(), None).unwrap().range().1;
    // The machine starts with the clock at 1970, which is set a while later.
    let mut recorder = begin(&folder, Span::from_secs(-1_795_348_000), |_| {});
    recorder.run(3_000);
    recorder.clock_shift = Span::from_secs(600);
    recorder.run(7_000);
    let set = recorder.events_seen.iter().find_map(|kind| match kind {
        RecorderEventKind::ClockChanged { change, .. } => Some(change.set_by),
        _ => None,
    });
    assert_eq!(set.unwrap().as_millis() / 1_000, 1_795_348_600);
    recorder.finish();
    let (catalog, gaps) = gaps(folder.path());
    let gap = gaps.iter().find(|gap| gap.from == before).unwrap();
    assert!(gap.cause == LogGapCause::ClockSet && (millis(gap) - 599_000).abs() <= 40, "{gaps:?}");
    // What was recorded before and after is found at the time that the clock showed.
    let boot = catalog.range().0;
    assert!(boot.as_nanos() < 1_000_000_000_000);
    assert_eq!(catalog.find(boot, UnixTime::from_nanos(boot.as_nanos() + 1_000_000_000)).len(), 1);
    let from = UnixTime::from_nanos(gap.to.as_nanos() + 1_000_000_000);
    let to = UnixTime::from_nanos(from.as_nanos() + 5_000_000_000);
    let path = folder.join("export.wav");
    let mut output = fs::File::create(&path).unwrap();
    let summary = export_log(&catalog, (from, to), "wav:24".parse().unwrap(), &mut output).unwrap();
    assert_eq!((summary.frames.0, summary.silent.0), (240_000, 0));
    let found = catalog.find(from, to);
    let sidecar = json(&folder.join(&found[0].file));
    let first = sidecar["start_frame"].as_u64().unwrap() + found[0].position.0;
    let samples = super::test_recorder::decode(&path);
    assert!((0..240_000).all(|offset| {
        samples[usize::try_from(offset).unwrap()].to_bits() == number(first + offset).to_bits()
    }));
}

#[test]
fn a_folder_that_must_be_mounted_is_refused_on_the_disk_of_the_system() {
    use std::os::unix::fs::MetadataExt as _;
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    let other = Path::new("/proc/self");
    assert_ne!(device(other), device(Path::new("/")));
    assert!(RecordingFolder::mounted(other).is_ok());
    // `/` itself is never a disk that is mounted there; nothing is created on it.
    let missing = Path::new("/aulos-test-of-a-disk-that-is-not-mounted/log");
    let error = RecordingFolder::mounted(missing).unwrap_err();
    assert!(error.to_string().contains("not mounted"), "{error}");
    assert!(!missing.parent().unwrap().exists());
}
