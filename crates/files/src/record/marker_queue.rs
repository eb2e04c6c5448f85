//! The markers of a recorder on its thread: from a request to the sidecar that lists it.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use aulos_core::{Instant, Span};
use aulos_engine::recorder::{CommandError, SegmentEnd, SegmentReason};
use aulos_io::disk::{SyncCallback, SyncHandle, Syncer};

use super::marker::{Marker, MarkerError, MarkerRequest};
use super::report::RecorderEventKind;
use super::segment_file::SegmentFile;
use super::shared::RecorderShared;
use super::sidecar::{SidecarState, put_sidecar, sidecar_name};
use super::store::RecordingStore;

/// The markers of a recorder, on its thread.
#[derive(Default)]
pub(super) struct MarkerQueue {
    /// Requests whose frames are not written yet.
    pending: VecDeque<Arc<MarkerRequest>>,
    /// Markers of the current file that its sidecar does not list yet.
    placed: Vec<(Arc<MarkerRequest>, Marker)>,
    /// The sidecar lacks something besides markers.
    is_outdated: bool,
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
            utc: file.sidecar.utc_of(request.frame),
            label: request.label.clone(),
        };
        if !file.sidecar.add_marker(&marker) {
            return request.complete(Err(MarkerError::TooManyMarkers));
        }
        self.placed.push((request, marker));
    }

    /// The sidecar of the current file is to be written again.
    pub(super) const fn request_sidecar(&mut self) {
        self.is_outdated = true;
    }

    /// Writes the sidecar of `file` if it does not list all of its markers, or was requested.
    pub(super) fn write_sidecar(
        &mut self,
        shared: &Arc<RecorderShared>,
        file: Option<&SegmentFile>,
        store: &Arc<dyn RecordingStore>,
        syncer: &Syncer,
    ) {
        let is_outdated = std::mem::take(&mut self.is_outdated) || !self.placed.is_empty();
        if let Some(file) = file.filter(|_| is_outdated) {
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

/// How long a request waits for its frame.
const REQUEST_TIMEOUT: Span = Span::from_secs(2);
