//! Markers: named frames of a recording.
//!
//! ```text
//!  AddMarker -> RecorderHandle::mark: frame, at once -> recorder's thread: file and position
//!            <- MarkerRequest::outcome               <- syncer's thread: sidecar
//! ```
//!
//! A marker is accepted when the sidecar that lists it is on the disk, so that a killed process
//! loses none; the file itself gets its markers when its sound is complete, or when it is repaired.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use aulos_core::{Frames, Instant, MediaTime};
use aulos_engine::recorder::{CommandError, UnixTime};

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
    pub(super) label: String,
    pub(super) frame: MediaTime,
    /// Segment of the frame; the next one if the current one ends before the frame.
    segment: Mutex<u64>,
    pub(super) requested_at: Instant,
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

    pub(super) fn complete(&self, outcome: Result<Marker, MarkerError>) {
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

    pub(super) fn segment(&self) -> u64 {
        *self.segment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn move_to_segment(&self, segment: u64) {
        *self.segment.lock().unwrap_or_else(PoisonError::into_inner) = segment;
    }
}

/// Maximum length of a label in bytes.
pub const MAX_LABEL_BYTES: usize = 128;

/// Maximum number of markers in a file.
pub const MAX_MARKERS: usize = 256;

/// Maximum number of requests in the queue of the recorder's thread.
pub const MAX_PENDING_MARKERS: usize = 64;
