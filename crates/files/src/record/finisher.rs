//! Slow work in the background: a complete file gets its name, its digest and its sidecar;
//! retention deletes files; files left behind by a crash are repaired.

use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use aulos_core::{Backoff, Instant, Span};
use aulos_engine::recorder::{SegmentEnd, UnixTime, WallClock};
use aulos_io::SystemClock;
use aulos_io::disk::SyncHandle;
use aulos_proto::FileMarker;
use aulos_rt::channel::{Receiver, TryRecvError};

use super::clock;
use super::format::{FileFormatInfo, RepairError, RepairReport, repair, write_markers};
use super::report::{FileOperation, RecorderEventKind, RecorderFault};
use super::retention::{FileOrigin, RetainedFile, RetentionClock, files_to_delete};
use super::segment_file::{MAX_NAME_NUMBER, PART_SUFFIX, numbered_name, part_name};
use super::shared::RecorderShared;
use super::sidecar::{
    FileDigest, MAX_SIDECAR, ParsedSidecar, Sidecar, SidecarState, put_sidecar, sidecar_name,
};
use super::store::{FolderEntry, RecordingStore, read_in_pieces};
use super::waveform::waveform_name;

/// Work for the finisher's thread.
pub(super) enum FinisherTask {
    /// First task of a recorder: repairs files left behind, and lists complete ones.
    Repair { store: Arc<dyn RecordingStore>, shared: Arc<RecorderShared> },
    /// Writes the sidecar of a new file.
    WriteSidecar {
        store: Arc<dyn RecordingStore>,
        name: String,
        text: Vec<u8>,
        state: Arc<Mutex<SidecarState>>,
    },
    /// Completes a file.
    Finish(Box<PendingFile>),
    /// Deletes files according to the retention rules.
    ApplyRetention {
        store: Arc<dyn RecordingStore>,
        shared: Arc<RecorderShared>,
        free_bytes: Option<u64>,
    },
    /// Last task of a recorder.
    Close(Arc<RecorderShared>),
}

/// A file whose sound is complete.
pub(super) struct PendingFile {
    pub(super) shared: Arc<RecorderShared>,
    pub(super) store: Arc<dyn RecordingStore>,
    /// Has the lock of the file until it is complete, so that no other process repairs it.
    pub(super) handle: Option<Box<dyn SyncHandle>>,
    /// The file is to be synced.
    pub(super) needs_sync: bool,
    pub(super) name: String,
    pub(super) sidecar: Sidecar,
    pub(super) end: SegmentEnd,
    /// The clocks when it ended.
    pub(super) ended: WallClock,
    /// State of its sidecar.
    pub(super) sidecar_state: Arc<Mutex<SidecarState>>,
    /// The file was removed by another program.
    pub(super) is_removed: bool,
    /// Its markers are written.
    pub(super) has_markers: bool,
    /// Its markers must survive a power failure.
    pub(super) durable: bool,
    /// It has its final name.
    pub(super) is_published: bool,
}

/// State of the finisher's thread.
#[derive(Default)]
pub(super) struct Finisher {
    /// `None` before the first task.
    clock: Option<RetentionClock>,
    /// The complete files of each recorder, oldest first.
    complete_files: Vec<(Arc<RecorderShared>, Vec<RetainedFile>)>,
    /// Failed tasks, to be repeated.
    retries: Vec<RetryTask>,
}

struct RetryTask {
    task: FinisherTask,
    backoff: Backoff,
}

impl Finisher {
    /// Runs until all senders are gone and all tasks are done, or `give_up` is set.
    pub(super) fn run(mut self, mut tasks: Receiver<FinisherTask>, give_up: &AtomicBool) {
        let mut open = true;
        while open || (!self.retries.is_empty() && !give_up.load(SeqCst)) {
            match tasks.recv_timeout(TICK) {
                Ok(task) => self.run_task(task, FINISH_BACKOFF, clock::wall_clock()),
                Err(TryRecvError::Closed) => {
                    if open {
                        open = false;
                    } else {
                        SystemClock::sleep_until(SystemClock::now() + Span::from_millis(50));
                    }
                }
                Err(TryRecvError::Empty) => {}
            }
            self.retry(clock::wall_clock());
        }
    }

