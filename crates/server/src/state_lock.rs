//! Exclusive lock of a state directory.
//!
//! Two servers would overwrite each other's state file. A pid file would survive a kill
//! (`docs/decisions/saved-state.md`). A kernel lock ends with the process, however that ends.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::exit::{Exit, Failure};

/// Name of the lock file in the state directory. It holds the process id of the server that has the
/// lock, or had it last.
pub const LOCK_FILE: &str = "server.lock";

/// Exclusive access to a state directory, until it is dropped.
#[derive(Debug)]
#[must_use = "dropping it releases the lock"]
pub struct StateLock(#[allow(dead_code, reason = "its being open is the lock")] Option<File>);

/// Locks a state directory. If the file system has no locks, or the directory is not writable, the
/// lock is skipped with a warning.
///
/// # Errors
/// [`Exit::Unavailable`] when another server holds the lock.
pub fn lock(dir: &Path) -> Result<StateLock, Failure> {
    let without = |error: &io::Error| {
        tracing::warn!(
            dir = %dir.display(),
            %error,
            "cannot lock the state directory; a second server on it would not be detected"
        );
        Ok(StateLock(None))
    };
    let path = dir.join(LOCK_FILE);
    let mut file = match open(&path, true).and_then(|_| open(&path, false)) {
        Ok(file) => file,
        Err(error) => return without(&error),
    };
    let mut locked = file.try_lock();
    // Over NFS an exclusive lock requires a file that is open for writing.
    if let Err(TryLockError::Error(error)) = &locked
        && error.raw_os_error() == Some(Errno::BADF.raw_os_error())
    {
        file = match open(&path, true) {
            Ok(file) => file,
            Err(error) => return without(&error),
        };
        locked = file.try_lock();
    }
    match locked {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(lock_held_failure(dir, &file)),
        Err(TryLockError::Error(error)) => return without(&error),
    }
    if let Err(error) = write_process_id(&path) {
        // The lock holds all the same; only its error message will lack the process.
        tracing::debug!(%error, file = %path.display(), "cannot write the process id");
    }
    Ok(StateLock(Some(file)))
}

/// Opens the file, and creates it with `write`. The lock keeps it open for reading only: a file
/// open for writing prevents its file system from being remounted read-only.
fn open(path: &Path, write: bool) -> io::Result<File> {
    // Does not follow a link, and does not wait for a FIFO.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(write).create(write).truncate(false).mode(0o600).custom_flags(flags);
    options.open(path)
}

fn write_process_id(path: &Path) -> io::Result<()> {
    let mut file = open(path, true)?;
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())
}

fn lock_held_failure(dir: &Path, file: &File) -> Failure {
    let mut text = String::new();
    // A process id has at most ten digits.
    let read = file.take(32).read_to_string(&mut text);
    let id = read.ok().and_then(|_| text.trim().parse::<u32>().ok());
    let process = id.map_or_else(
        || "another process".to_owned(),
        |id| {
            let command = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            match command.trim_end() {
                "" => format!("process {id}"),
                command => format!("process {id} (`{command}`)"),
            }
        },
    );
    let dir = dir.display();
    Failure::new(
        Exit::Unavailable,
        format!(
            "the state directory {dir} is in use by {process}\n    hint: stop that server, or use \
             another directory with --state-dir DIR"
        ),
    )
}

#[cfg(test)]
mod tests {
    use aulos_blackbox::scratch::ScratchDir;

    use super::*;

    #[test]
    fn the_state_lock_admits_one_server_and_names_it_to_the_next() {
        let dir = ScratchDir::new("lock").unwrap();
        let first = lock(&dir).unwrap();
        let refused = lock(&dir).unwrap_err();
        assert_eq!(refused.exit, Exit::Unavailable);
        for part in [dir.to_str().unwrap(), &std::process::id().to_string(), "--state-dir"] {
            assert!(refused.message.contains(part), "{}", refused.message);
        }
        drop(first);
        drop(lock(&dir).unwrap());
    }

    #[test]
    fn what_a_killed_server_left_is_no_lock() {
        let dir = ScratchDir::new("stale-lock").unwrap();
        // Longer than an id, and of a running process.
        fs::write(dir.join(LOCK_FILE), "1\nand more than a number").unwrap();
        let _lock = lock(&dir).unwrap();
        let text = fs::read_to_string(dir.join(LOCK_FILE)).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
    }

    #[test]
    fn without_lock_support_the_server_starts_unlocked() {
        let dir = ScratchDir::new("no-lock").unwrap();
        fs::create_dir(dir.join(LOCK_FILE)).unwrap();
        drop(lock(&dir).unwrap());
        drop(lock(&dir).unwrap());
    }
}
