//! The uploads of one recording: the handle for its users, and the task that runs them.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aulos_config::UploadTarget;
use aulos_control::backend::{BackgroundTask, UploadEvent, UploadPhase, UploadState};
use aulos_core::Instant;
use aulos_io::SystemClock;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::error::UploadError;
use super::journal::{Journal, JournalEntry};
use super::queue::{FailureScope, MAX_LISTED, QueueAction, UploadQueue};
use super::transfer::{UploadContext, UploadOutcome, upload_file};
use super::{MAX_EVENTS, SHUTDOWN_TIMEOUT, UploadTiming};
use crate::dial::Dialer;

/// Uploads the closed files of a recording.
///
/// A clonable handle. When the last clone is dropped, its task starts nothing more; transfers in
/// progress have [`SHUTDOWN_TIMEOUT`], and resume after the next start with the part that was
/// interrupted.
///
/// Memory is used for `concurrency` parts and for the names of 256 files, however many wait.
#[derive(Clone, Debug)]
pub struct Uploader {
    shared: Arc<UploaderShared>,
    /// Tells the task by being dropped that the uploads are no longer wanted.
    _held: Arc<watch::Sender<()>>,
}

#[derive(Debug)]
struct UploaderShared {
    context: UploadContext,
    add_lock: Mutex<()>,
    progress: Mutex<UploadProgress>,
    /// Wakes the task.
    wake: Notify,
    stop: watch::Sender<bool>,
    /// Whether the task has ended.
    finished: watch::Sender<bool>,
}

/// The published state, and the files added since the task last looked.
#[derive(Debug, Default)]
struct UploadProgress {
    state: UploadState,
    wrong_since: Option<Instant>,
    retry_at: Option<Instant>,
    permanent: bool,
    added: Vec<String>,
    /// More files were added than are listed here: the journal has them.
    journal_has_more: bool,
    events: VecDeque<UploadEvent>,
}

impl Uploader {
    /// Creates the uploads of the recording in `root`; `spool` is the directory of the journal.
    /// Entries found there are resumed. Run the task on an [`UploadWorker`](super::UploadWorker),
    /// because it reads files and computes digests.
    ///
    /// # Errors
    /// Errors of the file system when the journal is created or read.
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
        let context = UploadContext { config, root, journal, dialer, timing: pace };
        let (held, holders) = watch::channel(());
        let shared = Arc::new(UploaderShared {
            context,
            add_lock: Mutex::default(),
            progress: Mutex::default(),
            wake: Notify::new(),
            stop: watch::Sender::new(false),
            finished: watch::Sender::new(false),
        });
        shared.count_waiting()?;
        let task = Box::pin(run(Arc::clone(&shared), holders));
        Ok((Self { shared, _held: Arc::new(held) }, task))
    }

    /// Adds a file, and a `sidecar` that is uploaded and deleted with it. The journal entry is
    /// durable when this returns, against a kill and a power cut. It may be called before the file
    /// is renamed to its final name, as long as it exists with `.part` appended.
    ///
    /// It writes a small file and waits for the disk, so it is for the thread that closed the file,
    /// and not for an audio thread. A file already in the journal is not added again.
    ///
    /// # Errors
    /// Errors of the file system, and [`io::ErrorKind::InvalidInput`] for a name that is not UTF-8.
    pub fn add(&self, file: &Path, sidecar: Option<&Path>) -> io::Result<()> {
        let shared = &self.shared;
        let name = Journal::entry_name(file);
        let key = shared.context.object_key(file).filter(|_| file.to_str().is_some());
        let key = key.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        // Two threads that add the same file count it once. Readers of the state do not wait for
        // this lock.
        let adding = shared.add_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !shared.context.journal.contains(file) {
            let bytes = std::fs::metadata(file).map_or(0, |found| found.len());
            let (file, sidecar) = (file.to_owned(), sidecar.map(Path::to_owned));
            let entry = JournalEntry { file, sidecar, key, bytes, ..JournalEntry::default() };
            shared.context.journal.write(&name, &entry)?;
            let mut progress = shared.progress();
            progress.state.waiting += 1;
            progress.state.waiting_bytes += bytes;
        }
        drop(adding);
        let mut progress = shared.progress();
        if progress.added.len() < MAX_LISTED {
            progress.added.push(name);
        } else {
            progress.journal_has_more = true;
        }
        drop(progress);
        shared.wake.notify_one();
        Ok(())
    }

    /// Whether this file is still to be uploaded, and must not be deleted to make room. Reads the
    /// disk.
    #[must_use]
    pub fn is_waiting(&self, file: &Path) -> bool {
        self.shared.context.journal.contains(file)
    }

    /// The current state.
    #[must_use]
    pub fn state(&self) -> UploadState {
        let now = SystemClock::now();
        let progress = self.shared.progress();
        let state = &progress.state;
        let phase = match (state.uploading, &state.error) {
            (0, None) => UploadPhase::Idle,
            (0, Some(_)) if progress.permanent => UploadPhase::Refused,
            (0, Some(_)) => UploadPhase::Waiting,
            _ => UploadPhase::Uploading,
        };
        UploadState {
            phase,
            since: progress.wrong_since.map(|since| now.since(since)),
            retry_in: progress.retry_at.map(|at| at.since(now)),
            ..state.clone()
        }
    }

    /// Events since the last call; the newest [`MAX_EVENTS`].
    #[must_use]
    pub fn take_events(&self) -> Vec<UploadEvent> {
        self.shared.progress().events.drain(..).collect()
    }

    /// Starts nothing more, and waits for the transfers in progress, [`SHUTDOWN_TIMEOUT`] at most.
    /// The task ends them, so it must be running.
    pub async fn end(&self) {
        self.shared.stop.send_replace(true);
        let mut over = self.shared.finished.subscribe();
        // Without a running task there is nothing to wait for.
        timeout(SHUTDOWN_TIMEOUT * 2, over.wait_for(|over| *over)).await.ok();
    }
}

