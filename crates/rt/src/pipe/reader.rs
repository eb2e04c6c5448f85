//! The wait-free reading end of a pipe.
#![allow(unsafe_code)]

use super::conceal::Concealer;
use super::shared::{Core, add};
use super::writer::{FAILED, FINISHED};
use super::{EndReason, FrameTimestamp, PipeAmount, PipeMonitor, ReadOutcome, UnderrunPolicy};
use crate::latest::{LatestPublisher, LatestReader};
use crate::spsc::{DROPPED, ReadEnd};
use crate::sync::{Arc, Ordering};

/// Reads bytes from a pipe. Made by [`pipe`](super::pipe()).
///
/// All sizes are in bytes. A sleeping writer is not woken, because that takes a system call.
/// [`PipeReader::blocking`] and [`PipeReader::into_async`] make ends that wake it.
#[derive(Debug)]
pub struct PipeReader {
    pub(super) core: Arc<Core>,
    end: ReadEnd,
    underrun: UnderrunPolicy,
    conceal: Concealer,
    /// Bytes read since the start, skipped ones included.
    total: u64,
    /// Bytes beyond the position that were examined and not consumed.
    examined: usize,
    /// Bytes skipped and not reported yet.
    skipped: usize,
    clears: usize,
    /// Whether this end has set the busy mark of [`SharedHead`](super::shared_head::SharedHead).
    is_reading: bool,
    /// Buffer for ranges that are not contiguous in memory.
    scratch: Box<[u8]>,
    stamps: LatestPublisher<Option<FrameTimestamp>>,
    peer_stamps: LatestReader<Option<FrameTimestamp>>,
}

impl PipeReader {
    pub(super) fn new(
        core: Arc<Core>,
        start: usize,
        (underrun, conceal): (UnderrunPolicy, Concealer),
        stamps: LatestPublisher<Option<FrameTimestamp>>,
        peer_stamps: LatestReader<Option<FrameTimestamp>>,
    ) -> Self {
        let spare = if core.memory.is_mirrored() { 0 } else { core.capacity };
        Self {
            core,
            end: ReadEnd::new(start),
            underrun,
            conceal,
            total: 0,
            examined: 0,
            skipped: 0,
            clears: 0,
            is_reading: false,
            scratch: vec![0; spare].into_boxed_slice(),
            stamps,
            peer_stamps,
        }
    }

    /// Copies as many whole frames as there are into `out`, and fills the rest according to the
    /// pipe's [`UnderrunPolicy`].
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call; the time is that of the copy.
    #[inline]
    pub fn read(&mut self, out: &mut [u8]) -> ReadOutcome {
        let n = self.copy_some(out);
        if self.underrun == UnderrunPolicy::Repeat {
            self.conceal.push_history(&out[..n]);
        }
        if n < out.len() || self.skipped > 0 {
            return self.finish_read(out, n);
        }
        ReadOutcome { bytes: n, padded: 0, skipped: 0, end: None }
    }

    /// Copies what is there and fits, and returns the number of bytes.
    #[inline]
    fn copy_some(&mut self, out: &mut [u8]) -> usize {
        self.begin();
        let wanted = self.core.whole_frames(out.len());
        let n = self.end.len(&self.core.positions, wanted).min(wanted);
        // SAFETY: published bytes are the reader's until they are released.
        unsafe { self.core.memory.copy_out(self.end.place(), &mut out[..n]) };
        self.take(n);
        n
    }

    /// Handles missing data after `n` bytes, and reports losses before them. Separate, so that a
    /// read without either returns one number in a register.
    #[cold]
    fn finish_read(&mut self, out: &mut [u8], n: usize) -> ReadOutcome {
        let end = if n < out.len() { self.end() } else { None };
        let mut padded = 0;
        if n < out.len() && self.underrun != UnderrunPolicy::Short {
            self.conceal.fill(&mut out[n..]);
            padded = out.len() - n;
            add(&self.core.reader.0.padded, padded);
        }
        ReadOutcome { bytes: n, padded, skipped: self.take_skipped(), end }
    }

    /// A read that inserts nothing.
    pub(super) fn read_short(&mut self, out: &mut [u8]) -> ReadOutcome {
        let bytes = self.copy_some(out);
        ReadOutcome { bytes, padded: 0, skipped: self.take_skipped(), end: self.end() }
    }

    /// The next `n` bytes in place and as one slice, or `None` if there are fewer (always, if `n`
    /// exceeds the capacity). Returns blocks of a fixed size whatever the sizes of the writes.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call. Without a mirrored mapping a range across the end
    /// of the memory is copied.
    ///
    /// # Examples
    /// ```
    /// use aulos_rt::pipe::{PipeConfig, pipe};
    ///
    /// let (mut writer, mut reader) = pipe(&PipeConfig::bytes(8)).unwrap();
    /// writer.write(b"abc").unwrap();
    /// assert_eq!(reader.peek(4), None);
    /// writer.write(b"de").unwrap();
    /// assert_eq!(reader.peek(4), Some(&b"abcd"[..]));
    /// reader.advance(2, 4); // half a block on, all of it seen
    /// assert_eq!(reader.peek(3), Some(&b"cde"[..]));
    /// ```
    #[inline]
    pub fn peek(&mut self, n: usize) -> Option<&[u8]> {
        self.begin();
        if self.end.len(&self.core.positions, n) < n {
            self.end_access();
            return None;
        }
        Some(self.view(n))
    }

