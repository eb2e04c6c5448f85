//! Copies of a station's HLS outside the server, for web servers and CDNs.
//!
//! ```text
//!  HlsWindow --> HlsPublisher --> FolderPublication (a thread) ----------------> folder
//!                         `-----> StoragePublication (on the thread of uploads) -> bucket
//! ```
//!
//! A publisher looks at the window some times a second, and the station knows nothing of it: a
//! target that does not answer delays nobody else.

mod folder;
mod pace;
mod reporter;
#[cfg(feature = "s3")]
mod storage;
#[cfg(not(feature = "s3"))]
mod unsupported;

use std::io;
use std::sync::{Arc, Mutex};

use aulos_config::HlsSettings;
use aulos_control::backend::HlsTargetState;
use aulos_session::hls::HlsWindow;

use crate::upload::UploadWorker;
use folder::FolderPublication;
use reporter::PublishReporter;
#[cfg(feature = "s3")]
use storage::StoragePublication;
#[cfg(not(feature = "s3"))]
use unsupported::StoragePublication;

/// The copies of one window; they end when this is dropped.
#[derive(Debug)]
pub(super) struct Publications {
    settings: HlsSettings,
    folder: Option<FolderPublication>,
    storage: Option<StoragePublication>,
}

impl Publications {
    /// Starts them.
    ///
    /// # Errors
    /// When the system gives no thread, and for a storage that cannot be addressed.
    pub(super) fn start(
        station: &str,
        settings: &HlsSettings,
        window: &Arc<Mutex<HlsWindow>>,
        worker: &mut UploadWorker,
    ) -> io::Result<Self> {
        let folder = settings.folder.as_ref();
        let folder = folder.map(|folder| FolderPublication::start(station, folder, window));
        let upload = settings.upload.as_ref();
        let storage =
            upload.map(|target| StoragePublication::start(station, target, window, worker));
        let (folder, storage) = (folder.transpose()?, storage.transpose()?);
        Ok(Self { settings: settings.clone(), folder, storage })
    }

    /// Whether they are those of these settings.
    pub(super) fn matches(&self, settings: &HlsSettings) -> bool {
        self.settings == *settings
    }

    /// What each of them has done.
    pub(super) fn states(&self) -> Vec<HlsTargetState> {
        let folder = self.folder.iter().map(FolderPublication::reporter);
        let storage = self.storage.iter().map(StoragePublication::reporter);
        folder.chain(storage).map(PublishReporter::state).collect()
    }
}
