//! A socket for hyper that returns bytes read earlier and ends when the peer stops reading.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::tls::ClientStream;

/// How long a peer may read nothing.
const STALL_TIMEOUT: Duration = Duration::from_secs(15);

/// A socket that returns already read bytes first.
#[derive(Debug)]
pub(super) struct RewindSocket {
    stream: ClientStream,
    read: Vec<u8>,
    replayed: usize,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl RewindSocket {
    pub(super) const fn new(stream: ClientStream, read: Vec<u8>) -> Self {
        Self { stream, read, replayed: 0, stalled: None }
    }

    /// The socket, and the already read bytes that were not returned.
    pub(super) fn into_parts(mut self) -> (ClientStream, Vec<u8>) {
        let unread = self.read.split_off(self.replayed);
        (self.stream, unread)
    }

    /// Turns an endless wait for the peer into an error.
    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stalled = None;
            return result;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(STALL_TIMEOUT)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for RewindSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.replayed < this.read.len() {
            let rest = &this.read[this.replayed..];
            let count = rest.len().min(into.remaining());
            into.put_slice(&rest[..count]);
            this.replayed += count;
            if this.replayed == this.read.len() {
                this.read = Vec::new();
                this.replayed = 0;
            }
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.stream).poll_read(context, into)
    }
}

impl AsyncWrite for RewindSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.bounded(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.bounded(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bounded(context, shut)
    }
}
