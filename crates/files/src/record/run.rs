//! The threads of all recorders: one for each disk that is written to, one that makes last, one that
//! finishes.

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
use super::finish::{Finisher, Task};
use super::format::{self, About};
use super::job::Job;
use super::marker::{MarkerRefused, MarkerRequest};
use super::name::{BadPattern, MAX_NAME};
use super::report::{Event, Status};
use super::shared::Shared;
use super::store::{Folder, Store};
use super::wish::{Retention, Wish};

/// All recorders of a house.
pub struct Recorders {
    disks: HashMap<u64, Disk>,
    finisher: Option<Sender<Task>>,
    finishing: Option<JoinHandle<()>>,
    syncer: Arc<Syncer>,
    give_up: Arc<AtomicBool>,
    events: Sender<Event>,
    running: Vec<Arc<Shared>>,
}

/// One disk's thread.
struct Disk {
    jobs: Sender<Box<Job>>,
    handle: JoinHandle<()>,
}

impl Recorders {
    /// Starts the threads that all recorders share. What happens comes out of the other value; an
    /// event that finds no room there, because nobody looks, is counted in [`Status::events_lost`].
    ///
    /// # Errors
    /// When the system gives no more threads.
    pub fn start() -> io::Result<(Self, Receiver<Event>)> {
        let (finisher, tasks) = bounded(MAX_TASKS);
        let (events, told) = bounded(MAX_EVENTS);
        let give_up = Arc::new(AtomicBool::new(false));
        let told_to = give_up.clone();
        let work = move || Finisher::default().run(tasks, &told_to);
        let finishing = std::thread::Builder::new().name("aulos-finish".to_owned()).spawn(work)?;
        let new = Self {
            disks: HashMap::new(),
            finisher: Some(finisher),
            finishing: Some(finishing),
            syncer: Arc::new(Syncer::start()?),
            give_up,
            events,
            running: Vec::new(),
        };
        Ok((new, told))
    }

    /// Adds a recorder of what comes out of `spool`. It keeps its pre-roll and writes nothing until
    /// it is told to. What a crash left behind in its folder is repaired in the background.
    ///
    /// # Errors
    /// [`CannotRecord`], when the folder cannot be made or the format cannot hold the sound.
    pub fn add(&mut self, wish: Wish, spool: RecordTapReader) -> Result<Deck, CannotRecord> {
        let folder = Folder::new(&wish.folder)
            .and_then(|folder| Ok((folder.device()?, folder)))
            .map_err(|error| CannotRecord::Folder { path: wish.folder.clone(), error })?;
        let (device, folder) = folder;
        self.add_to(wish, spool, device, Arc::new(folder))
    }

    pub(super) fn add_to(
        &mut self,
        wish: Wish,
        spool: RecordTapReader,
        device: u64,
        store: Arc<dyn Store>,
    ) -> Result<Deck, CannotRecord> {
        if wish.name.len() > MAX_NAME {
            return Err(CannotRecord::Name(BadPattern::Long));
        }
        let about = About::new(spool.rate(), spool.layout(), &wish.name, UNIX_EPOCH);
        format::open(wish.format, &about, &mut Vec::new()).map_err(CannotRecord::Format)?;
        let Some(finisher) = self.finisher.clone() else { return Err(CannotRecord::Stopped) };
        let shared = Arc::new(Shared::new(&wish, self.events.clone()));
        let mend = Task::Mend { store: store.clone(), shared: shared.clone() };
        // It waits only where a thousand files are to be completed.
        if finisher.send(mend).is_err() {
            return Err(CannotRecord::Stopped);
        }
        let syncer = self.syncer.clone();
        let job = Box::new(Job::new(shared.clone(), store, wish, spool, finisher, syncer));
        let disk = self.disk(device).map_err(CannotRecord::Thread)?;
        if disk.jobs.send(job).is_err() {
            return Err(CannotRecord::Stopped);
        }
        self.running.retain(|shared| !shared.is_done());
        self.running.push(shared.clone());
        Ok(Deck { shared })
    }

    /// Ends every recorder, and waits until all that was accepted is in files that have their names;
    /// no longer than `limit`. Gives the names of those that are not done by then: what they have
    /// not written is lost, and what they have is repaired by the next start.
    pub fn stop(&mut self, limit: Span) -> Vec<String> {
        self.running.iter().for_each(|shared| shared.close());
        let deadline = SystemClock::now() + limit;
        let all_done = |running: &[Arc<Shared>]| running.iter().all(|shared| shared.is_done());
        while !all_done(&self.running) && SystemClock::now() < deadline {
            SystemClock::sleep_until(SystemClock::now() + Span::from_millis(5));
        }
        let done = all_done(&self.running);
        self.give_up.store(!done, SeqCst);
        self.finisher = None;
        for Disk { jobs, handle } in std::mem::take(&mut self.disks).into_values() {
            drop(jobs);
            // A thread that waits for a disk that does not answer is left to it. One that panicked
            // has already said so on standard error.
            if done {
                drop(handle.join());
            }
        }
        if let Some(handle) = self.finishing.take().filter(|_| done) {
            drop(handle.join());
        }
        let running = std::mem::take(&mut self.running).into_iter();
        running.filter(|shared| !shared.is_done()).map(|shared| shared.name.to_string()).collect()
    }