    /// All available bytes, in place and as one slice.
    ///
    /// # Real-time
    /// Like [`PipeReader::peek`].
    #[inline]
    pub fn peek_all(&mut self) -> &[u8] {
        self.begin();
        let n = self.end.len_now(&self.core.positions);
        self.view(n)
    }

    #[inline]
    fn view(&mut self, n: usize) -> &[u8] {
        let at = self.end.place();
        if self.core.memory.run(at, n) < n {
            let scratch = &mut self.scratch[..n];
            // SAFETY: published bytes are the reader's until they are released.
            unsafe { self.core.memory.copy_out(at, scratch) };
            return scratch;
        }
        // SAFETY: checked to be one run; published bytes are the reader's until released.
        unsafe { self.core.memory.slice(at, n) }
    }

    /// Returns `consumed` bytes to the writer, and marks `examined` bytes from the same start as
    /// examined: a later wait returns only when there are more. With
    /// [`OverflowPolicy::DropOldest`](super::OverflowPolicy::DropOldest) the access in place ends
    /// here, and the writer may drop frames again.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call.
    ///
    /// # Panics
    /// If `consumed` is not whole frames, or either is more than is there. An `examined` below
    /// `consumed` counts as equal.
    #[inline]
    pub fn advance(&mut self, consumed: usize, examined: usize) {
        // A clear request is not executed here: the bytes that were returned are still there.
        self.begin_access();
        let most = consumed.max(examined);
        let len = self.end.len(&self.core.positions, most);
        assert!(most <= len, "advance over {most} bytes, {len} are there");
        assert!(
            self.core.whole_frames(consumed) == consumed,
            "advance of {consumed} bytes: part of a frame"
        );
        self.take(consumed);
        self.examined = most - consumed;
    }

    /// Skips all available bytes and returns their number.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call.
    pub fn clear(&mut self) -> usize {
        self.begin();
        let n = self.end.len_now(&self.core.positions);
        self.take(n);
        add(&self.core.reader.0.skipped, n);
        n
    }

    /// Amount available now. The writer may increase it at any time; only a writer that drops the
    /// oldest frames or has requested a clear decreases it.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn available(&self) -> PipeAmount {
        self.core.amount(self.core.fill())
    }

    /// Why the pipe ended; `None` until the writer is gone and everything was read.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn end(&self) -> Option<EndReason> {
        let left = self.core.positions.writer_exit();
        if left == 0 || self.core.fill() > 0 {
            return None;
        }
        Some(match left {
            FINISHED => EndReason::Finished,
            FAILED => EndReason::Failed(self.core.writer.0.failure.load(Ordering::Relaxed)),
            _ => EndReason::Dropped,
        })
    }

    /// Bytes that were skipped since the last call or since a [`ReadOutcome`] reported them:
    /// dropped as the oldest, or cleared by the writer. [`PipeReader::position`] includes them.
    pub fn take_skipped(&mut self) -> usize {
        std::mem::take(&mut self.skipped)
    }

    /// Number of the next frame to be read, from 0: equal to the writer's number of the same frame.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.total / self.core.frame as u64
    }

    /// Publishes the time `nanos` at which the next frame to be read is played, for the writer.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call.
    pub fn stamp(&mut self, nanos: u64) {
        self.stamps.publish(Some(FrameTimestamp { frame: self.position(), nanos }));
    }

    /// The writer's latest timestamp: a frame with its time.
    ///
    /// # Real-time
    /// Wait-free.
    pub fn writer_stamp(&mut self) -> Option<FrameTimestamp> {
        *self.peer_stamps.read()
    }

    /// A monitor of the pipe for any thread.
    #[must_use]
    pub fn monitor(&self) -> PipeMonitor {
        PipeMonitor::new(self.core.clone())
    }

    /// Smallest useful demand of a wait: what was examined already does not count.
    pub(super) fn min_demand(&self) -> usize {
        self.examined + 1
    }

    /// Applies changes of the read position by the writer, and marks the reader as busy.
    #[inline]
    fn begin(&mut self) {
        self.begin_access();
        if let Some(below) = self.core.clear.0.new_request(&mut self.clears) {
            self.clear_below(below);
        }
    }

    #[inline]
    fn begin_access(&mut self) {
        if let Some(shared_head) = &self.core.shared_head
            && !self.is_reading
        {
            let pushed_out = shared_head.begin_read(self.end.position());
            self.is_reading = true;
            self.end.skip(&self.core.positions, pushed_out);
            self.count_skipped(pushed_out);
        }
    }

    #[cold]
    fn clear_below(&mut self, below: usize) {
        let n = below.wrapping_sub(self.end.position());
        // A distance beyond the pipe's length means behind: the request came too late.
        if n <= self.end.len_now(&self.core.positions) {
            self.end.release(&self.core.positions, n);
            self.count_skipped(n);
            add(&self.core.reader.0.skipped, n);
        }
    }

    fn count_skipped(&mut self, n: usize) {
        self.skipped += n;
        self.total += n as u64;
        self.examined = self.examined.saturating_sub(n);
    }

    #[inline]
    fn take(&mut self, n: usize) {
        self.end.release(&self.core.positions, n);
        self.total += n as u64;
        self.examined = self.examined.saturating_sub(n);
        self.end_access();
    }

    #[inline]
    fn end_access(&mut self) {
        if let Some(shared_head) = &self.core.shared_head {
            shared_head.end_read(self.end.position());
            self.is_reading = false;
        }
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        self.core.positions.set_reader_exit(DROPPED);
        self.core.wake_writer();
    }
}
