//! The thread that uploads run on.
//!
//! They read whole files and compute the digest of every byte, twice where there is TLS. On the
//! control runtime every part would hold up the answers to everybody else; and its one thread for
//! what blocks belongs to the state that is saved.

use std::io;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::radio::BackgroundTask;

/// A thread for uploads; one for a house. It begins with the first chore, and ends with this.
#[derive(Debug, Default)]
pub struct UploadWorker {
    tasks: Option<UnboundedSender<BackgroundTask>>,
}

impl UploadWorker {
    /// Runs a chore of [`Uploader::new`](super::Uploader::new).
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn spawn(&mut self, chore: BackgroundTask) -> io::Result<()> {
        let chores = match &self.tasks {
            Some(chores) => chores,
            None => self.tasks.insert(start_thread()?),
        };
        let ended = |_| io::Error::other("the thread for uploads has ended");
        chores.send(chore).map_err(ended)
    }
}

/// Starts the thread. One chore for each recording with uploads waits for it at most.
fn start_thread() -> io::Result<UnboundedSender<BackgroundTask>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (chores, mut wanted) = unbounded_channel::<BackgroundTask>();
    std::thread::Builder::new().name("aulos-upload".into()).spawn(move || {
        runtime.block_on(async {
            while let Some(chore) = wanted.recv().await {
                drop(tokio::spawn(chore));
            }
        });
    })?;
    Ok(chores)
}