    fn disk(&mut self, device: u64) -> io::Result<&Disk> {
        use std::collections::hash_map::Entry;
        Ok(match self.disks.entry(device) {
            Entry::Occupied(disk) => disk.into_mut(),
            Entry::Vacant(place) => {
                let (jobs, added) = bounded(MAX_JOBS);
                let give_up = self.give_up.clone();
                let name = format!("aulos-tape-{device:x}");
                let work = move || work(added, &give_up);
                let handle = std::thread::Builder::new().name(name).spawn(work)?;
                place.insert(Disk { jobs, handle })
            }
        })
    }
}

impl Drop for Recorders {
    /// As [`Recorders::stop`], within [`STOP_LIMIT`].
    fn drop(&mut self) {
        drop(self.stop(STOP_LIMIT));
    }
}

impl fmt::Debug for Recorders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorders").field("running", &self.running.len()).finish_non_exhaustive()
    }
}

fn work(mut added: Receiver<Box<Job>>, give_up: &AtomicBool) {
    let mut jobs: Vec<Box<Job>> = Vec::new();
    let mut open = true;
    while open || !jobs.is_empty() {
        match added.recv_timeout(TICK) {
            Ok(job) => jobs.push(job),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Closed) => {
                if !open {
                    SystemClock::sleep_until(SystemClock::now() + Span::from_millis(20));
                }
                open = false;
            }
        }
        if give_up.load(SeqCst) {
            return;
        }
        jobs.retain_mut(|job| !job.step(clock::wall()));
    }
}

/// What one recorder is told, and tells. Dropped, it is as [`Deck::close`].
///
/// All of it answers at once, whatever the disk does.
pub struct Deck {
    pub(super) shared: Arc<Shared>,
}

impl Deck {
    /// Tells it to do something, and gives the exact frame at which that happens.
    /// [`Recorder::handle_command`](aulos_engine::recorder::Recorder::handle_command) has the rules. Recorders of several
    /// stations that are told to start at one [`aulos_engine::recorder::CommandTime::Local`] begin at the same moment.
    ///
    /// # Errors
    /// [`CommandError`] says why nothing has changed.
    pub fn tell(
        &self,
        command: RecorderCommand,
        when: CommandTime,
    ) -> Result<Option<MediaTime>, CommandError> {
        self.shared.machine().handle_command(SystemClock::now(), command, when)
    }

    /// Asks for a marker at the frame of `when`, which sounds now or is in the file that is written.
    /// What comes of it is known a moment later, when it is on the disk.
    ///
    /// # Errors
    /// [`MarkerRefused`] says why there will be none.
    pub fn mark(
        &self,
        label: &str,
        when: CommandTime,
    ) -> Result<Arc<MarkerRequest>, MarkerRefused> {
        self.shared.mark(label, SystemClock::now(), when)
    }

    /// Forgets every command that waits for its time.
    pub fn forget_plans(&self) {
        self.shared.machine().clear_plan();
    }

    /// How it is; the file's figures are at most a quarter of a second old, unless the disk stalls.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Goes on with another ring, when what is in the present one is written: the station has begun
    /// anew. The next frame is the first one of another segment, [`SegmentReason::Break`].
    ///
    /// [`SegmentReason::Break`]: aulos_engine::recorder::SegmentReason::Break
    pub fn replace(&self, spool: RecordTapReader) {
        self.shared.replace(spool);
    }

    /// Other rules for the ends of segments, from the present one on.
    pub fn set_rotation(&self, rotation: Rotation) {
        self.shared.machine().set_rotation(rotation);
    }

    /// Other rules for what is deleted.
    pub fn set_retention(&self, rules: Retention) {
        self.shared.set_retention(rules);
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Records to the last frame that has come, and completes the file in the background. What is
    /// told afterwards has no effect.
    pub fn close(&self) {
        self.shared.close();
    }

    /// All that was accepted is in files that have their names: so some time after
    /// [`Deck::close`].
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.shared.is_done()
    }
}

impl Drop for Deck {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Deck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deck").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

/// Why there can be no such recorder.
#[derive(Debug)]
#[non_exhaustive]
pub enum CannotRecord {
    /// The folder cannot be made or looked into.
    Folder {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The name is too long.
    Name(BadPattern),
    /// The format cannot hold such sound.
    Format(format::Refused),
    /// The system gives no more threads.
    Thread(io::Error),
    /// [`Recorders::stop`] was called before.
    Stopped,
}

impl fmt::Display for CannotRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder { path, error } => write!(
                f,
                "recordings cannot go to {}: {error}; make the folder, and let the server write to it",
                path.display()
            ),
            Self::Name(_) => write!(f, "a recorder's name has at most {MAX_NAME} bytes"),
            Self::Format(refused) => refused.fmt(f),
            Self::Thread(error) => write!(f, "no thread for a disk: {error}"),
            Self::Stopped => f.write_str("the recorders are being stopped"),
        }
    }
}

impl std::error::Error for CannotRecord {}

/// How often a recorder looks for sound.
const TICK: Duration = Duration::from_millis(50);

/// How long dropping [`Recorders`] waits for its disks.
pub const STOP_LIMIT: Span = Span::from_secs(10);

/// Recorders that wait for their thread.
const MAX_JOBS: usize = 64;

/// Files that wait to be completed.
const MAX_TASKS: usize = 1_024;

/// Events that wait for somebody to take them.
const MAX_EVENTS: usize = 1_024;
