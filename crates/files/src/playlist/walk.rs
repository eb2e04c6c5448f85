//! Reads the list of a playlist: the audio files of a folder, or the entries of a list file.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use aulos_io::SourcePath;
use aulos_proto::http::playlist_files;
use aulos_proto::uri::Uri;
use ignore::Walk;

use super::list::{FileList, ListError, MAX_PLAYLIST_FILES};
use crate::decode::OpenError;
use crate::scan::{has_audio_name, walk_folder};

/// A list that is being read, in steps.
pub(super) struct ListReader {
    root: SourcePath,
    walk: Option<Walk>,
    list: FileList,
    stamps: Vec<Stamp>,
    problem: Option<ListError>,
}

/// What has been read.
pub(super) struct ReadList {
    pub(super) list: FileList,
    pub(super) stamps: ListStamps,
    /// Why it is empty, or not complete.
    pub(super) problem: Option<ListError>,
}

/// When the folders and the list file were changed last: equal stamps mean the same names.
#[derive(Debug, Default)]
pub(super) struct ListStamps(Vec<Stamp>);

/// A folder or file, and its change time in nanoseconds; none if it is not there.
type Stamp = (PathBuf, Option<i128>);

impl ListReader {
    pub(super) fn new(root: &SourcePath) -> Self {
        let mut reader = Self {
            root: root.clone(),
            walk: None,
            list: FileList::default(),
            stamps: vec![stamp(root)],
            problem: None,
        };
        if let Err(error) = reader.open() {
            reader.problem = Some(error);
        }
        reader
    }

    fn open(&mut self) -> Result<(), ListError> {
        // For a path from a call this shows that it is below the roots.
        let file = self.root.open().map_err(|error| ListError::Open(error.into()))?;
        let about = file.metadata().map_err(|error| ListError::Open(error.into()))?;
        if about.is_dir() {
            // A link may lead out of the roots.
            self.walk = Some(walk_folder(&self.root, !self.root.is_confined()));
            return Ok(());
        }
        if !about.is_file() {
            return Err(ListError::Open(OpenError::NotAFile));
        }
        let mut bytes = Vec::new();
        let read = file.take(MAX_LIST_BYTES).read_to_end(&mut bytes);
        read.map_err(|error| ListError::Open(error.into()))?;
        let folder = self.root.parent().unwrap_or_else(|| Path::new("/")).to_path_buf();
        for entry in playlist_files(&bytes, MAX_PLAYLIST_FILES).map_err(ListError::List)? {
            let uri = entry.parse::<Uri>().ok().filter(|uri| uri.scheme == "file");
            let name = uri.map_or(entry, |uri| uri.path);
            // An absolute entry replaces the folder.
            self.list.push(&folder.join(name))?;
        }
        Ok(())
    }

    /// Reads a part of it; returns what was read at the end.
    pub(super) fn step(&mut self) -> Option<ReadList> {
        for _ in 0..NAMES_PER_STEP {
            match self.walk.as_mut().and_then(Iterator::next) {
                None => return Some(self.finish()),
                Some(Ok(entry)) => {
                    let kind = entry.file_type();
                    if kind.is_some_and(|kind| kind.is_dir()) && entry.depth() > 0 {
                        self.stamps.push(stamp(entry.path()));
                    }
                    if kind.is_some_and(|kind| kind.is_file())
                        && has_audio_name(entry.path())
                        && let Err(error) = self.list.push(entry.path())
                    {
                        self.problem = Some(error);
                        return Some(self.finish());
                    }
                }
                // A folder that cannot be read, a link that leads nowhere: the others are played.
                Some(Err(_)) => {}
            }
        }
        None
    }

    fn finish(&mut self) -> ReadList {
        let mut list = core::mem::take(&mut self.list);
        list.shrink();
        let stamps = ListStamps(core::mem::take(&mut self.stamps));
        let is_empty = list.len() == 0;
        let problem = self.problem.or_else(|| is_empty.then_some(ListError::Empty));
        ReadList { list, stamps, problem }
    }
}

impl ListStamps {
    /// Whether something has changed since. One call of the system per folder.
    pub(super) fn have_changed(&self) -> bool {
        self.0.iter().any(|(path, before)| stamp(path).1 != *before)
    }
}

fn stamp(path: &Path) -> Stamp {
    let about = std::fs::metadata(path);
    let changed = |about: std::fs::Metadata| {
        i128::from(about.mtime()) * 1_000_000_000 + i128::from(about.mtime_nsec())
    };
    (path.to_path_buf(), about.ok().map(changed))
}

/// Names read in a step of the job: some ten milliseconds from a disk.
const NAMES_PER_STEP: usize = 2_000;

/// Bytes of a list file that are read.
const MAX_LIST_BYTES: u64 = 64 << 20;
