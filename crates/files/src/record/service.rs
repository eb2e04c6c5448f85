//! The threads of all recorders: one for each disk that is written to, one that syncs, one that
//! completes files.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, UNIX_EPOCH};

use aulos_core::{MediaTime, Span};
use aulos_engine::recorder::{
    CommandError, CommandTime, RecordTapReader, RecorderCommand, Rotation,
};
use aulos_io::SystemClock;
use aulos_io::disk::Syncer;
use aulos_rt::channel::{Receiver, Sender, TryRecvError, bounded};

use super::clock;
use super::config::{CompletionObserver, RecordingConfig, RetentionRules};
use super::file_name::{InvalidPattern, MAX_RECORDER_NAME_BYTES};
use super::finisher::{Finisher, FinisherTask};
use super::format::{self, FileMetadata};
use super::job::RecorderJob;
use super::marker::{MarkerError, MarkerRequest};
use super::report::{RecorderEvent, RecorderStatus};
use super::shared::RecorderShared;
use super::store::{RecordingFolder, RecordingStore};

/// All recorders of a process.
pub struct RecorderService {
    disks: HashMap<u64, DiskThread>,
    finisher: Option<Sender<FinisherTask>>,
    finisher_thread: Option<JoinHandle<()>>,
    syncer: Arc<Syncer>,
    abort: Arc<AtomicBool>,
    events: Sender<RecorderEvent>,
    running: Vec<Arc<RecorderShared>>,
}

/// The thread of one disk.
struct DiskThread {
    jobs: Sender<Box<RecorderJob>>,
    handle: JoinHandle<()>,
}

impl RecorderService {
    /// Starts the threads that all recorders share. Events are received from the second value; an
    /// event that does not fit into its queue is counted in [`RecorderStatus::events_lost`].
    ///
    /// # Errors
    /// When the system cannot create a thread.
    pub fn start() -> io::Result<(Self, Receiver<RecorderEvent>)> {
        let (finisher, tasks) = bounded(MAX_TASKS);
        let (events, received) = bounded(MAX_EVENTS);
        let abort = Arc::new(AtomicBool::new(false));
        let finisher_abort = abort.clone();
        let work = move || Finisher::default().run(tasks, &finisher_abort);
        let finisher_thread =
            std::thread::Builder::new().name("aulos-finish".to_owned()).spawn(work)?;
        let new = Self {
            disks: HashMap::new(),
            finisher: Some(finisher),
            finisher_thread: Some(finisher_thread),
            syncer: Arc::new(Syncer::start()?),
            abort,
            events,
            running: Vec::new(),
        };
        Ok((new, received))
    }

    /// Adds a recorder of the sound in `tap`, whose complete files `observers` are notified of. It keeps its pre-roll and writes nothing before it
    /// gets a command. Files that a crash left in its folder are repaired in the background.
    ///
    /// # Errors
    /// [`RecorderError`] when the folder cannot be created or the format cannot store the sound.
    pub fn add(
        &mut self,
        config: RecordingConfig,
        observers: Vec<Arc<dyn CompletionObserver>>,
        tap: RecordTapReader,
    ) -> Result<RecorderHandle, RecorderError> {
        let open =
            if config.must_be_mounted { RecordingFolder::mounted } else { RecordingFolder::new };
        let folder = open(&config.folder)
            .and_then(|folder| Ok((folder.device()?, folder)))
            .map_err(|error| RecorderError::Folder { path: config.folder.clone(), error })?;
        let (device, folder) = folder;
        self.add_to((config, observers), tap, device, Arc::new(folder))
    }

