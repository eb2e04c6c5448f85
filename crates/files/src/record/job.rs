//! The work of a disk's thread for one recorder: reads sound from the ring, passes it to the
//! recorder machine, and executes the machine's outputs. Failed operations are repeated; meanwhile
//! the sound waits in the file's buffer and in the ring.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use aulos_core::{Backoff, Frames, Instant, MediaTime, Span};
use aulos_engine::recorder::{
    ClockChange, CommandTime, GapReason, RecordTapReader, RecorderCommand, RecorderOutput,
    RecordingState, SegmentEnd, SegmentReason, SegmentStart, WallClock,
};
use aulos_io::disk::Syncer;
use aulos_rt::channel::Sender;

use super::config::{MAX_FLUSH_INTERVAL, MIN_SYNC_INTERVAL, RecordingConfig, SyncPolicy};
use super::finisher::{FinisherTask, PendingFile};
use super::format::FileMetadata;
use super::marker_queue::MarkerQueue;
use super::report::{
    FileOperation, LossCause, RecorderEventKind, RecorderFault, RecorderStatus, SegmentStatus,
};
use super::sample_buffer::SampleBuffer;
use super::segment_file::{
    self, MAX_NAME_NUMBER, PreparedFile, SegmentFile, numbered_name, part_name,
};
use super::shared::RecorderShared;
use super::sidecar::{SegmentGap, sidecar_name};
use super::store::RecordingStore;

/// One recorder on its thread.
pub(super) struct RecorderJob {
    pub(super) shared: Arc<RecorderShared>,
    store: Arc<dyn RecordingStore>,
    config: RecordingConfig,
    tap: RecordTapReader,
    buffer: SampleBuffer,
    file: Option<SegmentFile>,
    prepared: Option<PreparedFile>,
    /// Output of the machine that is not completed.
    pending_output: Option<RecorderOutput>,
    retry: Option<RetryState>,
    /// Metadata and start of the last file.
    last_metadata: Option<(FileMetadata, SegmentStart)>,
    finisher: Sender<FinisherTask>,
    syncer: Arc<Syncer>,
    sync: Arc<SyncState>,
    sync_due: Instant,
    /// The clocks at the last step.
    clock: WallClock,
    folder_check_due: Instant,
    free_bytes: Option<u64>,
    status: RecorderStatus,
    scratch: Vec<f32>,
    markers: MarkerQueue,
}

/// Retry after an error.
#[derive(Clone, Copy)]
struct RetryState {
    backoff: Backoff,
    operation: FileOperation,
    kind: io::ErrorKind,
}

/// State of the current sync.
#[derive(Default)]
struct SyncState {
    busy: AtomicBool,
    failed: std::sync::Mutex<Option<io::Error>>,
}

