//! The folder of a recorder, as a trait, so that a test can put one in its place that is full, slow,
//! gone, or that loses power.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aulos_io::disk::{AppendFile, create_new};
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Where files are made, get their names and go. Names are below the folder, as
/// [`Pattern`](super::Pattern) makes them.
pub(super) trait Store: Send + Sync {
    /// A new file that nobody else works on, and is not there yet.
    fn create(&self, name: &str) -> io::Result<Box<dyn AppendFile>>;

    /// Whether something has that name.
    fn has(&self, name: &str) -> bool;

    /// Gives a file another name, which nothing has, and makes that last.
    fn publish(&self, from: &str, to: &str) -> io::Result<()>;

    /// A small file, all at once and lasting.
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// A file to be read, and repaired where nobody else works on it.
    fn open(&self, name: &str) -> io::Result<File>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// All files, at most so many.
    fn list(&self, most: usize) -> io::Result<Vec<Entry>>;

    /// Bytes that are left for us.
    fn free(&self) -> io::Result<u64>;

    /// The folder, for people.
    fn path(&self) -> &Path;
}

/// A file of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) bytes: u64,
}

/// A folder of this machine.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes the folder where it is missing.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        Ok(Self { path: path.canonicalize()? })
    }

    /// What tells the disks of a machine apart.
    pub(super) fn device(&self) -> io::Result<u64> {
        Ok(fs::metadata(&self.path)?.dev())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes the folders of a name, but not the one of all: where that is gone, a disk is gone, and
    /// what stands in its place is another one.
    fn folders_of(&self, name: &str) -> io::Result<()> {
        fs::metadata(&self.path)?;
        match self.at(name).parent() {
            Some(parent) => fs::create_dir_all(parent),
            None => Ok(()),
        }
    }

    fn last(&self, name: &str) -> io::Result<()> {
        let at = self.at(name);
        File::open(at.parent().unwrap_or(&self.path))?.sync_all()
    }
}

impl Store for Folder {
    fn create(&self, name: &str) -> io::Result<Box<dyn AppendFile>> {
        self.folders_of(name)?;
        let file = create_new(&self.at(name))?;
        // Who looks for what was left behind leaves it alone; or was here between these two lines,
        // and has taken it for empty. A file system without locks has one such program at a time.
        let taken = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        if taken || file.metadata()?.nlink() == 0 {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(Box::new(file))
    }

    fn has(&self, name: &str) -> bool {
        fs::symlink_metadata(self.at(name)).is_ok()
    }

    fn publish(&self, from: &str, to: &str) -> io::Result<()> {
        let (old, new) = (self.at(from), self.at(to));
        match renameat_with(CWD, &old, CWD, &new, RenameFlags::NOREPLACE) {
            // Not every file system can do it in one step.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                fs::hard_link(&old, &new)?;
                fs::remove_file(&old)?;
            }
            done => done?,
        }
        self.last(to)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (path, new) = (self.at(name), self.at(&format!("{name}.new")));
        // What was left behind, or a link that leads elsewhere, is taken away and not written through.
        let made = match create_new(&new) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&new)?;
                create_new(&new)
            }
            made => made,
        };
        let mut file = made?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        self.last(name)
    }

    fn open(&self, name: &str) -> io::Result<File> {
        // It was a file when the folder was listed; a link in its place is not followed, and a FIFO
        // not waited for.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file =
            File::options().read(true).write(true).custom_flags(flags).open(self.at(name))?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.at(name))
    }

    fn list(&self, most: usize) -> io::Result<Vec<Entry>> {
        let (mut folders, mut found) = (vec![(self.path.clone(), 0)], Vec::new());
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
                    found.push(Entry { name: name.to_owned(), bytes });
                }
                if found.len() >= most {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    fn free(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// Reads all of a file from its beginning, in pieces.
pub(super) fn read_all(mut file: &File, mut each: impl FnMut(&[u8])) -> io::Result<u64> {
    file.seek(SeekFrom::Start(0))?;
    let (mut piece, mut total) = (vec![0; PIECE], 0);
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(total),
            Ok(read) => {
                each(&piece[..read]);
                total += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl fmt::Debug for dyn Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.path()).finish()
    }
}

/// Folders in folders that are looked through; patterns have fewer.
const MAX_DEPTH: usize = 16;

const PIECE: usize = 256 << 10;
