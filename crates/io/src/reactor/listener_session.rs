//! What a web listener's session shares with the table of listeners.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A web listener's session: its figures, for as long as a reactor serves it. When the reactor
/// drops its reference, the session has ended.
#[derive(Debug, Default)]
pub struct ListenerSession {
    bytes: AtomicU64,
    is_streaming: AtomicBool,
    is_cut: AtomicBool,
}

impl ListenerSession {
    /// Bytes sent.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether it has received a stream, and not only a playlist or a refusal.
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        self.is_streaming.load(Ordering::Relaxed)
    }

    /// Ends the session within a second.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }

    /// It receives a stream.
    pub fn begin(&self) {
        self.is_streaming.store(true, Ordering::Relaxed);
    }

    /// So many bytes more were sent.
    pub fn add_sent(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether it is to end.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }
}
