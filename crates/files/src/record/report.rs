//! Events and status of a recorder.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use aulos_core::{ChannelLayout, Db, Frames, Lufs, MediaTime, SampleRate};
use aulos_engine::recorder::{ClockChange, RecordingState, SegmentReason, UnixTime};

use super::marker::Marker;

/// Event of a recorder.
#[derive(Clone, Debug)]
pub struct RecorderEvent {
    /// Name of the recorder.
    pub recorder: Arc<str>,
    /// Time of the event.
    pub utc: UnixTime,
    /// Kind and details of the event.
    pub kind: RecorderEventKind,
}

/// Kinds of events.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RecorderEventKind {
    /// A segment began.
    SegmentOpened {
        /// Its final name; until the file is complete, `.part` is appended.
        path: PathBuf,
        /// First frame.
        frame: MediaTime,
        /// Time of that frame.
        utc: UnixTime,
    },
    /// A segment is complete, with its final name and its sidecar.
    SegmentClosed(Box<ClosedSegment>),
    /// The current segment has one more marker, and its sidecar lists it.
    MarkerAdded(Box<Marker>),
    /// Frames were lost; the file has silence of the same length or leaves them out, or the next
    /// one begins after them.
    FramesLost {
        /// First lost frame.
        frame: MediaTime,
        /// Number of lost frames.
        frames: Frames,
        /// Frames per second.
        rate: SampleRate,
        /// Why.
        cause: LossCause,
    },
    /// The wall clock was set, or the machine was suspended, while a file was recorded.
    ClockChanged {
        /// The first frame afterwards.
        frame: MediaTime,
        /// What has happened.
        change: ClockChange,
    },
    /// An operation failed and is repeated. Meanwhile the sound waits in the ring.
    Failed(RecorderFault),
    /// The failed operation succeeded.
    Recovered,
    /// The file was removed while it was written; the next one has been started.
    FileRemoved {
        /// Path of the file.
        path: PathBuf,
    },
    /// A file left behind by a crash was repaired and has its name.
    FileRepaired {
        /// Path of the file.
        path: PathBuf,
    },
    /// A file left behind by a crash cannot be repaired and is unchanged.
    RepairFailed {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// A file was deleted by the retention rules.
    FileDeleted {
        /// Path of the file.
        path: PathBuf,
        /// The rule that deleted it.
        reason: RetentionReason,
    },
}

/// Why frames are missing in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossCause {
    /// The disk was slower for longer than the ring can buffer.
    Disk,
    /// The process or the machine stood still.
    Stall,
    /// The source was interrupted, or its sender paused.
    Source,
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disk => "the disk is too slow",
            Self::Stall => "the program or its machine stood still",
            Self::Source => "the source sent nothing",
        })
    }
}

/// Retention rule that deleted a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetentionReason {
    /// The file was too old.
    Age,
    /// There were too many files.
    Count,
    /// The files were too large in total.
    Bytes,
    /// The disk had too little free space.
    FreeSpace,
}

impl fmt::Display for RetentionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Age => "too old",
            Self::Count => "too many files",
            Self::Bytes => "too large in total",
            Self::FreeSpace => "too little free disk space",
        })
    }
}

/// A complete segment.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedSegment {
    /// Path of its file.
    pub path: PathBuf,
    /// Number of the segment.
    pub number: u64,
    /// The station's frame at its start.
    pub start: MediaTime,
    /// The station's frame behind its end.
    pub end: MediaTime,
    /// Time of its start.
    pub utc: UnixTime,
    /// Frames in the file.
    pub frames: Frames,
    /// Frames per second.
    pub rate: SampleRate,
    /// Channels.
    pub layout: ChannelLayout,
    /// Bytes of the file.
    pub bytes: u64,
    /// Lost frames: silence replaces them, or they are left out.
    pub lost: Frames,
    /// Why it ended.
    pub cause: SegmentReason,
    /// Loudness; values are `None` if the segment is too short or silent.
    pub loudness: SegmentLoudness,
    /// SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
}

/// Loudness of a segment, according to EBU R 128.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SegmentLoudness {
    /// Integrated loudness.
    pub integrated: Option<Lufs>,
    /// Loudness range.
    pub range: Option<Db>,
    /// Maximum true peak of all channels.
    pub true_peak: Option<Db>,
    /// Maximum momentary loudness.
    pub max_momentary: Option<Lufs>,
    /// Maximum short-term loudness.
    pub max_short_term: Option<Lufs>,
}

/// A failed file operation.
#[derive(Clone, Debug)]
pub struct RecorderFault {
    /// The operation.
    pub operation: FileOperation,
    /// Path of the file.
    pub path: PathBuf,
    /// The system's error.
    pub error: Arc<io::Error>,
}

impl PartialEq for RecorderFault {
    /// Whether the same operation failed for the same reason.
    fn eq(&self, other: &Self) -> bool {
        let kind = |fault: &Self| fault.error.kind();
        (self.operation, kind(self)) == (other.operation, kind(other)) && self.path == other.path
    }
}

impl fmt::Display for RecorderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.operation {
            FileOperation::Create => "cannot create",
            FileOperation::Write => "cannot write to",
            FileOperation::Sync => "cannot sync",
            FileOperation::Rename => "cannot rename",
            FileOperation::WriteSidecar => "cannot write the sidecar of",
            FileOperation::Delete => "cannot delete",
            FileOperation::Encode => "cannot encode sound for",
            FileOperation::List => "cannot list",
        };
        let remedy = match self.error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free disk space",
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "; make it writable"
            }
            io::ErrorKind::NotFound => "; check that its disk is mounted",
            _ => "",
        };
        write!(f, "{action} {}: {}{remedy}", self.path.display(), self.error)
    }
}

/// A file operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileOperation {
    /// Create a file.
    Create,
    /// Write to it.
    Write,
    /// Sync it.
    Sync,
    /// Rename it to its final name.
    Rename,
    /// Write its sidecar.
    WriteSidecar,
    /// Delete it.
    Delete,
    /// Encode sound.
    Encode,
    /// List the folder.
    List,
}

/// Status of a recorder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecorderStatus {
    /// State of the recorder machine.
    pub state: RecordingState,
    /// The segment that is being written.
    pub segment: Option<SegmentStatus>,
    /// Number of complete segments.
    pub segments: u64,
    /// Frames written to files, including silence.
    pub frames: Frames,
    /// Bytes written to files.
    pub bytes: u64,
    /// Lost frames.
    pub lost: Frames,
    /// Frames in the ring.
    pub buffered: Frames,
    /// Files deleted by the retention rules.
    pub deleted: u64,
    /// Events dropped because the queue was full.
    pub events_lost: u64,
    /// The current failure.
    pub fault: Option<RecorderFault>,
    /// Free bytes of the disk, if known.
    pub free_bytes: Option<u64>,
}

/// The segment that is being written.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentStatus {
    /// Path of its file when that is complete.
    pub path: PathBuf,
    /// Number of the segment.
    pub number: u64,
    /// First frame.
    pub start: MediaTime,
    /// Time of that frame.
    pub utc: UnixTime,
    /// Frames in the file.
    pub frames: Frames,
    /// Frames per second.
    pub rate: SampleRate,
    /// Bytes of the file.
    pub bytes: u64,
}
