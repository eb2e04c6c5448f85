//! Blocking ends of a pipe: a thread sleeps until its peer has made progress.
//!
//! System calls are made only to sleep, and to wake a sleeping peer. If the peer is a wait-free
//! end, which wakes no thread, the sleeping end polls every millisecond.

use std::time::Duration;

use super::{
    OverflowPolicy, PipeReadError, PipeReader, PipeWriteError, PipeWriter, ReadOutcome,
    WaitCancelled, WriteOutcome,
};
use crate::sync::Ordering;

/// A [`PipeWriter`] whose thread may sleep, and which wakes the reader.
#[derive(Debug)]
pub struct BlockingWriter {
    pub(super) inner: PipeWriter,
    /// The pause threshold was reached, and the resume threshold has not been reached since.
    paused: bool,
}

impl PipeWriter {
    /// Converts into an end that may sleep and that wakes the reader.
    #[must_use]
    pub fn blocking(self) -> BlockingWriter {
        self.core.writer.0.wakes_peer.store(true, Ordering::Release);
        BlockingWriter { inner: self, paused: false }
    }
}

impl BlockingWriter {
    /// Writes the whole frames of `data` and wakes the reader. With [`OverflowPolicy::Block`] it
    /// waits until all are stored, sleeping from the pause threshold until the fill is down to the
    /// resume threshold (a reader that waits for more than is stored lifts the threshold);
    /// otherwise it follows the policy and does not wait.
    ///
    /// Not for a real-time thread.
    ///
    /// # Errors
    /// * [`PipeWriteError::Full`] with [`OverflowPolicy::Error`]: nothing was stored.
    /// * [`PipeWriteError::ReaderGone`]: the data will never be read.
    /// * [`PipeWriteError::Cancelled`] with the number of bytes stored before.
    pub fn write(&mut self, data: &[u8]) -> Result<WriteOutcome, PipeWriteError> {
        if self.inner.overflow != OverflowPolicy::Block {
            let written = self.inner.write(data);
            self.inner.core.wake_reader();
            return written;
        }
        let whole = self.inner.core.whole_frames(data.len());
        let mut stored = 0;
        while stored < whole {
            self.wait_while_paused(stored)?;
            stored += self.write_some(&data[stored..whole])?;
        }
        Ok(WriteOutcome { stored, dropped: 0 })
    }

    /// Gives access in place to up to `n` free bytes, at least one frame: waits for that while
    /// paused, whatever the overflow policy. Fewer than `n` is not an error: insisting on `n` could
    /// make writer and reader wait for each other.
    ///
    /// Not for a real-time thread.
    ///
    /// # Errors
    /// [`PipeWriteError::ReaderGone`], [`PipeWriteError::Cancelled`].
    pub fn reserve(&mut self, n: usize) -> Result<&mut [u8], PipeWriteError> {
        self.wait_while_paused(0)?;
        let n = n.max(self.inner.core.frame);
        Ok(self.inner.reserve(n))
    }

    /// Makes the first `n` reserved bytes visible and wakes the reader; does not wait.
    ///
    /// # Panics
    /// Like [`PipeWriter::commit`].
    pub fn commit(&mut self, n: usize) {
        self.inner.commit(n);
        self.update_paused();
        self.inner.core.wake_reader();
    }

    /// Waits while the pipe is paused: after it, a write of one frame does not wait.
    ///
    /// # Errors
    /// [`PipeWriteError::ReaderGone`], [`PipeWriteError::Cancelled`].
    pub fn flush(&mut self) -> Result<(), PipeWriteError> {
        self.wait_while_paused(0)
    }

    /// Ends the pipe, like [`PipeWriter::finish`].
    pub fn finish(self) {
        self.into_inner().finish();
    }

    /// Returns the wait-free end. A sleeping reader polls from now on.
    #[must_use]
    pub fn into_inner(self) -> PipeWriter {
        self.inner.core.writer.0.wakes_peer.store(false, Ordering::Release);
        self.inner.core.reader.0.wait.wake(|| true);
        self.inner
    }

    /// The wait-free end.
    pub fn get_mut(&mut self) -> &mut PipeWriter {
        &mut self.inner
    }

    /// Stores what the thresholds allow now and wakes the reader.
    pub(super) fn write_some(&mut self, data: &[u8]) -> Result<usize, PipeWriteError> {
        let core = &self.inner.core;
        let fill = core.fill();
        let starved_to = if core.is_reader_starved(fill) { core.demand() } else { 0 };
        // Exceeds the threshold at most by rounding up to one frame.
        let upto = core.pause.max(starved_to).max(fill + core.frame) - fill;
        let room = core.whole_frames(upto.min(core.capacity - fill));
        let n = room.min(data.len());
        let written = self.inner.write(&data[..n])?;
        self.update_paused();
        self.inner.core.wake_reader();
        Ok(written.stored)
    }

    fn update_paused(&mut self) {
        self.paused |= self.inner.core.fill() >= self.inner.core.pause;
    }

    /// Checks whether the pause is over.
    pub(super) fn poll_paused(&mut self, stored: usize) -> Result<bool, PipeWriteError> {
        let core = &self.inner.core;
        if core.positions.reader_exit() != 0 {
            return Err(PipeWriteError::ReaderGone);
        }
        if core.writer.0.wait.take_cancel() {
            return Err(PipeWriteError::Cancelled { stored });
        }
        if self.paused && core.is_resumable() {
            self.paused = false;
        }
        Ok(self.paused)
    }

