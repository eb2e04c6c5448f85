//! Copies of a station's HLS outside the server, for web servers and CDNs.
//!
//! ```text
//!  HlsWindow --> HlsPublisher --> FolderWriter (a thread) --> folder
//! ```
//!
//! A publisher looks at the window some times a second, and the station knows nothing of it: a
//! target that does not answer delays nobody else.

mod folder;
mod pace;
mod reporter;

use std::io;
use std::sync::{Arc, Mutex};

use aulos_config::HlsSettings;
use aulos_control::backend::HlsTargetState;
use aulos_session::hls::HlsWindow;

use folder::FolderPublication;

/// The copies of one window; they end when this is dropped.
#[derive(Debug)]
pub(super) struct Publications {
    settings: HlsSettings,
    folder: Option<FolderPublication>,
}

impl Publications {
    /// Starts them.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start(
        station: &str,
        settings: &HlsSettings,
        window: &Arc<Mutex<HlsWindow>>,
    ) -> io::Result<Self> {
        let folder = settings.folder.as_ref();
        let folder = folder.map(|folder| FolderPublication::start(station, folder, window));
        Ok(Self { settings: settings.clone(), folder: folder.transpose()? })
    }

    /// Whether they are those of these settings.
    pub(super) fn matches(&self, settings: &HlsSettings) -> bool {
        self.settings == *settings
    }

    /// What each of them has done.
    pub(super) fn states(&self) -> Vec<HlsTargetState> {
        self.folder.iter().map(|folder| folder.reporter().state()).collect()
    }
}
