//! A station that counts, a recorder on it, and a disk that can be broken.

use std::fs::File;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::process::{Command as Program, Output};
use std::sync::{Arc, Mutex};

use aulos_blackbox::scratch::ScratchDir;
use aulos_core::{
    Block, ChannelLayout, Codec, Frames, Instant, MediaTime, SampleFormat, SampleRate, SampleSpec,
    Span,
};
use aulos_engine::encode::make_encoder;
use aulos_engine::input::{self, Input};
use aulos_engine::output_bus::OutputBusHandle;
use aulos_engine::recorder::{
    CommandError, CommandTime, DEFAULT_CAPACITY, RecordTapReader, RecorderCommand, TapPoint,
    UnixTime, WallClock, record_tap,
};
use aulos_engine::source::{Pacing, PullResult, Source};
use aulos_engine::station::{Station, StationConfig};
use aulos_engine::status::StationStatus;
use aulos_engine::switch;
use aulos_io::disk::{AppendFile, SyncHandle, Syncer};
use aulos_rt::channel::{Receiver, bounded};

use crate::record::finish::{Finisher, Task};
use crate::record::job::Job;
use crate::record::shared::Shared;
use crate::record::store::{Entry, Folder, Store};
use crate::record::{Closed, Deck, Event, What, Wish};

/// Each frame is its own number over a million.
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

/// Never 0, which is silence; 20 bits, so that 24 hold it.
#[allow(clippy::cast_precision_loss, reason = "20 bits")]
fn counted(frame: u64) -> f32 {
    (frame % 1_000_000 + 1) as f32 / 1_048_576.0
}

/// What goes out at a frame: a source comes late by its resampler, and before it there is silence.
pub(super) fn number(frame: u64) -> f32 {
    frame.checked_sub(LATE).map_or(0.0, counted)
}

/// How late that is.
pub(super) const LATE: u64 = 40;

/// A station whose output is the count of its frames.
pub(super) struct Studio {
    pub(super) station: Station,
    outlets: OutputBusHandle,
}

impl Studio {
    pub(super) fn new() -> Self {
        Self::beginning(start())
    }

    fn beginning(now: Instant) -> Self {
        let (rate, layout) = (SampleRate::HZ_48000, ChannelLayout::MONO);
        let spec = SampleSpec { rate, format: SampleFormat::S16Le, layout };
        let input = Input::new(Box::new(Counter(0)), rate, layout, input::Config::default());
        let quantum = Frames(960);
        let config = StationConfig {
            quantum,
            switch: switch::Config { startup_wait: Some(Span::ZERO), ..switch::Config::default() },
            crossfade: Span::ZERO,
            write_header: |_, _, _, _| 0,
        };
        let (published, _) = aulos_rt::latest(StationStatus::new(now));
        let encoder = make_encoder(Codec::Pcm, spec, quantum).unwrap();
        let pool = aulos_rt::Pool::new(2, || Vec::with_capacity(8_192));
        let mut station =
            Station::new(config, now, [input].into(), encoder, pool, vec![], published);
        let outlets = station.output_bus();
        Self { station, outlets }
    }

    pub(super) fn listen(&mut self) -> RecordTapReader {
        let (pickup, spool) = record_tap(
            TapPoint::Output,
            SampleRate::HZ_48000,
            ChannelLayout::MONO,
            DEFAULT_CAPACITY,
        );
        self.outlets.add(pickup).unwrap();
        spool
    }

    /// One quantum; when it is over.
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

/// 2026-11-22T12:00:50Z, when the station begins.
const NOON: i64 = 1_795_348_850;

/// A studio with one recorder on it, everything on one thread and in virtual time.
pub(super) struct Rig {
    pub(super) studio: Studio,
    pub(super) now: Instant,
    /// What the clock on the wall was set by.
    pub(super) shift: Span,
    pub(super) deck: Deck,
    pub(super) disk: Arc<TestDisk>,
    job: Option<Job>,
    tasks: Receiver<Task>,
    finisher: Finisher,
    events: Receiver<Event>,
    pub(super) told: Vec<What>,
    /// It goes last.
    pub(super) folder: Arc<ScratchDir>,
}

impl Rig {
    pub(super) fn new(name: &str, change: impl FnOnce(&mut Wish)) -> Self {
        Self::in_folder(Arc::new(ScratchDir::new(name).unwrap()), change)
    }

