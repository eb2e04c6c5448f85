//! A day of a log in virtual time, with kills: random ranges are exported and compared with the
//! source, frame by frame.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use aulos_blackbox::scratch::ScratchDir;
use aulos_core::{ChannelLayout, Frames, Instant, MediaTime, Rng, SampleRate, Span};
use aulos_engine::recorder::{
    ClockAlignment, ClockZone, CommandTime, DEFAULT_CAPACITY, RecordTap, RecorderCommand, Rotation,
    TapPoint, UnixTime, WallClock, record_tap,
};
use aulos_io::disk::Syncer;
use aulos_proto::Patch;
use aulos_rt::channel::{Receiver, bounded};

use super::test_recorder::json;
use crate::logger::{
    ExportOutput, LogGapCause, LoggerCatalog, LoggerIndex, export_log, parse_local_time, verify_log,
};
use crate::record::finisher::{FINISH_BACKOFF, Finisher, FinisherTask};
use crate::record::job::RecorderJob;
use crate::record::shared::RecorderShared;
use crate::record::store::{RecordingFolder, RecordingStore};
use crate::record::{RecorderEvent, RecorderHandle, RecordingConfig, SyncPolicy};

/// Frame `frame` of the source: never 0, which is silence, and exact in 24 bits.
#[allow(clippy::cast_precision_loss, reason = "20 bits")]
fn source(frame: u64) -> f32 {
    (frame % 999_983 + 1) as f32 / 1_048_576.0
}

/// A run of the program, whose frame 0 is played at `start`.
struct Run {
    tap: RecordTap,
    job: RecorderJob,
    handle: RecorderHandle,
    tasks: Receiver<FinisherTask>,
    finisher: Finisher,
    _events: Receiver<RecorderEvent>,
    rate: SampleRate,
    start: i64,
    pushed: u64,
}

impl Run {
    fn new(folder: &Path, rate: SampleRate, start: i64) -> Self {
        let index = LoggerIndex::new(folder, "hall", |error| panic!("{error}"));
        let mut config =
            RecordingConfig::new("hall", folder.into(), "flac:24".parse().unwrap()).unwrap();
        let clock = ClockAlignment::new(Span::from_secs(3_600), ClockZone::Utc);
        config.recorder.rotation = Rotation { clock, ..Rotation::default() };
        config.durability.sync = SyncPolicy::Never;
        let (sender, tasks) = bounded(64);
        let (event_sender, events) = bounded(4_096);
        let shared = Arc::new(RecorderShared::new(&config, vec![Arc::new(index)], event_sender));
        let store: Arc<dyn RecordingStore> = Arc::new(RecordingFolder::new(folder).unwrap());
        let finisher = Finisher::default();
        let repair = FinisherTask::Repair { store: store.clone(), shared: shared.clone() };
        let (tap, reader) =
            record_tap(TapPoint::Input(0), rate, ChannelLayout::MONO, DEFAULT_CAPACITY);
        let handle = RecorderHandle { shared: shared.clone() };
        let syncer = Arc::new(Syncer::start().unwrap());
        let job = RecorderJob::new(shared, store, config, reader, sender, syncer);
        let mut run =
            Self { tap, job, handle, tasks, finisher, _events: events, rate, start, pushed: 0 };
        run.finisher.run_task(repair, FINISH_BACKOFF, run.clock());
        let begin = CommandTime::Frame(MediaTime::ZERO);
        let mut machine = run.handle.shared.machine();
        machine.handle_command(run.clock().local, RecorderCommand::Start, begin).unwrap();
        drop(machine);
        run
    }

    fn clock(&self) -> WallClock {
        let since = self.rate.span(Frames(self.pushed));
        let utc = UnixTime::from_nanos(self.start + since.as_nanos());
        WallClock { local: BOOT + since, utc, ..WallClock::default() }
    }

    /// Records this many frames.
    fn record(&mut self, frames: u64) {
        let piece = self.rate.frames(PIECE).0;
        let end = self.pushed + frames;
        let mut samples = Vec::new();
        while self.pushed < end {
            let now = piece.min(end - self.pushed);
            samples.clear();
            samples.extend((self.pushed..self.pushed + now).map(source));
            self.pushed += now;
            self.tap.push_samples(&samples, self.rate, self.clock().local, Frames::ZERO);
            self.work();
        }
    }

    fn work(&mut self) {
        let clock = self.clock();
        self.job.step(clock);
        while let Ok(task) = self.tasks.try_recv() {
            self.finisher.run_task(task, FINISH_BACKOFF, clock);
        }
    }

    fn finish(mut self) {
        self.handle.close();
        for _ in 0..100 {
            self.work();
        }
        assert!(self.handle.is_done(), "{:?}", self.handle.status());
    }
}

