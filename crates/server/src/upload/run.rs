//! The uploads of one recording: who adds to them and asks how they do, and the chore that does
//! them.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aulos_config::UploadTarget;
use aulos_core::Instant;
use aulos_io::SystemClock;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::error::UploadError;
use super::journal::{Journal, JournalEntry};
use super::queue::{FailureScope, MAX_LISTED, QueueAction, UploadQueue};
use super::transfer::{UploadContext, UploadOutcome, upload_file};
use super::{MAX_EVENTS, SHUTDOWN_TIMEOUT, UploadEvent, UploadPhase, UploadState, UploadTiming};
use crate::dial::Dialer;
use crate::radio::BackgroundTask;

/// Uploads the closed files of a recording.
///
/// It is a handle, and may be cloned. When the last is dropped its chore begins nothing more; what is
/// under way has [`LAST_UPLOAD`], and goes on in the next life with the part that it was in.
///
/// Memory is held for `concurrency` parts and for the names of 256 files, however many wait.
#[derive(Clone, Debug)]
pub struct Uploader {
    shared: Arc<UploaderShared>,
    /// Tells the chore, by being gone, that nobody wants it any more.
    _held: Arc<watch::Sender<()>>,
}

#[derive(Debug)]
struct UploaderShared {
    context: UploadContext,
    add_lock: Mutex<()>,
    progress: Mutex<UploadProgress>,
    /// There is something new.
    wake: Notify,
    stop: watch::Sender<bool>,
    /// Whether the chore runs.
    finished: watch::Sender<bool>,
}

/// What can be seen, and what has been added since the chore looked.
#[derive(Debug, Default)]
struct UploadProgress {
    state: UploadState,
    wrong_since: Option<Instant>,
    retry_at: Option<Instant>,
    lasting: bool,
    added: Vec<String>,
    /// More were added than are remembered: the folder has them.
    journal_has_more: bool,
    events: VecDeque<UploadEvent>,
}

impl Uploader {
    /// Uploads of what is recorded in `root`; what waits is noted in `spool`, a folder of its own.
    /// What waited there already goes on. The chore is to be run by a [`Porter`](super::Porter): it
    /// reads files and computes digests where it runs.
    ///
    /// # Errors
    /// What the file system says when the folder is made or read.
    pub fn new(
        config: &UploadTarget,
        root: &Path,
        spool: &Path,
    ) -> io::Result<(Self, BackgroundTask)> {
        Self::with_timing(config, root, spool, UploadTiming::default(), Arc::default())
    }

    pub(super) fn with_timing(
        config: &UploadTarget,
        root: &Path,
        spool: &Path,
        pace: UploadTiming,
        dialer: Arc<Dialer>,
    ) -> io::Result<(Self, BackgroundTask)> {
        let journal = Journal::open(spool)?;
        let (config, root) = (config.clone(), root.to_owned());
        let tools = UploadContext { config, root, journal, dialer, timing: pace };
        let (held, holders) = watch::channel(());
        let shared = Arc::new(UploaderShared {
            context: tools,
            add_lock: Mutex::default(),
            progress: Mutex::default(),
            wake: Notify::new(),
            stop: watch::Sender::new(false),
            finished: watch::Sender::new(false),
        });
        shared.count_waiting()?;
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
        let name = Journal::entry_name(file);
        let key = shared.context.object_key(file).filter(|_| file.to_str().is_some());
        let key = key.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        // So that two who add the same file count it once. Whoever asks how we do does not wait.
        let adding = shared.add_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !shared.context.journal.contains(file) {
            let bytes = std::fs::metadata(file).map_or(0, |found| found.len());
            let (file, sidecar) = (file.to_owned(), sidecar.map(Path::to_owned));
            let entry = JournalEntry { file, sidecar, key, bytes, ..JournalEntry::default() };
            shared.context.journal.write(&name, &entry)?;
            let mut seen = shared.progress();
            seen.state.waiting += 1;
            seen.state.waiting_bytes += bytes;
        }
        drop(adding);
        let mut seen = shared.progress();
        if seen.added.len() < MAX_LISTED {
            seen.added.push(name);
        } else {
            seen.journal_has_more = true;
        }
        drop(seen);
        shared.wake.notify_one();
        Ok(())
    }

