//! A station whose output counts frames, a recorder of it, and a store with faults.

use std::fs::File;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::process::{Command as Program, Output};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aulos_blackbox::scratch::ScratchDir;
use aulos_core::{
    Block, ChannelLayout, Codec, Frames, Instant, MediaTime, SampleFormat, SampleRate, SampleSpec,
    Span,
};
use aulos_engine::encode::make_encoder;
use aulos_engine::input::Input;
use aulos_engine::input::InputConfig;
use aulos_engine::recorder::{
    CommandError, CommandTime, DEFAULT_CAPACITY, RecordTapReader, RecorderCommand, TapPoint,
    UnixTime, WallClock, record_tap,
};
use aulos_engine::rendition::Rendition;
use aulos_engine::source::{Pacing, PullResult, Source};
use aulos_engine::station::{Station, StationConfig, StationHandle};
use aulos_engine::switch::SwitchConfig;
use aulos_io::disk::{AppendFile, SyncHandle, Syncer};
use aulos_rt::channel::{Receiver, bounded};

use crate::record::finisher::{FINISH_BACKOFF, Finisher, FinisherTask};
use crate::record::job::RecorderJob;
use crate::record::shared::RecorderShared;
use crate::record::store::{FolderEntry, RecordingFolder, RecordingStore};
use crate::record::{
    ClosedSegment, CompletionObserver, RecorderEvent, RecorderEventKind, RecorderHandle,
    RecordingConfig,
};

/// Each frame is its own number divided by 2^20.
struct Counter(u64);

impl Source for Counter {
    fn pull(&mut self, _: Instant, into: &mut Block) -> PullResult {
        into.reset(SampleRate::HZ_48000, ChannelLayout::MONO);
        into.resize(Frames(480));
        for sample in into.samples_mut() {
            *sample = counted(self.0);
            self.0 += 1;
        }
        PullResult::Block
    }

    fn pacing(&self) -> Pacing {
        Pacing::OnDemand
    }
}

/// Never 0, which is silence; 20 bits, so that 24-bit formats store it exactly.
#[allow(clippy::cast_precision_loss, reason = "20 bits")]
fn counted(frame: u64) -> f32 {
    (frame % 1_000_000 + 1) as f32 / 1_048_576.0
}

/// Output at a frame: the source is delayed by its resampler, and silence precedes it.
pub(super) fn number(frame: u64) -> f32 {
    frame.checked_sub(SOURCE_DELAY).map_or(0.0, counted)
}

/// That delay in frames.
pub(super) const SOURCE_DELAY: u64 = 40;

/// A station whose output counts its frames.
pub(super) struct TestStation {
    pub(super) station: Station,
    handle: StationHandle,
}

impl TestStation {
    pub(super) fn new() -> Self {
        Self::starting_at(start())
    }

    fn starting_at(now: Instant) -> Self {
        let (rate, layout) = (SampleRate::HZ_48000, ChannelLayout::MONO);
        let spec = SampleSpec { rate, format: SampleFormat::S16Le, layout };
        let input = Input::new(Box::new(Counter(0)), rate, layout, InputConfig::default());
        let quantum = Frames(960);
        let config = StationConfig {
            quantum,
            switch: SwitchConfig { startup_wait: Some(Span::ZERO), ..SwitchConfig::default() },
            crossfade: Span::ZERO,
        };
        let encoder = make_encoder(Codec::Pcm, spec, quantum).unwrap();
        let pool = aulos_rt::Pool::new(2, || Vec::with_capacity(8_192));
        let main = Rendition::new(encoder, pool, vec![], |_, _, _, _| 0);
        let (station, handle) = Station::new(config, now, [input].into(), main);
        Self { station, handle }
    }

    pub(super) fn record_tap_reader(&mut self) -> RecordTapReader {
        let (tap, tap_reader) = record_tap(
            TapPoint::Output,
            SampleRate::HZ_48000,
            ChannelLayout::MONO,
            DEFAULT_CAPACITY,
        );
        self.handle.add_output(tap).unwrap();
        tap_reader
    }

    /// Runs one quantum and returns its end.
    pub(super) fn step(&mut self) -> Instant {
        let now = self.station.poll_timeout();
        self.station.handle_timeout(now);
        now
    }

