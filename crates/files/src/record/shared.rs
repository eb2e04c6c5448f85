//! State that a recorder's handle and its thread share. Neither holds a lock while it waits for a
//! disk, so a command gets its exact frame at once, however slow the disk is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aulos_core::Instant;
use aulos_engine::recorder::{CommandTime, RecordTapReader, Recorder};
use aulos_rt::channel::Sender;

use super::clock;
use super::config::{CompletionObserver, RecordingConfig, RetentionRules};
use super::marker::{MAX_PENDING_MARKERS, MarkerError, MarkerRequest, is_valid_label};
use super::report::{RecorderEvent, RecorderEventKind, RecorderStatus};

/// The shared state.
pub(super) struct RecorderShared {
    pub(super) name: Arc<str>,
    pub(super) keep_sidecar: bool,
    pub(super) observers: Vec<Arc<dyn CompletionObserver>>,
    machine: Mutex<Recorder>,
    status: Mutex<RecorderStatus>,
    /// Tap of the restarted station.
    replacement_tap: Mutex<Option<RecordTapReader>>,
    /// Requested markers.
    marker_requests: Mutex<Vec<Arc<MarkerRequest>>>,
    retention: Mutex<RetentionRules>,
    is_closing: AtomicBool,
    is_done: AtomicBool,
    events: Sender<RecorderEvent>,
    events_lost: AtomicU64,
    segments: AtomicU64,
    deleted: AtomicU64,
}

impl RecorderShared {
    pub(super) fn new(
        config: &RecordingConfig,
        observers: Vec<Arc<dyn CompletionObserver>>,
        events: Sender<RecorderEvent>,
    ) -> Self {
        Self {
            name: Arc::from(&*config.name),
            keep_sidecar: config.keep_sidecar,
            observers,
            machine: Mutex::new(Recorder::new(config.recorder)),
            status: Mutex::default(),
            replacement_tap: Mutex::new(None),
            marker_requests: Mutex::new(Vec::new()),
            retention: Mutex::new(config.retention),
            is_closing: AtomicBool::new(false),
            is_done: AtomicBool::new(false),
            events,
            events_lost: AtomicU64::new(0),
            segments: AtomicU64::new(0),
            deleted: AtomicU64::new(0),
        }
    }

    pub(super) fn machine(&self) -> MutexGuard<'_, Recorder> {
        lock(&self.machine)
    }

    pub(super) fn status(&self) -> RecorderStatus {
        let mut status = lock(&self.status).clone();
        status.state = self.machine().state();
        status.segments = self.segments.load(Relaxed);
        status.deleted = self.deleted.load(Relaxed);
        status.events_lost = self.events_lost.load(Relaxed);
        status
    }

    pub(super) fn set_status(&self, status: RecorderStatus) {
        *lock(&self.status) = status;
    }

    pub(super) fn replace_tap(&self, tap: RecordTapReader) {
        *lock(&self.replacement_tap) = Some(tap);
    }

    pub(super) fn replacement_tap(&self) -> MutexGuard<'_, Option<RecordTapReader>> {
        lock(&self.replacement_tap)
    }

    /// Requests a marker at the frame of `when`. The machine stays locked, so that the recorder's
    /// thread gets the request before it ends the segment of that frame.
    pub(super) fn request_marker(
        &self,
        label: &str,
        now: Instant,
        when: CommandTime,
    ) -> Result<Arc<MarkerRequest>, MarkerError> {
        if !is_valid_label(label) {
            return Err(MarkerError::InvalidLabel);
        }
        let machine = self.machine();
        let at = machine.marker(now, when).map_err(MarkerError::Recorder)?;
        let mut marker_requests = lock(&self.marker_requests);
        if marker_requests.len() >= MAX_PENDING_MARKERS {
            return Err(MarkerError::TooManyPending);
        }
        let request = Arc::new(MarkerRequest::new(label, at, now));
        marker_requests.push(request.clone());
        Ok(request)
    }

    pub(super) fn take_marker_requests(&self) -> Vec<Arc<MarkerRequest>> {
        std::mem::take(&mut *lock(&self.marker_requests))
    }

    pub(super) fn retention(&self) -> RetentionRules {
        *lock(&self.retention)
    }

    pub(super) fn set_retention(&self, rules: RetentionRules) {
        *lock(&self.retention) = rules;
    }

    pub(super) fn request_close(&self) {
        self.is_closing.store(true, SeqCst);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(SeqCst)
    }

    /// Marks that all accepted frames are in files that have their names.
    pub(super) fn set_done(&self) {
        self.is_done.store(true, SeqCst);
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_done.load(SeqCst)
    }

    /// Emits an event; an event that does not fit into the queue is counted.
    pub(super) fn emit(&self, kind: RecorderEventKind) {
        match &kind {
            RecorderEventKind::SegmentClosed(_) => self.segments.fetch_add(1, Relaxed),
            RecorderEventKind::FileDeleted { .. } => self.deleted.fetch_add(1, Relaxed),
            _ => 0,
        };
        let event =
            RecorderEvent { recorder: self.name.clone(), utc: clock::wall_clock().utc, kind };
        if self.events.try_send(event).is_err() {
            self.events_lost.fetch_add(1, Relaxed);
        }
    }
}

/// A panicked thread leaves valid values, so a poisoned lock is used.
fn lock<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
