//! The uploads of one recording: who adds to them and asks how they do, and the chore that does
//! them.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aulos_config::Upload;
use aulos_core::Instant;
use aulos_io::SystemClock;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::failure::Failure;
use super::journal::{Entry, Journal};
use super::line::{Fault, Line, MAX_LISTED, Next};
use super::ship::{Shipped, Tools, ship};
use super::{LAST_UPLOAD, MAX_EVENTS, Pace, Phase, UploadEvent, UploadState};
use crate::dial::Dialer;
use crate::radio::Chore;

/// Uploads the closed files of a recording.
///
/// It is a handle, and may be cloned. When the last is dropped its chore begins nothing more; what is
/// under way has [`LAST_UPLOAD`], and goes on in the next life with the part that it was in.
///
/// Memory is held for `concurrency` parts and for the names of 256 files, however many wait.
#[derive(Clone, Debug)]
pub struct Uploader {
    shared: Arc<Shared>,
    /// Tells the chore, by being gone, that nobody wants it any more.
    _held: Arc<watch::Sender<()>>,
}

#[derive(Debug)]
struct Shared {
    tools: Tools,
    adding: Mutex<()>,
    seen: Mutex<Seen>,
    /// There is something new.
    wake: Notify,
    ends: watch::Sender<bool>,
    /// Whether the chore runs.
    over: watch::Sender<bool>,
}

/// What can be seen, and what has been added since the chore looked.
#[derive(Debug, Default)]
struct Seen {
    state: UploadState,
    wrong_since: Option<Instant>,
    retry_at: Option<Instant>,
    lasting: bool,
    added: Vec<String>,
    /// More were added than are remembered: the folder has them.
    more: bool,
    events: VecDeque<UploadEvent>,
}

impl Uploader {
    /// Uploads of what is recorded in `root`; what waits is noted in `spool`, a folder of its own.
    /// What waited there already goes on. The chore is to be run by a [`Porter`](super::Porter): it
    /// reads files and computes digests where it runs.
    ///
    /// # Errors
    /// What the file system says when the folder is made or read.
    pub fn new(config: &Upload, root: &Path, spool: &Path) -> io::Result<(Self, Chore)> {
        Self::with(config, root, spool, Pace::default(), Arc::default())
    }

    pub(super) fn with(
        config: &Upload,
        root: &Path,
        spool: &Path,
        pace: Pace,
        dialer: Arc<Dialer>,
    ) -> io::Result<(Self, Chore)> {
        let journal = Journal::open(spool)?;
        let (config, root) = (config.clone(), root.to_owned());
        let tools = Tools { config, root, journal, dialer, pace };
        let (held, holders) = watch::channel(());
        let shared = Arc::new(Shared {
            tools,
            adding: Mutex::default(),
            seen: Mutex::default(),
            wake: Notify::new(),
            ends: watch::Sender::new(false),
            over: watch::Sender::new(false),
        });
        shared.count()?;
        let chore = Box::pin(run(Arc::clone(&shared), holders));
        Ok((Self { shared, _held: Arc::new(held) }, chore))
    }

    /// Lets a file be uploaded, and `sidecar` with it, which is deleted with it too. It is noted on
    /// the disk when this returns: no kill and no power cut makes it forgotten from here on. It may
    /// be called before a file gets its name, as long as there is another with `.part` behind it.
    ///
    /// It writes a small file and waits until the disk has it, so it is for the thread that closed
    /// the file, and for no thread of the sound. What was added already is not added again.
    ///
    /// # Errors
    /// What the file system says, and [`io::ErrorKind::InvalidInput`] for a name that is no UTF-8.
    pub fn add(&self, file: &Path, sidecar: Option<&Path>) -> io::Result<()> {
        let shared = &self.shared;
        let name = Journal::name_of(file);
        let key = shared.tools.key(file).filter(|_| file.to_str().is_some());
        let key = key.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        // So that two who add the same file count it once. Whoever asks how we do does not wait.
        let adding = shared.adding.lock().unwrap_or_else(PoisonError::into_inner);
        if !shared.tools.journal.holds(file) {
            let bytes = std::fs::metadata(file).map_or(0, |found| found.len());
            let (file, sidecar) = (file.to_owned(), sidecar.map(Path::to_owned));
            let entry = Entry { file, sidecar, key, bytes, ..Entry::default() };
            shared.tools.journal.write(&name, &entry)?;
            let mut seen = shared.seen();
            seen.state.waiting += 1;
            seen.state.waiting_bytes += bytes;
        }
        drop(adding);
        let mut seen = shared.seen();
        if seen.added.len() < MAX_LISTED {
            seen.added.push(name);
        } else {
            seen.more = true;
        }
        drop(seen);
        shared.wake.notify_one();
        Ok(())
    }

