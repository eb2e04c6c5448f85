//! The thread that runs uploads.
//!
//! Uploads read whole files and compute the digest of every byte, twice with TLS. On the control
//! runtime every part would delay all other requests, and its one blocking thread belongs to the
//! state file.

use std::io;

use aulos_control::backend::BackgroundTask;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// The upload thread; one per server. It starts with the first task, and ends when this is dropped.
#[derive(Debug, Default)]
pub struct UploadWorker {
    tasks: Option<UnboundedSender<BackgroundTask>>,
}

impl UploadWorker {
    /// Runs a task of [`Uploader::new`](super::Uploader::new).
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn spawn(&mut self, task: BackgroundTask) -> io::Result<()> {
        let tasks = match &self.tasks {
            Some(tasks) => tasks,
            None => self.tasks.insert(start_thread()?),
        };
        let ended = |_| io::Error::other("the upload thread has ended");
        tasks.send(task).map_err(ended)
    }
}

/// Starts the thread. Its queue holds at most one task for each recording with uploads.
fn start_thread() -> io::Result<UnboundedSender<BackgroundTask>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (tasks, mut receiver) = unbounded_channel::<BackgroundTask>();
    std::thread::Builder::new().name("aulos-upload".into()).spawn(move || {
        runtime.block_on(async {
            while let Some(task) = receiver.recv().await {
                drop(tokio::spawn(task));
            }
        });
    })?;
    Ok(tasks)
}
