//! Configuration of a recorder.

use std::fmt;
use std::path::{Path, PathBuf};

use aulos_core::Span;
use aulos_engine::recorder::{ClockZone, RecorderConfig};

use super::file_name::{FileNamePattern, InvalidPattern, MAX_RECORDER_NAME_BYTES};
use super::format::FileFormat;
use super::report::RetentionReason;

/// Configuration of one recorder.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordingConfig {
    /// Name in events, sidecars and file names; at most [`MAX_RECORDER_NAME_BYTES`] bytes. Two
    /// recorders of one folder need different names, or one deletes the files of the other.
    pub name: String,
    /// Folder of its files. It is created if it is missing.
    pub folder: PathBuf,
    /// Names of its files.
    pub pattern: FileNamePattern,
    /// Format of its files.
    pub format: FileFormat,
    /// Pre-roll and rotation.
    pub recorder: RecorderConfig,
    /// Which files are deleted.
    pub retention: RetentionRules,
    /// How much a crash may lose.
    pub durability: Durability,
    /// Record only while the folder is on another file system than `/`: a disk that is not mounted
    /// would otherwise leave its recordings on that of the system.
    pub must_be_mounted: bool,
    /// For how long the folder could not be used before, which the first sidecar says.
    pub waited: Option<Span>,
    /// Whether the sidecar is kept when its file is complete. Without it nothing is ever deleted.
    pub keep_sidecar: bool,
}

/// Is notified of the complete files of a recorder, to upload them for example. Called by the
/// thread that completes files; calls may block.
pub trait CompletionObserver: Send + Sync + fmt::Debug {
    /// A file is complete and has its name and its sidecar. At each start this is called again for
    /// the newest files, in case the process was killed before.
    fn notify_complete(&self, file: &Path, sidecar: &Path);

    /// Whether the file is still needed: then neither it nor any newer file is deleted.
    fn is_needed(&self, file: &Path) -> bool;

    /// Files that a crash left behind are complete now, or cannot be repaired.
    fn notify_ready(&self) {}

    /// Retention has deleted a file.
    fn notify_deleted(&self, _file: &Path, _reason: RetentionReason) {}

    /// For each of `files`, whether no rule may delete it; others may be deleted.
    fn held_files(&self, files: &[PathBuf]) -> Vec<bool> {
        vec![false; files.len()]
    }
}

impl RecordingConfig {
    /// The default configuration.
    ///
    /// # Errors
    /// [`InvalidPattern::TooLong`] when the name is too long.
    pub fn new(name: &str, folder: PathBuf, format: FileFormat) -> Result<Self, InvalidPattern> {
        if name.len() > MAX_RECORDER_NAME_BYTES {
            return Err(InvalidPattern::TooLong);
        }
        Ok(Self {
            name: name.to_owned(),
            folder,
            pattern: FileNamePattern::new(DEFAULT_PATTERN, ClockZone::Utc)?,
            format,
            recorder: RecorderConfig::default(),
            retention: RetentionRules::default(),
            durability: Durability::default(),
            must_be_mounted: false,
            waited: None,
            keep_sidecar: true,
        })
    }
}

/// Which files are deleted, oldest first: only complete files whose sidecar names this recorder.
/// With `None` the rule does not apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionRules {
    /// Files that ended longer ago are deleted.
    pub max_age: Option<Span>,
    /// Maximum number of files; at least one is kept.
    pub max_files: Option<u64>,
    /// Maximum size of all files in bytes; the newest file is kept.
    pub max_bytes: Option<u64>,
    /// Bytes of the disk that must stay free: files are deleted until they are. When none is left
    /// to delete, the disk counts as full.
    pub keep_free: u64,
}

/// How much a crash may lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durability {
    /// Maximum time before sound is written to the file, at most [`MAX_FLUSH_INTERVAL`]: what a
    /// killed process loses.
    pub flush_interval: Span,
    /// When the file is synced: what a power failure loses, plus one second.
    pub sync: SyncPolicy,
}

impl Default for Durability {
    fn default() -> Self {
        Self {
            flush_interval: DEFAULT_FLUSH_INTERVAL,
            sync: SyncPolicy::Every(DEFAULT_SYNC_INTERVAL),
        }
    }
}

/// When a file is synced to survive a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Whenever the system writes it back.
    Never,
    /// At this interval, at least [`MIN_SYNC_INTERVAL`], and when it is complete.
    Every(Span),
}

/// The pattern of [`RecordingConfig::new`]: `hall-2026-11-22T101500Z`.
pub const DEFAULT_PATTERN: &str = "{name}-%Y-%m-%dT%H%M%SZ";

/// Default of [`Durability::flush_interval`].
pub const DEFAULT_FLUSH_INTERVAL: Span = Span::from_millis(200);

/// Maximum of [`Durability::flush_interval`].
pub const MAX_FLUSH_INTERVAL: Span = Span::from_millis(500);

/// Default interval of [`Durability::sync`].
pub const DEFAULT_SYNC_INTERVAL: Span = Span::from_secs(5);

/// Minimum of [`SyncPolicy::Every`].
pub const MIN_SYNC_INTERVAL: Span = Span::from_millis(200);