    /// Repeats the failed tasks that are due.
    pub(super) fn retry(&mut self, now: WallClock) {
        let retries = std::mem::take(&mut self.retries).into_iter();
        let (due, later) = retries.partition(|it| it.backoff.is_due(now.local));
        self.retries = later;
        let due: Vec<RetryTask> = due;
        for RetryTask { task, backoff } in due {
            self.run_task(task, backoff, now);
        }
    }

    /// Runs a task; `backoff` counts its failures.
    pub(super) fn run_task(&mut self, task: FinisherTask, backoff: Backoff, now: WallClock) {
        self.clock.get_or_insert_with(|| RetentionClock::new(now)).update(now);
        let (task, shared, fault) = match task {
            FinisherTask::WriteSidecar { store, name, text, state } => {
                return drop(put_sidecar(&state, SidecarState::Recording, &*store, (&name, &text)));
            }
            FinisherTask::Repair { store, shared } => return self.repair_folder(&store, shared),
            FinisherTask::ApplyRetention { store, shared, free_bytes } => {
                return self.apply_retention(&*store, &shared, free_bytes);
            }
            FinisherTask::Close(shared) => {
                if self.has_retries_for(&shared) {
                    let task = FinisherTask::Close(shared);
                    return self.schedule_retry(task, FINISH_BACKOFF, now.local);
                }
                self.complete_files.retain(|(other, _)| !Arc::ptr_eq(other, &shared));
                return shared.set_done();
            }
            FinisherTask::Finish(mut finish) => match self.finish(&mut finish) {
                Ok(()) => return,
                Err(fault) => (FinisherTask::Finish(finish.take_for_retry()), finish.shared, fault),
            },
        };
        if matches!(backoff.failures(), 0 | MAX_RETRIES) {
            shared.emit(RecorderEventKind::Failed(fault));
        }
        if backoff.failures() < MAX_RETRIES {
            self.schedule_retry(task, backoff, now.local);
        }
    }

    fn has_retries_for(&self, shared: &Arc<RecorderShared>) -> bool {
        self.retries
            .iter()
            .any(|retry| matches!(&retry.task, FinisherTask::Finish(it) if Arc::ptr_eq(&it.shared, shared)))
    }

    fn schedule_retry(&mut self, task: FinisherTask, mut backoff: Backoff, now: Instant) {
        backoff.failed(now);
        self.retries.push(RetryTask { task, backoff });
    }

    fn finish(&mut self, it: &mut PendingFile) -> Result<(), RecorderFault> {
        let store = it.store.clone();
        if it.end.frames.0 == 0 || it.is_removed {
            *it.sidecar_state.lock().unwrap_or_else(PoisonError::into_inner) =
                SidecarState::Completing;
            // The file is empty, or was removed.
            drop(store.remove(&part_name(&it.name)));
            drop(store.remove(&sidecar_name(&it.name)));
            return Ok(());
        }
        let failed = |operation, name: &str, error: io::Error| {
            let path = store.path().join(name);
            RecorderFault { operation, path, error: Arc::new(error) }
        };
        if let Some(handle) = it.handle.as_ref().filter(|_| it.needs_sync) {
            handle
                .sync()
                .map_err(|error| failed(FileOperation::Sync, &part_name(&it.name), error))?;
            it.needs_sync = false;
        }
        if !it.has_markers {
            it.write_markers()
                .map_err(|error| failed(FileOperation::Write, &part_name(&it.name), error))?;
            it.has_markers = true;
        }
        if !it.is_published {
            let name = publish(&*store, &it.name)
                .map_err(|error| failed(FileOperation::Rename, &part_name(&it.name), error))?;
            if name != it.name {
                drop(store.remove(&sidecar_name(&it.name)));
                it.name = name;
            }
            it.is_published = true;
        }
        let write_failed = |error| failed(FileOperation::WriteSidecar, &it.name, error);
        let (bytes, digest) = digest_of(&*store, &it.name).map_err(write_failed)?;
        let closed = it.sidecar.closed_segment(&store.path().join(&it.name), it.end, bytes, digest);
        if it.shared.keep_sidecar {
            let text = it.sidecar.closed_json(&it.name, &closed);
            store.write_atomic(&sidecar_name(&it.name), &text).map_err(write_failed)?;
        } else {
            drop(store.remove(&sidecar_name(&it.name)));
        }
        it.handle = None;
        notify_observer(&*store, &it.shared, &it.name);
        let origin = FileOrigin::ThisRun { ended: it.ended, noted: Span::ZERO };
        self.complete_files_of(&it.shared).push(RetainedFile {
            name: it.name.clone(),
            bytes,
            origin,
        });
        it.shared.emit(RecorderEventKind::SegmentClosed(Box::new(closed)));
        self.apply_retention(&*store, &it.shared, store.free_bytes().ok());
        Ok(())
    }