    fn wait_while_paused(&mut self, stored: usize) -> Result<(), PipeWriteError> {
        while self.poll_paused(stored)? {
            let core = &self.inner.core;
            let wakes_peer = core.reader.0.wakes_peer.load(Ordering::Acquire);
            core.writer.0.wait.sleep(sleep_limit(wakes_peer), || {
                core.is_resumable()
                    || wakes_peer != core.reader.0.wakes_peer.load(Ordering::Relaxed)
            });
        }
        Ok(())
    }
}

/// A [`PipeReader`] whose thread may sleep, and which wakes the writer.
#[derive(Debug)]
pub struct BlockingReader {
    pub(super) inner: PipeReader,
}

impl PipeReader {
    /// Converts into an end that may sleep and that wakes the writer.
    #[must_use]
    pub fn blocking(self) -> BlockingReader {
        self.core.reader.0.wakes_peer.store(true, Ordering::Release);
        BlockingReader { inner: self }
    }
}

impl BlockingReader {
    /// Waits until there is at least one frame, then copies as many as there are and fit into
    /// `out`. Nothing is padded. At the end [`ReadOutcome::bytes`] is 0 and [`ReadOutcome::end`]
    /// has the reason.
    ///
    /// Not for a real-time thread.
    ///
    /// # Errors
    /// [`WaitCancelled`].
    ///
    /// # Examples
    /// ```
    /// use aulos_rt::pipe::{EndReason, PipeConfig, pipe};
    ///
    /// let (writer, reader) = pipe(&PipeConfig::bytes(4)).unwrap();
    /// let (mut writer, mut reader) = (writer.blocking(), reader.blocking());
    /// std::thread::scope(|scope| {
    ///     scope.spawn(move || {
    ///         writer.write(b"more than fits").unwrap();
    ///         writer.finish();
    ///     });
    ///     let (mut all, mut out) = (Vec::new(), [0; 3]);
    ///     loop {
    ///         let read = reader.read(&mut out).unwrap();
    ///         all.extend_from_slice(&out[..read.bytes]);
    ///         if let Some(end) = read.end {
    ///             assert_eq!(end, EndReason::Finished);
    ///             break;
    ///         }
    ///     }
    ///     assert_eq!(all, b"more than fits");
    /// });
    /// ```
    pub fn read(&mut self, out: &mut [u8]) -> Result<ReadOutcome, WaitCancelled> {
        self.wait_for(self.inner.core.frame)?;
        Ok(self.take(out))
    }

    /// Like [`PipeReader::read`], which does not wait; wakes the writer if it may continue.
    pub fn try_read(&mut self, out: &mut [u8]) -> ReadOutcome {
        let read = self.inner.read(out);
        self.inner.core.wake_writer();
        read
    }

    /// Waits until there are at least `n` bytes, and more than were examined before, then returns
    /// all of them as one slice. Fewer than `n` means that the pipe has ended.
    ///
    /// Not for a real-time thread.
    ///
    /// # Errors
    /// * [`PipeReadError::TooMuch`]: `n`, or what was examined already, is all that the pipe can
    ///   hold, so that the wait would never end.
    /// * [`PipeReadError::Cancelled`].
    pub fn read_at_least(&mut self, n: usize) -> Result<&[u8], PipeReadError> {
        let n = self.demand(n)?;
        self.wait_for(n)?;
        Ok(self.inner.peek_all())
    }

    /// Like [`PipeReader::advance`]; wakes the writer if it may continue.
    ///
    /// # Panics
    /// Like [`PipeReader::advance`].
    pub fn advance(&mut self, consumed: usize, examined: usize) {
        self.inner.advance(consumed, examined);
        self.inner.core.wake_writer();
    }

    /// Returns the wait-free end. A sleeping writer polls from now on.
    #[must_use]
    pub fn into_inner(self) -> PipeReader {
        self.inner.core.reader.0.wakes_peer.store(false, Ordering::Release);
        self.inner.core.writer.0.wait.wake(|| true);
        self.inner
    }

    /// The wait-free end.
    pub fn get_mut(&mut self) -> &mut PipeReader {
        &mut self.inner
    }

    pub(super) fn demand(&self, n: usize) -> Result<usize, PipeReadError> {
        let n = n.max(self.inner.min_demand());
        let capacity = self.inner.core.capacity;
        if n > capacity { Err(PipeReadError::TooMuch { capacity }) } else { Ok(n) }
    }

    pub(super) fn take(&mut self, out: &mut [u8]) -> ReadOutcome {
        let read = self.inner.read_short(out);
        self.inner.core.wake_writer();
        read
    }

    fn wait_for(&self, n: usize) -> Result<(), WaitCancelled> {
        let core = &self.inner.core;
        loop {
            if core.reader.0.wait.take_cancel() {
                return Err(WaitCancelled);
            }
            if core.is_readable(n) {
                return Ok(());
            }
            let wakes_peer = core.writer.0.wakes_peer.load(Ordering::Acquire);
            core.reader.0.demand.store(n, Ordering::Release);
            core.reader.0.wait.sleep(sleep_limit(wakes_peer), || {
                // The writer may sleep with a pipe that is full by its thresholds: this demand
                // lifts them.
                core.wake_writer();
                core.is_readable(n)
                    || wakes_peer != core.writer.0.wakes_peer.load(Ordering::Relaxed)
            });
        }
    }
}

/// No limit if the peer wakes this end; otherwise the poll interval.
fn sleep_limit(peer_wakes: bool) -> Option<Duration> {
    if peer_wakes { None } else { Some(POLL_INTERVAL) }
}

/// Short compared with any buffer, long compared with the cost of a poll (some microseconds).
const POLL_INTERVAL: Duration = Duration::from_millis(1);