    /// Whether this file has been added, and the server does not have it yet: it must not be deleted
    /// to make room. It looks at the disk.
    #[must_use]
    pub fn is_waiting(&self, file: &Path) -> bool {
        self.shared.tools.journal.holds(file)
    }

    /// How they do.
    #[must_use]
    pub fn state(&self) -> UploadState {
        let now = SystemClock::now();
        let seen = self.shared.seen();
        let state = &seen.state;
        let phase = match (state.uploading, &state.error) {
            (0, None) => Phase::Idle,
            (0, Some(_)) if seen.lasting => Phase::Refused,
            (0, Some(_)) => Phase::Waiting,
            _ => Phase::Uploading,
        };
        UploadState {
            phase,
            since: seen.wrong_since.map(|since| now.since(since)),
            retry_in: seen.retry_at.map(|at| at.since(now)),
            ..state.clone()
        }
    }

    /// What has happened since this was asked last; the newest [`MAX_EVENTS`].
    #[must_use]
    pub fn take_events(&self) -> Vec<UploadEvent> {
        self.shared.seen().events.drain(..).collect()
    }

    /// Begins nothing more, and waits until what is under way is over, [`LAST_UPLOAD`] at most. It
    /// is the chore that ends them, so it has to be run.
    pub async fn end(&self) {
        self.shared.ends.send_replace(true);
        let mut over = self.shared.over.subscribe();
        // Whoever does not run the chore has nothing to wait for.
        timeout(LAST_UPLOAD * 2, over.wait_for(|over| *over)).await.ok();
    }
}

impl Shared {
    /// A panic while it was held is a bug that was reported; counters are whole at any moment.
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what waited before this life.
    fn count(&self) -> io::Result<()> {
        let mut names = Vec::new();
        self.tools.journal.list(0, |_| false, |name| names.push(name.to_owned()))?;
        let mut seen = self.seen();
        for name in names {
            match self.tools.journal.read(&name) {
                Ok(Some(entry)) => {
                    seen.state.waiting += 1;
                    seen.state.waiting_bytes += entry.bytes;
                }
                Ok(None) => {}
                Err(error) => seen.broken(&name, &error),
            }
        }
        Ok(())
    }
}

impl Seen {
    fn tell(&mut self, event: UploadEvent) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn broken(&mut self, name: &str, error: &io::Error) {
        self.state.broken += 1;
        tracing::error!("the note {name} of a file to be uploaded cannot be read: {error}");
    }

    fn ended(&mut self, entry: &Entry) {
        self.state.waiting = self.state.waiting.saturating_sub(1);
        self.state.waiting_bytes = self.state.waiting_bytes.saturating_sub(entry.bytes);
    }

    fn well(&mut self) {
        (self.state.error, self.wrong_since, self.lasting) = (None, None, false);
    }
}

/// How one try ended.
struct Ended {
    name: String,
    entry: Entry,
    /// Parts that the server had before.
    had: usize,
    outcome: Result<Shipped, Failure>,
}

