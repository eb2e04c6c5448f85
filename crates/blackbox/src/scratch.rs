//! A folder that goes away, and FIFOs in it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{CWD, Mode, mkfifoat};

/// A fresh folder, removed with all that is in it when this is dropped.
///
/// With `AULOS_KEEP` set it stays, and its place is printed: for looking at what went wrong.
#[derive(Debug)]
pub struct ScratchDir(PathBuf);

impl ScratchDir {
    /// Makes the folder in the system's place for such things.
    ///
    /// # Errors
    /// What the file system says.
    pub fn new(name: &str) -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("aulos-{name}-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A place in it.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Makes a FIFO in it.
    ///
    /// # Errors
    /// What the file system says.
    pub fn fifo(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.join(name);
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR)?;
        Ok(path)
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if std::env::var_os("AULOS_KEEP").is_some() {
            eprintln!("kept: {}", self.0.display());
        } else {
            // What cannot be removed is the system's to sweep; a test's verdict is not about it.
            drop(std::fs::remove_dir_all(&self.0));
        }
    }
}