    pub(super) fn run(&mut self, millis: u64) {
        for _ in 0..millis / 20 {
            self.step();
        }
    }
}

fn start() -> Instant {
    Instant::ZERO + Span::from_secs(1_000)
}

/// 2026-11-22T12:00:50Z, the start of the station.
const NOON: i64 = 1_795_348_850;

/// The clocks at `now`, after the wall clock was set by `shift` and the machine was suspended.
fn wall_clock(now: Instant, shift: Span, suspended: Span) -> WallClock {
    let utc = NOON * 1_000_000_000 + (now - start() + shift + suspended).as_nanos();
    WallClock { local: now, utc: UnixTime::from_nanos(utc), suspended, ..WallClock::default() }
}

/// A station with one recorder, all on one thread and in virtual time.
pub(super) struct TestRecorder {
    pub(super) station: TestStation,
    pub(super) now: Instant,
    /// By how much the wall clock was set.
    pub(super) clock_shift: Span,
    /// How long the machine was suspended.
    pub(super) suspended: Span,
    pub(super) handle: RecorderHandle,
    pub(super) store: Arc<TestDisk>,
    job: Option<RecorderJob>,
    tasks: Receiver<FinisherTask>,
    finisher: Finisher,
    events: Receiver<RecorderEvent>,
    pub(super) events_seen: Vec<RecorderEventKind>,
    /// Must be dropped last.
    pub(super) folder: Arc<ScratchDir>,
}

impl TestRecorder {
    pub(super) fn new(name: &str, change: impl FnOnce(&mut RecordingConfig)) -> Self {
        Self::in_folder(Arc::new(ScratchDir::new(name).unwrap()), change)
    }

    pub(super) fn in_folder(
        folder: Arc<ScratchDir>,
        change: impl FnOnce(&mut RecordingConfig),
    ) -> Self {
        let path = folder.path().to_owned();
        Self::at(&path, folder, change)
    }

    /// Records to `path`, and keeps `folder` until the end.
    pub(super) fn at(
        path: &Path,
        folder: Arc<ScratchDir>,
        change: impl FnOnce(&mut RecordingConfig),
    ) -> Self {
        Self::observed(path, folder, change, Vec::new())
    }

    /// The same with observers of the complete files.
    pub(super) fn observed(
        path: &Path,
        folder: Arc<ScratchDir>,
        change: impl FnOnce(&mut RecordingConfig),
        observers: Vec<Arc<dyn CompletionObserver>>,
    ) -> Self {
        let mut station = TestStation::new();
        let format = "wav:f32".parse().unwrap();
        let mut config = RecordingConfig::new("hall", path.into(), format).unwrap();
        change(&mut config);
        let disk = Arc::new(TestDisk::new(path));
        let (sender, tasks) = bounded(64);
        let (event_sender, events) = bounded(4_096);
        let shared = Arc::new(RecorderShared::new(&config, observers, event_sender));
        let handle = RecorderHandle { shared: shared.clone() };
        let store: Arc<dyn RecordingStore> = disk.clone();
        let mut finisher = Finisher::default();
        finisher.run_task(
            FinisherTask::Repair { store: store.clone(), shared: shared.clone() },
            FINISH_BACKOFF,
            wall_clock(start(), Span::ZERO, Span::ZERO),
        );
        let syncer = Arc::new(Syncer::start().unwrap());
        let job = Some(RecorderJob::new(
            shared,
            store,
            config,
            station.record_tap_reader(),
            sender,
            syncer,
        ));
        Self {
            station,
            now: start(),
            clock_shift: Span::ZERO,
            suspended: Span::ZERO,
            handle,
            store: disk,
            job,
            tasks,
            finisher,
            events,
            events_seen: Vec::new(),
            folder,
        }
    }

    /// Sends a command at the virtual time.
    pub(super) fn command(
        &self,
        command: RecorderCommand,
        when: CommandTime,
    ) -> Result<Option<MediaTime>, CommandError> {
        self.handle.shared.machine().handle_command(self.now, command, when)
    }