    /// Whether this file has been added, and the server does not have it yet: it must not be deleted
    /// to make room. It looks at the disk.
    #[must_use]
    pub fn is_waiting(&self, file: &Path) -> bool {
        self.shared.context.journal.contains(file)
    }

    /// How they do.
    #[must_use]
    pub fn state(&self) -> UploadState {
        let now = SystemClock::now();
        let seen = self.shared.progress();
        let state = &seen.state;
        let phase = match (state.uploading, &state.error) {
            (0, None) => UploadPhase::Idle,
            (0, Some(_)) if seen.lasting => UploadPhase::Refused,
            (0, Some(_)) => UploadPhase::Waiting,
            _ => UploadPhase::Uploading,
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
        self.shared.progress().events.drain(..).collect()
    }

    /// Begins nothing more, and waits until what is under way is over, [`LAST_UPLOAD`] at most. It
    /// is the chore that ends them, so it has to be run.
    pub async fn end(&self) {
        self.shared.stop.send_replace(true);
        let mut over = self.shared.finished.subscribe();
        // Whoever does not run the chore has nothing to wait for.
        timeout(SHUTDOWN_TIMEOUT * 2, over.wait_for(|over| *over)).await.ok();
    }
}

impl UploaderShared {
    /// A panic while it was held is a bug that was reported; counters are whole at any moment.
    fn progress(&self) -> MutexGuard<'_, UploadProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what waited before this life.
    fn count_waiting(&self) -> io::Result<()> {
        let mut names = Vec::new();
        self.context.journal.list(0, |_| false, |name| names.push(name.to_owned()))?;
        let mut seen = self.progress();
        for name in names {
            match self.context.journal.read(&name) {
                Ok(Some(entry)) => {
                    seen.state.waiting += 1;
                    seen.state.waiting_bytes += entry.bytes;
                }
                Ok(None) => {}
                Err(error) => seen.record_broken(&name, &error),
            }
        }
        Ok(())
    }
}

impl UploadProgress {
    fn push_event(&mut self, event: UploadEvent) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn record_broken(&mut self, name: &str, error: &io::Error) {
        self.state.broken_entries += 1;
        tracing::error!("the note {name} of a file to be uploaded cannot be read: {error}");
    }

    fn remove_waiting(&mut self, entry: &JournalEntry) {
        self.state.waiting = self.state.waiting.saturating_sub(1);
        self.state.waiting_bytes = self.state.waiting_bytes.saturating_sub(entry.bytes);
    }

    fn clear_error(&mut self) {
        (self.state.error, self.wrong_since, self.lasting) = (None, None, false);
    }
}

/// How one try ended.
struct FinishedUpload {
    name: String,
    entry: JournalEntry,
    /// Parts that the server had before.
    parts_before: usize,
    outcome: Result<UploadOutcome, UploadError>,
}

/// Uploads one after the other, until nobody wants it any more.
async fn run(shared: Arc<UploaderShared>, mut holders: watch::Receiver<()>) {
    let pace = shared.context.timing;
    let seed = RandomState::new().hash_one(shared.context.config.bucket.as_str());
    let mut line = UploadQueue::new(shared.context.config.concurrency, pace, seed);
    let mut running = JoinSet::new();
    let mut ends = shared.stop.subscribe();
    loop {
        let now = SystemClock::now();
        enqueue_added(&shared, &mut line);
        let pause = match line.next(now) {
            QueueAction::Start(name) => {
                start_upload(&shared, &mut line, &mut running, name);
                continue;
            }
            QueueAction::ListJournal => match list_journal(&shared, &mut line, now) {
                Ok(()) => continue,
                // The folder of the journal cannot be read now.
                Err(_) => Some(Duration::from_nanos(nanos(pace.longest_pause.as_nanos()))),
            },
            QueueAction::Wait(until) => {
                until.map(|until| Duration::from_nanos(nanos(until.since(now).as_nanos())))
            }
        };
        shared.progress().retry_at = line.retry_at(now);
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
                    handle_finished(&shared, &mut line, ended);
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
                handle_finished(&shared, &mut line, ended);
            }
        }
    };
    timeout(SHUTDOWN_TIMEOUT, last).await.ok();
    running.shutdown().await;
    shared.progress().state.uploading = 0;
    shared.finished.send_replace(true);
}