impl UploaderShared {
    /// A panic with the lock held is a bug that was reported; the counters are consistent at any
    /// moment.
    fn progress(&self) -> MutexGuard<'_, UploadProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the entries from before this start.
    fn count_waiting(&self) -> io::Result<()> {
        let mut names = Vec::new();
        self.context.journal.list(0, |_| false, |name| names.push(name.to_owned()))?;
        let mut progress = self.progress();
        for name in names {
            match self.context.journal.read(&name) {
                Ok(Some(entry)) => {
                    progress.state.waiting += 1;
                    progress.state.waiting_bytes += entry.bytes;
                }
                Ok(None) => {}
                Err(error) => progress.record_broken(&name, &error),
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
        tracing::error!(entry = name, %error, "cannot read an entry of the upload journal");
    }

    fn remove_waiting(&mut self, entry: &JournalEntry) {
        self.state.waiting = self.state.waiting.saturating_sub(1);
        self.state.waiting_bytes = self.state.waiting_bytes.saturating_sub(entry.bytes);
    }

    fn clear_error(&mut self) {
        (self.state.error, self.wrong_since, self.permanent) = (None, None, false);
    }
}

/// A finished attempt.
struct FinishedUpload {
    name: String,
    entry: JournalEntry,
    /// Parts on the server before the attempt.
    parts_before: usize,
    outcome: Result<UploadOutcome, UploadError>,
}

/// Runs the uploads until they are no longer wanted.
async fn run(shared: Arc<UploaderShared>, mut holders: watch::Receiver<()>) {
    let pace = shared.context.timing;
    let seed = RandomState::new().hash_one(shared.context.config.storage.bucket.as_str());
    let mut queue = UploadQueue::new(shared.context.config.concurrency, pace, seed);
    let mut running = JoinSet::new();
    let mut ends = shared.stop.subscribe();
    loop {
        let now = SystemClock::now();
        enqueue_added(&shared, &mut queue);
        let pause = match queue.next(now) {
            QueueAction::Start(name) => {
                start_upload(&shared, &mut queue, &mut running, name);
                continue;
            }
            QueueAction::ListJournal => match list_journal(&shared, &mut queue, now) {
                Ok(()) => continue,
                // The journal's directory is unreadable now.
                Err(_) => Some(pace.longest_pause.into()),
            },
            QueueAction::Wait(until) => until.map(|until| Duration::from(until.since(now))),
        };
        shared.progress().retry_at = queue.retry_at(now);
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
                    handle_finished(&shared, &mut queue, ended);
                }
            }
            _ = ends.wait_for(|ends| *ends) => break,
            // It never changes: it closes with the last handle.
            _ = holders.changed() => break,
        }
    }
    let last = async {
        while let Some(ended) = running.join_next().await {
            if let Ok(ended) = ended {
                handle_finished(&shared, &mut queue, ended);
            }
        }
    };
    timeout(SHUTDOWN_TIMEOUT, last).await.ok();
    running.shutdown().await;
    shared.progress().state.uploading = 0;
    shared.finished.send_replace(true);
}

