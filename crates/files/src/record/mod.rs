//! Recordings on disk: the I/O of the recorder.
//!
//! ```text
//!  station -ring-> RecorderJob: Recorder -> FileEncoder -> AppendFile   one thread per disk
//!                     |                          `-> Syncer: syncs written data
//!                     `-> Finisher: names, digests, sidecars, retention, repairs
//!  RecorderHandle: commands and status, from any thread
//! ```
//!
//! A file grows under its name plus `.part` and can be read at any time; when complete, it gets its
//! name, which is unique, and a JSON sidecar. Data that the disk does not take waits: 64 kB in the
//! file's own buffer, the rest in the ring. When that is full as well, the lost frames are replaced
//! by silence of the same length.

mod catalog;
mod clock;
mod config;
mod file_name;
mod finisher;
pub mod format;
mod job;
mod marker;
mod marker_queue;
mod report;
mod retention;
mod sample_buffer;
mod segment_file;
mod service;
mod shared;
mod sidecar;
mod store;
#[cfg(test)]
mod tests;
mod waveform;

pub use catalog::{RecordedFile, list_recordings, open_recording};
pub use clock::{local_at, parse_utc, wall_clock};
pub use config::{
    CompletionObserver, DEFAULT_FLUSH_INTERVAL, DEFAULT_PATTERN, DEFAULT_SYNC_INTERVAL, Durability,
    MAX_FLUSH_INTERVAL, MIN_SYNC_INTERVAL, RecordingConfig, RetentionRules, SyncPolicy,
};
pub(crate) use file_name::sanitize;
pub use file_name::{FileNamePattern, InvalidPattern, MAX_RECORDER_NAME_BYTES, rfc3339};
pub use marker::{
    MAX_LABEL_BYTES, MAX_MARKERS, MAX_PENDING_MARKERS, Marker, MarkerError, MarkerRequest,
    is_valid_label,
};
pub use report::{
    ClosedSegment, FileOperation, LossCause, RecorderEvent, RecorderEventKind, RecorderFault,
    RecorderStatus, RetentionReason, SegmentLoudness, SegmentStatus,
};
pub use service::{RecorderError, RecorderHandle, RecorderService, STOP_LIMIT};
pub(crate) use sidecar::{FileDigest, MAX_SIDECAR, ParsedSidecar, sidecar_name};
pub(crate) use store::read_in_pieces;
pub use waveform::{MAX_WAVEFORM_POINTS, Waveform, WaveformScan};
