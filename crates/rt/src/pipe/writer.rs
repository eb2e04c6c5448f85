//! The wait-free writing end of a pipe.
#![allow(unsafe_code)]

use super::shared::{Core, add};
use super::{
    FrameTimestamp, OverflowPolicy, PipeAmount, PipeMonitor, PipeWriteError, WriteOutcome,
};
use crate::latest::{LatestPublisher, LatestReader};
use crate::spsc::{DROPPED, WriteEnd};
use crate::sync::{Arc, Ordering};

/// Writes bytes into a pipe. Made by [`pipe`](super::pipe()).
///
/// All sizes are in bytes; only whole frames are stored. A sleeping reader is not woken, because
/// that takes a system call. [`PipeWriter::blocking`] and [`PipeWriter::into_async`] make ends that
/// wake it.
///
/// Dropping it ends the pipe with [`EndReason::Dropped`](super::EndReason::Dropped); call
/// [`PipeWriter::finish`] for a regular end.
#[derive(Debug)]
pub struct PipeWriter {
    pub(super) core: Arc<Core>,
    end: WriteEnd,
    pub(super) overflow: OverflowPolicy,
    /// Bytes written since the start.
    total: u64,
    high_water: usize,
    reserved: usize,
    rewind: RewindPolicy,
    /// Buffer for a reservation that is not contiguous in memory.
    scratch: Box<[u8]>,
    scratched: bool,
    stamps: LatestPublisher<Option<FrameTimestamp>>,
    peer_stamps: LatestReader<Option<FrameTimestamp>>,
}

impl PipeWriter {
    pub(super) fn new(
        core: Arc<Core>,
        start: usize,
        overflow: OverflowPolicy,
        stamps: LatestPublisher<Option<FrameTimestamp>>,
        peer_stamps: LatestReader<Option<FrameTimestamp>>,
    ) -> Self {
        let end = WriteEnd::new(start, core.capacity);
        let rewind = RewindPolicy::new(start, core.capacity, core.shared_head.is_none());
        let spare = if core.memory.is_mirrored() { 0 } else { core.capacity };
        let scratch = vec![0; spare].into_boxed_slice();
        Self {
            core,
            end,
            overflow,
            total: 0,
            high_water: 0,
            reserved: 0,
            rewind,
            scratch,
            scratched: false,
            stamps,
            peer_stamps,
        }
    }

    /// Writes the whole frames of `data` according to the pipe's [`OverflowPolicy`]; a partial
    /// frame at the end is left to the caller, see [`WriteOutcome::stored`].
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call; the time is that of the copy.
    ///
    /// # Errors
    /// * [`PipeWriteError::Full`] with [`OverflowPolicy::Error`]: nothing was stored.
    /// * [`PipeWriteError::ReaderGone`]: the data will never be read.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the answer then stays in registers: 4 ns of 14")]
    pub fn write(&mut self, data: &[u8]) -> Result<WriteOutcome, PipeWriteError> {
        let n = self.core.whole_frames(data.len());
        if self.core.positions.reader_exit() != 0 {
            return Err(PipeWriteError::ReaderGone);
        }
        let free = self.free_bytes(n);
        if n <= free {
            self.store(&data[..n]);
            return Ok(WriteOutcome { stored: n, dropped: 0 });
        }
        self.write_overflowing(&data[..n], free)
    }

    /// `data` is whole frames, more than are `free`.
    #[cold]
    fn write_overflowing(
        &mut self,
        data: &[u8],
        free: usize,
    ) -> Result<WriteOutcome, PipeWriteError> {
        match self.overflow {
            OverflowPolicy::Error => Err(PipeWriteError::Full { free }),
            OverflowPolicy::Block => {
                self.store(&data[..free]);
                Ok(WriteOutcome { stored: free, dropped: 0 })
            }
            OverflowPolicy::DropNewest => {
                self.store(&data[..free]);
                Ok(self.count_dropped(free, data.len() - free))
            }
            OverflowPolicy::DropOldest => {
                // Of data longer than the pipe, the beginning is the oldest.
                let too_old = data.len().saturating_sub(self.core.capacity);
                let data = &data[too_old..];
                let (free, pushed_out) = self.drop_oldest(data.len(), free);
                let stored = data.len().min(free);
                self.store(&data[..stored]);
                Ok(self.count_dropped(stored, too_old + pushed_out + (data.len() - stored)))
            }
        }
    }

