//! Markers: frames of a recording that have a name.
//!
//! ```text
//!  AddMarker -> Deck::mark: its frame, at once -> the recorder's thread: its file and position
//!            <- MarkerRequest::outcome         <- the thread that makes last: the sidecar
//! ```
//!
//! A marker is accepted when the sidecar that names it is on the disk, so that a killed process loses
//! none; the file itself gets its markers when its sound is complete, or when it is repaired.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use aulos_core::{Frames, Instant, MediaTime, Span};
use aulos_engine::recorder::{CommandError, SegmentEnd, SegmentReason, UnixTime};
use aulos_io::disk::{SyncCallback, SyncHandle, Syncer};

use super::file::Writing;
use super::note::sidecar;
use super::report::What;
use super::shared::Shared;
use super::store::Store;

/// A named frame of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Marker {
    /// Its file, as it will be called.
    pub path: PathBuf,
    /// The station's frame.
    pub frame: MediaTime,
    /// The same in the file: frames before it.
    pub position: Frames,
    /// When it sounded.
    pub utc: UnixTime,
    /// Its name.
    pub label: String,
}

/// Why there is no such marker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum MarkerRefused {
    /// The label is empty or longer than [`MAX_LABEL`], or has control characters.
    Label,
    /// Nothing is recorded at that frame.
    Recorder(CommandError),
    /// The file has [`MAX_MARKERS`] already.
    Full,
    /// [`MAX_WAITING`] wait already.
    Busy,
    /// The recording ended before the frame.
    Ended,
    /// The frame has not come in time.
    Silent,
    /// The sidecar could not be written. The marker stands in the file if that can be completed.
    Unwritten(Arc<io::Error>),
}

impl fmt::Display for MarkerRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label => {
                write!(f, "a label has 1 to {MAX_LABEL} bytes of UTF-8 without control characters")
            }
            Self::Recorder(refused) => refused.fmt(f),
            Self::Full => write!(
                f,
                "the file has {MAX_MARKERS} markers, which is the limit: cut it, and mark the next one"
            ),
            Self::Busy => write!(f, "{MAX_WAITING} markers wait for the disk: try again later"),
            Self::Ended => f.write_str("the recording ended before that frame"),
            Self::Silent => f.write_str("the source sends nothing: there is no such frame"),
            Self::Unwritten(error) => write!(f, "the marker is not safe: {error}"),
        }
    }
}

impl std::error::Error for MarkerRefused {}

/// Whether a text can be the label of a marker: every format of a file has such characters.
#[must_use]
pub fn is_label(text: &str) -> bool {
    let fits = |char: char| !char.is_control() && !matches!(char, '\u{fffe}' | '\u{ffff}');
    (1..=MAX_LABEL).contains(&text.len()) && text.chars().all(fits)
}

/// A marker that was asked for.
#[derive(Debug)]
pub struct MarkerRequest {
    label: String,
    at: MediaTime,
    /// The segment that was written when it was asked for; it moves on with the sound.
    segment: Mutex<u64>,
    asked: Instant,
    outcome: Mutex<Option<Result<Marker, MarkerRefused>>>,
}

impl MarkerRequest {
    pub(super) fn new(label: &str, (at, segment): (MediaTime, u64), asked: Instant) -> Self {
        let (label, segment) = (label.to_owned(), Mutex::new(segment));
        Self { label, at, segment, asked, outcome: Mutex::new(None) }
    }

    /// What came of it; none as long as that is not known. Once it is a marker, it survives the end of
    /// this process; where the recorder syncs, a loss of power as well.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<Marker, MarkerRefused>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn settle(&self, outcome: Result<Marker, MarkerRefused>) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }

    fn segment(&self) -> u64 {
        *self.segment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn move_to(&self, segment: u64) {
        *self.segment.lock().unwrap_or_else(PoisonError::into_inner) = segment;
    }
}

/// What a recorder's thread knows of markers.
#[derive(Default)]
pub(super) struct Markers {
    /// Their frames have not been written yet.
    waiting: VecDeque<Arc<MarkerRequest>>,
    /// They belong to the present file, whose sidecar does not name them yet.
    placed: Vec<(Arc<MarkerRequest>, Marker)>,
    /// Sidecars that the disk's other thread had no room for.
    writes: VecDeque<(Box<dyn SyncHandle>, SyncCallback)>,
    /// Sidecars that are written, or wait for that.
    under_way: Arc<AtomicUsize>,
}

impl Markers {
    /// Gives those whose frames are in `file` their positions there; refuses those whose frames have
    /// not come at `now`, long after they were asked for.
    pub(super) fn place(&mut self, shared: &Shared, file: &mut Writing, path: &Path, now: Instant) {
        self.waiting.extend(shared.take_marks());
        for request in std::mem::take(&mut self.waiting) {
            if request.segment() == file.note.opening.number && request.at < file.reached() {
                self.put(request, file, path);
            } else if now - request.asked > PATIENCE {
                request.settle(Err(MarkerRefused::Silent));
            } else {
                self.waiting.push_back(request);
            }
        }
    }

