//! Opens files below a root directory. No path and no symbolic link can escape the root.
//!
//! Checking a path before opening it is a race (`docs/decisions/confined-paths.md`). Here the
//! kernel resolves the path relative to the root's descriptor (`openat2` with `RESOLVE_BENEATH`,
//! Linux 5.6). Where that is unavailable, the path is opened component by component, each relative
//! to the descriptor of its directory, and links are resolved here. A link with an absolute target
//! counts as an escape wherever it points, so both implementations agree.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;

/// Opens a root directory for [`open_beneath`]. The path itself may contain links.
///
/// # Errors
/// Errors of the file system; [`NotADirectory`](io::ErrorKind::NotADirectory) for a file that is
/// not a directory.
pub fn open_root(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, DIRECTORY, Mode::empty())?)
}

/// Opens a file of any type below `root` for reading, without waiting for the writer of a FIFO.
/// Links are followed as long as they stay below the root.
///
/// # Errors
/// Errors of the file system; for a path that escapes the root, an error that [`is_outside_root`]
/// recognizes.
pub fn open_beneath(root: impl AsFd, relative: &Path) -> io::Result<File> {
    match by_kernel(root.as_fd(), relative) {
        Some(opened) => opened,
        None => open_by_components(root.as_fd(), relative),
    }
}