impl RecorderJob {
    pub(super) fn new(
        shared: Arc<RecorderShared>,
        store: Arc<dyn RecordingStore>,
        mut config: RecordingConfig,
        tap: RecordTapReader,
        finisher: Sender<FinisherTask>,
        syncer: Arc<Syncer>,
    ) -> Self {
        config.durability.flush_interval =
            config.durability.flush_interval.max(Span::from_millis(10)).min(MAX_FLUSH_INTERVAL);
        let status = shared.status();
        Self {
            buffer: SampleBuffer::new(tap.layout().channels()),
            shared,
            store,
            config,
            tap,
            file: None,
            prepared: None,
            pending_output: None,
            retry: None,
            last_metadata: None,
            finisher,
            syncer,
            sync: Arc::default(),
            sync_due: Instant::ZERO,
            clock: WallClock::default(),
            folder_check_due: Instant::ZERO,
            free_bytes: None,
            status,
            scratch: Vec::new(),
            markers: MarkerQueue::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn is_syncing(&self) -> bool {
        self.sync.busy.load(SeqCst) || self.markers.is_writing()
    }

    /// Does all work that is due. Returns true when the recorder is finished.
    pub(super) fn step(&mut self, clock: WallClock) -> bool {
        let now = clock.local;
        self.clock = clock;
        self.check_folder(now);
        if self.retry.is_none_or(|retry| retry.backoff.is_due(now)) {
            let done = self.process(now, clock);
            match done {
                Ok(()) => self.clear_fault(),
                Err(fault) => self.retry(now, fault),
            }
        }
        self.publish_status();
        self.is_finished()
    }

    fn process(&mut self, now: Instant, clock: WallClock) -> Result<(), RecorderFault> {
        // Read before the ring is drained: after closing, nothing is added to it.
        let closing = self.shared.is_closing();
        while self.execute_next(now)? || self.read_tap(clock) {}
        if closing {
            self.shared.machine().finish();
        } else {
            self.shared.machine().handle_idle(now - MAX_FRAME_DELAY);
        }
        while self.execute_next(now)? {}
        self.place_markers(now);
        self.prepare_next_file();
        self.flush(now)?;
        self.request_sync(now);
        Ok(())
    }

    /// Reads one run from the ring.
    fn read_tap(&mut self, clock: WallClock) -> bool {
        let Some(mark) = self.buffer.fill_from(&mut self.tap) else {
            let Some(next) = self.shared.replacement_tap().take() else { return false };
            self.buffer = SampleBuffer::new(next.layout().channels());
            self.tap = next;
            self.shared.machine().restart_timeline();
            return true;
        };
        self.shared.machine().handle_frames(mark, clock);
        true
    }

    /// Executes the next output of the machine; `false` when there is none.
    fn execute_next(&mut self, now: Instant) -> Result<bool, RecorderFault> {
        if self.file.as_ref().is_some_and(SegmentFile::has_full_batch) {
            self.write_pending()?;
        }
        let unfinished = self.pending_output.take();
        let next = unfinished.or_else(|| self.shared.machine().poll_output());
        let Some(output) = next else {
            let keep = self.shared.machine().oldest_needed();
            self.buffer.drop_before(keep);
            return Ok(false);
        };
        if unfinished.is_none() {
            self.count_gap(output);
        }
        // It stays here until it is completed.
        self.pending_output = Some(output);
        self.pending_output = match output {
            RecorderOutput::Open(start) => {
                self.open_segment(now, start)?;
                None
            }
            RecorderOutput::Write { from, frames } => {
                let done = self.buffer.read(from, frames.min(PIECE_FRAMES), &mut self.scratch);
                // The frames should be there; otherwise silence keeps the time.
                let done = if done > Frames::ZERO { done } else { self.fill_silence(frames) };
                self.write_scratch();
                let (from, frames) = (from + done, frames - done);
                self.set_end_frame(from);
                (frames > Frames::ZERO).then_some(RecorderOutput::Write { from, frames })
            }
            RecorderOutput::Silence { from, frames, cause } => {
                self.write_silence(from, frames, cause)
            }
            RecorderOutput::Stalled { at, frames } => {
                self.count_loss(at, frames, LossCause::Stall);
                // The next file begins with the time of the clock, and not with that of this file.
                self.last_metadata = None;
                None
            }
            RecorderOutput::Skip { from, frames, cause } => {
                self.add_gap(from, frames, cause, false);
                if let Some(file) = &mut self.file {
                    file.skip_to(from + frames);
                }
                None
            }
            RecorderOutput::ClockChanged { at, change } => {
                self.note_clock_change(at, change);
                None
            }
            RecorderOutput::Close(end) => {
                self.close_segment(end)?;
                None
            }
        };
        Ok(true)
    }

    /// Writes a piece of silence; returns the rest.
    fn write_silence(
        &mut self,
        from: MediaTime,
        frames: Frames,
        cause: GapReason,
    ) -> Option<RecorderOutput> {
        let done = self.fill_silence(frames);
        self.add_gap(from, done, cause, true);
        self.write_scratch();
        let frames = frames - done;
        // A stall takes no media time: what follows it has another place in the file.
        let from = if cause == GapReason::Stalled { from } else { from + done };
        self.set_end_frame(from);
        if frames > Frames::ZERO {
            return Some(RecorderOutput::Silence { from, frames, cause });
        }
        if let (GapReason::Stalled, Some(file)) = (cause, &mut self.file) {
            file.skip_to(from);
        }
        None
    }

    fn fill_silence(&mut self, frames: Frames) -> Frames {
        let frames = frames.min(PIECE_FRAMES);
        self.scratch.clear();
        let new = self.tap.layout();
        let layout = self.file.as_ref().map_or(new, |file| file.sidecar.layout);
        self.scratch.resize(frames.as_usize() * layout.channels(), 0.0);
        frames
    }

    fn write_scratch(&mut self) {
        let Some(file) = &mut self.file else { return };
        let frames = self.scratch.len() / file.sidecar.layout.channels();
        self.status.frames += Frames::from(frames);
        if !file.write_samples(&self.scratch) {
            let error = io::Error::other("the codec failed");
            let fault = file.fault(FileOperation::Encode, &*self.store, error);
            self.shared.emit(RecorderEventKind::Failed(fault));
        }
        self.shared.machine().set_segment_bytes(file.bytes());
    }

    const fn set_end_frame(&mut self, frame: MediaTime) {
        if let Some(file) = &mut self.file {
            file.set_end_frame(frame);
        }
    }

    /// Assigns markers to their positions in the file, and writes the sidecar that lists them.
    fn place_markers(&mut self, now: Instant) {
        if let Some(file) = &mut self.file {
            let path = self.store.path().join(&file.name);
            self.markers.place(&self.shared, file, &path, now);
        }
        self.markers.write_sidecar(&self.shared, self.file.as_ref(), &self.store, &self.syncer);
    }

    /// Counts what is missing in an output that is new.
    fn count_gap(&mut self, output: RecorderOutput) {
        let (RecorderOutput::Silence { from, frames, cause }
        | RecorderOutput::Skip { from, frames, cause }) = output
        else {
            return;
        };
        match cause {
            GapReason::Lost => self.count_loss(from, frames, LossCause::Disk),
            GapReason::Interrupted => self.count_loss(from, frames, LossCause::Source),
            // It is counted where it begins, or is no loss.
            GapReason::Stalled | GapReason::Paused => {}
        }
    }

    fn count_loss(&mut self, frame: MediaTime, frames: Frames, cause: LossCause) {
        self.status.lost += frames;
        let known = self.file.as_ref().map(|file| file.sidecar.start.rate);
        let rate = known.unwrap_or_else(|| self.tap.rate());
        self.shared.emit(RecorderEventKind::FramesLost { frame, frames, rate, cause });
    }

    fn note_clock_change(&mut self, at: MediaTime, change: ClockChange) {
        let Some(file) = &mut self.file else { return };
        file.sidecar.add_clock_change(at, change);
        let missed = file.sidecar.start.rate.frames(change.suspended);
        self.markers.request_sidecar();
        // The next file begins with the time of the clock, and not with that of this file.
        self.last_metadata = None;
        self.shared.emit(RecorderEventKind::ClockChanged { frame: at, change });
        if missed > Frames::ZERO {
            self.count_loss(at, missed, LossCause::Stall);
        }
    }

    /// Notes a gap that begins at the end of what is written.
    fn add_gap(&mut self, frame: MediaTime, frames: Frames, cause: GapReason, is_silence: bool) {
        let Some(file) = &mut self.file else { return };
        if cause != GapReason::Paused {
            file.sidecar.lost += frames;
        }
        let position = file.frames;
        file.sidecar.add_gap(SegmentGap { frame, frames, position, cause, is_silence });
    }

    fn open_segment(&mut self, now: Instant, start: SegmentStart) -> Result<(), RecorderFault> {
        let is_for_segment = |prepared: &mut PreparedFile| {
            (prepared.start.number, prepared.start.at) == (start.number, start.at)
        };
        let prepared = match self.prepared.take_if(is_for_segment) {
            Some(prepared) => prepared,
            None => {
                // It was created for a cut that was cancelled.
                self.discard_prepared();
                self.create_file(start)?
            }
        };
        let layout = self.tap.layout();
        let continues_sound = !matches!(start.cause, SegmentReason::Start | SegmentReason::Break);
        let last_metadata = self.last_metadata.as_ref().filter(|_| continues_sound);
        let metadata =
            segment_file::segment_metadata(&start, layout, &self.config.name, last_metadata);
        let name = &self.config.name;
        let created = SegmentFile::new(prepared, start, self.config.format, metadata, name, layout);
        let mut file = created.map_err(|refused| {
            let error = Arc::new(io::Error::other(refused));
            RecorderFault {
                operation: FileOperation::Encode,
                path: self.store.path().to_owned(),
                error,
            }
        })?;
        file.sidecar.waited = self.config.waited.take();
        file.flush_due = now + self.config.durability.flush_interval;
        self.sync_due = now + self.sync_interval().unwrap_or(Span::ZERO);
        self.last_metadata = Some((file.metadata.clone(), start));
        let path = self.store.path().join(&file.name);
        self.shared.emit(RecorderEventKind::SegmentOpened {
            path,
            frame: start.at,
            utc: start.utc,
        });
        // A missing sidecar only makes a repair less exact, so a full queue is no reason to wait.
        drop(self.finisher.try_send(FinisherTask::WriteSidecar {
            store: self.store.clone(),
            name: sidecar_name(&file.name),
            text: file.sidecar.recording_json(&file.name),
            state: file.sidecar_state.clone(),
        }));
        self.file = Some(file);
        Ok(())
    }

    /// Creates a file under the first free name.
    fn create_file(&self, start: SegmentStart) -> Result<PreparedFile, RecorderFault> {
        let failed = |name: &str, error| {
            let path = self.store.path().join(name);
            RecorderFault { operation: FileOperation::Create, path, error: Arc::new(error) }
        };
        let stem = self.config.pattern.file_stem(&self.config.name, &start);
        let stem = stem.map_err(|bad| failed("", io::Error::other(bad)))?;
        let extension = self.config.format.extension();
        for number in 1..=MAX_NAME_NUMBER {
            let name = numbered_name(&stem, number, extension);
            if self.store.exists(&name) || self.store.exists(&sidecar_name(&name)) {
                continue;
            }
            match self.store.create(&part_name(&name)) {
                Ok(output) => return Ok(PreparedFile { start, name, output }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(&part_name(&name), error)),
            }
        }
        Err(failed(&stem, io::ErrorKind::AlreadyExists.into()))
    }

    fn close_segment(&mut self, end: SegmentEnd) -> Result<(), RecorderFault> {
        if let Some(file) = &mut self.file {
            let path = self.store.path().join(&file.name);
            self.markers.close_file(&self.shared, file, &path, &end);
            // The thread that completes the file may have other files to complete first.
            self.markers.write_sidecar(&self.shared, Some(file), &self.store, &self.syncer);
            file.finish().map_err(|error| file.fault(FileOperation::Write, &*self.store, error))?;
        }
        let Some(file) = self.file.take() else { return Ok(()) };
        let pending = PendingFile {
            shared: self.shared.clone(),
            store: self.store.clone(),
            handle: file.output.sync_handle().ok(),
            needs_sync: self.config.durability.sync != SyncPolicy::Never,
            name: file.name.clone(),
            sidecar: file.sidecar.clone(),
            end,
            ended: self.clock,
            sidecar_state: file.sidecar_state.clone(),
            is_removed: file.is_removed,
            has_markers: file.sidecar.markers.is_empty(),
            durable: self.config.durability.sync != SyncPolicy::Never,
            is_published: false,
        };
        if let Err(error) = self.finisher.try_send(FinisherTask::Finish(Box::new(pending))) {
            drop(error);
            let busy = io::Error::other("too many files wait to be completed");
            let fault = file.fault(FileOperation::Rename, &*self.store, busy);
            self.file = Some(file);
            return Err(fault);
        }
        self.status.bytes += file.bytes();
        Ok(())
    }

    fn write_pending(&mut self) -> Result<(), RecorderFault> {
        let keep_free = self.shared.retention().keep_free;
        let Some(file) = &mut self.file else { return Ok(()) };
        let full = self.free_bytes.is_some_and(|free_bytes| free_bytes < keep_free);
        let done = if full { Err(io::ErrorKind::StorageFull.into()) } else { file.write_pending() };
        done.map_err(|error| file.fault(FileOperation::Write, &*self.store, error))
    }

    fn flush(&mut self, now: Instant) -> Result<(), RecorderFault> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.flush(now, self.config.durability.flush_interval)
            .map_err(|error| file.fault(FileOperation::Write, &*self.store, error))
    }

    fn sync_interval(&self) -> Option<Span> {
        match self.config.durability.sync {
            SyncPolicy::Never => None,
            SyncPolicy::Every(span) => Some(span.max(MIN_SYNC_INTERVAL)),
        }
    }

    /// Requests a sync of the file, and reports the error of the last one.
    fn request_sync(&mut self, now: Instant) {
        let (Some(every), Some(file)) = (self.sync_interval(), &mut self.file) else { return };
        let failed = self.sync.failed.lock().ok().and_then(|mut failed| failed.take());
        if let Some(error) = failed {
            let fault = file.fault(FileOperation::Sync, &*self.store, error);
            self.shared.emit(RecorderEventKind::Failed(fault));
        }
        if now < self.sync_due || !file.has_unsynced || self.sync.busy.load(SeqCst) {
            return;
        }
        let Ok(sync_handle) = file.output.sync_handle() else { return };
        self.sync.busy.store(true, SeqCst);
        let sync = self.sync.clone();
        let done = Box::new(move |result: io::Result<()>| {
            if let (Err(error), Ok(mut failed)) = (result, sync.failed.lock()) {
                *failed = Some(error);
            }
            sync.busy.store(false, SeqCst);
        });
        if self.syncer.sync(sync_handle, done).is_err() {
            // The syncer is behind; the next call tries again.
            self.sync.busy.store(false, SeqCst);
            return;
        }
        (file.has_unsynced, self.sync_due) = (false, now + every);
    }

    /// Creates the next file ahead of a scheduled cut. An error is ignored: the file is created
    /// again when it is needed.
    fn prepare_next_file(&mut self) {
        let (upcoming, position) = {
            let machine = self.shared.machine();
            (machine.upcoming(), machine.position())
        };
        let Some(next) =
            upcoming.filter(|next| next.at.since(position) < next.rate.frames(PREPARE_AHEAD))
        else {
            return;
        };
        match &self.prepared {
            Some(prepared) if prepared.start.number == next.number => return,
            _ => self.discard_prepared(),
        }
        self.prepared = self.create_file(next).ok();
    }

    fn discard_prepared(&mut self) {
        if let Some(prepared) = self.prepared.take() {
            // An empty file that remains is removed at the next start.
            drop(self.store.remove(&part_name(&prepared.name)));
        }
    }

    /// Checks the folder at intervals: its free space, and whether the current file still exists.
    fn check_folder(&mut self, now: Instant) {
        if now < self.folder_check_due {
            return;
        }
        self.folder_check_due = now + FOLDER_CHECK_INTERVAL;
        self.free_bytes = self.store.free_bytes().ok();
        self.status.free_bytes = self.free_bytes;
        let (store, shared) = (self.store.clone(), self.shared.clone());
        drop(self.finisher.try_send(FinisherTask::ApplyRetention {
            store,
            shared,
            free_bytes: self.free_bytes,
        }));
        let Some(file) = &mut self.file else { return };
        let path = self.store.path().join(part_name(&file.name));
        if !file.is_removed && !self.store.exists(&part_name(&file.name)) {
            file.is_removed = true;
            self.shared.emit(RecorderEventKind::FileRemoved { path });
            let mut machine = self.shared.machine();
            let at = CommandTime::Frame(machine.oldest_needed());
            // A paused recorder continues in the removed file; the next segment is a new file.
            let _ = machine.handle_command(now, RecorderCommand::Cut, at);
        }
    }

    fn retry(&mut self, now: Instant, fault: RecorderFault) {
        let kind = fault.error.kind();
        let ongoing =
            self.retry.filter(|retry| retry.operation == fault.operation && retry.kind == kind);
        let first = Backoff::exact(FIRST_DELAY, MAX_DELAY);
        let mut backoff = ongoing.map_or(first, |retry| retry.backoff);
        backoff.failed(now);
        self.retry = Some(RetryState { backoff, operation: fault.operation, kind });
        if ongoing.is_none() {
            self.shared.emit(RecorderEventKind::Failed(fault.clone()));
        }
        self.status.fault = Some(fault);
    }

    fn clear_fault(&mut self) {
        if self.retry.take().is_some() {
            self.status.fault = None;
            self.shared.emit(RecorderEventKind::Recovered);
        }
    }

    fn publish_status(&mut self) {
        self.status.buffered = self.tap.buffered();
        self.status.segment = self.file.as_ref().map(|file| SegmentStatus {
            path: self.store.path().join(&file.name),
            number: file.sidecar.start.number,
            start: file.sidecar.start.at,
            utc: file.sidecar.start.utc,
            frames: file.frames,
            rate: file.sidecar.start.rate,
            bytes: file.bytes(),
        });
        let mut status = self.status.clone();
        status.bytes += self.file.as_ref().map_or(0, SegmentFile::bytes);
        self.shared.set_status(status);
    }

    fn is_finished(&mut self) -> bool {
        let idle = self.shared.machine().state() == RecordingState::Idle;
        let finished = self.shared.is_closing()
            && idle
            && self.pending_output.is_none()
            && self.file.is_none()
            && !self.markers.is_writing()
            && self.tap.peek().is_none();
        if finished {
            self.discard_prepared();
            let shared = self.shared.clone();
            // The last task for the finisher: after it, the recorder is done.
            if self.finisher.try_send(FinisherTask::Close(shared)).is_err() {
                return false;
            }
            self.markers.reject_all(&self.shared);
        }
        finished
    }
}

/// Frames per write.
const PIECE_FRAMES: Frames = Frames(4_096);

/// Time after which commands do not wait for a late frame.
const MAX_FRAME_DELAY: Span = Span::from_secs(2);

/// How long before a scheduled cut the next file is created.
const PREPARE_AHEAD: Span = Span::from_secs(3);

/// Interval of checks of the folder.
const FOLDER_CHECK_INTERVAL: Span = Span::from_secs(5);

/// First delay after an error; it doubles with each repetition.
const FIRST_DELAY: Span = Span::from_millis(100);

/// Maximum delay.
const MAX_DELAY: Span = Span::from_secs(5);