    /// `file` ends: what is beyond its end belongs to the next one, where that goes on with the sound.
    pub(super) fn close(
        &mut self,
        shared: &Shared,
        file: &mut Writing,
        path: &Path,
        closing: &SegmentEnd,
    ) {
        self.waiting.extend(shared.take_marks());
        let goes_on = !matches!(closing.cause, SegmentReason::Stop | SegmentReason::Break);
        for request in std::mem::take(&mut self.waiting) {
            if request.segment() > closing.number {
                self.waiting.push_back(request);
            } else if request.at < closing.end {
                self.put(request, file, path);
            } else if goes_on {
                request.move_to(closing.number + 1);
                self.waiting.push_back(request);
            } else {
                request.settle(Err(MarkerRefused::Ended));
            }
        }
    }

    fn put(&mut self, request: Arc<MarkerRequest>, file: &mut Writing, path: &Path) {
        let Some(position) = file.position(request.at) else {
            return request.settle(Err(MarkerRefused::Recorder(CommandError::Skipped)));
        };
        let marker = Marker {
            path: path.to_owned(),
            frame: request.at,
            position,
            utc: super::file::end_of(&file.note.opening, request.at.since(file.note.opening.at)),
            label: request.label.clone(),
        };
        if !file.note.mark(&marker) {
            return request.settle(Err(MarkerRefused::Full));
        }
        self.placed.push((request, marker));
    }

    /// Has the sidecar of `file` written where it does not name all of its markers.
    pub(super) fn write(
        &mut self,
        shared: &Arc<Shared>,
        file: Option<&Writing>,
        store: &Arc<dyn Store>,
        syncer: &Syncer,
    ) {
        if let Some(file) = file.filter(|_| !self.placed.is_empty()) {
            let sidecar = SidecarWrite {
                store: store.clone(),
                name: sidecar(&file.name),
                text: file.note.begun(&file.name),
                turn: file.turn.clone(),
            };
            let (placed, shared) = (std::mem::take(&mut self.placed), shared.clone());
            let under_way = self.under_way.clone();
            under_way.fetch_add(1, SeqCst);
            let done = Box::new(move |result: io::Result<()>| {
                let failed = result.err().map(Arc::new);
                for (request, marker) in placed {
                    request.settle(match &failed {
                        None => Ok(marker.clone()),
                        Some(error) => Err(MarkerRefused::Unwritten(error.clone())),
                    });
                    if failed.is_none() {
                        shared.tell(What::Marked(Box::new(marker)));
                    }
                }
                under_way.fetch_sub(1, SeqCst);
            });
            self.writes.push_back((Box::new(sidecar), done));
        }
        while let Some((sidecar, done)) = self.writes.pop_front() {
            if let Err(again) = syncer.sync(sidecar, done) {
                self.writes.push_front(again);
                break;
            }
        }
    }

    /// Whether a sidecar is still to be written.
    pub(super) fn is_writing(&self) -> bool {
        !self.placed.is_empty() || self.under_way.load(SeqCst) > 0
    }

    /// The recorder ends.
    pub(super) fn refuse_all(&mut self, shared: &Shared) {
        self.waiting.extend(shared.take_marks());
        for request in self.waiting.drain(..) {
            request.settle(Err(MarkerRefused::Ended));
        }
    }
}

/// Who writes a sidecar: it is written by several threads, and what is older never takes the place of
/// what is newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    /// The file was begun.
    #[default]
    Begun,
    /// It has markers.
    Marked,
    /// It is being completed.
    Closed,
}

/// Writes the sidecar `name` unless a later turn has come.
pub(super) fn put_sidecar(
    now: &Mutex<Turn>,
    turn: Turn,
    store: &dyn Store,
    (name, text): (&str, &[u8]),
) -> io::Result<()> {
    let mut now = now.lock().unwrap_or_else(PoisonError::into_inner);
    if *now > turn {
        return Ok(());
    }
    *now = turn;
    store.put(name, text)
}

/// A sidecar with all markers so far.
struct SidecarWrite {
    store: Arc<dyn Store>,
    name: String,
    text: Vec<u8>,
    turn: Arc<Mutex<Turn>>,
}

impl SyncHandle for SidecarWrite {
    fn sync(&self) -> io::Result<()> {
        put_sidecar(&self.turn, Turn::Marked, &*self.store, (&self.name, &self.text))
    }
}

/// Bytes of the longest label.
pub const MAX_LABEL: usize = 128;

/// Markers of a file.
pub const MAX_MARKERS: usize = 256;

/// Markers that wait for the recorder's thread.
pub const MAX_WAITING: usize = 64;

/// How long a marker waits for its frame.
const PATIENCE: Span = Span::from_secs(2);
