//! A file that is replaced all at once, for who changes tags or sound.
//!
//! Changing it in place was rejected: whoever pulls the plug in the middle has neither the old file
//! nor the new one. The price is room for a copy, and a copy.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::decode::{FileDecodeOptions, FileDecoder};

/// Why a file could not be replaced. It is what it was.
#[derive(Debug)]
pub(crate) enum ReplaceError {
    /// Its mode, or the folder's, says that it is not to be changed.
    ReadOnly,
    /// Another run is at it.
    Busy,
    /// It was written to meanwhile.
    Changed,
    /// The disk.
    Io(io::Error),
}

impl From<io::Error> for ReplaceError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly,
            _ => Self::Io(error),
        }
    }
}

/// What is going to be in a file's place, beside it, at which nobody else is working. Dropped, it is
/// gone.
#[derive(Debug)]
pub(crate) struct Replacement {
    original: PathBuf,
    original_metadata: Metadata,
    path: PathBuf,
    file: File,
}

impl Replacement {
    /// An empty file for the place of `original`, which is no link and was as in `before` when
    /// work on it began; it must be so still when its place is taken.
    pub(crate) fn create(original: &Path, before: Metadata) -> Result<Self, ReplaceError> {
        // Root may write everything; a file without a single write bit says that nobody should.
        if before.mode() & 0o222 == 0
            || accessat(CWD, original, Access::WRITE_OK, AtFlags::EACCESS).is_err()
        {
            return Err(ReplaceError::ReadOnly);
        }
        let path = temporary_path(original, &before);
        let file = create_locked(&path)?;
        let new = Self { original: original.into(), original_metadata: before, path, file };
        new.file.set_len(0)?;
        Ok(new)
    }

    /// Fills it with what is in the original.
    pub(crate) fn copy_original(&mut self) -> Result<(), ReplaceError> {
        let mut from = File::open(&self.original)?;
        io::copy(&mut from, &mut self.file)?;
        Ok(())
    }

    /// Where it is meanwhile.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) const fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Whether a decoder sees the same sound in both: the same rate, channels and length.
    pub(crate) fn matches_original_audio(&self) -> bool {
        let shape = |path| {
            let decoder = FileDecoder::open(path, FileDecodeOptions::default()).ok()?;
            let info = decoder.info();
            Some((info.rate, info.layout, info.frames, info.codec))
        };
        shape(&self.path) == shape(&self.original)
    }

    /// Puts the copy in the place of the original, safe from a failing of power.
    pub(crate) fn commit(&self) -> Result<(), ReplaceError> {
        // A guest may not give files away; the copy is then theirs, like any file that an editor
        // saves.
        fchown(&self.file, Some(self.original_metadata.uid()), Some(self.original_metadata.gid()))
            .ok();
        self.file.set_permissions(self.original_metadata.permissions())?;
        self.file.sync_all()?;
        let now = fs::metadata(&self.original)?;
        let is_same = |of: fn(&Metadata) -> i64| of(&now) == of(&self.original_metadata);
        if now.ino() != self.original_metadata.ino()
            || now.len() != self.original_metadata.len()
            || !is_same(MetadataExt::mtime)
            || !is_same(MetadataExt::mtime_nsec)
        {
            return Err(ReplaceError::Changed);
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
        if is_same_file(&self.file, &self.path) {
            fs::remove_file(&self.path).ok();
        }
    }
}

/// The same name for the same file, so that what a killed run left is used up by the next one; with
/// its extension, by which decoders go; hidden, so that no scan finds it.
fn temporary_path(original: &Path, before: &Metadata) -> PathBuf {
    let mut name = format!(".aulos-new-{:x}", before.ino());
    if let Some(extension) = original.extension() {
        name.push('.');
        name.push_str(&extension.to_string_lossy());
    }
    original.with_file_name(name)
}

/// Opens the copy's file, and keeps others away from it by a lock.
fn create_locked(path: &Path) -> Result<File, ReplaceError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.custom_flags(libc::O_NOFOLLOW).open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(ReplaceError::Busy),
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    // Between opening and locking, whoever had it may have given it the original's name.
    if is_same_file(&file, path) { Ok(file) } else { Err(ReplaceError::Busy) }
}

fn is_same_file(file: &File, path: &Path) -> bool {
    let id = |it: &Metadata| (it.dev(), it.ino());
    let known = file.metadata().ok();
    known.is_some_and(|known| fs::symlink_metadata(path).is_ok_and(|at| id(&at) == id(&known)))
}
