//! Markers: named frames of a recording.
//!
//! ```text
//!  AddMarker -> RecorderHandle::mark: frame, at once -> recorder's thread: file and position
//!            <- MarkerRequest::outcome               <- syncer's thread: sidecar
//! ```
//!
//! A marker is accepted when the sidecar that lists it is on the disk, so that a killed process
//! loses none; the file itself gets its markers when its sound is complete, or when it is repaired.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use aulos_core::{Frames, Instant, MediaTime, Span};
use aulos_engine::recorder::{CommandError, SegmentEnd, SegmentReason, UnixTime};
use aulos_io::disk::{SyncCallback, SyncHandle, Syncer};

use super::report::RecorderEventKind;
use super::segment_file::SegmentFile;
use super::shared::RecorderShared;
use super::sidecar::sidecar_name;
use super::store::RecordingStore;

/// A named frame of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Marker {
    /// Path of its file when that is complete.
    pub path: PathBuf,
    /// Frame of the station.
    pub frame: MediaTime,
    /// Position in the file: number of frames before it.
    pub position: Frames,
    /// Time at which it was played.
    pub utc: UnixTime,
    /// Label.
    pub label: String,
}

/// Why a marker was rejected.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum MarkerError {
    /// The label is empty, longer than [`MAX_LABEL_BYTES`], or has control characters.
    InvalidLabel,
    /// That frame is not recorded.
    Recorder(CommandError),
    /// The file already has [`MAX_MARKERS`].
    TooManyMarkers,
    /// [`MAX_PENDING_MARKERS`] requests are pending.
    TooManyPending,
    /// The recording ended before the frame.
    RecordingEnded,
    /// The frame did not arrive in time.
    FrameMissing,
    /// The sidecar could not be written. The marker is in the file if that can be completed.
    SidecarWrite(Arc<io::Error>),
}

impl fmt::Display for MarkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidLabel => {
                write!(
                    f,
                    "invalid label: expected 1 to {MAX_LABEL_BYTES} bytes of UTF-8 without control characters"
                )
            }
            Self::Recorder(error) => error.fmt(f),
            Self::TooManyMarkers => write!(
                f,
                "the file already has the maximum of {MAX_MARKERS} markers; cut the recording and add the marker again"
            ),
            Self::TooManyPending => {
                write!(f, "{MAX_PENDING_MARKERS} markers are waiting for the disk; try again later")
            }
            Self::RecordingEnded => f.write_str("the recording ended before that frame"),
            Self::FrameMissing => {
                f.write_str("the frame did not arrive; check that the source is sending")
            }
            Self::SidecarWrite(error) => {
                write!(f, "cannot write the marker to the sidecar: {error}")
            }
        }
    }
}

impl std::error::Error for MarkerError {}

/// Whether a text is a valid label. Every file format can store such characters.
#[must_use]
pub fn is_valid_label(text: &str) -> bool {
    let is_allowed = |char: char| !char.is_control() && !matches!(char, '\u{fffe}' | '\u{ffff}');
    (1..=MAX_LABEL_BYTES).contains(&text.len()) && text.chars().all(is_allowed)
}

/// A requested marker.
#[derive(Debug)]
pub struct MarkerRequest {
    label: String,
    frame: MediaTime,
    /// Segment of the frame; the next one if the current one ends before the frame.
    segment: Mutex<u64>,
    requested_at: Instant,
    outcome: Mutex<PendingOutcome>,
}

/// The outcome of a request, and the task that waits for it.
#[derive(Debug, Default)]
struct PendingOutcome {
    outcome: Option<Result<Marker, MarkerError>>,
    waker: Option<Waker>,
}

impl MarkerRequest {
    pub(super) fn new(
        label: &str,
        (frame, segment): (MediaTime, u64),
        requested_at: Instant,
    ) -> Self {
        let (label, segment) = (label.to_owned(), Mutex::new(segment));
        Self { label, frame, segment, requested_at, outcome: Mutex::default() }
    }

    /// The outcome; `None` while it is pending. An accepted marker survives the end of the process;
    /// with sync enabled, also a power failure.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<Marker, MarkerError>> {
        self.pending().outcome.clone()
    }

    /// The same for one task, which is woken when the outcome is known.
    pub fn poll_outcome(&self, context: &Context<'_>) -> Poll<Result<Marker, MarkerError>> {
        let mut pending = self.pending();
        let Some(outcome) = pending.outcome.clone() else {
            pending.waker = Some(context.waker().clone());
            return Poll::Pending;
        };
        Poll::Ready(outcome)
    }

    fn complete(&self, outcome: Result<Marker, MarkerError>) {
        let mut pending = self.pending();
        pending.outcome = Some(outcome);
        let waker = pending.waker.take();
        drop(pending);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn pending(&self) -> MutexGuard<'_, PendingOutcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn segment(&self) -> u64 {
        *self.segment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn move_to_segment(&self, segment: u64) {
        *self.segment.lock().unwrap_or_else(PoisonError::into_inner) = segment;
    }
}

/// The markers of a recorder, on its thread.
#[derive(Default)]
pub(super) struct MarkerQueue {
    /// Requests whose frames are not written yet.
    pending: VecDeque<Arc<MarkerRequest>>,
    /// Markers of the current file that its sidecar does not list yet.
    placed: Vec<(Arc<MarkerRequest>, Marker)>,
    /// Sidecars for which the syncer's queue had no room.
    writes: VecDeque<(Box<dyn SyncHandle>, SyncCallback)>,
    /// Number of sidecars in the syncer's queue.
    writes_in_flight: Arc<AtomicUsize>,
}

