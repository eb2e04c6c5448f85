//! What a playlist shows of itself, and the commands to it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use aulos_core::Span;
use aulos_proto::titles::TrackMetadata;
use aulos_rt::channel::{Receiver, Sender, bounded};

/// A playlist for status displays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlaylistStatus {
    /// The number of files.
    pub files: u32,
    /// The file that plays, and how far it has come.
    pub current: Option<(PlaylistTrackInfo, Span)>,
    /// The title of the last file that was no jingle.
    pub title: Option<Arc<TrackMetadata>>,
    /// The files that follow, without jingles.
    pub next: Vec<PathBuf>,
    /// Files that have begun to play.
    pub played: u64,
    /// Files that could not be played, or not to their end.
    pub skipped: u64,
    /// The last one of them.
    pub last_skipped: Option<SkippedFile>,
    /// Why nothing is played, or not everything.
    pub problem: Option<String>,
}

/// A file of a playlist.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaylistTrackInfo {
    /// The file.
    pub path: Arc<PathBuf>,
    /// Whether it is a jingle.
    pub is_jingle: bool,
    /// Its length, if its header says it.
    pub duration: Option<Span>,
    /// The gain that it gets, in dB.
    pub gain_db: f64,
}

/// A file that could not be played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedFile {
    /// The file.
    pub path: Arc<PathBuf>,
    /// Why.
    pub reason: String,
}

/// The other end of a playlist.
#[derive(Clone, Debug)]
pub struct PlaylistHandle {
    status: Arc<Mutex<PlaylistStatus>>,
    skips: Sender<()>,
}

/// The job's end of it.
#[derive(Debug)]
pub(super) struct StatusPublisher {
    status: Arc<Mutex<PlaylistStatus>>,
    skips: Receiver<()>,
}

pub(super) fn status_channel() -> (StatusPublisher, PlaylistHandle) {
    let status = Arc::new(Mutex::new(PlaylistStatus::default()));
    let (sender, skips) = bounded(MAX_SKIPS);
    (StatusPublisher { status: status.clone(), skips }, PlaylistHandle { status, skips: sender })
}

impl PlaylistHandle {
    /// The last status.
    #[must_use]
    pub fn status(&self) -> PlaylistStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Goes on to the next file. What has been decoded, about a second, is still played. Requests
    /// that come faster than the job takes them count as one.
    pub fn skip(&self) {
        // Without room, one is waiting already.
        let _full = self.skips.try_send(());
    }
}

impl StatusPublisher {
    pub(super) fn change(&self, change: impl FnOnce(&mut PlaylistStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether a skip was requested since the last call.
    pub(super) fn take_skips(&mut self) -> bool {
        let mut any = false;
        while self.skips.try_recv().is_ok() {
            any = true;
        }
        any
    }
}

/// Requests between two steps of the job.
const MAX_SKIPS: usize = 4;
