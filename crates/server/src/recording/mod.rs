//! Recorders of stations as everybody else in the house sees them.

use aulos_core::Frames;
use aulos_engine::recorder::RecordingState;
use aulos_files::record::{Segment, Status, What};

use crate::upload::{UploadEvent, UploadState};

/// How a recorder does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecorderState {
    /// What it does; none while its folder cannot be had.
    pub state: Option<RecordingState>,
    /// The file that is written.
    pub segment: Option<Segment>,
    /// Files that are complete.
    pub segments: u64,
    /// Frames that went into files, silence included.
    pub frames: Frames,
    /// Bytes that went into files.
    pub bytes: u64,
    /// Frames that were lost: the disk was behind for too long.
    pub lost: Frames,
    /// Frames that wait to be written.
    pub waiting: Frames,
    /// Files that were deleted because they need not be kept.
    pub deleted: u64,
    /// What does not go at present, and what may help.
    pub trouble: Option<String>,
    /// Bytes that are free on the disk, where that is known.
    pub free: Option<u64>,
    /// How its complete files get away, where they do.
    pub upload: Option<UploadState>,
}

impl From<Status> for RecorderState {
    fn from(status: Status) -> Self {
        Self {
            state: Some(status.state),
            segment: status.segment,
            segments: status.segments,
            frames: status.frames,
            bytes: status.bytes,
            lost: status.lost,
            waiting: status.waiting,
            deleted: status.deleted,
            trouble: status.trouble.map(|trouble| trouble.to_string()),
            free: status.free,
            upload: None,
        }
    }
}

impl RecorderState {
    /// Without what changes all the time.
    #[must_use]
    pub fn at_rest(self) -> Self {
        let segment =
            self.segment.map(|segment| Segment { frames: Frames::ZERO, bytes: 0, ..segment });
        let upload = self.upload.map(UploadState::without_live_figures);
        let (frames, waiting) = (Frames::ZERO, Frames::ZERO);
        Self { segment, upload, frames, waiting, bytes: 0, free: None, ..self }
    }
}

/// Something that has happened to a recorder.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Whose it is. It may be gone by now.
    pub station: String,
    /// What it is called.
    pub recorder: String,
    /// What it was.
    pub what: Happened,
}

/// What has happened.
#[derive(Clone, Debug)]
pub enum Happened {
    /// On the disk.
    Recorder(What),
    /// On the way to another place.
    Upload(UploadEvent),
}
