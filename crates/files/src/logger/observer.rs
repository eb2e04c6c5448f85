//! The index of a running recorder.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use aulos_engine::recorder::UnixTime;

use super::holds::{Hold, list_holds};
use super::index::{IndexWriter, read_sidecar};
use super::index_line::{IndexEntry, LoggedFile};
use crate::record::{CompletionObserver, RetentionReason, wall_clock};

/// The index of a recorder, as the observer of its complete files. An error of the disk is passed
/// to the function of [`LoggerIndex::new`]; the missing lines are added when the next file is
/// complete.
pub struct LoggerIndex {
    folder: PathBuf,
    recorder: String,
    writer: Mutex<Option<IndexWriter>>,
    /// A copy, so that nobody waits for the disk.
    state: Mutex<Option<IndexState>>,
    on_error: Box<dyn Fn(&io::Error) + Send + Sync>,
}

/// State of an index that is open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexState {
    /// The hash of the last line.
    pub head: String,
    /// Number of lines.
    pub lines: u64,
    /// The time behind the last frame of the last file.
    pub last_end: Option<UnixTime>,
}

impl IndexState {
    /// The state of an index with this head.
    #[must_use]
    pub const fn new(head: String, lines: u64, last_end: Option<UnixTime>) -> Self {
        Self { head, lines, last_end }
    }
}

impl LoggerIndex {
    /// The index of a recorder in its folder, which is opened when the recorder is ready.
    pub fn new(
        folder: &Path,
        recorder: &str,
        on_error: impl Fn(&io::Error) + Send + Sync + 'static,
    ) -> Self {
        let (folder, recorder) = (folder.to_owned(), recorder.to_owned());
        let (writer, state) = (Mutex::new(None), Mutex::new(None));
        Self { folder, recorder, writer, state, on_error: Box::new(on_error) }
    }

    /// The state of the index; `None` before it is open. Does not wait for the disk.
    #[must_use]
    pub fn state(&self) -> Option<IndexState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Works on the open index; after an error, or when it was replaced, it is opened anew.
    fn with_writer(&self, work: impl FnOnce(&mut IndexWriter) -> io::Result<()>) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.take_if(|open| !open.is_current());
        let done = match &mut *writer {
            Some(open) => work(open),
            closed => IndexWriter::open(&self.folder, &self.recorder)
                .and_then(|open| work(closed.insert(open))),
        };
        let state = writer.as_ref().map(|open| {
            let (head, lines) = open.head();
            IndexState::new(head.to_owned(), lines, open.last_end())
        });
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        if let Err(error) = done {
            *writer = None;
            (self.on_error)(&error);
        }
    }

    fn name_of(&self, file: &Path) -> Option<String> {
        // The recorder names its folder without links.
        let folder = self.folder.canonicalize().ok()?;
        let name = file.strip_prefix(&folder).or_else(|_| file.strip_prefix(&self.folder)).ok()?;
        Some(name.to_str()?.to_owned())
    }
}

impl CompletionObserver for LoggerIndex {
    fn notify_complete(&self, file: &Path, _: &Path) {
        let Some(name) = self.name_of(file) else { return };
        self.with_writer(|writer| match read_sidecar(&self.folder, &name) {
            Some(sidecar) => writer.add(&name, &sidecar),
            None => Err(io::Error::new(io::ErrorKind::NotFound, "the sidecar is missing")),
        });
    }

    fn is_needed(&self, _: &Path) -> bool {
        false
    }

    fn notify_ready(&self) {
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.with_writer(|_| Ok(()));
    }

    fn notify_deleted(&self, file: &Path, reason: RetentionReason) {
        let Some(file) = self.name_of(file) else { return };
        let (reason, at) = (reason.to_string(), wall_clock().utc);
        self.with_writer(|writer| writer.append(&IndexEntry::Deleted { file, reason, at }));
    }

    /// Files that touch a hold. When the holds cannot be read, every file is held.
    fn held_files(&self, files: &[PathBuf]) -> Vec<bool> {
        let now = wall_clock().utc;
        let holds = match list_holds(&self.folder, &self.recorder) {
            Ok(holds) => holds,
            Err(error) => {
                (self.on_error)(&error);
                return vec![true; files.len()];
            }
        };
        let active: Vec<Hold> = holds.into_iter().filter(|hold| hold.is_active(now)).collect();
        if active.is_empty() {
            return vec![false; files.len()];
        }
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let known = writer.as_ref().map(IndexWriter::files).unwrap_or_default();
        let known: HashMap<&str, &LoggedFile> =
            known.iter().map(|file| (file.file.as_str(), file)).collect();
        let folders = [self.folder.canonicalize().ok(), Some(self.folder.clone())];
        let is_held = |path: &PathBuf| {
            let below = folders.iter().flatten().find_map(|it| path.strip_prefix(it).ok());
            let file = below.and_then(Path::to_str).and_then(|name| known.get(name));
            // The times of a file that is not in the index are unknown.
            file.is_none_or(|file| active.iter().any(|hold| touches(hold, file)))
        };
        files.iter().map(is_held).collect()
    }
}

fn touches(hold: &Hold, file: &LoggedFile) -> bool {
    // The clock may have been set while the file was written.
    let margin = |at: UnixTime, by: i64| UnixTime::from_nanos(at.as_nanos().saturating_add(by));
    hold.touches(margin(file.t0, -HOLD_MARGIN_NANOS), margin(file.end(), HOLD_MARGIN_NANOS))
}

/// Rather one file more is held than one less.
const HOLD_MARGIN_NANOS: i64 = 60_000_000_000;

impl std::fmt::Debug for LoggerIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoggerIndex").field("recorder", &self.recorder).finish_non_exhaustive()
    }
}
