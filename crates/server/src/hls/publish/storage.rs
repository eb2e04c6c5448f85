//! HLS in S3-compatible storage, as a CDN reads it.
//!
//! A task on the thread of uploads, because of TLS and digests. Requests follow each other, so an
//! object is there before the next one is sent.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aulos_config::StorageTarget;
use aulos_control::backend::HlsTargetKind;
use aulos_io::SystemClock;
use aulos_session::hls::{HlsObject, HlsPublisher, HlsWindow, PublishAction, PublishResult};
use tokio::sync::watch;
use tokio::time::sleep;

use super::pace::pause;
use super::reporter::PublishReporter;
use crate::upload::{ObjectStorage, UploadError, UploadWorker};

/// A storage that follows a window; the task ends when this is dropped.
#[derive(Debug)]
pub(super) struct StoragePublication {
    reporter: PublishReporter,
    _held: watch::Sender<()>,
}

impl StoragePublication {
    /// Starts the task on the thread of uploads.
    ///
    /// # Errors
    /// When the thread cannot be started, and for a target that cannot be addressed.
    pub(super) fn start(
        station: &str,
        target: &StorageTarget,
        window: &Arc<Mutex<HlsWindow>>,
        worker: &mut UploadWorker,
    ) -> io::Result<Self> {
        let storage = ObjectStorage::open(target, Arc::default(), STALL_TIMEOUT);
        let storage = storage.map_err(|error| io::Error::other(error.to_string()))?;
        let url = target.url();
        let seed = RandomState::new().hash_one(&url);
        let reporter = PublishReporter::new(station, HlsTargetKind::Storage, url);
        let config = window.lock().unwrap_or_else(PoisonError::into_inner).config().clone();
        let mut publisher = HlsPublisher::new(&config, seed);
        let (held, mut holder) = watch::channel(());
        let (window, own_reporter) = (Arc::downgrade(window), reporter.clone());
        let publish = async move {
            while let Some(window) = window.upgrade() {
                let now = SystemClock::now();
                publisher
                    .handle_window(now, &window.lock().unwrap_or_else(PoisonError::into_inner));
                drop(window);
                while let Some(action) = publisher.poll_output() {
                    let result = perform(&storage, action).await;
                    publisher.handle_input(SystemClock::now(), result);
                    own_reporter.report(publisher.status());
                }
                sleep(pause(&publisher, SystemClock::now())).await;
            }
        };
        let task = async move {
            tokio::select! {
                () = publish => {}
                // It never changes: it closes with the publication.
                _ = holder.changed() => {}
            }
        };
        worker.spawn(Box::pin(task))?;
        Ok(Self { reporter, _held: held })
    }

    pub(super) const fn reporter(&self) -> &PublishReporter {
        &self.reporter
    }
}

async fn perform(storage: &ObjectStorage, action: PublishAction) -> PublishResult {
    let done = match action {
        PublishAction::List => storage.list(MAX_LISTED).await.map(|names| {
            PublishResult::Found(names.iter().filter_map(|name| HlsObject::parse(name)).collect())
        }),
        PublishAction::Read(object) => {
            storage.get(&object.to_string()).await.map(PublishResult::Contents)
        }
        PublishAction::Put { object, bytes, only_if_absent } => {
            let headers = (object.media_type(), object.cache_control());
            let name = object.to_string();
            let put = storage.put(&name, bytes, headers, only_if_absent).await;
            put.map(|()| PublishResult::Done)
        }
        PublishAction::Remove(object) => {
            storage.delete(&object.to_string()).await.map(|()| PublishResult::Done)
        }
    };
    done.unwrap_or_else(|error| PublishResult::Failed(error_text(&error)))
}

fn error_text(error: &UploadError) -> String {
    if error.is_not_allowed() {
        return "access denied (403); grant the access key s3:PutObject, s3:DeleteObject, \
                s3:GetObject and s3:ListBucket"
            .to_owned();
    }
    error.to_string()
}

/// Time without progress after which a request is given up: some segments.
const STALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Objects of an earlier run that are looked for.
const MAX_LISTED: usize = 100_000;
