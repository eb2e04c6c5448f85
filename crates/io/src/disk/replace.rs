//! Atomic replacement of files: a reader, a killed process and a power failure leave the old or the
//! new contents, each complete.
//!
//! Changing a file in place was rejected: after a power failure neither the old nor the new file
//! would exist. The types allow no other order than write, sync, rename, sync of the folder: only a
//! [`SyncedFile`] can be renamed. The price is disk space for a second file.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Replaces the contents of `path`, durably; the file gets the permissions `mode`, less what the
/// process's umask takes away.
///
/// # Errors
/// Errors of the file system. The file has its old contents then, unless only its folder could not
/// be synced.
pub fn replace(path: &Path, mode: u32, contents: &[u8]) -> io::Result<()> {
    let mut new = NewFile::create(path, mode)?;
    new.file().write_all(contents)?;
    new.sync()?.publish()
}

/// A file under a temporary name in the folder of its target. Dropping it deletes it.
#[derive(Debug)]
pub struct NewFile {
    target: PathBuf,
    temporary: PathBuf,
    file: File,
}

impl NewFile {
    /// Creates an empty file for `target` with the permissions `mode`. Its temporary name is that
    /// of the target with `.new` appended: a leftover of a killed process is removed, and two
    /// processes must not replace the same target at once.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn create(target: &Path, mode: u32) -> io::Result<Self> {
        let mut temporary = target.file_name().map(OsString::from).unwrap_or_default();
        temporary.push(".new");
        Self::create_as(&target.with_file_name(temporary), target, mode)
    }

    /// The same under the name `temporary`, which has to be in the folder of `target`.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn create_as(temporary: &Path, target: &Path, mode: u32) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(mode);
        let file = match options.open(temporary) {
            // A leftover, or a link that leads elsewhere: not written through, but removed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(temporary)?;
                options.open(temporary)?
            }
            opened => opened?,
        };
        Ok(Self::from_file(file, temporary, target))
    }

    /// Takes over an open file.
    pub(crate) fn from_file(file: File, temporary: &Path, target: &Path) -> Self {
        Self { target: target.to_owned(), temporary: temporary.to_owned(), file }
    }

    /// The file, to write to.
    pub const fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// The temporary path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.temporary
    }

    /// The path that the file gets in the end.
    #[must_use]
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Waits until contents and permissions are on the disk.
    ///
    /// # Errors
    /// Errors of the disk; the file is deleted.
    pub fn sync(self) -> io::Result<SyncedFile> {
        self.file.sync_all()?;
        Ok(SyncedFile(self))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // After the rename the temporary name is free, or belongs to another process.
        if is_same_file(&self.file, &self.temporary) {
            fs::remove_file(&self.temporary).ok();
        }
    }
}

/// A complete file on the disk that does not have its name yet. Dropping it deletes it.
#[derive(Debug)]
pub struct SyncedFile(NewFile);

impl SyncedFile {
    /// Renames the file to its target, and syncs the folder.
    ///
    /// # Errors
    /// Errors of the file system. The target is unchanged, unless only the folder could not be
    /// synced.
    pub fn publish(self) -> io::Result<()> {
        fs::rename(&self.0.temporary, &self.0.target)?;
        sync_folder_of(&self.0.target)
    }
}

/// Makes the name of `path` durable: what was created, renamed or removed in its folder survives a
/// power failure.
///
/// # Errors
/// Errors of the disk. A file system that cannot sync folders is no error, and neither is a folder
/// that this process may change but not read: there is no other way to sync it.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => path,
    };
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        done => done,
    }
}

pub(crate) fn is_same_file(file: &File, path: &Path) -> bool {
    let id = |it: &Metadata| (it.dev(), it.ino());
    let known = file.metadata().ok();
    known.is_some_and(|known| fs::symlink_metadata(path).is_ok_and(|at| id(&at) == id(&known)))
}

