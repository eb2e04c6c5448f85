//! A list that is read again when its folders change.

use std::path::Path;

use aulos_core::{Instant, Span};
use aulos_io::SourcePath;

use super::list::{FileList, ListError};
use super::walk::{ListReader, ListStamps};

/// The files of a folder or a list file, as they are now.
pub(super) struct WatchedList {
    root: SourcePath,
    list: FileList,
    stamps: ListStamps,
    problem: Option<ListError>,
    reader: Option<ListReader>,
    check_at: Instant,
    is_read: bool,
}

impl WatchedList {
    pub(super) fn new(root: SourcePath) -> Self {
        Self {
            root,
            list: FileList::default(),
            stamps: ListStamps::default(),
            problem: None,
            reader: None,
            check_at: Instant::ZERO,
            is_read: false,
        }
    }

    /// Reads a part of the list if it may have changed. When it has: the new number of each file
    /// that is still there.
    pub(super) fn step(&mut self, now: Instant) -> Option<Vec<Option<u32>>> {
        if self.reader.is_none() && now >= self.check_at {
            self.check_at = now + CHECK_INTERVAL;
            if !self.is_read || self.stamps.have_changed() {
                self.reader = Some(ListReader::new(&self.root));
            }
        }
        let read = self.reader.as_mut()?.step()?;
        self.reader = None;
        self.is_read = true;
        (self.stamps, self.problem) = (read.stamps, read.problem);
        if read.list == self.list {
            return None;
        }
        let numbers = self.list.renumbered(&read.list);
        self.list = read.list;
        Some(numbers)
    }

    /// A file was not there: the list is looked at now.
    pub(super) const fn check_now(&mut self) {
        self.check_at = Instant::ZERO;
    }

    /// Whether the list has been read once.
    pub(super) const fn is_read(&self) -> bool {
        self.is_read
    }

    /// The number of files.
    pub(super) const fn len(&self) -> u32 {
        self.list.len()
    }

    /// A file, with the confinement of the list.
    pub(super) fn path(&self, number: u32) -> Option<SourcePath> {
        self.list.get(number).map(|path: &Path| self.root.with_path(path))
    }

    /// Why it is empty or not complete.
    pub(super) fn problem(&self) -> Option<String> {
        self.problem.map(|problem| format!("{}: {problem}", self.root.display()))
    }
}

/// How often the folders are looked at.
const CHECK_INTERVAL: Span = Span::from_secs(5);