    pub(super) fn in_folder(folder: Arc<ScratchDir>, change: impl FnOnce(&mut Wish)) -> Self {
        let path = folder.path().to_owned();
        Self::at(&path, folder, change)
    }

    /// Records to `path`, and keeps `folder` as long as it is there.
    pub(super) fn at(path: &Path, folder: Arc<ScratchDir>, change: impl FnOnce(&mut Wish)) -> Self {
        let mut studio = Studio::new();
        let format = "wav:f32".parse().unwrap();
        let mut wish = Wish::new("hall", path.into(), format).unwrap();
        change(&mut wish);
        let disk = Arc::new(TestDisk::new(path));
        let (sender, tasks) = bounded(64);
        let (told, events) = bounded(4_096);
        let shared = Arc::new(Shared::new(&wish, told));
        let deck = Deck { shared: shared.clone() };
        let store: Arc<dyn Store> = disk.clone();
        let mut finisher = Finisher::default();
        finisher.try_it(Task::Mend { store: store.clone(), shared: shared.clone() }, 0);
        let syncer = Arc::new(Syncer::start().unwrap());
        let job = Some(Job::new(shared, store, wish, studio.listen(), sender, syncer));
        let (now, shift, told) = (start(), Span::ZERO, Vec::new());
        Self { studio, now, shift, deck, disk, job, tasks, finisher, events, told, folder }
    }

    /// As the deck does, in the rig's own time.
    pub(super) fn tell(
        &self,
        command: RecorderCommand,
        when: CommandTime,
    ) -> Result<Option<MediaTime>, CommandError> {
        self.deck.shared.machine().handle_command(self.now, command, when)
    }

    /// The recorder's thread looks.
    pub(super) fn look(&mut self) {
        let utc = NOON * 1_000_000_000 + (self.now - start() + self.shift).as_nanos();
        let wall =
            WallClock { local: self.now, utc: UnixTime::from_nanos(utc), offset: Span::ZERO };
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
            self.finisher.try_it(task, 0);
        }
        while let Ok(event) = self.events.try_recv() {
            self.told.push(event.what);
        }
    }

    /// The station goes on, and nobody takes anything from it.
    pub(super) fn stand_still(&mut self, millis: u64) {
        for _ in 0..millis / 20 {
            self.now = self.studio.step();
            *self.disk.position.lock().unwrap() = self.position();
        }
    }

    pub(super) fn run(&mut self, millis: u64) {
        for _ in 0..millis / 20 {
            self.stand_still(20);
            self.look();
        }
    }

    /// Ends the recording, and gives the files of it.
    pub(super) fn finish(&mut self) -> Vec<Closed> {
        self.deck.close();
        for _ in 0..1_000 {
            self.now += Span::from_millis(100);
            self.look();
            self.finisher.retry(Instant::from_nanos(u64::MAX));
        }
        self.look();
        assert!(self.deck.is_done(), "{:?}", self.deck.status());
        let closed = self.told.iter().filter_map(|what| match what {
            What::Closed(closed) => Some((**closed).clone()),
            _ => None,
        });
        closed.collect()
    }

    /// The station begins anew.
    pub(super) fn begin_anew(&mut self) {
        self.studio = Studio::beginning(self.now);
        self.deck.replace(self.studio.listen());
    }

    /// Frames that the station has given out.
    pub(super) fn position(&self) -> MediaTime {
        self.studio.station.timeline().media_at(self.now)
    }

    pub(super) fn files(&self) -> usize {
        self.disk.real.list(1_000).unwrap().len()
    }

    pub(super) fn lost(&self) -> Frames {
        self.deck.status().lost
    }
}

/// A folder that does as it is told.
pub(super) struct TestDisk {
    pub(super) real: Folder,
    pub(super) faults: Arc<Mutex<Faults>>,
    /// Where the station is.
    pub(super) position: Arc<Mutex<MediaTime>>,
}

