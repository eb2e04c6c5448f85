//! The path of a source and the root directories that it must not escape.
//!
//! A path from the configuration may point anywhere. A path from a remote call must stay below the
//! directories of `[streams] roots`, and not only at the time of the call: a source is opened
//! later, and again after each failure, and by then a directory may have become a link. Therefore
//! the roots travel with the path, and every open is confined to them.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;

use crate::confined_open::{open_beneath, open_root};

/// A path, and the root directories that contain it, if it is confined.
#[derive(Clone, PartialEq, Eq)]
pub struct SourcePath {
    path: PathBuf,
    roots: Option<Arc<[PathBuf]>>,
}

impl SourcePath {
    /// Confines the path to `roots`: every open outside of them fails.
    #[must_use]
    pub fn confined_to(self, roots: &[PathBuf]) -> Self {
        Self { roots: Some(roots.into()), ..self }
    }

    /// Another path with the same confinement.
    #[must_use]
    pub fn with_path(&self, path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), roots: self.roots.clone() }
    }

    /// Whether every open is confined to certain directories.
    #[must_use]
    pub const fn is_confined(&self) -> bool {
        self.roots.is_some()
    }

    /// Opens the path for reading, whatever its file type, without waiting for the writer of a
    /// FIFO.
    ///
    /// # Errors
    /// Errors of the file system; for a path that escapes the roots, an error that
    /// [`is_outside_root`](crate::confined_open::is_outside_root) recognizes.
    pub fn open(&self) -> io::Result<File> {
        match &self.roots {
            None => OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&self.path),
            Some(roots) => {
                let (root, relative) = open_confining_root(roots, &self.path)?;
                open_beneath(root, &relative)
            }
        }
    }

    /// Creates a FIFO with access for its owner only. Returns false if the name exists.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn make_fifo(&self) -> io::Result<bool> {
        let mode = Mode::RUSR | Mode::WUSR;
        let made = match &self.roots {
            None => mknodat(CWD, &self.path, FileType::Fifo, mode, 0),
            Some(roots) => {
                if self.path.canonicalize().is_ok() {
                    return Ok(false);
                }
                let parts = self.path.parent().zip(self.path.file_name());
                let (folder, name) = parts.ok_or(Errno::INVAL)?;
                let (root, relative) = open_confining_root(roots, folder)?;
                mknodat(open_beneath(root, &relative)?, name, FileType::Fifo, mode, 0)
            }
        };
        match made {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Opens the root that contains `path` and returns it with the relative path.
///
/// Names are resolved first, so a link with an absolute target is allowed if the target lies below
/// the root as well. If the meaning of a name changes before the file is opened, the confined open
/// fails.
fn open_confining_root(roots: &[PathBuf], path: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let real = path.canonicalize()?;
    for root in roots {
        let Ok(root) = root.canonicalize() else { continue };
        if let Ok(relative) = real.strip_prefix(&root) {
            return Ok((open_root(&root)?, Path::new(".").join(relative)));
        }
    }
    Err(Errno::XDEV.into())
}

impl Deref for SourcePath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

/// Formats as a plain path if it is not confined.
impl fmt::Debug for SourcePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.roots {
            None => self.path.fmt(f),
            Some(roots) => write!(f, "{:?} below {roots:?}", self.path),
        }
    }
}

impl From<PathBuf> for SourcePath {
    fn from(path: PathBuf) -> Self {
        Self { path, roots: None }
    }
}

impl From<&Path> for SourcePath {
    fn from(path: &Path) -> Self {
        path.to_path_buf().into()
    }
}

