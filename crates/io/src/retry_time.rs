//! When a source that has failed is tried again, for its status.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aulos_core::Instant;

/// Shared by what retries and what shows the status. Nothing else depends on it, so the two may
/// disagree for a moment.
#[derive(Clone, Debug, Default)]
pub struct RetryTime(Arc<AtomicU64>);

impl RetryTime {
    /// The next attempt begins then; `None` if nothing has failed.
    pub fn set(&self, at: Option<Instant>) {
        self.0.store(at.map_or(0, Instant::as_nanos), Ordering::Relaxed);
    }

    /// When the next attempt begins, if something has failed.
    #[must_use]
    pub fn get(&self) -> Option<Instant> {
        let nanos = self.0.load(Ordering::Relaxed);
        (nanos > 0).then(|| Instant::from_nanos(nanos))
    }
}
