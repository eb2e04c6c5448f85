//! The connection between a pushed stream on a reactor and the task that controls it.
//!
//! Control connects to the server, completes the request and hands the socket over; then a reactor
//! serves it like a web listener. The counters and the end of the push are reported here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use aulos_rt::channel::{Receiver, Sender, bounded};

use super::SessionEndCause;

/// The reactor's side.
#[derive(Clone, Debug)]
pub struct PushReporter {
    /// Whether a new title begins a new link of a chained Ogg stream, which some browsers cannot
    /// play.
    pub chained: bool,
    progress: Arc<PushProgress>,
    end_sender: Sender<SessionEndCause>,
}

/// The controlling side. Dropping it ends the stream.
#[derive(Debug)]
pub struct PushMonitor {
    progress: Arc<PushProgress>,
    end_receiver: Receiver<SessionEndCause>,
}

#[derive(Debug, Default)]
struct PushProgress {
    bytes: AtomicU64,
    lagged: AtomicU64,
    /// The HTTP status with which the server refused the stream; 0 if it has not.
    refusal_status: AtomicU16,
}

/// Both sides of a new push.
#[must_use]
pub fn push_channel(chained: bool) -> (PushReporter, PushMonitor) {
    let progress = Arc::<PushProgress>::default();
    let (teller, over) = bounded(1);
    (
        PushReporter { chained, progress: Arc::clone(&progress), end_sender: teller },
        PushMonitor { progress, end_receiver: over },
    )
}

impl PushReporter {
    pub(super) fn add_sent(&self, bytes: u64) {
        self.progress.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_lagged(&self, chunks: u64) {
        self.progress.lagged.fetch_add(chunks, Ordering::Relaxed);
    }

    /// Handles bytes that the server sends during the stream; true when they are a refusal. A
    /// reverse proxy may accept the request before the server behind it has decided.
    pub(super) fn handle_response(&self, said: &[u8]) -> bool {
        let status = said
            .strip_prefix(b"HTTP/1.")
            .and_then(|rest| core::str::from_utf8(rest.get(2..5)?).ok()?.parse().ok());
        let no = status.is_some_and(|status: u16| status >= 400);
        if no {
            self.progress.refusal_status.store(status.unwrap_or(0), Ordering::Relaxed);
        }
        no
    }

    pub(super) fn end(&self, cause: SessionEndCause) {
        // There is room for one end cause, and the stream ends once.
        self.end_sender.try_send(cause).ok();
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.end_sender.is_closed()
    }
}

impl PushMonitor {
    /// The cause of the end, once there is one; `None` when no reactor took the stream, or it was
    /// dropped.
    pub async fn end_cause(&mut self) -> Option<SessionEndCause> {
        std::future::poll_fn(|context| self.end_receiver.poll_recv(context)).await
    }

    /// Bytes sent, updated four times a second.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.progress.bytes.load(Ordering::Relaxed)
    }

    /// The HTTP status with which the server refused the stream after its start.
    #[must_use]
    pub fn refusal_status(&self) -> Option<u16> {
        Some(self.progress.refusal_status.load(Ordering::Relaxed)).filter(|status| *status > 0)
    }

    /// Chunks that were skipped because the server was too slow.
    #[must_use]
    pub fn lagged(&self) -> u64 {
        self.progress.lagged.load(Ordering::Relaxed)
    }
}
