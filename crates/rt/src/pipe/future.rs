//! Async ends of a pipe, for any executor.
//!
//! If the peer is a wait-free end, which wakes no task, have a callback of a
//! [`Dispatcher`](crate::notify::Dispatcher) call [`PipeMonitor::wake`](super::PipeMonitor::wake).

use std::future::poll_fn;
use std::task::{Context, Poll};

use super::blocking::{BlockingReader, BlockingWriter};
use super::{
    OverflowPolicy, PipeReadError, PipeReader, PipeWriteError, PipeWriter, ReadOutcome,
    WaitCancelled, WriteOutcome,
};
use crate::sync::Ordering;

/// A [`PipeWriter`] whose task may wait, and which wakes the reader.
#[derive(Debug)]
pub struct AsyncWriter {
    inner: BlockingWriter,
}

impl PipeWriter {
    /// Converts into an end whose task may wait and that wakes the reader.
    #[must_use]
    pub fn into_async(self) -> AsyncWriter {
        AsyncWriter { inner: self.blocking() }
    }
}

impl AsyncWriter {
    /// Like [`BlockingWriter::write`]; a dropped future has stored some whole frames or none.
    ///
    /// # Errors
    /// Like [`BlockingWriter::write`].
    pub async fn write(&mut self, data: &[u8]) -> Result<WriteOutcome, PipeWriteError> {
        if self.inner.inner.overflow != OverflowPolicy::Block {
            return self.inner.write(data);
        }
        let whole = self.inner.inner.core.whole_frames(data.len());
        let mut stored = 0;
        while stored < whole {
            poll_fn(|context| self.poll_resumed(context, stored)).await?;
            stored += self.inner.write_some(&data[stored..whole])?;
        }
        Ok(WriteOutcome { stored, dropped: 0 })
    }

    /// Like [`BlockingWriter::reserve`].
    ///
    /// # Errors
    /// Like [`BlockingWriter::reserve`].
    pub async fn reserve(&mut self, n: usize) -> Result<&mut [u8], PipeWriteError> {
        poll_fn(|context| self.poll_resumed(context, 0)).await?;
        let n = n.max(self.inner.inner.core.frame);
        Ok(self.inner.inner.reserve(n))
    }

    /// Like [`BlockingWriter::commit`].
    ///
    /// # Panics
    /// Like [`PipeWriter::commit`].
    pub fn commit(&mut self, n: usize) {
        self.inner.commit(n);
    }

    /// Like [`BlockingWriter::flush`].
    ///
    /// # Errors
    /// Like [`BlockingWriter::flush`].
    pub async fn flush(&mut self) -> Result<(), PipeWriteError> {
        poll_fn(|context| self.poll_resumed(context, 0)).await
    }

    /// The wait-free end. After writing with it, call [`AsyncWriter::wake`].
    pub fn get_mut(&mut self) -> &mut PipeWriter {
        &mut self.inner.inner
    }

    /// Wakes the reader if it sleeps and its demand is met.
    pub fn wake(&self) {
        self.inner.inner.core.wake_reader();
    }

    /// Ends the pipe, like [`PipeWriter::finish`].
    pub fn finish(self) {
        self.into_inner().finish();
    }

    /// Returns the wait-free end.
    #[must_use]
    pub fn into_inner(self) -> PipeWriter {
        self.inner.into_inner()
    }

    fn poll_resumed(
        &mut self,
        context: &Context<'_>,
        stored: usize,
    ) -> Poll<Result<(), PipeWriteError>> {
        loop {
            match self.inner.poll_paused(stored) {
                Ok(false) => return Poll::Ready(Ok(())),
                Err(error) => return Poll::Ready(Err(error)),
                Ok(true) => {}
            }
            let core = &self.inner.inner.core;
            if !core.writer.0.wait.register_waker(context, || core.is_resumable()) {
                return Poll::Pending;
            }
        }
    }
}

/// A [`PipeReader`] whose task may wait, and which wakes the writer.
#[derive(Debug)]
pub struct AsyncReader {
    inner: BlockingReader,
}

impl PipeReader {
    /// Converts into an end whose task may wait and that wakes the writer.
    #[must_use]
    pub fn into_async(self) -> AsyncReader {
        AsyncReader { inner: self.blocking() }
    }
}

impl AsyncReader {
    /// Like [`BlockingReader::read`]; a dropped future has taken nothing.
    ///
    /// # Errors
    /// [`WaitCancelled`].
    pub async fn read(&mut self, out: &mut [u8]) -> Result<ReadOutcome, WaitCancelled> {
        let frame = self.inner.inner.core.frame;
        poll_fn(|context| self.poll_readable(context, frame)).await?;
        Ok(self.inner.take(out))
    }

    /// Like [`BlockingReader::try_read`].
    pub fn try_read(&mut self, out: &mut [u8]) -> ReadOutcome {
        self.inner.try_read(out)
    }

    /// Like [`BlockingReader::read_at_least`]; a dropped future has taken nothing.
    ///
    /// # Errors
    /// Like [`BlockingReader::read_at_least`].
    pub async fn read_at_least(&mut self, n: usize) -> Result<&[u8], PipeReadError> {
        let n = self.inner.demand(n)?;
        poll_fn(|context| self.poll_readable(context, n)).await?;
        Ok(self.inner.inner.peek_all())
    }

    /// Like [`PipeReader::advance`]; wakes the writer if it may continue.
    ///
    /// # Panics
    /// Like [`PipeReader::advance`].
    pub fn advance(&mut self, consumed: usize, examined: usize) {
        self.inner.advance(consumed, examined);
    }

    /// The wait-free end. After reading with it, call [`AsyncReader::wake`].
    pub fn get_mut(&mut self) -> &mut PipeReader {
        &mut self.inner.inner
    }

    /// Wakes the writer if it sleeps and may continue.
    pub fn wake(&self) {
        self.inner.inner.core.wake_writer();
    }

    /// Returns the wait-free end.
    #[must_use]
    pub fn into_inner(self) -> PipeReader {
        self.inner.into_inner()
    }

    fn poll_readable(&self, context: &Context<'_>, n: usize) -> Poll<Result<(), WaitCancelled>> {
        let core = &self.inner.inner.core;
        loop {
            if core.reader.0.wait.take_cancel() {
                return Poll::Ready(Err(WaitCancelled));
            }
            if core.is_readable(n) {
                return Poll::Ready(Ok(()));
            }
            core.reader.0.demand.store(n, Ordering::Release);
            let ready = core.reader.0.wait.register_waker(context, || {
                core.wake_writer();
                core.is_readable(n)
            });
            if !ready {
                return Poll::Pending;
            }
        }
    }
}