    fn complete_files_of(&mut self, shared: &Arc<RecorderShared>) -> &mut Vec<RetainedFile> {
        let at = self.complete_files.iter().position(|(other, _)| Arc::ptr_eq(other, shared));
        let at = at.unwrap_or_else(|| {
            self.complete_files.push((shared.clone(), Vec::new()));
            self.complete_files.len() - 1
        });
        &mut self.complete_files[at].1
    }

    fn apply_retention(
        &mut self,
        store: &dyn RecordingStore,
        shared: &Arc<RecorderShared>,
        free_bytes: Option<u64>,
    ) {
        let (Some(clock), rules) = (self.clock, shared.retention()) else { return };
        let files = self.complete_files_of(shared);
        let mut free = files_without_holds(store, shared, files);
        let mut reasons = files_to_delete(&free, &rules, &clock, free_bytes.unwrap_or(u64::MAX));
        for observer in &shared.observers {
            let needed = |file: &RetainedFile| observer.is_needed(&store.path().join(&file.name));
            reasons.truncate(free.iter().position(needed).unwrap_or(usize::MAX));
        }
        free.truncate(reasons.len());
        files.retain(|file| !free.contains(file));
        for (file, reason) in free.into_iter().zip(reasons) {
            let path = store.path().join(&file.name);
            match store.remove(&file.name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    let (operation, error) = (FileOperation::Delete, Arc::new(error));
                    shared.emit(RecorderEventKind::Failed(RecorderFault {
                        operation,
                        path,
                        error,
                    }));
                    continue;
                }
                // Another process has removed it.
                Err(_) => {}
                Ok(()) => {
                    shared.emit(RecorderEventKind::FileDeleted { path: path.clone(), reason });
                }
            }
            for observer in &shared.observers {
                observer.notify_deleted(&path, reason);
            }
            drop(store.remove(&sidecar_name(&file.name)));
            drop(store.remove(&waveform_name(&file.name)));
        }
        if shared.keep_sidecar {
            note_clock_changes(store, &clock, files);
        }
    }

    /// Repairs files left behind, and lists the complete files of the recorder.
    fn repair_folder(&mut self, store: &Arc<dyn RecordingStore>, shared: Arc<RecorderShared>) {
        let entries = match store.list(MAX_FILES) {
            Ok(entries) => entries,
            Err(error) => {
                let (operation, path) = (FileOperation::List, store.path().to_owned());
                let error = Arc::new(error);
                return shared.emit(RecorderEventKind::Failed(RecorderFault {
                    operation,
                    path,
                    error,
                }));
            }
        };
        let parts = entries.iter().filter(|entry| entry.name.ends_with(PART_SUFFIX));
        for entry in parts {
            repair_part(&**store, &shared, &entry.name);
        }
        for name in entries.iter().filter_map(|entry| entry.name.strip_suffix(".json")) {
            complete_sidecar(&**store, &shared, name);
        }
        let found_at = self.clock.map_or(Span::ZERO, |clock| clock.uptime());
        let mut found: Vec<_> = entries
            .iter()
            .filter_map(|entry| retained_file(&**store, &shared.name, entry, &entries))
            .collect();
        found.sort_by_key(|(_, end)| *end);
        let mut files: Vec<RetainedFile> = found
            .into_iter()
            .map(|(entry, end)| RetainedFile {
                name: entry.name.clone(),
                bytes: entry.bytes,
                origin: FileOrigin::Earlier { found: found_at, end },
            })
            .collect();
        files.append(self.complete_files_of(&shared));
        // The process may have been killed between publishing a file and the notification.
        for file in files.iter().rev().take(RENOTIFIED_FILES) {
            notify_observer(&**store, &shared, &file.name);
        }
        for observer in &shared.observers {
            observer.notify_ready();
        }
        *self.complete_files_of(&shared) = files;
        self.apply_retention(&**store, &shared, store.free_bytes().ok());
    }
}