    pub(super) fn add_to(
        &mut self,
        (config, observers): (RecordingConfig, Vec<Arc<dyn CompletionObserver>>),
        tap: RecordTapReader,
        device: u64,
        store: Arc<dyn RecordingStore>,
    ) -> Result<RecorderHandle, RecorderError> {
        if config.name.len() > MAX_RECORDER_NAME_BYTES {
            return Err(RecorderError::Name(InvalidPattern::TooLong));
        }
        let metadata = FileMetadata::new(tap.rate(), tap.layout(), &config.name, UNIX_EPOCH);
        format::make_file_encoder(config.format, &metadata, &mut Vec::new())
            .map_err(RecorderError::Format)?;
        let Some(finisher) = self.finisher.clone() else { return Err(RecorderError::Stopped) };
        let shared = Arc::new(RecorderShared::new(&config, observers, self.events.clone()));
        let repair = FinisherTask::Repair { store: store.clone(), shared: shared.clone() };
        // It blocks only while a thousand files wait to be completed.
        if finisher.send(repair).is_err() {
            return Err(RecorderError::Stopped);
        }
        let syncer = self.syncer.clone();
        let job = Box::new(RecorderJob::new(shared.clone(), store, config, tap, finisher, syncer));
        let disk = self.disk(device).map_err(RecorderError::Thread)?;
        if disk.jobs.send(job).is_err() {
            return Err(RecorderError::Stopped);
        }
        self.running.retain(|shared| !shared.is_done());
        self.running.push(shared.clone());
        Ok(RecorderHandle { shared })
    }

    /// Stops every recorder, and waits until all accepted sound is in files that have their names:
    /// until none has been completed for `limit`, and for at most a minute or `limit`, if that is
    /// longer. Returns the names of the recorders that are not done by then: sound not yet written
    /// is lost, the incomplete files are repaired at the next start.
    pub fn stop(&mut self, limit: Span) -> Vec<String> {
        self.running.iter().for_each(|shared| shared.request_close());
        let done = self.wait_until_done(limit);
        self.abort.store(!done, SeqCst);
        self.finisher = None;
        for DiskThread { jobs, handle } in std::mem::take(&mut self.disks).into_values() {
            drop(jobs);
            // A thread that is blocked by its disk is not joined. A panicked one has already
            // reported on standard error.
            if done {
                drop(handle.join());
            }
        }
        if let Some(handle) = self.finisher_thread.take().filter(|_| done) {
            drop(handle.join());
        }
        let running = std::mem::take(&mut self.running).into_iter();
        running.filter(|shared| !shared.is_done()).map(|shared| shared.name.to_string()).collect()
    }

    /// Whether all recorders are done.
    fn wait_until_done(&self, limit: Span) -> bool {
        let waiting = || self.running.iter().filter(|shared| !shared.is_done()).count();
        let last = SystemClock::now() + limit.max(LONGEST_STOP);
        let (mut left, mut deadline) = (waiting(), SystemClock::now() + limit);
        while left > 0 && SystemClock::now() < deadline.min(last) {
            SystemClock::sleep_until(SystemClock::now() + Span::from_millis(5));
            let now_left = waiting();
            if now_left < left {
                (left, deadline) = (now_left, SystemClock::now() + limit);
            }
        }
        left == 0
    }

    fn disk(&mut self, device: u64) -> io::Result<&DiskThread> {
        use std::collections::hash_map::Entry;
        Ok(match self.disks.entry(device) {
            Entry::Occupied(disk) => disk.into_mut(),
            Entry::Vacant(entry) => {
                let (jobs, new_jobs) = bounded(MAX_JOBS);
                let abort = self.abort.clone();
                let name = format!("aulos-rec-{device:x}");
                let work = move || run_disk(new_jobs, &abort);
                let handle = std::thread::Builder::new().name(name).spawn(work)?;
                entry.insert(DiskThread { jobs, handle })
            }
        })
    }
}

impl Drop for RecorderService {
    /// As [`RecorderService::stop`], within [`STOP_LIMIT`].
    fn drop(&mut self) {
        drop(self.stop(STOP_LIMIT));
    }
}

impl fmt::Debug for RecorderService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecorderService")
            .field("running", &self.running.len())
            .finish_non_exhaustive()
    }
}

fn run_disk(mut new_jobs: Receiver<Box<RecorderJob>>, abort: &AtomicBool) {
    let mut jobs: Vec<Box<RecorderJob>> = Vec::new();
    let mut open = true;
    while open || !jobs.is_empty() {
        match new_jobs.recv_timeout(TICK) {
            Ok(job) => jobs.push(job),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Closed) => {
                if !open {
                    SystemClock::sleep_until(SystemClock::now() + Span::from_millis(20));
                }
                open = false;
            }
        }
        if abort.load(SeqCst) {
            return;
        }
        jobs.retain_mut(|job| !job.step(clock::wall_clock()));
    }
}

