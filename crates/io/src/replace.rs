//! Replacement of a file of a user when tags or audio change: mode and owner stay, and what others
//! write to it meanwhile is noticed.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::disk::{NewFile, is_same_file};

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
    new: NewFile,
    original_metadata: Metadata,
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
        let mut new = NewFile::from_file(create_locked(&path, 0o600)?, &path, original);
        new.file().set_len(0)?;
        Ok(Self { new, original_metadata: before })
    }

    /// Copies the original into the temporary file.
    ///
    /// # Errors
    /// An I/O error of either file.
    pub fn copy_original(&mut self) -> Result<(), ReplaceError> {
        let mut from = File::open(self.new.target())?;
        io::copy(&mut from, self.new.file())?;
        Ok(())
    }

    /// The path of the temporary file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.new.path()
    }

    /// The temporary file.
    pub const fn file(&mut self) -> &mut File {
        self.new.file()
    }

    /// Renames the temporary file to the original, durably.
    ///
    /// # Errors
    /// [`ReplaceError::Changed`], or an I/O error.
    pub fn commit(mut self) -> Result<(), ReplaceError> {
        // An unprivileged process cannot change the owner; the copy then belongs to its user, like
        // any file saved by an editor.
        let before = self.original_metadata;
        fchown(self.new.file(), Some(before.uid()), Some(before.gid())).ok();
        self.new.file().set_permissions(before.permissions())?;
        let original = self.new.target().to_owned();
        let synced = self.new.sync()?;
        let now = fs::metadata(original)?;
        let is_same = |of: fn(&Metadata) -> i64| of(&now) == of(&before);
        if now.ino() != before.ino()
            || now.len() != before.len()
            || !is_same(MetadataExt::mtime)
            || !is_same(MetadataExt::mtime_nsec)
        {
            return Err(ReplaceError::Changed);
        }
        Ok(synced.publish()?)
    }
}

/// Creates the temporary file of a new file at `target`, locked by this process. Its name depends
/// on the target only, so the next run reuses what a killed run left behind.
///
/// # Errors
/// [`ReplaceError::ReadOnly`], [`ReplaceError::Busy`] when another process writes the same file, or
/// an I/O error.
pub fn create_new(target: &Path) -> Result<NewFile, ReplaceError> {
    let mut name = std::ffi::OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(".part");
    let path = target.with_file_name(name);
    let mut new = NewFile::from_file(create_locked(&path, 0o666)?, &path, target);
    new.file().set_len(0)?;
    Ok(new)
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
fn create_locked(path: &Path, mode: u32) -> Result<File, ReplaceError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(mode);
    let file = options.custom_flags(libc::O_NOFOLLOW).open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(ReplaceError::Busy),
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    // Between open and lock, another process may have renamed the file to the original's name.
    if is_same_file(&file, path) { Ok(file) } else { Err(ReplaceError::Busy) }
}
