//! A temporary folder, and FIFOs in it.

use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{CWD, Mode, mkfifoat};

/// A new folder, removed with its contents on drop.
///
/// With `AULOS_KEEP` set it stays, and its path is printed, for debugging.
#[derive(Debug)]
pub struct ScratchDir(PathBuf);

impl ScratchDir {
    /// Creates the folder in the system's temporary folder.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn new(name: &str) -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("aulos-{name}-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// The path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Creates a FIFO in the folder.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn fifo(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.join(name);
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR)?;
        Ok(path)
    }
}

impl Deref for ScratchDir {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for ScratchDir {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if std::env::var_os("AULOS_KEEP").is_some() {
            eprintln!("kept: {}", self.0.display());
        } else {
            // A folder that cannot be removed is left to the system; it does not fail the test.
            drop(std::fs::remove_dir_all(&self.0));
        }
    }
}
