//! What a recorder's deck and its thread have in common. Neither holds a lock while it waits for a
//! disk, so a command is answered at once, to the frame, however slow that is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aulos_core::{Frames, Instant};
use aulos_engine::recorder::{CommandTime, RecordTapReader, Recorder, RecordingState};
use aulos_rt::channel::Sender;

use super::clock;
use super::marker::{MAX_WAITING, MarkerRefused, MarkerRequest, is_label};
use super::report::{Event, Status, What};
use super::wish::{Heir, Retention, Wish};

/// The common part.
pub(super) struct Shared {
    pub(super) name: Arc<str>,
    pub(super) sidecar: bool,
    pub(super) heir: Option<Arc<dyn Heir>>,
    machine: Mutex<Recorder>,
    status: Mutex<Status>,
    /// The ring of the station that has begun anew.
    next: Mutex<Option<RecordTapReader>>,
    /// Markers that were asked for.
    marks: Mutex<Vec<Arc<MarkerRequest>>>,
    retention: Mutex<Retention>,
    closing: AtomicBool,
    done: AtomicBool,
    events: Sender<Event>,
    events_lost: AtomicU64,
    segments: AtomicU64,
    deleted: AtomicU64,
}

impl Shared {
    pub(super) fn new(wish: &Wish, events: Sender<Event>) -> Self {
        let status = Status {
            state: RecordingState::Idle,
            segment: None,
            segments: 0,
            frames: Frames::ZERO,
            bytes: 0,
            lost: Frames::ZERO,
            waiting: Frames::ZERO,
            deleted: 0,
            events_lost: 0,
            trouble: None,
            free: None,
        };
        Self {
            name: Arc::from(&*wish.name),
            sidecar: wish.sidecar,
            heir: wish.heir.clone(),
            machine: Mutex::new(Recorder::new(wish.config)),
            status: Mutex::new(status),
            next: Mutex::new(None),
            marks: Mutex::new(Vec::new()),
            retention: Mutex::new(wish.retention),
            closing: AtomicBool::new(false),
            done: AtomicBool::new(false),
            events,
            events_lost: AtomicU64::new(0),
            segments: AtomicU64::new(0),
            deleted: AtomicU64::new(0),
        }
    }

    pub(super) fn machine(&self) -> MutexGuard<'_, Recorder> {
        held(&self.machine)
    }

    pub(super) fn status(&self) -> Status {
        let mut status = held(&self.status).clone();
        status.state = self.machine().state();
        status.segments = self.segments.load(Relaxed);
        status.deleted = self.deleted.load(Relaxed);
        status.events_lost = self.events_lost.load(Relaxed);
        status
    }

    pub(super) fn set_status(&self, status: Status) {
        *held(&self.status) = status;
    }

    pub(super) fn replace(&self, spool: RecordTapReader) {
        *held(&self.next) = Some(spool);
    }

    pub(super) fn replacement(&self) -> MutexGuard<'_, Option<RecordTapReader>> {
        held(&self.next)
    }

    /// Asks for a marker at the frame of `when`. The machine stays locked, so that the recorder's
    /// thread finds it before the segment ends that it is for.
    pub(super) fn mark(
        &self,
        label: &str,
        now: Instant,
        when: CommandTime,
    ) -> Result<Arc<MarkerRequest>, MarkerRefused> {
        if !is_label(label) {
            return Err(MarkerRefused::Label);
        }
        let machine = self.machine();
        let at = machine.marker(now, when).map_err(MarkerRefused::Recorder)?;
        let mut marks = held(&self.marks);
        if marks.len() >= MAX_WAITING {
            return Err(MarkerRefused::Busy);
        }
        let request = Arc::new(MarkerRequest::new(label, at, now));
        marks.push(request.clone());
        Ok(request)
    }

    pub(super) fn take_marks(&self) -> Vec<Arc<MarkerRequest>> {
        std::mem::take(&mut *held(&self.marks))
    }

    pub(super) fn retention(&self) -> Retention {
        *held(&self.retention)
    }

    pub(super) fn set_retention(&self, rules: Retention) {
        *held(&self.retention) = rules;
    }

    pub(super) fn close(&self) {
        self.closing.store(true, SeqCst);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(SeqCst)
    }

    /// All that was accepted is in files that have their names.
    pub(super) fn finish(&self) {
        self.done.store(true, SeqCst);
    }

    pub(super) fn is_done(&self) -> bool {
        self.done.load(SeqCst)
    }

    /// Tells an event; one that finds no room is counted.
    pub(super) fn tell(&self, what: What) {
        match &what {
            What::Closed(_) => self.segments.fetch_add(1, Relaxed),
            What::Deleted { .. } => self.deleted.fetch_add(1, Relaxed),
            _ => 0,
        };
        let event = Event { recorder: self.name.clone(), utc: clock::wall().utc, what };
        if self.events.try_send(event).is_err() {
            self.events_lost.fetch_add(1, Relaxed);
        }
    }
}

/// A thread that panicked has said so, and left plain values.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
