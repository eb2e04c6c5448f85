//! One file on the writer's thread: turns of collecting and writing, and pending requests.
//!
//! A turn notes how much is in each ring and writes that much with as few system calls as possible.
//! Later data belongs to the next turn. So a request from before the start of a turn is complete at
//! its end, without counting per producer. A turn interrupted by a full disk continues later: data
//! that is not written stays in its ring.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use aulos_core::{Backoff, Instant, Span};
use aulos_rt::writer_ring::RecordConsumer;

use super::batch::{MAX_PARTS, WriteBatch};
use super::shared::{SharedState, thread_ended_error};
use super::ticket::TicketReply;
use crate::disk::{AppendFile, SyncCallback, SyncHandle, Syncer};

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Flush,
    Sync,
    Close { sync: bool },
}

type Request = (RequestKind, TicketReply);

pub(super) struct FileSink {
    pub(super) number: u64,
    medium: Box<dyn AppendFile>,
    sync_handle: SharedSyncHandle,
    shared: Arc<SharedState>,
    batch: WriteBatch,
    is_in_turn: bool,
    /// Requests: new since the turn began; answered at its end; waiting for a sync to begin;
    /// waiting for its end.
    queued: Vec<Request>,
    in_turn: Vec<Request>,
    unsynced: Vec<Request>,
    syncing: Option<Vec<Request>>,
    /// The disk is full, or the syncing thread has too much to do.
    pause: Option<Backoff>,
}

impl FileSink {
    /// Creates the sink of a file.
    ///
    /// # Errors
    /// When there is no descriptor left for the syncing thread.
    pub(super) fn new(
        number: u64,
        medium: Box<dyn AppendFile>,
        shared: Arc<SharedState>,
    ) -> io::Result<Self> {
        let lasting = SharedSyncHandle(Arc::new(Mutex::new(medium.sync_handle()?)));
        Ok(Self {
            number,
            medium,
            sync_handle: lasting,
            shared,
            batch: WriteBatch::default(),
            is_in_turn: false,
            queued: Vec::new(),
            in_turn: Vec::new(),
            unsynced: Vec::new(),
            syncing: None,
            pause: None,
        })
    }

    pub(super) fn attach(&mut self, number: u64, ring: RecordConsumer, is_realtime: bool) {
        self.batch.attach(number, ring, is_realtime);
    }

    pub(super) fn request(&mut self, want: RequestKind, reply: TicketReply) {
        self.queued.push((want, reply));
    }

    /// Collects and writes until the data of a turn is in the file, or an error occurs.
    /// `on_synced` makes the callback that passes the result of a sync of so many bytes to
    /// [`FileSink::synced`].
    pub(super) fn work(
        &mut self,
        now: Instant,
        syncer: &Syncer,
        on_synced: impl FnOnce(u64) -> SyncCallback,
    ) {
        if self.is_paused(now) {
            return;
        }
        if !self.is_in_turn {
            self.begin_turn();
        }
        loop {
            match self.write_some() {
                Ok(true) => {}
                Ok(false) => {
                    self.end_turn();
                    return self.begin_sync(now, syncer, on_synced);
                }
                Err(error) => return self.handle_error(error, now),
            }
        }
    }

    /// Handles the result of a sync.
    pub(super) fn synced(&mut self, up_to: u64, result: io::Result<()>) {
        let requests = self.syncing.take().unwrap_or_default();
        match result {
            Ok(()) => {
                self.shared.synced.fetch_max(up_to, Ordering::AcqRel);
                requests.into_iter().for_each(|request| self.complete(request));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => self.unsynced.extend(requests),
            Err(error) => {
                self.fail(error);
                drop(requests);
            }
        }
    }

    /// Whether there is work that should not wait for more data.
    pub(super) fn is_due(&self, now: Instant, wake_at: usize) -> bool {
        !self.is_paused(now)
            && (self.is_in_turn
                || !self.queued.is_empty()
                || (!self.unsynced.is_empty() && self.syncing.is_none())
                || self.shared.swap.needs_write(wake_at)
                || self.batch.needs_write(wake_at))
    }

    pub(super) fn has_bytes(&self, now: Instant) -> bool {
        !self.is_paused(now) && (self.shared.swap.fill() > 0 || self.batch.has_bytes())
    }

    pub(super) fn has_realtime(&self) -> bool {
        self.batch.has_realtime()
    }

    /// When to retry after a pause.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.pause.map(|pause| pause.retry_at())
    }

