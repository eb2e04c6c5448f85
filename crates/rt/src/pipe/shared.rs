//! State that both ends of a pipe and its monitors share.

use std::time::Duration;

use super::clear::ClearRequest;
use super::memory::Memory;
use super::shared_head::SharedHead;
use super::{Backpressure, PipeAmount};
use crate::spsc::{CachePadded, Positions};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::wake::WaitCell;

#[derive(Debug)]
pub(super) struct Core {
    pub(super) memory: Memory,
    pub(super) positions: Positions,
    /// Only with [`OverflowPolicy::DropOldest`](super::OverflowPolicy::DropOldest); then it has the
    /// read position.
    pub(super) shared_head: Option<SharedHead>,
    /// In bytes, whole frames.
    pub(super) capacity: usize,
    /// Bytes per frame.
    pub(super) frame: usize,
    /// The frame size is not a power of two, so rounding to whole frames takes a division.
    pub(super) odd_frame: bool,
    /// Frames per second, or 0.
    pub(super) rate: u32,
    /// In bytes.
    pub(super) pause: usize,
    pub(super) resume: usize,
    pub(super) writer: CachePadded<WriterState>,
    pub(super) reader: CachePadded<ReaderState>,
    pub(super) clear: CachePadded<ClearRequest>,
}

/// State published by the writer, besides its position.
#[derive(Debug, Default)]
pub(super) struct WriterState {
    pub(super) wait: WaitCell,
    /// Whether this end wakes the reader, so that the reader may sleep without polling.
    pub(super) wakes_peer: AtomicBool,
    pub(super) high_water: AtomicUsize,
    pub(super) dropped: AtomicU64,
    pub(super) failure: AtomicU32,
}

/// State published by the reader, besides its position.
#[derive(Debug, Default)]
pub(super) struct ReaderState {
    pub(super) wait: WaitCell,
    /// Bytes that a sleeping reader waits for.
    pub(super) demand: AtomicUsize,
    pub(super) wakes_peer: AtomicBool,
    pub(super) padded: AtomicU64,
    pub(super) skipped: AtomicU64,
}

impl Core {
    pub(super) fn thresholds(
        backpressure: Backpressure,
        frame: usize,
        capacity: usize,
    ) -> (usize, usize) {
        let pause =
            backpressure.pause_frames.map_or(capacity, |frames| frames.saturating_mul(frame));
        let resume =
            backpressure.resume_frames.map_or(pause / 2, |frames| frames.saturating_mul(frame));
        (pause, resume)
    }

    /// Fill in bytes; exact for either end, a snapshot for other threads.
    pub(super) fn fill(&self) -> usize {
        if let Some(shared_head) = &self.shared_head {
            let tail = self.positions.tail();
            return tail.wrapping_sub(shared_head.head(tail)).min(self.capacity);
        }
        // The head is read first: it can only have grown when the tail is loaded, so the difference
        // is never negative. A third thread may see up to one lap too much.
        let head = self.positions.head();
        self.positions.tail().wrapping_sub(head).min(self.capacity)
    }

    /// Whether a reader with this demand need not sleep.
    pub(super) fn is_readable(&self, wanted: usize) -> bool {
        self.fill() >= wanted || self.positions.writer_exit() != 0
    }

    /// Whether a paused writer need not sleep: the reader has caught up, is gone, or waits for more
    /// than is stored.
    pub(super) fn is_resumable(&self) -> bool {
        let fill = self.fill();
        fill <= self.resume || self.is_reader_starved(fill) || self.positions.reader_exit() != 0
    }

    /// Whether the reader sleeps with an unmet demand although there is space.
    pub(super) fn is_reader_starved(&self, fill: usize) -> bool {
        let starves = self.reader.0.wait.is_asleep() && self.demand() > fill;
        starves && fill < self.capacity
    }

    pub(super) fn demand(&self) -> usize {
        self.reader.0.demand.load(Ordering::Acquire)
    }

    /// Wakes a reader that sleeps and whose demand is met.
    pub(super) fn wake_reader(&self) {
        self.reader.0.wait.wake(|| self.is_readable(self.demand()));
    }

    /// Wakes a writer that sleeps and may continue.
    pub(super) fn wake_writer(&self) {
        self.writer.0.wait.wake(|| self.is_resumable());
    }

    pub(super) fn frames(&self, bytes: usize) -> usize {
        bytes / self.frame
    }

    /// Rounds down to whole frames.
    #[inline]
    pub(super) fn whole_frames(&self, bytes: usize) -> usize {
        if self.odd_frame { bytes - bytes % self.frame } else { bytes & !(self.frame - 1) }
    }

    pub(super) fn amount(&self, bytes: usize) -> PipeAmount {
        let frames = self.frames(bytes);
        let nanos =
            if self.rate == 0 { 0 } else { frames as u128 * 1_000_000_000 / u128::from(self.rate) };
        let duration = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        PipeAmount { bytes, frames, duration }
    }
}

/// Adds to a counter that only this thread writes.
pub(super) fn add(counter: &AtomicU64, n: usize) {
    if n > 0 {
        let sum = counter.load(Ordering::Relaxed).wrapping_add(n as u64);
        counter.store(sum, Ordering::Relaxed);
    }
}
