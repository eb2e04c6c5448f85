//! The thread that writes the state, and the titles that stations have shown.
//!
//! It does nothing else: a page that lies on a network disk which does not answer must not keep
//! volumes and names from being saved, as it did when both shared the runtime's threads. Its
//! priority is lower than that of the others: writing the text of thousands of clients takes 60 ms
//! of a processor, which answers waited for on a machine with two.

use std::io;
use std::path::{Path, PathBuf};

use aulos_control::registry::store::{self, Snapshot};
use tokio::sync::mpsc;

use crate::titles::store as title_store;

/// Lowers the priority of the calling thread.
fn lower_priority() {
    // Elsewhere the call would concern the whole process.
    #[cfg(target_os = "linux")]
    if let Ok(nice) = rustix::process::getpriority_process(None) {
        // Anyone may lower a priority; a refusal costs nothing but time.
        rustix::process::setpriority_process(None, nice + BACKGROUND).ok();
    }
}

/// Added to the `nice(2)` value.
#[cfg(target_os = "linux")]
const BACKGROUND: i32 = 10;

/// What the thread writes.
enum SaveRequest {
    /// The state file.
    State(Snapshot),
    /// A station, and lines of its titles.
    Titles(String, String),
}

impl SaveRequest {
    fn write(self, dir: &Path) -> io::Result<()> {
        match self {
            Self::State(snapshot) => store::save(dir, &snapshot.into_text()),
            Self::Titles(station, lines) => title_store::append(dir, &station, &lines),
        }
    }
}

/// The way to the thread. It ends when this is dropped, and what it is doing has been done.
#[derive(Debug)]
pub(crate) struct Saver {
    dir: PathBuf,
    requests: mpsc::Sender<SaveRequest>,
    results: mpsc::Receiver<io::Result<()>>,
}

impl Saver {
    /// Starts the thread; what it is given goes to the state directory `dir`.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(dir: PathBuf) -> io::Result<Self> {
        // One at a time: the caller waits for its result.
        let (requests, mut given) = mpsc::channel::<SaveRequest>(1);
        let (done, results) = mpsc::channel(1);
        let into = dir.clone();
        std::thread::Builder::new().name("aulos-state".to_owned()).spawn(move || {
            lower_priority();
            while let Some(request) = given.blocking_recv() {
                if done.blocking_send(request.write(&into)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { dir, requests, results })
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
        self.write(SaveRequest::State(snapshot)).await
    }

    /// Adds lines to the titles of a station.
    ///
    /// # Errors
    /// As [`title_store::append`].
    pub(crate) async fn add_titles(&mut self, station: String, lines: String) -> io::Result<()> {
        self.write(SaveRequest::Titles(station, lines)).await
    }

    async fn write(&mut self, request: SaveRequest) -> io::Result<()> {
        let gone = || io::Error::other("the thread that saves the state has ended");
        self.requests.send(request).await.map_err(|_| gone())?;
        self.results.recv().await.ok_or_else(gone)?
    }
}
