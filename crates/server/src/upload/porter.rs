//! The thread that uploads run on.
//!
//! They read whole files and compute the digest of every byte, twice where there is TLS. On the
//! control runtime every part would hold up the answers to everybody else; and its one thread for
//! what blocks belongs to the state that is saved.

use std::io;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::radio::Chore;

/// A thread for uploads; one for a house. It begins with the first chore, and ends with this.
#[derive(Debug, Default)]
pub struct Porter {
    chores: Option<UnboundedSender<Chore>>,
}

impl Porter {
    /// Runs a chore of [`Uploader::new`](super::Uploader::new).
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn run(&mut self, chore: Chore) -> io::Result<()> {
        let chores = match &self.chores {
            Some(chores) => chores,
            None => self.chores.insert(start()?),
        };
        let ended = |_| io::Error::other("the thread for uploads has ended");
        chores.send(chore).map_err(ended)
    }
}

/// Starts the thread. One chore for each recording with uploads waits for it at most.
fn start() -> io::Result<UnboundedSender<Chore>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (chores, mut wanted) = unbounded_channel::<Chore>();
    std::thread::Builder::new().name("aulos-upload".into()).spawn(move || {
        runtime.block_on(async {
            while let Some(chore) = wanted.recv().await {
                drop(tokio::spawn(chore));
            }
        });
    })?;
    Ok(chores)
}
