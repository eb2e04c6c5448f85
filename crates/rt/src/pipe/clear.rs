//! How a writer, which must not move the read position, empties the pipe: it stores a request, and
//! the reader skips at its next call. A request that comes too late skips nothing.

use crate::sync::{AtomicUsize, Ordering};

/// The writer's request to skip everything below a position.
#[derive(Debug, Default)]
pub(crate) struct ClearRequest {
    epoch: AtomicUsize,
    below: AtomicUsize,
}

impl ClearRequest {
    pub(crate) fn request(&self, below: usize) {
        self.below.store(below, Ordering::Relaxed);
        // Only the writer changes it, so no read-modify-write is needed.
        let epoch = self.epoch.load(Ordering::Relaxed).wrapping_add(1);
        self.epoch.store(epoch, Ordering::Release);
    }

    /// The position of a request that is newer than `seen`, which is updated.
    #[inline]
    pub(crate) fn new_request(&self, seen: &mut usize) -> Option<usize> {
        if self.epoch.load(Ordering::Relaxed) == *seen {
            return None;
        }
        *seen = self.epoch.load(Ordering::Acquire);
        Some(self.below.load(Ordering::Relaxed))
    }
}
