//! What a recorder tells: events as they happen, and how it is now.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use aulos_core::{ChannelLayout, Db, Frames, Lufs, MediaTime, SampleRate};
use aulos_engine::recorder::{RecordingState, SegmentReason, UnixTime};

use super::marker::Marker;

/// Something that has happened to a recorder.
#[derive(Clone, Debug)]
pub struct Event {
    /// The recorder's name.
    pub recorder: Arc<str>,
    /// When it happened.
    pub utc: UnixTime,
    /// What it was.
    pub what: What,
}

/// What has happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum What {
    /// A segment began.
    Opened {
        /// The file that it will be; until then `.part` is behind its name.
        path: PathBuf,
        /// Its first frame.
        at: MediaTime,
        /// When that sounded.
        utc: UnixTime,
    },
    /// A segment is complete, has its name, and its sidecar stands beside it.
    Closed(Box<Closed>),
    /// The segment that is written has one more marker, and its sidecar says so.
    Marked(Box<Marker>),
    /// Frames were lost because the disk was behind for longer than the ring is; there is silence
    /// of the same length in the file.
    Lost {
        /// The first of them.
        at: MediaTime,
        /// How many.
        frames: Frames,
    },
    /// Something does not go, and is tried again. What sounds meanwhile waits in the ring.
    Trouble(Trouble),
    /// It goes again.
    Recovered,
    /// The file has disappeared from its folder while it was written; the next one has been begun.
    Vanished {
        /// Where it was.
        path: PathBuf,
    },
    /// A file that a crash left behind is whole again, and has its name.
    Repaired {
        /// The file.
        path: PathBuf,
    },
    /// A file that a crash left behind cannot be repaired and was left as it is.
    Unrepaired {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A file was deleted because it need not be kept.
    Deleted {
        /// The file.
        path: PathBuf,
        /// The rule.
        why: Rule,
    },
}

/// Why a file was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// It was too old.
    Age,
    /// There were too many.
    Count,
    /// They were too large together.
    Bytes,
    /// The disk was too full.
    Free,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Age => "too old",
            Self::Count => "too many files",
            Self::Bytes => "too large together",
            Self::Free => "the disk is too full",
        })
    }
}

/// A complete segment.
#[derive(Clone, Debug, PartialEq)]
pub struct Closed {
    /// Its file.
    pub path: PathBuf,
    /// Its number.
    pub number: u64,
    /// The station's frame with which it begins.
    pub start: MediaTime,
    /// The frame behind its last one.
    pub end: MediaTime,
    /// When it begins.
    pub utc: UnixTime,
    /// The frames in it.
    pub frames: Frames,
    /// Frames per second.
    pub rate: SampleRate,
    /// Channels of a frame.
    pub layout: ChannelLayout,
    /// Bytes of the file.
    pub bytes: u64,
    /// Frames of silence in it that were lost.
    pub lost: Frames,
    /// Why it ended.
    pub cause: SegmentReason,
    /// How loud it is; none where there is too little.
    pub loudness: Measured,
    /// SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
}

/// How loud a segment is, after EBU R 128.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Integrated loudness.
    pub integrated: Option<Lufs>,
    /// Loudness range.
    pub range: Option<Db>,
    /// The greatest true peak of all channels.
    pub true_peak: Option<Db>,
    /// The greatest momentary loudness.
    pub max_momentary: Option<Lufs>,
    /// The greatest short-term loudness.
    pub max_short_term: Option<Lufs>,
}

/// Something that does not go.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// What was tried.
    pub doing: Doing,
    /// The file.
    pub path: PathBuf,
    /// What the system says.
    pub error: Arc<io::Error>,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let doing = match self.doing {
            Doing::Create => "cannot make",
            Doing::Write => "cannot write to",
            Doing::Sync => "cannot make last",
            Doing::Name => "cannot give its name to",
            Doing::Note => "cannot write the sidecar of",
            Doing::Delete => "cannot delete",
            Doing::Encode => "cannot encode for",
            Doing::Look => "cannot look into",
        };
        let remedy = match self.error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "; make room, or let older recordings be deleted"
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "; it has to be writable for the server"
            }
            io::ErrorKind::NotFound => "; is its disk mounted?",
            _ => "",
        };
        write!(f, "{doing} {}: {}{remedy}", self.path.display(), self.error)
    }
}

/// What was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doing {
    /// To make a file.
    Create,
    /// To write to it.
    Write,
    /// To make it last.
    Sync,
    /// To give it its name.
    Name,
    /// To write its sidecar.
    Note,
    /// To delete one.
    Delete,
    /// To encode sound.
    Encode,
    /// To look into the folder.
    Look,
}

/// How a recorder is.
#[derive(Clone, Debug)]
pub struct Status {
    /// What it does.
    pub state: RecordingState,
    /// The segment that is written.
    pub segment: Option<Segment>,
    /// Segments that are complete.
    pub segments: u64,
    /// Frames that went into files, silence included.
    pub frames: Frames,
    /// Bytes that went into files.
    pub bytes: u64,
    /// Frames that were lost.
    pub lost: Frames,
    /// Frames that wait to be written.
    pub waiting: Frames,
    /// Files that were deleted because they need not be kept.
    pub deleted: u64,
    /// Events that nobody took in time.
    pub events_lost: u64,
    /// What does not go at present.
    pub trouble: Option<Trouble>,
    /// Bytes that are free on the disk, where that is known.
    pub free: Option<u64>,
}

/// The segment that is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Its file, as it will be called.
    pub path: PathBuf,
    /// Its number.
    pub number: u64,
    /// Its first frame.
    pub start: MediaTime,
    /// When that sounded.
    pub utc: UnixTime,
    /// Frames in it.
    pub frames: Frames,
    /// Frames per second.
    pub rate: SampleRate,
    /// Bytes of it.
    pub bytes: u64,
}