impl PendingFile {
    /// Writes the markers into the sidecar, then into the file. From now on no other thread writes
    /// the sidecar, so all of them must be in it.
    fn write_markers(&self) -> io::Result<()> {
        let text = self.sidecar.recording_json(&self.name);
        put_sidecar(
            &self.sidecar_state,
            SidecarState::Completing,
            &*self.store,
            (&sidecar_name(&self.name), &text),
        )?;
        let markers = self.sidecar.markers.iter().map(|marker| (marker.position.0, &*marker.label));
        write_marker_list(&self.store.open(&part_name(&self.name))?, markers, self.durable)
    }

    /// Moves the contents into a task that is repeated.
    fn take_for_retry(&mut self) -> Box<Self> {
        Box::new(Self {
            shared: self.shared.clone(),
            store: self.store.clone(),
            handle: self.handle.take(),
            needs_sync: self.needs_sync,
            name: self.name.clone(),
            sidecar: self.sidecar.clone(),
            end: self.end,
            ended: self.ended,
            sidecar_state: self.sidecar_state.clone(),
            is_removed: self.is_removed,
            has_markers: self.has_markers,
            durable: self.durable,
            is_published: self.is_published,
        })
    }
}

fn write_marker_list<'a>(
    file: &File,
    markers: impl Iterator<Item = (u64, &'a str)>,
    durable: bool,
) -> io::Result<()> {
    let markers: Vec<_> = markers.map(|(position, label)| FileMarker { position, label }).collect();
    write_markers(file, &markers, durable)
}

/// The files that no observer holds, oldest first.
fn files_without_holds(
    store: &dyn RecordingStore,
    shared: &RecorderShared,
    files: &[RetainedFile],
) -> Vec<RetainedFile> {
    let mut free = files.to_vec();
    for observer in &shared.observers {
        let paths: Vec<_> = free.iter().map(|file| store.path().join(&file.name)).collect();
        let mut held = observer.held_files(&paths).into_iter();
        free.retain(|_| !held.next().unwrap_or(false));
    }
    free
}

/// Notifies the observers of a complete file.
fn notify_observer(store: &dyn RecordingStore, shared: &RecorderShared, name: &str) {
    for observer in &shared.observers {
        observer.notify_complete(&store.path().join(name), &store.path().join(sidecar_name(name)));
    }
}

