//! The thread that writes the state.
//!
//! It does nothing else: a page that lies on a network disk which does not answer must not keep
//! volumes and names from being saved, as it did when both shared the runtime's threads.

use std::io;
use std::path::{Path, PathBuf};

use aulos_control::registry::store::{self, Snapshot};
use tokio::sync::mpsc;

/// The way to the thread. It ends when this is dropped, and what it is doing has been done.
#[derive(Debug)]
pub(crate) struct Saver {
    dir: PathBuf,
    snapshots: mpsc::Sender<Snapshot>,
    results: mpsc::Receiver<io::Result<()>>,
}

impl Saver {
    /// Starts the thread; what it is given goes to the state directory `dir`.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(dir: PathBuf) -> io::Result<Self> {
        // One at a time: the caller waits for its result.
        let (snapshots, mut given) = mpsc::channel::<Snapshot>(1);
        let (done, results) = mpsc::channel(1);
        let into = dir.clone();
        std::thread::Builder::new().name("aulos-state".to_owned()).spawn(move || {
            while let Some(snapshot) = given.blocking_recv() {
                if done.blocking_send(store::save(&into, &snapshot.into_text())).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { dir, snapshots, results })
    }

    /// The state directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes what is to be saved.
    ///
    /// # Errors
    /// As [`store::save`].
    pub(crate) async fn save(&mut self, snapshot: Snapshot) -> io::Result<()> {
        let gone = || io::Error::other("the thread that saves the state has ended");
        self.snapshots.send(snapshot).await.map_err(|_| gone())?;
        self.results.recv().await.ok_or_else(gone)?
    }
}