fn nanos(span: i64) -> u64 {
    u64::try_from(span).unwrap_or(0)
}

fn enqueue_added(shared: &UploaderShared, line: &mut UploadQueue) {
    let (added, more) = {
        let mut seen = shared.progress();
        (std::mem::take(&mut seen.added), std::mem::take(&mut seen.journal_has_more))
    };
    for name in added {
        line.push(&name);
    }
    if more {
        line.mark_incomplete();
    }
}

/// Finds in the folder what the line does not remember.
fn list_journal(shared: &UploaderShared, line: &mut UploadQueue, now: Instant) -> io::Result<()> {
    let wanted = |name: &str| line.accepts(name, now);
    let found = shared.context.journal.list(MAX_LISTED, wanted, |_| ());
    let found = found.inspect_err(|error| tracing::warn!("files to be uploaded: {error}"))?;
    line.extend(found.names, found.more);
    Ok(())
}

fn start_upload(
    shared: &Arc<UploaderShared>,
    line: &mut UploadQueue,
    running: &mut JoinSet<FinishedUpload>,
    name: String,
) {
    match shared.context.journal.read(&name) {
        Ok(Some(mut entry)) => {
            shared.progress().state.uploading = line.active();
            let shared = Arc::clone(shared);
            running.spawn(async move {
                let had = parts_sent(&entry);
                let outcome = upload_file(&shared.context, &name, &mut entry).await;
                FinishedUpload { name, entry, parts_before: had, outcome }
            });
        }
        // It was added twice, and is done.
        Ok(None) => line.done(&name),
        Err(error) => {
            line.done(&name);
            shared.progress().record_broken(&name, &error);
        }
    }
}

fn parts_sent(entry: &JournalEntry) -> usize {
    entry.begun.as_ref().map_or(0, |begun| begun.parts.len())
}

/// Draws the conclusions.
fn handle_finished(shared: &UploaderShared, line: &mut UploadQueue, ended: FinishedUpload) {
    let FinishedUpload { name, mut entry, parts_before: had, outcome } = ended;
    match outcome {
        Ok(UploadOutcome::StillWriting) => {
            line.failed(SystemClock::now(), &name, FailureScope::File)
        }
        Ok(done) => {
            line.done(&name);
            let mut seen = shared.progress();
            seen.remove_waiting(&entry);
            let file = entry.file.clone();
            if done == UploadOutcome::Missing {
                tracing::warn!("{} was deleted before it was uploaded", file.display());
                seen.state.missing += 1;
                seen.push_event(UploadEvent::Missing { file });
            } else {
                seen.state.done += 1;
                seen.state.done_bytes += entry.bytes;
                seen.clear_error();
                let url = format!("s3://{}/{}", shared.context.config.bucket, entry.key);
                let (bytes, tries) = (entry.bytes, entry.tries);
                seen.push_event(UploadEvent::Uploaded { file, url, bytes, tries });
            }
        }
        Err(failure) => {
            if parts_sent(&entry) > had {
                line.record_progress();
            }
            let fault = match failure.is_file_specific() {
                true => FailureScope::File,
                false => FailureScope::Server { lasting: failure.is_lasting() },
            };
            line.failed(SystemClock::now(), &name, fault);
            entry.tries += 1;
            // To the end of the line. Where that cannot be noted, it is found where it was.
            shared.context.journal.write(&name, &entry).ok();
            record_failure(shared, &entry, &failure);
        }
    }
    shared.progress().state.uploading = line.active();
}

/// Tells what is wrong, once.
fn record_failure(shared: &UploaderShared, entry: &JournalEntry, failure: &UploadError) {
    let (text, lasting) = (failure.to_string(), failure.is_lasting());
    let mut seen = shared.progress();
    seen.state.failures += 1;
    seen.wrong_since.get_or_insert_with(SystemClock::now);
    seen.lasting = lasting;
    if seen.state.error.as_ref() == Some(&text) {
        return;
    }
    tracing::warn!("{} is not uploaded yet: {text}", entry.file.display());
    seen.state.error = Some(text.clone());
    seen.push_event(UploadEvent::Failed { file: entry.file.clone(), text, lasting });
}