/// Renames a complete file to its name, or to the next free one.
fn publish(store: &dyn RecordingStore, name: &str) -> io::Result<String> {
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    for number in 1..=MAX_NAME_NUMBER {
        let to = numbered_name(stem, number, extension);
        if number > 1 && (store.exists(&part_name(&to)) || store.exists(&sidecar_name(&to))) {
            continue;
        }
        match store.publish(&part_name(name), &to) {
            Ok(()) => return Ok(to),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn digest_of(store: &dyn RecordingStore, name: &str) -> io::Result<(u64, String)> {
    let mut digest = FileDigest::new();
    let bytes = read_in_pieces(&store.open(name)?, |piece| digest.update(piece))?;
    Ok((bytes, digest.hex()))
}

fn read_sidecar(store: &dyn RecordingStore, name: &str) -> Option<ParsedSidecar> {
    let mut text = Vec::new();
    store.open(name).ok()?.take(MAX_SIDECAR).read_to_end(&mut text).ok()?;
    ParsedSidecar::parse(&text)
}

/// The file of a sidecar and its end, if it is complete, exists and was written by this recorder.
fn retained_file<'a>(
    store: &dyn RecordingStore,
    recorder: &str,
    it: &FolderEntry,
    all: &'a [FolderEntry],
) -> Option<(&'a FolderEntry, UnixTime)> {
    let name = it.name.strip_suffix(".json")?;
    let file = all.iter().find(|entry| entry.name == name)?;
    let parsed = read_sidecar(store, &it.name).filter(|parsed| parsed.is_closed)?;
    (parsed.recorder == recorder).then_some((file, parsed.end))
}

/// Says in the sidecars of complete files that the clock was set afterwards, so that the next run
/// knows how old they are.
fn note_clock_changes(
    store: &dyn RecordingStore,
    clock: &RetentionClock,
    files: &mut [RetainedFile],
) {
    let outdated = files.iter_mut().filter_map(|file| Some((clock.correction(file)?, file)));
    for (correction, file) in outdated.take(MAX_CORRECTIONS) {
        let name = sidecar_name(&file.name);
        let written = match read_sidecar(store, &name) {
            Some(parsed) => store.write_atomic(&name, &parsed.corrected_json(correction)),
            // It was removed; without it the file belongs to its owner.
            None => Ok(()),
        };
        // A failure is repeated with the next check of the folder.
        if let (Ok(()), FileOrigin::ThisRun { noted, .. }) = (written, &mut file.origin) {
            *noted = correction;
        }
    }
}

/// Repairs one file, if it was written by this recorder or has no sidecar, and is not locked.
fn repair_part(store: &dyn RecordingStore, shared: &RecorderShared, part_file: &str) {
    let Some(name) = part_file.strip_suffix(PART_SUFFIX).filter(|name| has_audio_extension(name))
    else {
        return;
    };
    let parsed = read_sidecar(store, &sidecar_name(name));
    if parsed.as_ref().is_some_and(|parsed| parsed.recorder != *shared.name) {
        return;
    }
    let Ok(file) = store.open(part_file) else { return };
    if is_in_use(&file) || !is_named(store, &file, part_file) {
        return;
    }
    let path = store.path().join(part_file);
    let result = match repair(&file) {
        Ok(RepairReport { frames, .. }) if frames.0 == 0 => Err(RepairError::Empty),
        other => other,
    };
    match result {
        Ok(repaired) => match publish_repaired(store, shared, name, parsed, &file, &repaired) {
            Ok(name) => {
                shared.emit(RecorderEventKind::FileRepaired { path: store.path().join(name) });
            }
            Err(error) => {
                let (operation, error) = (FileOperation::Rename, Arc::new(error));
                shared.emit(RecorderEventKind::Failed(RecorderFault { operation, path, error }));
            }
        },
        Err(RepairError::Empty) => {
            // While it is locked: a process that has just created it notices that it was removed.
            drop(store.remove(part_file));
            drop(store.remove(&sidecar_name(name)));
        }
        Err(error) => {
            shared.emit(RecorderEventKind::RepairFailed { path, reason: error.to_string() });
        }
    }
}

/// Locks the file, unless a process that writes or completes it has the lock.
fn is_in_use(file: &File) -> bool {
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

/// Whether the name is still that of the file: another process may have completed it between
/// opening and locking.
fn is_named(store: &dyn RecordingStore, file: &File, name: &str) -> bool {
    let inode = |file: &File| file.metadata().ok().map(|it| (it.dev(), it.ino()));
    store.open(name).is_ok_and(|named| inode(&named) == inode(file))
}

/// Completes the sidecar of a file that had its name when the process was killed.
fn complete_sidecar(store: &dyn RecordingStore, shared: &RecorderShared, name: &str) {
    let is_unfinished =
        |parsed: &ParsedSidecar| !parsed.is_closed && parsed.recorder == *shared.name;
    if !store.exists(name) || store.exists(&part_name(name)) {
        return;
    }
    let Some(parsed) = read_sidecar(store, &sidecar_name(name)).filter(is_unfinished) else {
        return;
    };
    let Ok(file) = store.open(name) else { return };
    if is_in_use(&file) {
        return;
    }
    let write = || -> Result<(), RepairError> {
        let repaired = repair(&file)?;
        let (bytes, digest) = digest_of(store, name)?;
        Ok(store.write_atomic(
            &sidecar_name(name),
            &parsed.repaired_json(repaired.frames, bytes, &digest),
        )?)
    };
    let path = store.path().join(name);
    match write() {
        Ok(()) => shared.emit(RecorderEventKind::FileRepaired { path }),
        Err(error) => {
            shared.emit(RecorderEventKind::RepairFailed { path, reason: error.to_string() });
        }
    }
}

/// Gives a repaired file its name and its sidecar.
fn publish_repaired(
    store: &dyn RecordingStore,
    shared: &RecorderShared,
    name: &str,
    parsed: Option<ParsedSidecar>,
    file: &File,
    repaired: &RepairReport,
) -> io::Result<String> {
    file.sync_all()?;
    let rate = repaired.rate;
    if let Some(parsed) = &parsed {
        let markers = parsed.markers(repaired.frames);
        let markers = markers.iter().map(|(position, label)| (*position, &**label));
        write_marker_list(file, markers, true)?;
    }
    let parsed = parsed.unwrap_or_else(|| {
        let start = modified_nanos(file).saturating_sub(rate.span(repaired.frames).as_nanos());
        ParsedSidecar::without_sidecar(&shared.name, name, UnixTime::from_nanos(start), rate)
    });
    let to = publish(store, name)?;
    if to != name {
        drop(store.remove(&sidecar_name(name)));
    }
    if shared.keep_sidecar {
        let (bytes, digest) = digest_of(store, &to)?;
        store.write_atomic(
            &sidecar_name(&to),
            &parsed.repaired_json(repaired.frames, bytes, &digest),
        )?;
    } else {
        drop(store.remove(&sidecar_name(&to)));
    }
    notify_observer(store, shared, &to);
    Ok(to)
}

fn has_audio_extension(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    extension.is_some_and(|extension| FileFormatInfo::of_name(extension).is_some())
}

/// Time of the last modification of a file.
fn modified_nanos(file: &File) -> i64 {
    let modified = file.metadata().and_then(|it| it.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let since = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Interval at which failed tasks are checked.
const TICK: Duration = Duration::from_millis(100);

/// First delay after an error; it doubles with each repetition.
const FIRST_DELAY: Span = Span::from_millis(200);

/// Maximum delay.
const MAX_DELAY: Span = Span::from_secs(5);

/// The pauses between attempts to finish a file.
pub(super) const FINISH_BACKOFF: Backoff = Backoff::exact(FIRST_DELAY, MAX_DELAY);

/// About ten minutes; then the file keeps the suffix `.part` until the next start.
const MAX_RETRIES: u32 = 120;

/// Sidecars that are corrected at once, each with a sync: complete files must not wait for long.
const MAX_CORRECTIONS: usize = 16;

/// Number of the newest files of which the observer is notified again at the start.
const RENOTIFIED_FILES: usize = 4;

/// Maximum number of files listed in a folder.
const MAX_FILES: usize = 100_000;
