//! The interface to files whose data must not be lost, a thread that syncs them, and the atomic
//! replacement of files.
//!
//! The interface is a trait, so that a test can provide a disk that is full, slow or broken.

mod replace;

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::JoinHandle;

use aulos_rt::channel::{SendError, Sender, bounded};

pub(crate) use replace::is_same_file;
pub use replace::{NewFile, SyncedFile, replace, sync_folder_of};

/// A file to append to.
pub trait AppendFile: Send {
    /// Appends as many bytes of `parts`, in order, as the file accepts, and returns their number.
    /// The rest has to be appended again.
    ///
    /// # Errors
    /// When nothing was written. The end of the file is unchanged.
    fn append(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Overwrites the bytes at `at` with `bytes`.
    ///
    /// # Errors
    /// Errors of the file; the bytes there are then the old ones, the new ones or a mixture.
    fn patch(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Another handle to the file, with which another thread can sync it.
    ///
    /// # Errors
    /// When there is no descriptor left.
    fn sync_handle(&self) -> io::Result<Box<dyn SyncHandle>>;
}

/// A handle to a file that makes written data durable.
pub trait SyncHandle: Send {
    /// Waits until everything written before the call would survive a power failure.
    ///
    /// # Errors
    /// Errors of the disk; the state of data written since the last success is then unknown.
    fn sync(&self) -> io::Result<()>;
}

impl AppendFile for File {
    fn append(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_vectored(parts)
    }

    fn patch(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn sync_handle(&self) -> io::Result<Box<dyn SyncHandle>> {
        Ok(Box::new(self.try_clone()?))
    }
}

impl SyncHandle for File {
    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Creates a new file at `path`; an existing one is left alone.
///
/// # Errors
/// `AlreadyExists`, or errors of the system.
pub fn create_new(path: &Path) -> io::Result<File> {
    // Readable as well: repair and hashing use the same handle.
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

/// Called when a sync has succeeded or failed. Runs on the thread of the [`Syncer`] and must be
/// short.
pub type SyncCallback = Box<dyn FnOnce(io::Result<()>) + Send>;

/// A thread that waits for the disk on behalf of others.
pub struct Syncer {
    requests: Option<Sender<SyncRequest>>,
    handle: Option<JoinHandle<()>>,
}

type SyncRequest = (Box<dyn SyncHandle>, SyncCallback);

impl Syncer {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no more threads.
    pub fn start() -> io::Result<Self> {
        let (requests, mut ordered) = bounded::<SyncRequest>(MAX_SYNC_REQUESTS);
        let work = move || {
            while let Some((file, done)) = ordered.recv() {
                done(file.sync());
            }
        };
        let handle = std::thread::Builder::new().name("aulos-sync".to_owned()).spawn(work)?;
        Ok(Self { requests: Some(requests), handle: Some(handle) })
    }

    /// Requests a sync of `file`. Does not wait.
    ///
    /// # Errors
    /// Returns the file and the callback when [`MAX_SYNC_REQUESTS`] requests are pending: try again
    /// later.
    pub fn sync(
        &self,
        file: Box<dyn SyncHandle>,
        done: SyncCallback,
    ) -> Result<(), (Box<dyn SyncHandle>, SyncCallback)> {
        let Some(requests) = &self.requests else { return Err((file, done)) };
        requests.try_send((file, done)).map_err(SendError::into_item)
    }
}

impl Drop for Syncer {
    /// Waits for the pending requests.
    fn drop(&mut self) {
        self.requests = None;
        // The panic message of the thread is already on standard error.
        drop(self.handle.take().map(JoinHandle::join));
    }
}

impl std::fmt::Debug for Syncer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Syncer").finish_non_exhaustive()
    }
}

/// Pending requests: more than one for each recorder of a large installation.
pub const MAX_SYNC_REQUESTS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_requests_complete_before_the_thread_ends() {
        let folder = aulos_blackbox::scratch::ScratchDir::new("disk").unwrap();
        let mut file = create_new(&folder.path().join("a")).unwrap();
        assert_eq!(file.append(&[IoSlice::new(b"abc"), IoSlice::new(b"def")]).unwrap(), 6);
        file.patch(1, b"XY").unwrap();
        let (sender, done) = std::sync::mpsc::channel();
        let syncer = Syncer::start().unwrap();
        for _ in 0..3 {
            let sender = sender.clone();
            let done: SyncCallback = Box::new(move |result| sender.send(result.is_ok()).unwrap());
            assert!(syncer.sync(file.sync_handle().unwrap(), done).is_ok());
        }
        drop(syncer);
        assert_eq!(done.try_iter().collect::<Vec<_>>(), [true; 3]);
        assert_eq!(std::fs::read(folder.path().join("a")).unwrap(), b"aXYdef");
        assert_eq!(
            create_new(&folder.path().join("a")).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
    }
}
