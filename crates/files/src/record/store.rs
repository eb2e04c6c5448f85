//! The folder of a recorder as a trait, so that a test can replace it by one that is full, slow,
//! missing or loses power.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aulos_io::disk::{AppendFile, create_new, replace, sync_folder_of};
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Creates, names and removes files. Names are relative to the folder, as made by
/// [`FileNamePattern`](super::FileNamePattern).
pub(super) trait RecordingStore: Send + Sync {
    /// Creates a file that does not exist yet, and locks it.
    fn create(&self, name: &str) -> io::Result<Box<dyn AppendFile>>;

    /// Whether the name exists.
    fn exists(&self, name: &str) -> bool;

    /// Renames a file to a name that does not exist, and syncs the folder.
    fn publish(&self, from: &str, to: &str) -> io::Result<()>;

    /// Writes a small file atomically and synced.
    fn write_atomic(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Opens a file for reading, and for a repair if no process has locked it.
    fn open(&self, name: &str) -> io::Result<File>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// All files, at most `max`.
    fn list(&self, max: usize) -> io::Result<Vec<FolderEntry>>;

    /// Bytes available to this process.
    fn free_bytes(&self) -> io::Result<u64>;

    /// The folder, for messages.
    fn path(&self) -> &Path;
}

/// A file of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FolderEntry {
    pub(super) name: String,
    pub(super) bytes: u64,
}

/// A folder of the local file system.
#[derive(Debug)]
pub(super) struct RecordingFolder {
    path: PathBuf,
    must_be_mounted: bool,
}

impl RecordingFolder {
    /// Creates the folder if it is missing.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        Ok(Self { path: path.canonicalize()?, must_be_mounted: false })
    }

    /// The same on another file system than `/`; otherwise nothing is created.
    pub(super) fn mounted(path: &Path) -> io::Result<Self> {
        let existing = path.ancestors().find(|path| path.exists()).unwrap_or(path);
        check_mounted(existing)?;
        Ok(Self { must_be_mounted: true, ..Self::new(path)? })
    }

    /// Number of the device, which identifies a disk.
    pub(super) fn device(&self) -> io::Result<u64> {
        Ok(fs::metadata(&self.path)?.dev())
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Creates the parent folders of a name, but not the recorder's folder: if that is missing, a
    /// disk was unmounted, and a new folder would be on another one.
    fn create_parents(&self, name: &str) -> io::Result<()> {
        fs::metadata(&self.path)?;
        if self.must_be_mounted {
            check_mounted(&self.path)?;
        }
        match self.path_of(name).parent() {
            Some(parent) => fs::create_dir_all(parent),
            None => Ok(()),
        }
    }
}

/// Checks that a folder is on another file system than `/`.
fn check_mounted(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.dev() == fs::metadata("/")?.dev() {
        let message = "it is on the file system of `/`, and its disk is not mounted";
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    Ok(())
}

impl RecordingStore for RecordingFolder {
    fn create(&self, name: &str) -> io::Result<Box<dyn AppendFile>> {
        self.create_parents(name)?;
        let file = create_new(&self.path_of(name))?;
        // A repair may have locked the new file, or removed it as empty between these two calls. On
        // a file system without locks only one such program may run.
        let is_locked = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        if is_locked || file.metadata()?.nlink() == 0 {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(Box::new(file))
    }

    fn exists(&self, name: &str) -> bool {
        fs::symlink_metadata(self.path_of(name)).is_ok()
    }

    fn publish(&self, from: &str, to: &str) -> io::Result<()> {
        let (old, new) = (self.path_of(from), self.path_of(to));
        match renameat_with(CWD, &old, CWD, &new, RenameFlags::NOREPLACE) {
            // Not every file system supports it in one step.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                fs::hard_link(&old, &new)?;
                fs::remove_file(&old)?;
            }
            result => result?,
        }
        sync_folder_of(&new)
    }

    fn write_atomic(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        replace(&self.path_of(name), 0o666, bytes)
    }

    fn open(&self, name: &str) -> io::Result<File> {
        // It was a regular file when the folder was listed; a link in its place is not followed,
        // and a FIFO does not block.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file =
            File::options().read(true).write(true).custom_flags(flags).open(self.path_of(name))?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path_of(name))
    }

    fn list(&self, max: usize) -> io::Result<Vec<FolderEntry>> {
        let (mut folders, mut entries) = (vec![(self.path.clone(), 0)], Vec::new());
        while let Some((folder, depth)) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let (kind, path) = (entry.file_type()?, entry.path());
                if kind.is_dir() && depth < MAX_DEPTH {
                    folders.push((path, depth + 1));
                } else if kind.is_file()
                    && let Ok(name) = path.strip_prefix(&self.path)
                    && let Some(name) = name.to_str()
                {
                    let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
                    entries.push(FolderEntry { name: name.to_owned(), bytes });
                }
                if entries.len() >= max {
                    return Ok(entries);
                }
            }
        }
        Ok(entries)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// Reads a file from its start to its end, in pieces.
pub(crate) fn read_in_pieces(mut file: &File, mut for_piece: impl FnMut(&[u8])) -> io::Result<u64> {
    file.seek(SeekFrom::Start(0))?;
    let (mut piece, mut total) = (vec![0; PIECE_BYTES], 0);
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(total),
            Ok(read) => {
                for_piece(&piece[..read]);
                total += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl fmt::Debug for dyn RecordingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RecordingStore").field(&self.path()).finish()
    }
}

/// Maximum depth of folders that are listed; patterns have fewer.
const MAX_DEPTH: usize = 16;

const PIECE_BYTES: usize = 256 << 10;
