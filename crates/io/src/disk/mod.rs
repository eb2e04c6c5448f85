//! Where bytes go that must not be lost: one small door to a file, and a thread that makes what is
//! in it last.
//!
//! The door is a trait, so that a test can stand behind it with a disk that is full, slow or broken.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::JoinHandle;

use aulos_rt::channel::{SendError, Sender, bounded};

/// A file that somebody appends to.
pub trait AppendFile: Send {
    /// Appends of `parts`, one after the other, as much as it takes, and says how many bytes that
    /// was: the rest is to be appended again.
    ///
    /// # Errors
    /// When nothing of it was taken. The end of the file is where it was.
    fn append(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Puts all of `bytes` over what stands at `at`.
    ///
    /// # Errors
    /// As the file gives them; what stands there is then the old, the new or a part of both.
    fn patch(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// A second hold of the file, with which another thread can make it last.
    ///
    /// # Errors
    /// When there is no room for one more descriptor.
    fn sync_handle(&self) -> io::Result<Box<dyn SyncHandle>>;
}

/// A hold of a file that makes last what was written to it.
pub trait SyncHandle: Send {
    /// Waits until all that was written before the call would survive a loss of power.
    ///
    /// # Errors
    /// As the disk gives them; nothing is known then about what was written since the last success.
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

/// A new file at `path`; one that is there already is left alone.
///
/// # Errors
/// `AlreadyExists`, or as the system gives them.
pub fn create_new(path: &Path) -> io::Result<File> {
    // Read as well: who repairs or hashes it does so through the same hold.
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

/// What is done when a file was made to last, or could not be: runs on the thread of the [`Syncer`]
/// and must be short.
pub type SyncCallback = Box<dyn FnOnce(io::Result<()>) + Send>;

/// A thread that waits for the disk, so that nobody else has to.
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
        let (orders, mut ordered) = bounded::<SyncRequest>(MAX_SYNC_REQUESTS);
        let work = move || {
            while let Some((file, done)) = ordered.recv() {
                done(file.sync());
            }
        };
        let handle = std::thread::Builder::new().name("aulos-sync".to_owned()).spawn(work)?;
        Ok(Self { requests: Some(orders), handle: Some(handle) })
    }

    /// Asks for `file` to be made to last. Does not wait.
    ///
    /// # Errors
    /// The file, when the disk is [`MAX_ORDERS`] behind: ask again.
    pub fn sync(
        &self,
        file: Box<dyn SyncHandle>,
        done: SyncCallback,
    ) -> Result<(), (Box<dyn SyncHandle>, SyncCallback)> {
        let Some(orders) = &self.requests else { return Err((file, done)) };
        orders.try_send((file, done)).map_err(SendError::into_item)
    }
}

impl Drop for Syncer {
    /// Waits for what was asked.
    fn drop(&mut self) {
        self.requests = None;
        // A thread that panicked has already said so on standard error.
        drop(self.handle.take().map(JoinHandle::join));
    }
}

impl std::fmt::Debug for Syncer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Syncer").finish_non_exhaustive()
    }
}

/// Files that wait to be made to last: more than one for each recorder of a large house.
pub const MAX_SYNC_REQUESTS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_is_done_before_the_thread_ends() {
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
