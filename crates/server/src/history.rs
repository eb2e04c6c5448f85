//! The thread that keeps the history of loudness.
//!
//! It is neither an audio thread nor the one that saves the state: a disk that does not answer
//! delays nothing but queries of the history.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aulos_config::HistorySettings;
use aulos_control::{Control, HistoryRequest, HistorySecond};
use aulos_files::history::{HistoryPoint, HistoryStore};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The folder of the history in the state directory.
pub const HISTORY_DIR: &str = "history";

/// Time for the last write: a server ends within a second.
const FINISH_TIMEOUT: Duration = Duration::from_millis(500);

/// Starts the thread; it ends after [`HistoryRequest::Finish`], or when all senders are dropped.
///
/// # Errors
/// When the system gives no thread.
pub(crate) fn spawn(
    dir: PathBuf,
    settings: HistorySettings,
    control: &Arc<Control>,
    mut requests: mpsc::Receiver<HistoryRequest>,
) -> io::Result<()> {
    // The control plane holds a sender, so the thread must not hold the control plane.
    let control = Arc::downgrade(control);
    std::thread::Builder::new().name("aulos-history".to_owned()).spawn(move || {
        let mut keeper = HistoryWriter::new(dir.join(HISTORY_DIR), settings, control);
        while let Some(request) = requests.blocking_recv() {
            match request {
                HistoryRequest::Second(second) => keeper.keep(second),
                HistoryRequest::Query { station, range, reply } => {
                    // A reader that has gone needs no answer.
                    reply.send(keeper.store.query(&station, &range)).ok();
                }
                HistoryRequest::Finish(finished) => {
                    let result = keeper.store.finish(unix_now());
                    keeper.report(result);
                    return drop(finished);
                }
            }
        }
    })?;
    Ok(())
}

/// Waits until the history is written, but not for a disk that does not answer.
pub(crate) async fn finish(requests: Option<mpsc::Sender<HistoryRequest>>) {
    let Some(requests) = requests else { return };
    let (finished, end) = tokio::sync::oneshot::channel();
    if requests.try_send(HistoryRequest::Finish(finished)).is_ok() {
        timeout(FINISH_TIMEOUT, end).await.ok();
    }
}

struct HistoryWriter {
    store: HistoryStore,
    max_loss_s: u32,
    control: Weak<Control>,
    /// The minute and the second of the last writes.
    written: u32,
    tail_written: u32,
    is_failing: bool,
}

impl HistoryWriter {
    fn new(dir: PathBuf, settings: HistorySettings, control: Weak<Control>) -> Self {
        let mut store = HistoryStore::new(dir, settings.keep_days);
        let now = unix_now();
        let result = store.recover(now);
        let mut keeper = Self {
            store,
            max_loss_s: settings.max_loss_s,
            control,
            written: now / 60,
            tail_written: now,
            is_failing: false,
        };
        keeper.report(result);
        keeper
    }

    fn keep(&mut self, second: HistorySecond) {
        let HistorySecond { time, records } = second;
        for (station, record) in &records {
            self.store.add(HistoryPoint { time, station, record: *record });
        }
        // The next second has begun when this one comes. A clock that was set back counts too.
        let now = time.saturating_add(1);
        if now / 60 != self.written {
            (self.written, self.tail_written) = (now / 60, now);
            let result = self.store.write(now);
            self.report(result);
        } else if self.max_loss_s < 60 && now.abs_diff(self.tail_written) >= self.max_loss_s {
            self.tail_written = now;
            let result = self.store.write_tail();
            self.report(result);
        }
    }

    /// Counts, and logs a failure once.
    fn report(&mut self, result: io::Result<()>) {
        let stats = self.store.stats();
        if let Some(control) = self.control.upgrade() {
            let counters = &control.counters;
            counters.history_not_written.store(stats.write_errors, Ordering::Relaxed);
            counters.history_blocks_dropped.store(stats.dropped, Ordering::Relaxed);
        }
        match result {
            Err(error) if !std::mem::replace(&mut self.is_failing, true) => tracing::warn!(
                target: "history",
                %error,
                hint = "free disk space, or make `history` in the state directory writable",
                "cannot write the history of loudness; retrying each minute"
            ),
            Ok(()) if std::mem::take(&mut self.is_failing) => {
                tracing::info!(target: "history", "writing the history works again");
            }
            _ => {}
        }
    }
}

/// Seconds of Unix time, as the history counts them.
pub(crate) fn unix_now() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}
