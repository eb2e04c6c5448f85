//! Atomic replacement of a file when tags or audio change.
//!
//! Changing a file in place was rejected: after a power failure neither the old nor the new file
//! would exist. The price is disk space for a copy, and the copying.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

/// Why a file could not be replaced. The file is unchanged.
#[derive(Debug)]
pub enum ReplaceError {
    /// The mode of the file or of its directory forbids writing.
    ReadOnly,
    /// Another process is replacing the same file.
    Busy,
    /// The file was modified meanwhile.
    Changed,
    /// An I/O error.
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

/// A temporary file beside the original, locked by this process. Dropping it deletes it.
#[derive(Debug)]
pub struct Replacement {
    original: PathBuf,
    original_metadata: Metadata,
    path: PathBuf,
    file: File,
}

impl Replacement {
    /// Creates an empty temporary file for `original`, which is not a link. `before` is the
    /// metadata of `original` when the work on it began; [`commit`](Self::commit) fails if the file
    /// has changed since.
    ///
    /// # Errors
    /// [`ReplaceError::ReadOnly`], [`ReplaceError::Busy`], or an I/O error.
    pub fn create(original: &Path, before: Metadata) -> Result<Self, ReplaceError> {
        // Root may write to any file, so a file without a write bit counts as read-only.
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

    /// Copies the original into the temporary file.
    ///
    /// # Errors
    /// An I/O error of either file.
    pub fn copy_original(&mut self) -> Result<(), ReplaceError> {
        let mut from = File::open(&self.original)?;
        io::copy(&mut from, &mut self.file)?;
        Ok(())
    }

    /// The path of the temporary file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The temporary file.
    pub const fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Renames the temporary file to the original, durably.
    ///
    /// # Errors
    /// [`ReplaceError::Changed`], or an I/O error.
    pub fn commit(&self) -> Result<(), ReplaceError> {
        // An unprivileged process cannot change the owner; the copy then belongs to its user, like
        // any file saved by an editor.
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
        // The data is synced already. Syncing the directory makes the new name durable; not every
        // file system supports it.
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
        // After the rename the temporary name is free, or belongs to another process.
        if is_same_file(&self.file, &self.path) {
            fs::remove_file(&self.path).ok();
        }
    }
}

/// The name of the temporary file. It is the same for the same original, so the next run reuses
/// what a killed run left behind. It keeps the extension, which decoders look at, and is hidden, so
/// no scan finds it.
fn temporary_path(original: &Path, before: &Metadata) -> PathBuf {
    let mut name = format!(".aulos-new-{:x}", before.ino());
    if let Some(extension) = original.extension() {
        name.push('.');
        name.push_str(&extension.to_string_lossy());
    }
    original.with_file_name(name)
}

/// Opens the temporary file and locks it.
fn create_locked(path: &Path) -> Result<File, ReplaceError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.custom_flags(libc::O_NOFOLLOW).open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(ReplaceError::Busy),
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    // Between open and lock, another process may have renamed the file to the original's name.
    if is_same_file(&file, path) { Ok(file) } else { Err(ReplaceError::Busy) }
}

fn is_same_file(file: &File, path: &Path) -> bool {
    let id = |it: &Metadata| (it.dev(), it.ino());
    let known = file.metadata().ok();
    known.is_some_and(|known| fs::symlink_metadata(path).is_ok_and(|at| id(&at) == id(&known)))
}