/// Opens a regular file below `root` for reading; otherwise like [`open_beneath`].
///
/// # Errors
/// As [`open_beneath`]; [`IsADirectory`](io::ErrorKind::IsADirectory) for a directory, and
/// [`InvalidInput`](io::ErrorKind::InvalidInput) for a FIFO, a socket or a device.
pub fn open_regular_beneath(root: impl AsFd, relative: &Path) -> io::Result<File> {
    let file = open_beneath(root, relative)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        Ok(file)
    } else if kind.is_dir() {
        Err(Errno::ISDIR.into())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

/// The message for a path that leads out of the allowed directories.
pub const OUTSIDE_ROOTS: &str = "not below one of the directories of `[streams] roots`";

/// Whether an open failed because the path, or a link in it, leads out of the root.
#[must_use]
pub fn is_outside_root(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(OUTSIDE_ROOT)
}

/// The kernel's error for a path that escapes the root.
const OUTSIDE_ROOT: Errno = Errno::XDEV;

/// The limit of Linux; more links count as a loop.
const MAX_LINKS: usize = 40;

/// Does not wait for the writer of a FIFO and does not acquire a controlling terminal.
const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
/// A directory that is only traversed needs no read permission where the system has `O_PATH`.
#[cfg(target_os = "linux")]
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const DIRECTORY: OFlags = FILE.union(OFlags::DIRECTORY);

/// `None` where the kernel lacks the call, forbids it (older container runtimes), or was disturbed
/// by a directory rename.
#[cfg(target_os = "linux")]
fn by_kernel(root: impl AsFd, relative: &Path) -> Option<io::Result<File>> {
    use rustix::fs::{ResolveFlags, openat2};

    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match openat2(root, relative, FILE, Mode::empty(), resolve) {
        Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => None,
        opened => Some(opened.map(File::from).map_err(Into::into)),
    }
}

#[cfg(not(target_os = "linux"))]
fn by_kernel(_: impl AsFd, _: &Path) -> Option<io::Result<File>> {
    None
}

fn open_by_components(root: impl AsFd, relative: &Path) -> io::Result<File> {
    let root = root.as_fd();
    // Descriptors instead of names: `..` returns to the parent that was opened, even if directories
    // are moved meanwhile.
    let mut passed: Vec<OwnedFd> = Vec::new();
    let mut rest = relative.to_path_buf();
    let mut links = 0;
    loop {
        let mut components = rest.components();
        let Some(component) = components.next() else {
            // The path ended with `.` or `..`: reopen the directory that was reached.
            let here = passed.last().map_or(root, AsFd::as_fd);
            return Ok(openat(here, ".", FILE, Mode::empty())?.into());
        };
        let after = components.as_path().to_path_buf();
        let here = passed.last().map_or(root, AsFd::as_fd);
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(passed.pop().ok_or(OUTSIDE_ROOT)?),
            Component::RootDir | Component::Prefix(_) => return Err(OUTSIDE_ROOT.into()),
            Component::Normal(name) => {
                let last = after.as_os_str().is_empty();
                let flags = if last { FILE } else { DIRECTORY } | OFlags::NOFOLLOW;
                match openat(here, name, flags, Mode::empty()) {
                    Ok(opened) if last => return Ok(opened.into()),
                    Ok(opened) => passed.push(opened),
                    // The error for a link differs between systems.
                    Err(error @ (Errno::LOOP | Errno::MLINK | Errno::NOTDIR)) => {
                        let target = readlinkat(here, name, Vec::new()).map_err(|_| error)?;
                        links += 1;
                        if links > MAX_LINKS {
                            return Err(Errno::LOOP.into());
                        }
                        rest = join_link_target(target.as_bytes(), &after);
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        rest = after;
    }
}

/// Joins the target of a link and the rest of the path behind the link.
fn join_link_target(target: &[u8], after: &Path) -> PathBuf {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let mut path = PathBuf::from(OsStr::from_bytes(target));
    if !after.as_os_str().is_empty() {
        path.push(after);
    }
    path
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::{fs, iter};

    use aulos_blackbox::scratch::ScratchDir;
    use rustix::fs::{FileType, mknodat};

    use super::*;

    /// A root with a file, a FIFO and links, and a secret file outside the root.
    struct Tree(ScratchDir);

    impl Tree {
        fn new(name: &str) -> Self {
            let path = ScratchDir::new(name).unwrap();
            let root = path.join("root");
            fs::create_dir_all(root.join("a/b")).unwrap();
            fs::write(path.join("secret"), "secret").unwrap();
            fs::write(root.join("a/b/file"), "inside").unwrap();
            for (target, link) in [
                ("a/b/file", "good"),
                ("../b/file", "a/b/up"),
                ("../../a", "a/b/top"),
                ("../secret", "out"),
                ("a/../../secret", "devious"),
                ("/etc/passwd", "absolute"),
                ("loop", "loop"),
                ("a", "folder"),
                ("out", "chain"),
                ("missing", "dangling"),
            ] {
                symlink(target, root.join(link)).unwrap();
            }
            symlink(root.join("a/b/file"), root.join("absolute-inside")).unwrap();
            symlink(path.join("root"), path.join("link-to-root")).unwrap();
            mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            Self(path)
        }
    }

    type OpenFn = fn(&OwnedFd, &Path) -> io::Result<File>;

    fn open_functions() -> Vec<OpenFn> {
        let mut ways: Vec<OpenFn> = vec![|root, path| open_by_components(root, path)];
        let here = open_root(Path::new("/")).unwrap();
        if by_kernel(&here, Path::new(".")).is_some() {
            // The kernel fails on `..` while any directory of the machine is being moved, and other
            // tests move directories.
            ways.push(|root, path| {
                iter::repeat_with(|| by_kernel(root, path)).flatten().next().unwrap()
            });
        } else {
            println!("skipped: no openat2");
        }
        ways
    }

    fn contents(opened: io::Result<File>) -> io::Result<String> {
        let mut text = String::new();
        opened?.read_to_string(&mut text).map(|_| text)
    }

    #[test]
    fn what_is_below_the_root_is_opened_and_nothing_else() {
        let tree = Tree::new("table");
        for root in ["root", "link-to-root"] {
            let root = open_root(&tree.0.join(root)).unwrap();
            for way in open_functions() {
                let open = |path: &str| contents(way(&root, Path::new(path)));
                for path in [
                    "a/b/file",
                    "./a//b/./file",
                    "a/../a/b/file",
                    "good",
                    "a/b/up",
                    "a/b/top/b/file",
                    "folder/b/file",
                    "folder/../good",
                ] {
                    assert_eq!(open(path).unwrap(), "inside", "{path}");
                }
                for path in [
                    "../secret",
                    "a/../../secret",
                    "..",
                    "/etc/passwd",
                    "out",
                    "devious",
                    "chain",
                    "absolute",
                    "absolute-inside",
                ] {
                    let error = open(path).unwrap_err();
                    assert!(is_outside_root(&error), "{path}: {error}");
                }
                let kind = |path| open(path).unwrap_err().kind();
                assert_eq!(kind("missing"), io::ErrorKind::NotFound);
                assert_eq!(kind("dangling"), io::ErrorKind::NotFound);
                assert_eq!(kind("missing/file"), io::ErrorKind::NotFound);
                assert_eq!(kind("good/file"), io::ErrorKind::NotADirectory);
                assert_eq!(open("loop").unwrap_err().raw_os_error(), Some(libc::ELOOP));
                assert!(way(&root, Path::new("a")).unwrap().metadata().unwrap().is_dir());
                assert!(way(&root, Path::new("a/b/..")).unwrap().metadata().unwrap().is_dir());
            }
        }
    }

    #[test]
    fn a_fifo_is_opened_without_waiting_and_is_no_regular_file() {
        let tree = Tree::new("fifo");
        let root = open_root(&tree.0.join("root")).unwrap();
        for way in open_functions() {
            way(&root, Path::new("fifo")).unwrap();
        }
        let kind = |path| open_regular_beneath(&root, Path::new(path)).unwrap_err().kind();
        assert_eq!(kind("fifo"), io::ErrorKind::InvalidInput);
        assert_eq!(kind("a"), io::ErrorKind::IsADirectory);
        assert!(open_regular_beneath(&root, Path::new("good")).is_ok());
    }

    #[test]
    fn a_directory_that_is_replaced_by_a_link_meanwhile_does_not_lead_out() {
        let tree = Tree::new("race");
        let root = open_root(&tree.0.join("root")).unwrap();
        let (a, aside) = (tree.0.join("root/a"), tree.0.join("root/aside"));
        fs::create_dir(tree.0.join("b")).unwrap();
        fs::write(tree.0.join("b/file"), "secret").unwrap();
        for way in open_functions() {
            std::thread::scope(|scope| {
                let swapped = scope.spawn(|| {
                    for _ in 0..500 {
                        fs::rename(&a, &aside).unwrap();
                        symlink("..", &a).unwrap();
                        fs::remove_file(&a).unwrap();
                        fs::rename(&aside, &a).unwrap();
                    }
                });
                while !swapped.is_finished() {
                    let read = contents(way(&root, Path::new("a/b/file")));
                    assert_ne!(read.ok().as_deref(), Some("secret"));
                }
            });
        }
    }
}