    /// Runs the recorder's threads once.
    pub(super) fn poll_recorder(&mut self) {
        let wall = wall_clock(self.now, self.clock_shift, self.suspended);
        if let Some(job) = &mut self.job {
            let done = job.step(wall);
            while job.is_syncing() {
                std::thread::yield_now();
            }
            if done {
                self.job = None;
            }
        }
        while let Ok(task) = self.tasks.try_recv() {
            self.finisher.run_task(task, FINISH_BACKOFF, wall);
        }
        while let Ok(event) = self.events.try_recv() {
            self.events_seen.push(event.kind);
        }
    }

    /// Runs the station while the recorder does not poll.
    pub(super) fn run_without_polling(&mut self, millis: u64) {
        for _ in 0..millis / 20 {
            self.now = self.station.step();
            *self.store.position.lock().unwrap() = self.position();
        }
    }

    /// The process does nothing for this time.
    pub(super) fn stop_for(&mut self, span: Span) {
        self.now += span;
        self.station.station.handle_timeout(self.now);
        self.poll_recorder();
    }

    pub(super) fn run(&mut self, millis: u64) {
        for _ in 0..millis / 20 {
            self.run_without_polling(20);
            self.poll_recorder();
        }
    }

    /// Ends the recording and returns its segments.
    pub(super) fn finish(&mut self) -> Vec<ClosedSegment> {
        self.handle.close();
        for _ in 0..1_000 {
            self.now += Span::from_millis(100);
            self.poll_recorder();
            self.finisher.retry(WallClock {
                local: Instant::from_nanos(u64::MAX),
                ..wall_clock(self.now, self.clock_shift, self.suspended)
            });
        }
        self.poll_recorder();
        assert!(self.handle.is_done(), "{:?}", self.handle.status());
        let closed = self.events_seen.iter().filter_map(|kind| match kind {
            RecorderEventKind::SegmentClosed(closed) => Some((**closed).clone()),
            _ => None,
        });
        closed.collect()
    }

    /// Restarts the station.
    pub(super) fn restart_station(&mut self) {
        self.station = TestStation::starting_at(self.now);
        self.handle.replace_tap(self.station.record_tap_reader());
    }

    /// Frames of the station's output so far.
    pub(super) fn position(&self) -> MediaTime {
        self.station.station.timeline().media_at(self.now)
    }

    pub(super) fn files(&self) -> usize {
        self.store.real.list(1_000).unwrap().len()
    }

    pub(super) fn lost(&self) -> Frames {
        self.handle.status().lost
    }
}

/// A folder with configurable faults.
pub(super) struct TestDisk {
    pub(super) real: RecordingFolder,
    pub(super) faults: Arc<Mutex<Faults>>,
    /// Position of the station.
    pub(super) position: Arc<Mutex<MediaTime>>,
}

#[derive(Default)]
pub(super) struct Faults {
    pub(super) append: Option<io::ErrorKind>,
    pub(super) create: Option<io::ErrorKind>,
    pub(super) publish: Option<io::ErrorKind>,
    /// How long a file takes to get its name.
    pub(super) publish_time: Duration,
    /// Maximum bytes of one append.
    pub(super) max_append: Option<usize>,
    pub(super) log: Option<Vec<(MediaTime, FileOperationLog)>>,
}

/// An operation on the file.
#[derive(Clone, Debug)]
pub(super) enum FileOperationLog {
    Append(Vec<u8>),
    Patch(u64, Vec<u8>),
    Sync,
}

impl TestDisk {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            real: RecordingFolder::new(path).unwrap(),
            faults: Arc::default(),
            position: Arc::default(),
        }
    }

    pub(super) fn set(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.faults.lock().unwrap());
    }
}

impl RecordingStore for TestDisk {
    fn create(&self, name: &str) -> io::Result<Box<dyn AppendFile>> {
        if let Some(kind) = self.faults.lock().unwrap().create {
            return Err(kind.into());
        }
        let inner = self.real.create(name)?;
        let (faults, position) = (self.faults.clone(), self.position.clone());
        Ok(Box::new(TestFile { inner, faults, position }))
    }

    fn exists(&self, name: &str) -> bool {
        self.real.exists(name)
    }

    fn publish(&self, from: &str, to: &str) -> io::Result<()> {
        let (error, time) = {
            let faults = self.faults.lock().unwrap();
            (faults.publish, faults.publish_time)
        };
        std::thread::sleep(time);
        match error {
            Some(kind) => Err(kind.into()),
            None => self.real.publish(from, to),
        }
    }