    /// Whether it is closed or has failed.
    pub(super) fn is_over(&self) -> bool {
        self.shared.is_over()
    }

    fn is_paused(&self, now: Instant) -> bool {
        self.pause.is_some_and(|pause| !pause.is_due(now))
    }

    fn begin_turn(&mut self) {
        self.is_in_turn = true;
        self.in_turn.append(&mut self.queued);
        self.batch.snapshot(&self.shared.swap);
    }

    /// One system call for as much as it accepts; false when the turn is complete.
    fn write_some(&mut self) -> io::Result<bool> {
        let mut parts = [IoSlice::new(&[]); MAX_PARTS];
        let (count, bytes) = self.batch.gather(&mut parts);
        if bytes == 0 {
            return Ok(false);
        }
        let written = match self.medium.append(&parts[..count]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => n.min(bytes),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error),
        };
        // The counter first, so that a producer never sees room that is not counted.
        self.shared.written.fetch_add(written as u64, Ordering::AcqRel);
        self.batch.mark_written(written);
        self.recover();
        Ok(true)
    }

    fn end_turn(&mut self) {
        self.is_in_turn = false;
        self.recover();
        self.batch.detach_ended(|number| self.shared.remove_ring(number));
        for request in std::mem::take(&mut self.in_turn) {
            match request.0 {
                RequestKind::Flush | RequestKind::Close { sync: false } => self.complete(request),
                RequestKind::Sync | RequestKind::Close { sync: true } => {
                    self.unsynced.push(request);
                }
            }
        }
    }

    /// All pending sync requests share one sync, which covers everything written by now.
    fn begin_sync(
        &mut self,
        now: Instant,
        syncer: &Syncer,
        on_synced: impl FnOnce(u64) -> SyncCallback,
    ) {
        if self.unsynced.is_empty() || self.syncing.is_some() {
            return;
        }
        let up_to = self.shared.written.load(Ordering::Acquire);
        if syncer.sync(Box::new(self.sync_handle.clone()), on_synced(up_to)).is_ok() {
            self.syncing = Some(std::mem::take(&mut self.unsynced));
        } else {
            self.pause = None;
            self.pause_from(now);
        }
    }

    fn complete(&self, (want, reply): Request) {
        if matches!(want, RequestKind::Close { .. }) {
            self.shared.finish();
        }
        reply.done();
    }

    /// A full disk may have room again; any other error is final.
    fn handle_error(&mut self, error: io::Error, now: Instant) {
        if !matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
            return self.fail(error);
        }
        self.pause_from(now);
        self.shared.is_full.store(true, Ordering::Release);
    }

    fn pause_from(&mut self, now: Instant) {
        self.pause.get_or_insert(Backoff::exact(FIRST_PAUSE, LONGEST_PAUSE)).failed(now);
    }

    fn recover(&mut self) {
        if self.pause.take().is_some() {
            self.shared.is_full.store(false, Ordering::Release);
        }
    }

    fn fail(&mut self, error: io::Error) {
        self.shared.fail(error);
        // Their dropped replies report the error.
        self.queued.clear();
        self.in_turn.clear();
        self.unsynced.clear();
    }
}

impl Drop for FileSink {
    /// Usually complete by now. If the thread has panicked, no request may wait for ever.
    fn drop(&mut self) {
        if !self.shared.is_over() {
            self.shared.fail(thread_ended_error());
        }
    }
}

/// The only sync handle of a file, used by one sync at a time.
#[derive(Clone)]
struct SharedSyncHandle(Arc<Mutex<Box<dyn SyncHandle>>>);

impl SyncHandle for SharedSyncHandle {
    fn sync(&self) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).sync()
    }
}

/// The pause between retries on a full disk: doubled each time, so that a disk that is full for
/// hours is rarely tried, and room is still found soon.
const FIRST_PAUSE: Span = Span::from_millis(10);
const LONGEST_PAUSE: Span = Span::from_secs(1);