/// A run that is in the files: the time of its frame 0, and its frames.
pub(super) type RecordedRun = (i64, u64);

/// The runs by their sidecars. `starts` are the times at which they began.
fn recorded_runs(folder: &Path, starts: &[i64]) -> Vec<RecordedRun> {
    let mut runs: Vec<RecordedRun> = starts.iter().map(|start| (*start, 0)).collect();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "flac") {
            continue;
        }
        let json = json(&path);
        let at = json["start_unix_ns"].as_i64().unwrap();
        let run = runs.iter_mut().rfind(|run| run.0 <= at).unwrap();
        let [first, frames] = ["start_frame", "frames"].map(|key| json[key].as_u64().unwrap());
        run.1 = run.1.max(first + frames);
    }
    runs
}

/// `span` in frames, rounded up or down.
fn frames_of(nanos: i64, rate: SampleRate, is_up: bool) -> u64 {
    let nanos = u128::try_from(nanos).unwrap() * u128::from(rate.hz());
    let whole = nanos / 1_000_000_000;
    u64::try_from(whole + u128::from(is_up && nanos % 1_000_000_000 > 0)).unwrap()
}

/// What was played in `from..to`: each frame is at the place of its time, and has the value
/// `sample` of its number in its run.
pub(super) fn expected(
    runs: &[RecordedRun],
    rate: SampleRate,
    (from, to): (i64, i64),
    sample: impl Fn(u64) -> f32,
) -> Vec<f32> {
    let mut sound = Vec::new();
    let mut is_to_the_end = false;
    for &(start, frames) in runs.iter().filter(|run| run.0 < to) {
        let first = if from > start { frames_of(from - start, rate, true) } else { 0 };
        let end = frames_of(to - start, rate, true).min(frames);
        if first >= end {
            continue;
        }
        if start > from {
            // It cannot begin before the end of the run before it.
            let place = usize::try_from(frames_of(start - from, rate, false)).unwrap();
            sound.resize(place.max(sound.len()), 0.0);
        }
        sound.extend((first..end).map(&sample));
        is_to_the_end = end < frames;
    }
    if !is_to_the_end {
        let place = usize::try_from(frames_of(to - from, rate, false)).unwrap();
        sound.resize(place.max(sound.len()), 0.0);
    }
    sound
}

/// A WAVE file of 24 bits in memory.
#[derive(Default)]
struct Memory(Vec<u8>);

impl ExportOutput for Memory {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    /// A stream does not change what it has sent.
    fn patch(&mut self, _: &Patch) -> io::Result<()> {
        Ok(())
    }
}

impl Memory {
    fn samples(&self) -> Vec<f32> {
        let at = self.0.windows(4).position(|bytes| bytes == b"data").unwrap() + 4;
        let length = u32::from_le_bytes(self.0[at..at + 4].try_into().unwrap()) as usize;
        let data = &self.0[at + 4..];
        assert!(data.len() == length + length % 2, "{} for {length}", data.len());
        let samples = data[..length].as_chunks::<3>().0.iter();
        let integer = |[a, b, c]: &[u8; 3]| i32::from_le_bytes([0, *a, *b, *c]) >> 8;
        #[allow(clippy::cast_precision_loss, reason = "24 bits")]
        samples.map(|bytes| integer(bytes) as f32 / 8_388_608.0).collect()
    }
}

/// Exports a range and compares it; false if nothing was recorded in it.
fn compare(
    catalog: &LoggerCatalog,
    runs: &[RecordedRun],
    rate: SampleRate,
    range: (i64, i64),
) -> bool {
    let times = (UnixTime::from_nanos(range.0), UnixTime::from_nanos(range.1));
    let wanted = expected(runs, rate, range, source);
    let mut output = Memory::default();
    if export_log(catalog, times, "wav:24".parse().unwrap(), &mut output).is_err() {
        assert!(wanted.iter().all(|sample| *sample == 0.0), "{range:?}");
        return false;
    }
    let found = output.samples();
    assert_eq!(found.len(), wanted.len(), "{range:?}");
    let wrong = found.iter().zip(&wanted).position(|(a, b)| a.to_bits() != b.to_bits());
    assert_eq!(wrong, None, "{range:?} of {} frames", wanted.len());
    true
}