impl MarkerQueue {
    /// Assigns the requests whose frames are in `file` to their positions; rejects those whose
    /// frames have not arrived at `now`, long after the request.
    pub(super) fn place(
        &mut self,
        shared: &RecorderShared,
        file: &mut SegmentFile,
        path: &Path,
        now: Instant,
    ) {
        self.pending.extend(shared.take_marker_requests());
        for request in std::mem::take(&mut self.pending) {
            if request.segment() == file.sidecar.start.number && request.frame < file.end_frame() {
                self.assign(request, file, path);
            } else if now - request.requested_at > REQUEST_TIMEOUT {
                request.complete(Err(MarkerError::FrameMissing));
            } else {
                self.pending.push_back(request);
            }
        }
    }

    /// `file` ends: requests beyond its end move to the next file, if that continues the sound.
    pub(super) fn close_file(
        &mut self,
        shared: &RecorderShared,
        file: &mut SegmentFile,
        path: &Path,
        end: &SegmentEnd,
    ) {
        self.pending.extend(shared.take_marker_requests());
        let continues_sound = !matches!(end.cause, SegmentReason::Stop | SegmentReason::Break);
        for request in std::mem::take(&mut self.pending) {
            if request.segment() > end.number {
                self.pending.push_back(request);
            } else if request.frame < end.end {
                self.assign(request, file, path);
            } else if continues_sound {
                request.move_to_segment(end.number + 1);
                self.pending.push_back(request);
            } else {
                request.complete(Err(MarkerError::RecordingEnded));
            }
        }
    }

    fn assign(&mut self, request: Arc<MarkerRequest>, file: &mut SegmentFile, path: &Path) {
        let Some(position) = file.position(request.frame) else {
            return request.complete(Err(MarkerError::Recorder(CommandError::Skipped)));
        };
        let marker = Marker {
            path: path.to_owned(),
            frame: request.frame,
            position,
            utc: super::segment_file::segment_end_utc(
                &file.sidecar.start,
                request.frame.since(file.sidecar.start.at),
            ),
            label: request.label.clone(),
        };
        if !file.sidecar.add_marker(&marker) {
            return request.complete(Err(MarkerError::TooManyMarkers));
        }
        self.placed.push((request, marker));
    }

    /// Writes the sidecar of `file` if it does not list all of its markers.
    pub(super) fn write_sidecar(
        &mut self,
        shared: &Arc<RecorderShared>,
        file: Option<&SegmentFile>,
        store: &Arc<dyn RecordingStore>,
        syncer: &Syncer,
    ) {
        if let Some(file) = file.filter(|_| !self.placed.is_empty()) {
            let write = SidecarWrite {
                store: store.clone(),
                name: sidecar_name(&file.name),
                text: file.sidecar.recording_json(&file.name),
                state: file.sidecar_state.clone(),
            };
            let (placed, shared) = (std::mem::take(&mut self.placed), shared.clone());
            let writes_in_flight = self.writes_in_flight.clone();
            writes_in_flight.fetch_add(1, SeqCst);
            let done = Box::new(move |result: io::Result<()>| {
                let failed = result.err().map(Arc::new);
                for (request, marker) in placed {
                    request.complete(match &failed {
                        None => Ok(marker.clone()),
                        Some(error) => Err(MarkerError::SidecarWrite(error.clone())),
                    });
                    if failed.is_none() {
                        shared.emit(RecorderEventKind::MarkerAdded(Box::new(marker)));
                    }
                }
                writes_in_flight.fetch_sub(1, SeqCst);
            });
            self.writes.push_back((Box::new(write), done));
        }
        while let Some((write, done)) = self.writes.pop_front() {
            if let Err(rejected) = syncer.sync(write, done) {
                self.writes.push_front(rejected);
                break;
            }
        }
    }

    /// Whether a sidecar is still to be written.
    pub(super) fn is_writing(&self) -> bool {
        !self.placed.is_empty() || self.writes_in_flight.load(SeqCst) > 0
    }

    /// Rejects all pending requests at the end of the recorder.
    pub(super) fn reject_all(&mut self, shared: &RecorderShared) {
        self.pending.extend(shared.take_marker_requests());
        for request in self.pending.drain(..) {
            request.complete(Err(MarkerError::RecordingEnded));
        }
    }
}

/// State of a sidecar. Several threads write it; an older state never replaces a newer one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SidecarState {
    /// The file was created.
    #[default]
    Recording,
    /// The file has markers.
    Marked,
    /// The file is being completed.
    Completing,
}

/// Writes the sidecar `name` unless a later state was written.
pub(super) fn put_sidecar(
    now: &Mutex<SidecarState>,
    state: SidecarState,
    store: &dyn RecordingStore,
    (name, text): (&str, &[u8]),
) -> io::Result<()> {
    let mut now = now.lock().unwrap_or_else(PoisonError::into_inner);
    if *now > state {
        return Ok(());
    }
    *now = state;
    store.write_atomic(name, text)
}

/// A sidecar that lists all markers so far.
struct SidecarWrite {
    store: Arc<dyn RecordingStore>,
    name: String,
    text: Vec<u8>,
    state: Arc<Mutex<SidecarState>>,
}

impl SyncHandle for SidecarWrite {
    fn sync(&self) -> io::Result<()> {
        put_sidecar(&self.state, SidecarState::Marked, &*self.store, (&self.name, &self.text))
    }
}

/// Maximum length of a label in bytes.
pub const MAX_LABEL_BYTES: usize = 128;

/// Maximum number of markers in a file.
pub const MAX_MARKERS: usize = 256;

/// Maximum number of requests in the queue of the recorder's thread.
pub const MAX_PENDING_MARKERS: usize = 64;

/// How long a request waits for its frame.
const REQUEST_TIMEOUT: Span = Span::from_secs(2);
