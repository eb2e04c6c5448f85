//! The line between a stream that is pushed somewhere and whoever had it pushed.
//!
//! Control finds the server, says what there is to say and hands the socket over; from then on a
//! reactor serves it like a listener. What control has to know of that is counted here, and its end is
//! told once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use aulos_rt::channel::{Receiver, Sender, bounded};

use super::SessionEndCause;

/// The reactor's end.
#[derive(Clone, Debug)]
pub struct PushReporter {
    /// Whether a new title begins a new link of an Ogg stream, which some browsers cannot play.
    pub chained: bool,
    progress: Arc<PushProgress>,
    end_sender: Sender<SessionEndCause>,
}

/// The end of whoever had it pushed. The stream ends when it is dropped.
#[derive(Debug)]
pub struct PushMonitor {
    progress: Arc<PushProgress>,
    end_receiver: Receiver<SessionEndCause>,
}

#[derive(Debug, Default)]
struct PushProgress {
    bytes: AtomicU64,
    lagged: AtomicU64,
    /// The status with which the other end said no; 0 while it has not.
    refusal_status: AtomicU16,
}

/// Both ends of a push that begins.
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

    /// Takes what the other end says in the middle of the stream; true when that is a no. Whoever
    /// stands in front of a server lets us begin before the server is asked.
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
        // There is room for one, and it ends once.
        self.end_sender.try_send(cause).ok();
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.end_sender.is_closed()
    }
}

impl PushMonitor {
    /// How it ended, once it has; `None` when no reactor took it, or took it any more.
    pub async fn end_cause(&mut self) -> Option<SessionEndCause> {
        std::future::poll_fn(|context| self.end_receiver.poll_recv(context)).await
    }

    /// Bytes that went out, looked at four times a second.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.progress.bytes.load(Ordering::Relaxed)
    }

    /// The status with which the other end said no in the middle of the stream.
    #[must_use]
    pub fn refusal_status(&self) -> Option<u16> {
        Some(self.progress.refusal_status.load(Ordering::Relaxed)).filter(|status| *status > 0)
    }

    /// Chunks that the other end was too slow for.
    #[must_use]
    pub fn lagged(&self) -> u64 {
        self.progress.lagged.load(Ordering::Relaxed)
    }
}
