//! A file that is replaced all at once.
//!
//! Changing it in place was rejected: whoever pulls the plug in the middle has neither the old file
//! nor the new one. The price is room for a copy, and a copy.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::TagError;
use crate::decode::{FileDecoder, Options};

/// A copy of a file, beside it, that nobody else is working on. Dropped, it is gone.
#[derive(Debug)]
pub(super) struct Replacement {
    original: PathBuf,
    before: Metadata,
    path: PathBuf,
    file: File,
}

impl Replacement {
    /// Copies `original`, which is open as `from`.
    pub(super) fn of(original: &Path, from: &File) -> Result<Self, TagError> {
        let before = from.metadata()?;
        // Root may write everything; a file without a single write bit says that nobody should.
        if before.mode() & 0o222 == 0
            || accessat(CWD, original, Access::WRITE_OK, AtFlags::EACCESS).is_err()
        {
            return Err(TagError::ReadOnly);
        }
        let path = beside(original, &before);
        let file = alone(&path)?;
        let mut copy = Self { original: original.into(), before, path, file };
        copy.file.set_len(0)?;
        let mut from = File::open(original)?;
        io::copy(&mut from, &mut copy.file)?;
        Ok(copy)
    }

    pub(super) const fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Whether a decoder sees the same sound in both: the same rate, channels and length.
    pub(super) fn sounds_like_the_original(&self) -> bool {
        let shape = |path| {
            let decoder = FileDecoder::open(path, Options::default()).ok()?;
            let info = decoder.info();
            Some((info.rate, info.layout, info.frames, info.codec))
        };
        shape(&self.path) == shape(&self.original)
    }

    /// Puts the copy in the place of the original, safe from a failing of power.
    pub(super) fn take_the_name(self) -> Result<(), TagError> {
        // A guest may not give files away; the copy is then theirs, like any file that an editor
        // saves.
        fchown(&self.file, Some(self.before.uid()), Some(self.before.gid())).ok();
        self.file.set_permissions(self.before.permissions())?;
        self.file.sync_all()?;
        let now = fs::metadata(&self.original)?;
        let is_same = |of: fn(&Metadata) -> i64| of(&now) == of(&self.before);
        if now.ino() != self.before.ino()
            || now.len() != self.before.len()
            || !is_same(MetadataExt::mtime)
            || !is_same(MetadataExt::mtime_nsec)
        {
            return Err(TagError::Changed);
        }
        fs::rename(&self.path, &self.original)?;
        // The file is what it should be already; that its name survives as well is the folder's
        // matter, and not every file system can say so.
        if let Some(folder) = self.original.parent()
            && let Ok(folder) = File::open(folder)
        {
            folder.sync_all().ok();
        }
        Ok(())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // After the rename the name is free, or somebody else's.
        if is_at(&self.file, &self.path) {
            fs::remove_file(&self.path).ok();
        }
    }
}

/// The same name for the same file, so that what a killed run left is used up by the next one; with
/// its extension, by which decoders go; hidden, so that no scan finds it.
fn beside(original: &Path, before: &Metadata) -> PathBuf {
    let mut name = format!(".aulos-tag-{:x}", before.ino());
    if let Some(extension) = original.extension() {
        name.push('.');
        name.push_str(&extension.to_string_lossy());
    }
    original.with_file_name(name)
}

/// Opens the copy's file, and keeps others away from it by a lock.
fn alone(path: &Path) -> Result<File, TagError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.custom_flags(libc::O_NOFOLLOW).open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(TagError::Busy),
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    // Between opening and locking, whoever had it may have given it the original's name.
    if is_at(&file, path) { Ok(file) } else { Err(TagError::Busy) }
}

fn is_at(file: &File, path: &Path) -> bool {
    let id = |it: &Metadata| (it.dev(), it.ino());
    let known = file.metadata().ok();
    known.is_some_and(|known| fs::symlink_metadata(path).is_ok_and(|at| id(&at) == id(&known)))
}
