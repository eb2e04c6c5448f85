//! State and events of the stations' recorders, for the control plane.

use std::io::ErrorKind;

use aulos_core::Frames;
use aulos_engine::recorder::RecordingState;
use aulos_files::record::{RecorderEventKind, RecorderFault, RecorderStatus, SegmentStatus};

use super::{UploadEvent, UploadState};

/// State of a recorder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecorderState {
    /// State of the recorder machine; `None` while its folder is unavailable.
    pub state: Option<RecordingState>,
    /// The segment that is being written.
    pub segment: Option<SegmentStatus>,
    /// Number of complete files.
    pub segments: u64,
    /// Frames written to files, including silence.
    pub frames: Frames,
    /// Bytes written to files.
    pub bytes: u64,
    /// Lost frames: the disk was too slow, the machine stood still, or the source sent nothing.
    pub lost: Frames,
    /// Frames in the ring.
    pub waiting: Frames,
    /// Files deleted by the retention rules.
    pub deleted: u64,
    /// The current failure, with a remedy.
    pub trouble: Option<String>,
    /// Free bytes of the disk, if known.
    pub free: Option<u64>,
    /// State of its uploads, if configured.
    pub upload: Option<UploadState>,
}

impl From<RecorderStatus> for RecorderState {
    fn from(status: RecorderStatus) -> Self {
        Self {
            state: Some(status.state),
            segment: status.segment,
            segments: status.segments,
            frames: status.frames,
            bytes: status.bytes,
            lost: status.lost,
            waiting: status.buffered,
            deleted: status.deleted,
            trouble: status.fault.as_ref().map(fault_text),
            free: status.free_bytes,
            upload: None,
        }
    }
}

/// A fault, with what a configuration can do about it.
pub(crate) fn fault_text(fault: &RecorderFault) -> String {
    match fault.error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            format!("{fault}, or delete older recordings by `keep_free`, `keep_size` or `keep_for`")
        }
        _ => fault.to_string(),
    }
}

impl RecorderState {
    /// The state without figures that change continuously.
    #[must_use]
    pub fn at_rest(self) -> Self {
        let segment =
            self.segment.map(|segment| SegmentStatus { frames: Frames::ZERO, bytes: 0, ..segment });
        let upload = self.upload.map(UploadState::without_live_figures);
        let (frames, waiting) = (Frames::ZERO, Frames::ZERO);
        Self { segment, upload, frames, waiting, bytes: 0, free: None, ..self }
    }
}

/// Event of a station's recorder.
#[derive(Clone, Debug)]
pub struct StationRecorderEvent {
    /// Name of its station, which may be removed by now.
    pub station: String,
    /// Name of the recorder.
    pub recorder: String,
    /// Kind and details of the event.
    pub kind: RecordingEventKind,
}

/// Events of a recorder and of its uploads.
#[derive(Clone, Debug)]
pub enum RecordingEventKind {
    /// Event of the recorder.
    Recorder(RecorderEventKind),
    /// Event of an upload.
    Upload(UploadEvent),
}