#[derive(Default)]
pub(super) struct Faults {
    pub(super) append: Option<io::ErrorKind>,
    pub(super) create: Option<io::ErrorKind>,
    pub(super) publish: Option<io::ErrorKind>,
    /// It takes no more than this at a time.
    pub(super) short: Option<usize>,
    pub(super) log: Option<Vec<(MediaTime, Op)>>,
}

/// What was done to the file.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Append(Vec<u8>),
    Patch(u64, Vec<u8>),
    Sync,
}

impl TestDisk {
    fn new(path: &Path) -> Self {
        Self { real: Folder::new(path).unwrap(), faults: Arc::default(), position: Arc::default() }
    }

    pub(super) fn set(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.faults.lock().unwrap());
    }
}

impl Store for TestDisk {
    fn create(&self, name: &str) -> io::Result<Box<dyn AppendFile>> {
        if let Some(kind) = self.faults.lock().unwrap().create {
            return Err(kind.into());
        }
        let inner = self.real.create(name)?;
        let (faults, position) = (self.faults.clone(), self.position.clone());
        Ok(Box::new(TestFile { inner, faults, position }))
    }

    fn has(&self, name: &str) -> bool {
        self.real.has(name)
    }

    fn publish(&self, from: &str, to: &str) -> io::Result<()> {
        match self.faults.lock().unwrap().publish {
            Some(kind) => Err(kind.into()),
            None => self.real.publish(from, to),
        }
    }

    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.real.put(name, bytes)
    }

    fn open(&self, name: &str) -> io::Result<File> {
        self.real.open(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.real.remove(name)
    }

    fn list(&self, most: usize) -> io::Result<Vec<Entry>> {
        self.real.list(most)
    }

    fn free(&self) -> io::Result<u64> {
        self.real.free()
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
    fn log(&self, faults: &mut Faults, op: Op) {
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
        let taken = all.len().min(faults.short.unwrap_or(usize::MAX));
        let taken = self.inner.append(&[IoSlice::new(&all[..taken])])?;
        self.log(&mut faults, Op::Append(all[..taken].to_vec()));
        Ok(taken)
    }

    fn patch(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let faults = self.faults.clone();
        let mut faults = faults.lock().unwrap();
        if let Some(kind) = faults.append {
            return Err(kind.into());
        }
        self.inner.patch(at, bytes)?;
        self.log(&mut faults, Op::Patch(at, bytes.to_vec()));
        Ok(())
    }

    fn sync_handle(&self) -> io::Result<Box<dyn SyncHandle>> {
        let (faults, position) = (self.faults.clone(), self.position.clone());
        Ok(Box::new(TestLasting { faults, position }))
    }
}

struct TestLasting {
    faults: Arc<Mutex<Faults>>,
    position: Arc<Mutex<MediaTime>>,
}

impl SyncHandle for TestLasting {
    fn sync(&self) -> io::Result<()> {
        let position = *self.position.lock().unwrap();
        let mut faults = self.faults.lock().unwrap();
        faults.log.iter_mut().for_each(|log| log.push((position, Op::Sync)));
        Ok(())
    }
}

/// The sound of a file, as ffmpeg hears it, which finds nothing wrong with it.
pub(super) fn sound(path: &Path) -> Vec<f32> {
    let output = ffmpeg(path);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{}", path.display());
    samples(&output.stdout)
}

/// What it hears of a file that may be torn.
pub(super) fn hear(path: &Path) -> Vec<f32> {
    samples(&ffmpeg(path).stdout)
}

fn ffmpeg(path: &Path) -> Output {
    let mut program = Program::new("ffmpeg");
    program.args(["-nostdin", "-v", "error", "-i"]).arg(path).args(["-f", "f32le", "-"]);
    program.output().expect("ffmpeg runs")
}

/// What ffmpeg hears of these inputs.
pub(super) fn samples_of(inputs: &[&str]) -> Vec<f32> {
    let mut program = Program::new("ffmpeg");
    program.args(["-nostdin", "-v", "error"]).args(inputs).args(["-f", "f32le", "-"]);
    let output = program.output().expect("ffmpeg runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    samples(&output.stdout)
}

fn samples(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Every frame is the one that follows the one before.
pub(super) fn check_run(samples: &[f32], first: u64) {
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
