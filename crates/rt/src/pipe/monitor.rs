//! Monitoring of a pipe by other threads.

use std::fmt;

use super::PipeAmount;
use super::shared::Core;
use crate::sync::{Arc, Ordering};

/// Reports a pipe's state and cancels its waits, from any thread; clones refer to the same pipe.
///
/// Each figure is exact at the time of its call; two figures are not consistent with each other.
#[derive(Clone)]
pub struct PipeMonitor {
    core: Arc<Core>,
}

impl PipeMonitor {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// Current fill.
    ///
    /// # Real-time
    /// Wait-free, like every function here that returns a figure.
    #[must_use]
    pub fn fill(&self) -> PipeAmount {
        self.core.amount(self.core.fill())
    }

    /// Capacity of the pipe.
    #[must_use]
    pub fn capacity(&self) -> PipeAmount {
        self.core.amount(self.core.capacity)
    }

    /// Highest fill right after a write.
    #[must_use]
    pub fn high_water(&self) -> PipeAmount {
        self.core.amount(self.core.writer.0.high_water.load(Ordering::Relaxed))
    }

    /// Frames dropped because the pipe was full, newest and oldest together.
    #[must_use]
    pub fn dropped_frames(&self) -> u64 {
        self.core.writer.0.dropped.load(Ordering::Relaxed) / self.core.frame as u64
    }

    /// Frames of silence or repetition inserted because the pipe was empty.
    #[must_use]
    pub fn padded_frames(&self) -> u64 {
        self.core.reader.0.padded.load(Ordering::Relaxed) / self.core.frame as u64
    }

    /// Frames skipped by a clear, from either side.
    #[must_use]
    pub fn cleared_frames(&self) -> u64 {
        self.core.reader.0.skipped.load(Ordering::Relaxed) / self.core.frame as u64
    }

    /// Whether any range of the memory is one slice without copying.
    #[must_use]
    pub fn is_mirrored(&self) -> bool {
        self.core.memory.is_mirrored()
    }

    /// Ends the current or the next wait of the blocking or async reader with
    /// [`WaitCancelled`](super::WaitCancelled). Once per call.
    ///
    /// Not for a real-time thread: may wake a thread.
    pub fn cancel_read(&self) {
        self.core.reader.0.wait.cancel();
    }

    /// Ends the current or the next wait of the blocking or async writer with
    /// [`PipeWriteError::Cancelled`](super::PipeWriteError::Cancelled). Once per call.
    ///
    /// Not for a real-time thread: may wake a thread.
    pub fn cancel_write(&self) {
        self.core.writer.0.wait.cancel();
    }

    /// Wakes an end that sleeps and may continue: for an end whose peer is real-time and never
    /// wakes it. A [`Dispatcher`](crate::notify::Dispatcher) may call it.
    ///
    /// Not for a real-time thread: may wake a thread.
    pub fn wake(&self) {
        self.core.wake_reader();
        self.core.wake_writer();
    }
}

impl fmt::Debug for PipeMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fill, capacity) = (self.fill(), self.capacity());
        f.debug_struct("PipeMonitor").field("fill", &fill).field("capacity", &capacity).finish()
    }
}
