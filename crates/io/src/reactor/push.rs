//! The line between a stream that is pushed somewhere and whoever had it pushed.
//!
//! Control finds the server, says what there is to say and hands the socket over; from then on a
//! reactor serves it like a listener. What control has to know of that is counted here, and its end is
//! told once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use aulos_rt::channel::{Receiver, Sender, bounded};

use super::LeaveCause;

/// The reactor's end.
#[derive(Clone, Debug)]
pub struct PushLine {
    /// Whether a new title begins a new link of an Ogg stream, which some browsers cannot play.
    pub chained: bool,
    progress: Arc<Progress>,
    over: Sender<LeaveCause>,
}

/// The end of whoever had it pushed. The stream ends when it is dropped.
#[derive(Debug)]
pub struct PushWatch {
    progress: Arc<Progress>,
    over: Receiver<LeaveCause>,
}

#[derive(Debug, Default)]
struct Progress {
    bytes: AtomicU64,
    lagged: AtomicU64,
    /// The status with which the other end said no; 0 while it has not.
    no: AtomicU16,
}

/// Both ends of a push that begins.
#[must_use]
pub fn push_line(chained: bool) -> (PushLine, PushWatch) {
    let progress = Arc::<Progress>::default();
    let (teller, over) = bounded(1);
    (
        PushLine { chained, progress: Arc::clone(&progress), over: teller },
        PushWatch { progress, over },
    )
}

impl PushLine {
    pub(super) fn sent(&self, bytes: u64) {
        self.progress.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn lagged(&self, chunks: u64) {
        self.progress.lagged.fetch_add(chunks, Ordering::Relaxed);
    }

    /// Takes what the other end says in the middle of the stream; true when that is a no. Whoever
    /// stands in front of a server lets us begin before the server is asked.
    pub(super) fn hear(&self, said: &[u8]) -> bool {
        let status = said
            .strip_prefix(b"HTTP/1.")
            .and_then(|rest| core::str::from_utf8(rest.get(2..5)?).ok()?.parse().ok());
        let no = status.is_some_and(|status: u16| status >= 400);
        if no {
            self.progress.no.store(status.unwrap_or(0), Ordering::Relaxed);
        }
        no
    }

    pub(super) fn end(&self, cause: LeaveCause) {
        // There is room for one, and it ends once.
        self.over.try_send(cause).ok();
    }

    pub(super) fn is_unwanted(&self) -> bool {
        self.over.is_closed()
    }
}

impl PushWatch {
    /// How it ended, once it has; `None` when no reactor took it, or took it any more.
    pub async fn over(&mut self) -> Option<LeaveCause> {
        std::future::poll_fn(|context| self.over.poll_recv(context)).await
    }

    /// Bytes that went out, looked at four times a second.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.progress.bytes.load(Ordering::Relaxed)
    }

    /// The status with which the other end said no in the middle of the stream.
    #[must_use]
    pub fn no(&self) -> Option<u16> {
        Some(self.progress.no.load(Ordering::Relaxed)).filter(|status| *status > 0)
    }

    /// Chunks that the other end was too slow for.
    #[must_use]
    pub fn lagged(&self) -> u64 {
        self.progress.lagged.load(Ordering::Relaxed)
    }
}