/// Uploads one after the other, until nobody wants it any more.
async fn run(shared: Arc<Shared>, mut holders: watch::Receiver<()>) {
    let pace = shared.tools.pace;
    let seed = RandomState::new().hash_one(shared.tools.config.bucket.as_str());
    let mut line = Line::new(shared.tools.config.concurrency, pace, seed);
    let mut running = JoinSet::new();
    let mut ends = shared.ends.subscribe();
    loop {
        let now = SystemClock::now();
        take_added(&shared, &mut line);
        let pause = match line.next(now) {
            Next::Start(name) => {
                start(&shared, &mut line, &mut running, name);
                continue;
            }
            Next::Look => match look(&shared, &mut line, now) {
                Ok(()) => continue,
                // The folder of the journal cannot be read now.
                Err(_) => Some(Duration::from_nanos(nanos(pace.longest.as_nanos()))),
            },
            Next::Wait(until) => {
                until.map(|until| Duration::from_nanos(nanos(until.since(now).as_nanos())))
            }
        };
        shared.seen().retry_at = line.retry_at(now);
        let pause = async {
            match pause {
                Some(pause) => sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = pause => {}
            () = shared.wake.notified() => {}
            Some(ended) = running.join_next() => {
                if let Ok(ended) = ended {
                    settle(&shared, &mut line, ended);
                }
            }
            _ = ends.wait_for(|ends| *ends) => break,
            // It never changes: it goes with the last handle.
            _ = holders.changed() => break,
        }
    }
    let last = async {
        while let Some(ended) = running.join_next().await {
            if let Ok(ended) = ended {
                settle(&shared, &mut line, ended);
            }
        }
    };
    timeout(LAST_UPLOAD, last).await.ok();
    running.shutdown().await;
    shared.seen().state.uploading = 0;
    shared.over.send_replace(true);
}

fn nanos(span: i64) -> u64 {
    u64::try_from(span).unwrap_or(0)
}

fn take_added(shared: &Shared, line: &mut Line) {
    let (added, more) = {
        let mut seen = shared.seen();
        (std::mem::take(&mut seen.added), std::mem::take(&mut seen.more))
    };
    for name in added {
        line.offer(&name);
    }
    if more {
        line.look();
    }
}

/// Finds in the folder what the line does not remember.
fn look(shared: &Shared, line: &mut Line, now: Instant) -> io::Result<()> {
    let wanted = |name: &str| line.wants(name, now);
    let found = shared.tools.journal.list(MAX_LISTED, wanted, |_| ());
    let found = found.inspect_err(|error| tracing::warn!("files to be uploaded: {error}"))?;
    line.found(found.names, found.more);
    Ok(())
}

fn start(shared: &Arc<Shared>, line: &mut Line, running: &mut JoinSet<Ended>, name: String) {
    match shared.tools.journal.read(&name) {
        Ok(Some(mut entry)) => {
            shared.seen().state.uploading = line.active();
            let shared = Arc::clone(shared);
            running.spawn(async move {
                let had = parts(&entry);
                let outcome = ship(&shared.tools, &name, &mut entry).await;
                Ended { name, entry, had, outcome }
            });
        }
        // It was added twice, and is done.
        Ok(None) => line.done(&name),
        Err(error) => {
            line.done(&name);
            shared.seen().broken(&name, &error);
        }
    }
}

fn parts(entry: &Entry) -> usize {
    entry.begun.as_ref().map_or(0, |begun| begun.parts.len())
}

/// Draws the conclusions.
fn settle(shared: &Shared, line: &mut Line, ended: Ended) {
    let Ended { name, mut entry, had, outcome } = ended;
    match outcome {
        Ok(Shipped::NotYet) => line.failed(SystemClock::now(), &name, Fault::File),
        Ok(done) => {
            line.done(&name);
            let mut seen = shared.seen();
            seen.ended(&entry);
            let file = entry.file.clone();
            if done == Shipped::Gone {
                tracing::warn!("{} was deleted before it was uploaded", file.display());
                seen.state.gone += 1;
                seen.tell(UploadEvent::Gone { file });
            } else {
                seen.state.done += 1;
                seen.state.done_bytes += entry.bytes;
                seen.well();
                let url = format!("s3://{}/{}", shared.tools.config.bucket, entry.key);
                let (bytes, tries) = (entry.bytes, entry.tries);
                seen.tell(UploadEvent::Uploaded { file, url, bytes, tries });
            }
        }
        Err(failure) => {
            if parts(&entry) > had {
                line.progress();
            }
            let fault = match failure.is_of_the_file() {
                true => Fault::File,
                false => Fault::Server { lasting: failure.is_lasting() },
            };
            line.failed(SystemClock::now(), &name, fault);
            entry.tries += 1;
            // To the end of the line. Where that cannot be noted, it is found where it was.
            shared.tools.journal.write(&name, &entry).ok();
            note(shared, &entry, &failure);
        }
    }
    shared.seen().state.uploading = line.active();
}

/// Tells what is wrong, once.
fn note(shared: &Shared, entry: &Entry, failure: &Failure) {
    let (text, lasting) = (failure.to_string(), failure.is_lasting());
    let mut seen = shared.seen();
    seen.state.failures += 1;
    seen.wrong_since.get_or_insert_with(SystemClock::now);
    seen.lasting = lasting;
    if seen.state.error.as_ref() == Some(&text) {
        return;
    }
    tracing::warn!("{} is not uploaded yet: {text}", entry.file.display());
    seen.state.error = Some(text.clone());
    seen.tell(UploadEvent::Failed { file: entry.file.clone(), text, lasting });
}