fn enqueue_added(shared: &UploaderShared, queue: &mut UploadQueue) {
    let (added, more) = {
        let mut progress = shared.progress();
        (std::mem::take(&mut progress.added), std::mem::take(&mut progress.journal_has_more))
    };
    for name in added {
        queue.push(&name);
    }
    if more {
        queue.mark_incomplete();
    }
}

/// Lists the journal for entries that are not in the queue.
fn list_journal(shared: &UploaderShared, queue: &mut UploadQueue, now: Instant) -> io::Result<()> {
    let wanted = |name: &str| queue.accepts(name, now);
    let found = shared.context.journal.list(MAX_LISTED, wanted, |_| ());
    let found =
        found.inspect_err(|error| tracing::warn!(%error, "cannot list the upload journal"))?;
    queue.extend(found.names, found.more);
    Ok(())
}

fn start_upload(
    shared: &Arc<UploaderShared>,
    queue: &mut UploadQueue,
    running: &mut JoinSet<FinishedUpload>,
    name: String,
) {
    match shared.context.journal.read(&name) {
        Ok(Some(mut entry)) => {
            shared.progress().state.uploading = queue.active();
            let shared = Arc::clone(shared);
            running.spawn(async move {
                let had = parts_sent(&entry);
                let outcome = upload_file(&shared.context, &name, &mut entry).await;
                FinishedUpload { name, entry, parts_before: had, outcome }
            });
        }
        // It was added twice, and is done.
        Ok(None) => queue.done(&name),
        Err(error) => {
            queue.done(&name);
            shared.progress().record_broken(&name, &error);
        }
    }
}

fn parts_sent(entry: &JournalEntry) -> usize {
    entry.begun.as_ref().map_or(0, |begun| begun.parts.len())
}

/// Handles a finished attempt.
fn handle_finished(shared: &UploaderShared, queue: &mut UploadQueue, ended: FinishedUpload) {
    let FinishedUpload { name, mut entry, parts_before: had, outcome } = ended;
    match outcome {
        Ok(UploadOutcome::StillWriting) => {
            queue.failed(SystemClock::now(), &name, FailureScope::File);
        }
        Ok(done) => {
            queue.done(&name);
            let mut progress = shared.progress();
            progress.remove_waiting(&entry);
            let file = entry.file.clone();
            if done == UploadOutcome::Missing {
                tracing::warn!(file = %file.display(), "file deleted before its upload");
                progress.state.missing += 1;
                progress.push_event(UploadEvent::Missing { file });
            } else {
                progress.state.done += 1;
                progress.state.done_bytes += entry.bytes;
                progress.clear_error();
                let url = format!("s3://{}/{}", shared.context.config.storage.bucket, entry.key);
                let (bytes, tries) = (entry.bytes, entry.tries);
                progress.push_event(UploadEvent::Uploaded { file, url, bytes, tries });
            }
        }
        Err(failure) => {
            if parts_sent(&entry) > had {
                queue.record_progress();
            }
            let fault = match failure.is_file_specific() {
                true => FailureScope::File,
                false => FailureScope::Server { permanent: failure.is_permanent() },
            };
            queue.failed(SystemClock::now(), &name, fault);
            entry.tries += 1;
            // To the end of the journal. If the write fails, it keeps its position.
            shared.context.journal.write(&name, &entry).ok();
            record_failure(shared, &entry, &failure);
        }
    }
    shared.progress().state.uploading = queue.active();
}

/// Records and logs an error, once.
fn record_failure(shared: &UploaderShared, entry: &JournalEntry, failure: &UploadError) {
    let (text, permanent) = (failure.to_string(), failure.is_permanent());
    let mut progress = shared.progress();
    progress.state.failures += 1;
    progress.wrong_since.get_or_insert_with(SystemClock::now);
    progress.permanent = permanent;
    if progress.state.error.as_ref() == Some(&text) {
        return;
    }
    tracing::warn!(file = %entry.file.display(), error = text, "upload failed; retrying");
    progress.state.error = Some(text.clone());
    progress.push_event(UploadEvent::Failed { file: entry.file.clone(), text, permanent });
}