    fn count_dropped(&self, stored: usize, dropped: usize) -> WriteOutcome {
        add(&self.core.writer.0.dropped, dropped);
        WriteOutcome { stored, dropped }
    }

    /// Drops the oldest data to make space for `n` bytes, unless the reader is accessing it;
    /// returns the resulting free space and the number of bytes dropped. What the reader has
    /// consumed meanwhile is free, but not dropped.
    fn drop_oldest(&self, n: usize, free: usize) -> (usize, usize) {
        let keep = self.core.capacity - n;
        let shared_head = self.core.shared_head.as_ref();
        let moved = shared_head.and_then(|head| head.drop_oldest(self.end.position(), keep));
        moved.map_or((free, 0), |(head, dropped)| (self.end.assume_head(head), dropped))
    }

    /// Gives access in place to up to `n` free bytes as one slice: fewer if fewer are free, always
    /// whole frames, also with [`OverflowPolicy::DropOldest`]. Their content is unspecified.
    /// [`PipeWriter::commit`] makes them visible; without it they stay free.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call.
    #[inline]
    pub fn reserve(&mut self, n: usize) -> &mut [u8] {
        let room = self.free_bytes(n);
        let n = self.core.whole_frames(n.min(room));
        self.reserved = n;
        let at = self.end.place();
        self.scratched = self.core.memory.run(at, n) < n;
        if self.scratched {
            return &mut self.scratch[..n];
        }
        // SAFETY: checked to be one run; free bytes are the writer's until they are published.
        unsafe { self.core.memory.slice_mut(at, n) }
    }

    /// Makes the first `n` reserved bytes visible to the reader, and ends the reservation.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call. Without a mirrored mapping a reservation across
    /// the end of the memory is copied here.
    ///
    /// # Panics
    /// If `n` is more than the last [`PipeWriter::reserve`] returned, or something else was written
    /// since, or `n` is not whole frames.
    #[inline]
    pub fn commit(&mut self, n: usize) {
        assert!(n <= self.reserved, "commit of {n} bytes, {} are reserved", self.reserved);
        assert!(self.core.whole_frames(n) == n, "commit of {n} bytes, which are not whole frames");
        if self.scratched {
            // SAFETY: what was reserved is free, and free bytes are the writer's.
            unsafe { self.core.memory.copy_in(self.end.place(), &self.scratch[..n]) };
        }
        self.publish(n);
    }

    /// Publishes the time `nanos` of the next frame to be written, on a clock that both sides agree
    /// on. The reader gets the latest timestamp at once, not when it reaches that frame.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call.
    pub fn stamp(&mut self, nanos: u64) {
        self.stamps.publish(Some(FrameTimestamp { frame: self.position(), nanos }));
    }

    /// The reader's latest timestamp: a frame with the time at which it was played.
    ///
    /// # Real-time
    /// Wait-free.
    pub fn reader_stamp(&mut self) -> Option<FrameTimestamp> {
        *self.peer_stamps.read()
    }

    /// Requests that the reader skip everything written so far, which it does at its next call.
    /// Until then the bytes count as fill.
    ///
    /// # Real-time
    /// Wait-free.
    pub fn clear(&mut self) {
        self.core.clear.0.request(self.end.position());
    }

