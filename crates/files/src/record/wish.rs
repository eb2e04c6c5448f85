//! What somebody wants recorded, how and for how long.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aulos_core::Span;
use aulos_engine::recorder::{ClockZone, RecorderConfig};

use super::format::FileFormat;
use super::name::{BadPattern, MAX_NAME, Pattern};

/// The wishes of one recorder.
#[derive(Clone, Debug)]
pub struct Wish {
    /// What it is called, in events, sidecars and file names; at most [`MAX_NAME`] bytes. Two
    /// recorders of one folder have two names, or one deletes what the other has kept.
    pub name: String,
    /// Where its files go. It is made when it is missing.
    pub folder: PathBuf,
    /// What they are called.
    pub pattern: Pattern,
    /// What they are.
    pub format: FileFormat,
    /// Pre-roll and rotation.
    pub config: RecorderConfig,
    /// What is deleted.
    pub retention: Retention,
    /// What a crash costs.
    pub safety: Safety,
    /// Whether the sidecar stays when its file is complete. Without it nothing is ever deleted.
    pub sidecar: bool,
    /// Who else has a use for complete files.
    pub heir: Option<Arc<dyn Heir>>,
}

/// Who has a use for the complete files of a recorder: it carries them to another place, say. Called
/// by the thread that completes files, which may wait.
pub trait Heir: Send + core::marker::Sync + fmt::Debug {
    /// A file is complete, and has its name and its sidecar. Each start tells the newest ones again, in
    /// case a kill came between.
    fn completes(&self, file: &Path, sidecar: &Path);

    /// Whether the file is still needed: then it is not deleted, nor is any that is newer.
    fn needs(&self, file: &Path) -> bool;
}

impl Wish {
    /// The defaults for a recorder.
    ///
    /// # Errors
    /// [`BadPattern::Long`] when the name is too long.
    pub fn new(name: &str, folder: PathBuf, format: FileFormat) -> Result<Self, BadPattern> {
        if name.len() > MAX_NAME {
            return Err(BadPattern::Long);
        }
        Ok(Self {
            name: name.to_owned(),
            folder,
            pattern: Pattern::new(DEFAULT_PATTERN, ClockZone::Utc)?,
            format,
            config: RecorderConfig::default(),
            retention: Retention::default(),
            safety: Safety::default(),
            sidecar: true,
            heir: None,
        })
    }
}

/// What is deleted, the oldest first: only complete files whose sidecar says that this recorder has
/// written them. None is for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// What ended longer ago than this.
    pub age: Option<Span>,
    /// More files than this; one at least is kept.
    pub count: Option<u64>,
    /// What goes beyond so many bytes in all; the newest file is kept.
    pub bytes: Option<u64>,
    /// As much as is needed to leave so many bytes of the disk to others. When nothing is left to
    /// delete, the disk counts as full.
    pub keep_free: u64,
}

/// What a crash costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Safety {
    /// How long sound may wait before it is written to the file, at most [`MAX_FLUSH`]: what a
    /// killed program loses.
    pub flush: Span,
    /// When the file is made to last: what a loss of power costs, and a second more.
    pub sync: Sync,
}

impl Default for Safety {
    fn default() -> Self {
        Self { flush: DEFAULT_FLUSH, sync: Sync::Every(DEFAULT_SYNC) }
    }
}

/// When a file is made to survive a loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// When the system likes to.
    Never,
    /// So often, [`MIN_SYNC`] at least, and when it is complete.
    Every(Span),
}

/// The pattern of [`Wish::new`]: `hall-2026-11-22T101500Z`.
pub const DEFAULT_PATTERN: &str = "{name}-%Y-%m-%dT%H%M%SZ";

/// The default of [`Safety::flush`].
pub const DEFAULT_FLUSH: Span = Span::from_millis(200);

/// The longest [`Safety::flush`].
pub const MAX_FLUSH: Span = Span::from_millis(500);

/// The default of [`Safety::sync`].
pub const DEFAULT_SYNC: Span = Span::from_secs(5);

/// The shortest of [`Sync::Every`].
pub const MIN_SYNC: Span = Span::from_millis(200);
