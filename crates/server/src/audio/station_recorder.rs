//! A recorder of a station and what all recorders share; `recordings` opens and replaces them.

use std::collections::HashMap;

use aulos_config::RecorderSettings;
use aulos_control::backend::{RecorderState, StationRecorderEvent};
use aulos_core::Instant;
use aulos_files::record::{RecorderEvent, RecorderHandle, RecorderService, RecorderStatus};
use aulos_rt::channel::Receiver;

use super::log_watch::LogWatch;
use crate::upload::{UploadWorker, Uploader};

/// State that all recorders of the server share.
#[derive(Debug, Default)]
pub(super) struct RecorderManager {
    /// None before the first recorder, so that a server without recordings has no recorder threads.
    pub(super) recorders: Option<(RecorderService, Receiver<RecorderEvent>)>,
    /// Station and upload target of every recorder so far, by the recorder's name.
    pub(super) known: HashMap<String, KnownRecorder>,
    /// Events of recorders whose folder cannot be used.
    pub(super) events: Vec<StationRecorderEvent>,
    /// The thread that uploads.
    pub(super) upload_worker: UploadWorker,
}

/// The station, the upload target and the log of a recorder.
#[derive(Debug)]
pub(super) struct KnownRecorder {
    pub(super) station: String,
    pub(super) uploader: Option<Uploader>,
    pub(super) logger: Option<LogWatch>,
}

/// A recorder of a running station.
#[derive(Debug)]
pub(super) struct StationRecorder {
    pub(super) config: RecorderSettings,
    pub(super) slot: RecorderSlot,
}

/// An open recorder, or one that waits for its next attempt.
#[derive(Debug)]
pub(super) enum RecorderSlot {
    /// Open.
    Open(RecorderHandle),
    /// Waits to be opened again, since `since`.
    Unavailable { trouble: String, retry_at: Instant, since: Instant },
}

impl StationRecorder {
    pub(super) fn status(&self, manager: &RecorderManager) -> RecorderState {
        let (status, unavailable) = match &self.slot {
            RecorderSlot::Open(handle) => (handle.status(), None),
            RecorderSlot::Unavailable { trouble, .. } => {
                (RecorderStatus::default(), Some(trouble.clone()))
            }
        };
        let known = manager.known.get(&self.config.recording.name);
        let uploader = known.and_then(|known| known.uploader.as_ref());
        RecorderState { status, unavailable, upload: uploader.map(Uploader::state) }
    }
}
