//! State and events of the stations' recorders, for the control plane.

use std::io::ErrorKind;

use aulos_core::Frames;
use aulos_engine::recorder::RecordingState;
use aulos_files::logger::LogGap;
use aulos_files::record::{RecorderEventKind, RecorderFault, RecorderStatus, SegmentStatus};

use super::{UploadEvent, UploadState};

/// State of a recorder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecorderState {
    /// Its status; that of a new one while its folder is unavailable.
    pub status: RecorderStatus,
    /// Why its folder is unavailable.
    pub unavailable: Option<String>,
    /// State of its uploads, if configured.
    pub upload: Option<UploadState>,
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
    /// State of the recorder machine; `None` while its folder is unavailable.
    #[must_use]
    pub fn machine(&self) -> Option<RecordingState> {
        self.unavailable.is_none().then_some(self.status.state)
    }

    /// The current failure, with a remedy.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.unavailable.clone().or_else(|| self.status.fault.as_ref().map(fault_text))
    }

    /// The state without figures that change continuously.
    #[must_use]
    pub fn at_rest(self) -> Self {
        let segment = self.status.segment;
        let status = RecorderStatus {
            segment: segment.map(|one| SegmentStatus { frames: Frames::ZERO, bytes: 0, ..one }),
            frames: Frames::ZERO,
            buffered: Frames::ZERO,
            bytes: 0,
            free_bytes: None,
            ..self.status
        };
        Self { status, upload: self.upload.map(UploadState::without_live_figures), ..self }
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

/// Events of a recorder, of its uploads and of its log.
#[derive(Clone, Debug)]
pub enum RecordingEventKind {
    /// Event of the recorder.
    Recorder(RecorderEventKind),
    /// Event of an upload.
    Upload(UploadEvent),
    /// The head of a log, to be kept on another machine.
    LogHead(LogHead),
    /// A log has a gap of more than a second.
    LogGap(LogGap),
}

/// The hash of the last line of a log's index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHead {
    /// SHA-256 in hexadecimal digits, for `aulos logger verify --head`.
    pub hash: String,
    /// Lines of the index.
    pub lines: u64,
}