/// 24 hours at a low rate: its frames do not last whole nanoseconds. 8 kHz in the soak.
#[test]
fn a_thousand_ranges_of_a_day_with_kills_are_exact() {
    let is_soak = std::env::var_os("AULOS_SOAK").is_some();
    let rate = SampleRate::new(if is_soak { 8_000 } else { 211 }).unwrap();
    let folder = ScratchDir::new("logged-day").unwrap();
    let mut rng = Rng::new(0x24_0000);
    let mut random = |below: i64| i64::try_from(rng.next_u64() >> 2).unwrap() % below;
    let mut starts = Vec::new();
    let mut pushed = Vec::new();
    let mut at = NOON;
    while at < NOON + DAY {
        let mut run = Run::new(folder.path(), rate, at);
        let length = (SECOND * 7_200 + random(SECOND * 14_400)).min(NOON + DAY - at);
        run.record(frames_of(length, rate, true));
        starts.push(at);
        pushed.push(run.pushed);
        at += length + SECOND * 2 + random(SECOND * 300);
        // The last one ends by itself, and the others are killed.
        if at >= NOON + DAY {
            run.finish();
        }
    }
    let kills = starts.len() - 1;
    assert!(kills >= 4, "{kills}");
    let runs = recorded_runs(folder.path(), &starts);
    for ((_, frames), pushed) in runs.iter().zip(&pushed) {
        // A kill loses what was not flushed.
        assert!(pushed - frames <= rate.frames(PIECE).0 + 64, "{frames} of {pushed}");
    }
    let catalog = LoggerCatalog::open(folder.path(), None).unwrap();
    let (mut compared, mut crossing) = (0, 0);
    while compared < 1_000 {
        let length = SECOND * if compared % 100 == 0 { 7_200 } else { 20 };
        let from = NOON + random(DAY);
        let range = (from, from + 1 + random(length));
        compared += usize::from(compare(&catalog, &runs, rate, range));
        crossing += usize::from(starts.iter().any(|start| (range.0..range.1).contains(start)));
    }
    // Ranges around each kill and each full hour.
    for start in &starts[1..] {
        for _ in 0..10 {
            let from = start - 1 - random(SECOND * 400);
            assert!(compare(&catalog, &runs, rate, (from, start + 1 + random(SECOND))));
        }
    }
    let hours = (NOON / HOUR + 1..(NOON + DAY) / HOUR).map(|hour| hour * HOUR);
    for hour in hours {
        compare(&catalog, &runs, rate, (hour - random(SECOND), hour + 1 + random(SECOND)));
    }
    assert!(crossing > 0);
    let [from, to] = [NOON, NOON + DAY].map(UnixTime::from_nanos);
    let gaps = catalog.gaps(from, to);
    let down = gaps.iter().filter(|gap| gap.cause == LogGapCause::ServerDown).count();
    assert_eq!((gaps.len(), down), (kills, kills), "{gaps:?}");
    let report = verify_log(folder.path(), None, None).unwrap();
    assert!(report.problems.is_empty() && report.files >= 24 + kills, "{report:?}");
}

/// A day of 25 hours and one of 23, each as local time.
#[test]
fn days_on_which_the_zone_changes_are_exported_whole() {
    let rate = SampleRate::new(121).unwrap();
    let berlin = |text: &str| parse_local_time(text, Some("Europe/Berlin")).unwrap().as_nanos();
    for (first, last, hours) in [("2026-10-25", "2026-10-26", 25), ("2026-03-29", "2026-03-30", 23)]
    {
        let day = (berlin(&format!("{first} 00:00")), berlin(&format!("{last} 00:00")));
        assert_eq!(day.1 - day.0, hours * HOUR);
        let folder = ScratchDir::new("logged-zone").unwrap();
        let start = day.0 - 600 * SECOND - 333_333_333;
        let mut run = Run::new(folder.path(), rate, start);
        run.record(frames_of((hours + 1) * HOUR, rate, true));
        run.finish();
        let runs = recorded_runs(folder.path(), &[start]);
        let catalog = LoggerCatalog::open(folder.path(), None).unwrap();
        assert!(compare(&catalog, &runs, rate, day));
        // Files and gaps of the whole day: a file an hour, and no hole.
        let [from, to] = [day.0, day.1].map(UnixTime::from_nanos);
        assert_eq!(catalog.gaps(from, to), []);
        let files = i64::try_from(catalog.find(from, to).len()).unwrap();
        assert!((hours..=hours + 1).contains(&files), "{files}");
        // Across the change, with the offset before and the one after it.
        let change = match hours {
            25 => ("2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", 1),
            _ => ("2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00", 1),
        };
        let range = (berlin(change.0), berlin(change.1));
        assert_eq!(range.1 - range.0, change.2 * HOUR);
        assert!(compare(&catalog, &runs, rate, range));
    }
}

/// The local clock at the start of a run.
const BOOT: Instant = Instant::from_nanos(1_000_000_000_000);

/// 2026-11-22T12:00:50.123456789Z.
const NOON: i64 = 1_795_348_850_123_456_789;

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3_600 * SECOND;
const DAY: i64 = 24 * HOUR;

/// What the source sends at once.
const PIECE: Span = Span::from_secs(5);