    /// Number of the next frame, from 0; frames dropped as the newest do not count, those dropped
    /// as the oldest do.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.total / self.core.frame as u64
    }

    /// Free space now. The reader may increase it at any time; only a write decreases it.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn free(&self) -> PipeAmount {
        self.core.amount(self.core.capacity - self.core.fill())
    }

    /// Whether the reader is gone. Once true it stays true.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.core.positions.reader_exit() != 0
    }

    /// A monitor of the pipe for any thread.
    #[must_use]
    pub fn monitor(&self) -> PipeMonitor {
        PipeMonitor::new(self.core.clone())
    }

    /// Ends the pipe: the reader gets [`EndReason::Finished`](super::EndReason::Finished) after the
    /// data.
    ///
    /// Not for a real-time thread: may wake the reader, and free memory.
    pub fn finish(self) {
        self.close(FINISHED);
    }

    /// Ends the pipe with an error: the reader gets [`EndReason::Failed`](super::EndReason::Failed)
    /// with `code`, whose meaning is up to the caller, after the data.
    ///
    /// Not for a real-time thread: may wake the reader, and free memory.
    pub fn fail(self, code: u32) {
        self.core.writer.0.failure.store(code, Ordering::Relaxed);
        self.close(FAILED);
    }

    fn close(&self, how: u32) {
        if self.core.positions.writer_exit() == 0 {
            self.core.positions.set_writer_exit(how);
            self.core.wake_reader();
        }
    }

    /// Stores whole frames for which there is space.
    #[inline]
    fn store(&mut self, data: &[u8]) {
        // SAFETY: the callers have checked that there is room, which is the writer's.
        unsafe { self.core.memory.copy_in(self.end.place(), data) };
        self.publish(data.len());
    }

    #[inline]
    fn publish(&mut self, n: usize) {
        self.end.publish(&self.core.positions, n);
        self.total += n as u64;
        self.reserved = 0;
        // The cached read position is old, so this fill is an upper bound; only a possible new
        // maximum is worth reading the reader's cache line.
        if self.end.fill_at_most() > self.high_water {
            self.update_high_water();
        }
    }

    #[inline]
    fn update_high_water(&mut self) {
        let free = match &self.core.shared_head {
            None => self.end.free_now(&self.core.positions),
            Some(shared_head) => self.end.assume_head(shared_head.head(self.end.position())),
        };
        let fill = self.core.capacity - free;
        if fill > self.high_water {
            self.high_water = fill;
            self.core.writer.0.high_water.store(fill, Ordering::Relaxed);
        }
    }

    /// Number of bytes that fit; reads the reader's position only if fewer than `want` are known to
    /// fit.
    #[inline]
    fn free_bytes(&mut self, want: usize) -> usize {
        if self.rewind.is_due(self.end.position()) {
            let empty = self.end.rewind(&self.core.positions);
            self.rewind.record_try(self.end.position(), empty);
        }
        match &self.core.shared_head {
            None => self.end.free(&self.core.positions, want),
            Some(shared_head) => self.end.assume_head(shared_head.head(self.end.position())),
        }
    }
}

/// When to check whether the pipe is empty, so that writing can continue at the start of its
/// memory.
///
/// A pipe that wraps around touches all of its memory, even if its fill is never more than a few
/// kilobytes: 64 KiB are more than most first-level caches hold, and copying within that cache is
/// three times as fast. But reading the reader's position can cost a transfer between cores. A
/// check is therefore worth it only some distance into the memory, and rarely if the reader never
/// catches up.
#[derive(Debug)]
struct RewindPolicy {
    /// Position of the latest rewind, or of the end of the latest attempts.
    last: usize,
    /// Distance from there to the next attempt.
    distance: usize,
    nearest: usize,
    farthest: usize,
    tries: u32,
}

impl RewindPolicy {
    fn new(start: usize, capacity: usize, possible: bool) -> Self {
        let nearest = if possible { NEAREST.min(capacity / 4) } else { usize::MAX };
        let farthest = capacity.saturating_mul(FARTHEST);
        Self { last: start, distance: nearest, nearest, farthest, tries: 0 }
    }

    #[inline]
    fn is_due(&self, position: usize) -> bool {
        position.wrapping_sub(self.last) >= self.distance
    }

    fn record_try(&mut self, position: usize, done: bool) {
        self.tries += 1;
        if done {
            self.distance = self.nearest;
        } else if self.tries == TRIES {
            self.distance = (2 * self.distance).min(self.farthest);
        } else {
            return;
        }
        self.last = position;
        self.tries = 0;
    }
}

/// A page: far enough to make checks rare, near enough to leave space in a first-level cache.
const NEAREST: usize = 4096;
/// In capacities.
const FARTHEST: usize = 64;
/// Successive checks: if write and read sizes differ, the pipe is empty only now and then.
const TRIES: u32 = 16;

impl Drop for PipeWriter {
    fn drop(&mut self) {
        self.close(DROPPED);
    }
}

pub(super) const FINISHED: u32 = 2;
pub(super) const FAILED: u32 = 3;