    fn write_atomic(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.real.write_atomic(name, bytes)
    }

    fn open(&self, name: &str) -> io::Result<File> {
        self.real.open(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.real.remove(name)
    }

    fn list(&self, most: usize) -> io::Result<Vec<FolderEntry>> {
        self.real.list(most)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.real.free_bytes()
    }

    fn path(&self) -> &Path {
        self.real.path()
    }
}

struct TestFile {
    inner: Box<dyn AppendFile>,
    faults: Arc<Mutex<Faults>>,
    position: Arc<Mutex<MediaTime>>,
}

impl TestFile {
    fn log(&self, faults: &mut Faults, op: FileOperationLog) {
        let position = *self.position.lock().unwrap();
        faults.log.iter_mut().for_each(|log| log.push((position, op.clone())));
    }
}

impl AppendFile for TestFile {
    fn append(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let faults = self.faults.clone();
        let mut faults = faults.lock().unwrap();
        if let Some(kind) = faults.append {
            return Err(kind.into());
        }
        let all: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let taken = all.len().min(faults.max_append.unwrap_or(usize::MAX));
        let taken = self.inner.append(&[IoSlice::new(&all[..taken])])?;
        self.log(&mut faults, FileOperationLog::Append(all[..taken].to_vec()));
        Ok(taken)
    }

    fn patch(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let faults = self.faults.clone();
        let mut faults = faults.lock().unwrap();
        if let Some(kind) = faults.append {
            return Err(kind.into());
        }
        self.inner.patch(at, bytes)?;
        self.log(&mut faults, FileOperationLog::Patch(at, bytes.to_vec()));
        Ok(())
    }

    fn sync_handle(&self) -> io::Result<Box<dyn SyncHandle>> {
        let (faults, position) = (self.faults.clone(), self.position.clone());
        Ok(Box::new(TestSyncHandle { faults, position, _lock: self.inner.sync_handle()? }))
    }
}

struct TestSyncHandle {
    /// Has the lock of the file, as the handle of a real disk.
    _lock: Box<dyn SyncHandle>,
    faults: Arc<Mutex<Faults>>,
    position: Arc<Mutex<MediaTime>>,
}

impl SyncHandle for TestSyncHandle {
    fn sync(&self) -> io::Result<()> {
        let position = *self.position.lock().unwrap();
        let mut faults = self.faults.lock().unwrap();
        faults.log.iter_mut().for_each(|log| log.push((position, FileOperationLog::Sync)));
        Ok(())
    }
}

/// The samples of a file that ffmpeg decodes without a warning.
pub(super) fn decode(path: &Path) -> Vec<f32> {
    let output = ffmpeg(path);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{}", path.display());
    samples(&output.stdout)
}

/// The samples that ffmpeg decodes from a file that may be truncated.
pub(super) fn decode_damaged(path: &Path) -> Vec<f32> {
    samples(&ffmpeg(path).stdout)
}

fn ffmpeg(path: &Path) -> Output {
    let mut program = Program::new("ffmpeg");
    program.args(["-nostdin", "-v", "error", "-i"]).arg(path).args(["-f", "f32le", "-"]);
    program.output().expect("ffmpeg runs")
}

/// The samples that ffmpeg decodes from these inputs.
pub(super) fn decode_inputs(inputs: &[&str]) -> Vec<f32> {
    let mut program = Program::new("ffmpeg");
    program.args(["-nostdin", "-v", "error"]).args(inputs).args(["-f", "f32le", "-"]);
    let output = program.output().expect("ffmpeg runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    samples(&output.stdout)
}

fn samples(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Checks that the samples are consecutive frames from `first` on.
pub(super) fn check_frames(samples: &[f32], first: u64) {
    for (offset, sample) in samples.iter().enumerate() {
        let expected = number(first + offset as u64);
        assert!((sample - expected).abs() == 0.0, "frame {first} + {offset}: {sample}");
    }
}

pub(super) fn json(path: &Path) -> serde_json::Value {
    let text = std::fs::read(sidecar_of(path)).unwrap();
    serde_json::from_slice(&text).unwrap()
}

pub(super) fn sidecar_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".json");
    name.into()
}

pub(super) fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap()
}

pub(super) fn sha256sum(path: &Path) -> String {
    let output = Program::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}
