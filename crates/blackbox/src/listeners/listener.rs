//! What one listener knows, and where it notes what it hears.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::playout::Playout;

/// One listener's view.
pub(super) struct Listener {
    pub(super) server: SocketAddr,
    pub(super) path: &'static str,
    pub(super) begin: Instant,
    pub(super) end: Arc<AtomicBool>,
    pub(super) playout: Arc<Mutex<Playout>>,
    pub(super) kept: Option<Arc<Mutex<Vec<u8>>>>,
}

impl Listener {
    pub(super) fn is_over(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    /// Notes something at the present time.
    pub(super) fn note(&self, what: impl FnOnce(&mut Playout, Duration)) {
        what(&mut lock(&self.playout), self.begin.elapsed());
    }

    pub(super) fn keep(&self, bytes: &[u8]) {
        if let Some(kept) = &self.kept {
            lock(kept).extend_from_slice(bytes);
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