/// Commands and status of one recorder. Dropping it is the same as [`RecorderHandle::close`].
///
/// No function waits for the disk.
pub struct RecorderHandle {
    pub(super) shared: Arc<RecorderShared>,
}

impl RecorderHandle {
    /// Sends a command and returns the exact frame at which it takes effect.
    /// [`Recorder::handle_command`](aulos_engine::recorder::Recorder::handle_command) has the
    /// rules. Recorders of several stations that get the same
    /// [`aulos_engine::recorder::CommandTime::Local`] start at the same time.
    ///
    /// # Errors
    /// [`CommandError`] when nothing has changed.
    pub fn command(
        &self,
        command: RecorderCommand,
        when: CommandTime,
    ) -> Result<Option<MediaTime>, CommandError> {
        self.shared.machine().handle_command(SystemClock::now(), command, when)
    }

    /// Requests a marker at the frame of `when`, which is playing now or is in the current file.
    /// The outcome is known when the marker is on the disk.
    ///
    /// # Errors
    /// [`MarkerError`] when the request is rejected.
    pub fn add_marker(
        &self,
        label: &str,
        when: CommandTime,
    ) -> Result<Arc<MarkerRequest>, MarkerError> {
        self.shared.request_marker(label, SystemClock::now(), when)
    }

    /// Cancels all scheduled commands.
    pub fn clear_scheduled_commands(&self) {
        self.shared.machine().clear_plan();
    }

    /// Status; the figures of the file are at most a quarter of a second old, unless the disk
    /// stalls.
    #[must_use]
    pub fn status(&self) -> RecorderStatus {
        self.shared.status()
    }

    /// Continues with another tap when the content of the current one is written: the station was
    /// restarted. The next frame is the first one of another segment, [`SegmentReason::Break`].
    ///
    /// [`SegmentReason::Break`]: aulos_engine::recorder::SegmentReason::Break
    pub fn replace_tap(&self, tap: RecordTapReader) {
        self.shared.replace_tap(tap);
    }

    /// Changes the rotation rules, from the current segment on.
    pub fn set_rotation(&self, rotation: Rotation) {
        self.shared.machine().set_rotation(rotation);
    }

    /// Changes the retention rules.
    pub fn set_retention(&self, rules: RetentionRules) {
        self.shared.set_retention(rules);
    }

    /// Name of the recorder.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Records up to the last frame received, and completes the file in the background. Later
    /// commands have no effect.
    pub fn close(&self) {
        self.shared.request_close();
    }

    /// Whether all accepted sound is in files that have their names; true some time after
    /// [`RecorderHandle::close`].
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.shared.is_done()
    }
}

impl Drop for RecorderHandle {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for RecorderHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecorderHandle").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

/// Why a recorder cannot be added.
#[derive(Debug)]
#[non_exhaustive]
pub enum RecorderError {
    /// The folder cannot be created or accessed.
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The name is too long.
    Name(InvalidPattern),
    /// The format cannot store the sound.
    Format(format::UnsupportedFileFormat),
    /// The system cannot create a thread.
    Thread(io::Error),
    /// [`RecorderService::stop`] was called before.
    Stopped,
}

impl fmt::Display for RecorderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder { path, error } => write!(
                f,
                "cannot use recording folder {}: {error}; create it and make it writable",
                path.display()
            ),
            Self::Name(_) => {
                write!(f, "the recorder's name is longer than {MAX_RECORDER_NAME_BYTES} bytes")
            }
            Self::Format(refused) => refused.fmt(f),
            Self::Thread(error) => write!(f, "cannot create a thread for the disk: {error}"),
            Self::Stopped => f.write_str("the server is stopping"),
        }
    }
}

impl std::error::Error for RecorderError {}

/// Interval at which the taps are polled.
const TICK: Duration = Duration::from_millis(50);

/// Longest wait for many files while the disk proceeds: less than the 90 seconds that systemd
/// gives.
const LONGEST_STOP: Span = Span::from_secs(60);

/// Maximum time that dropping [`RecorderService`] waits for disks.
pub const STOP_LIMIT: Span = Span::from_secs(10);

/// Recorders in the queue of a disk's thread.
const MAX_JOBS: usize = 64;

/// Files in the queue of the finisher.
const MAX_TASKS: usize = 1_024;

/// Events in the queue.
const MAX_EVENTS: usize = 1_024;