#[cfg(test)]
mod tests {
    use std::mem::forget;

    use aulos_blackbox::scratch::ScratchDir;

    use super::*;

    const OLD: &[u8] = b"the old contents";
    const NEW: &[u8] = b"the new contents, which are longer";

    fn names(folder: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_crash_after_any_step_leaves_the_old_or_the_new_file_and_no_obstacle() {
        type Crash = fn(&Path);
        let crashes: [(&str, Crash, &[u8]); 5] = [
            ("before the first step", |_| {}, OLD),
            ("created", |path| forget(NewFile::create(path, 0o600).unwrap()), OLD),
            (
                "half written",
                |path| {
                    let mut new = NewFile::create(path, 0o600).unwrap();
                    new.file().write_all(&NEW[..7]).unwrap();
                    forget(new);
                },
                OLD,
            ),
            (
                "synced",
                |path| {
                    let mut new = NewFile::create(path, 0o600).unwrap();
                    new.file().write_all(NEW).unwrap();
                    forget(new.sync().unwrap());
                },
                OLD,
            ),
            ("renamed", |path| replace(path, 0o600, NEW).unwrap(), NEW),
        ];
        for (step, crash, left) in crashes {
            let folder = ScratchDir::new("replace").unwrap();
            let path = folder.path().join("file");
            fs::write(&path, OLD).unwrap();
            crash(&path);
            assert_eq!(fs::read(&path).unwrap(), left, "{step}");
            replace(&path, 0o600, b"after the restart").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"after the restart", "{step}");
            assert_eq!(names(folder.path()), ["file"], "{step}");
        }
    }

    #[test]
    fn a_step_that_fails_leaves_the_old_file_and_nothing_else() {
        let folder = ScratchDir::new("replace-fails").unwrap();
        let path = folder.path().join("file");
        fs::write(&path, OLD).unwrap();
        // Creating: a folder has the temporary name.
        fs::create_dir(folder.path().join("file.new")).unwrap();
        replace(&path, 0o600, NEW).unwrap_err();
        assert_eq!(names(folder.path()), ["file", "file.new"]);
        fs::remove_dir(folder.path().join("file.new")).unwrap();
        // Writing and syncing: the writer gives up.
        let mut new = NewFile::create(&path, 0o600).unwrap();
        new.file().write_all(&NEW[..7]).unwrap();
        drop(new);
        drop(NewFile::create(&path, 0o600).unwrap().sync().unwrap());
        assert_eq!(
            (fs::read(&path).unwrap(), names(folder.path())),
            (OLD.into(), vec!["file".into()])
        );
        // Renaming: a folder cannot be replaced by a file.
        let target = folder.path().join("folder");
        fs::create_dir(&target).unwrap();
        replace(&target, 0o600, NEW).unwrap_err();
        assert_eq!(names(folder.path()), ["file", "folder"]);
        // Syncing the folder: there is none.
        sync_folder_of(&folder.path().join("none/file")).unwrap_err();
    }

    #[test]
    fn the_mode_is_the_one_that_was_asked_for_from_the_beginning() {
        let folder = ScratchDir::new("replace-mode").unwrap();
        let path = folder.path().join("key");
        fs::write(&path, OLD).unwrap();
        let new = NewFile::create(&path, 0o600).unwrap();
        assert_eq!(fs::metadata(new.path()).unwrap().mode() & 0o777, 0o600);
        new.sync().unwrap().publish().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_link_at_the_temporary_name_is_not_written_through() {
        let folder = ScratchDir::new("replace-link").unwrap();
        let (path, victim) = (folder.path().join("file"), folder.path().join("victim"));
        fs::write(&victim, OLD).unwrap();
        std::os::unix::fs::symlink(&victim, folder.path().join("file.new")).unwrap();
        replace(&path, 0o600, NEW).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), OLD);
        assert_eq!(fs::read(&path).unwrap(), NEW);
    }
}