impl From<&str> for SourcePath {
    fn from(path: &str) -> Self {
        PathBuf::from(path).into()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::{FileTypeExt as _, symlink};

    use aulos_blackbox::scratch::ScratchDir;

    use super::*;
    use crate::confined_open::is_outside_root;

    /// A root, and a secret file outside of it.
    fn tree(name: &str) -> ScratchDir {
        let folder = ScratchDir::new(name).unwrap();
        fs::create_dir_all(folder.join("root/sub")).unwrap();
        fs::write(folder.join("secret"), "secret").unwrap();
        fs::write(folder.join("root/sub/file"), "inside").unwrap();
        folder
    }

    fn read(path: &SourcePath) -> io::Result<String> {
        let mut text = String::new();
        path.open()?.read_to_string(&mut text).map(|_| text)
    }

    #[test]
    fn links_may_be_used_inside_and_lead_nowhere_else() {
        let folder = tree("links");
        let root = folder.join("root");
        symlink("sub/file", root.join("relative")).unwrap();
        symlink(root.join("sub/file"), root.join("absolute")).unwrap();
        symlink(root.join("sub"), root.join("folder")).unwrap();
        symlink("../secret", root.join("out")).unwrap();
        symlink(&folder, root.join("up")).unwrap();
        symlink("/proc/self/fd/0", root.join("magic")).unwrap();
        let below =
            |path: &str| SourcePath::from(root.join(path)).confined_to(std::slice::from_ref(&root));
        for good in ["sub/file", "relative", "absolute", "folder/file", "sub/../sub/file"] {
            assert_eq!(read(&below(good)).unwrap(), "inside", "{good}");
        }
        assert!(read(&below("magic")).is_err());
        for bad in ["out", "up/secret", "../secret"] {
            let error = read(&below(bad)).unwrap_err();
            assert!(is_outside_root(&error), "{bad}: {error}");
        }
        assert_eq!(read(&SourcePath::from(root.join("out"))).unwrap(), "secret", "the operator's");
        assert!(
            is_outside_root(&read(&below("sub/file").confined_to(&[])).unwrap_err()),
            "no roots"
        );
    }

    #[test]
    fn what_becomes_a_link_after_it_was_checked_is_not_opened() {
        let folder = tree("swap");
        let root = folder.join("root");
        fs::create_dir(folder.join("sub")).unwrap();
        fs::write(folder.join("sub/file"), "secret").unwrap();
        let path = SourcePath::from(root.join("sub/file")).confined_to(std::slice::from_ref(&root));
        assert_eq!(read(&path).unwrap(), "inside");
        // The situation at a second open after a failure.
        fs::rename(root.join("sub"), root.join("aside")).unwrap();
        symlink("../sub", root.join("sub")).unwrap();
        assert!(is_outside_root(&read(&path).unwrap_err()));
        fs::remove_file(root.join("sub")).unwrap();
        fs::rename(root.join("aside"), root.join("sub")).unwrap();
        // During an open.
        std::thread::scope(|scope| {
            let swapped = scope.spawn(|| {
                for _ in 0..300 {
                    fs::rename(root.join("sub"), root.join("aside")).unwrap();
                    symlink("../sub", root.join("sub")).unwrap();
                    fs::remove_file(root.join("sub")).unwrap();
                    fs::rename(root.join("aside"), root.join("sub")).unwrap();
                }
            });
            while !swapped.is_finished() {
                assert_ne!(read(&path).ok().as_deref(), Some("secret"));
            }
        });
    }

    #[test]
    fn a_fifo_is_created_only_below_a_root() {
        let folder = tree("fifo");
        let root = folder.join("root");
        symlink(&folder, root.join("up")).unwrap();
        let below =
            |path: &str| SourcePath::from(root.join(path)).confined_to(std::slice::from_ref(&root));
        let fifo = below("sub/fifo");
        assert!(fifo.make_fifo().unwrap() && !fifo.make_fifo().unwrap());
        // Opening does not wait for a writer.
        assert!(fifo.open().unwrap().metadata().unwrap().file_type().is_fifo());
        for bad in ["up/fifo", "../fifo"] {
            assert!(is_outside_root(&below(bad).make_fifo().unwrap_err()), "{bad}");
        }
        assert!(!folder.join("fifo").exists());
        // A dangling link is not followed.
        symlink("../new", root.join("dangling")).unwrap();
        assert!(!below("dangling").make_fifo().unwrap() && !folder.join("new").exists());
    }
}
