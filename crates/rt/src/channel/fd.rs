//! A receiver for a loop that only knows file descriptors.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use super::{Receiver, TryRecvError};
use crate::sys::Signal;

impl<T> Receiver<T> {
    /// Makes it a receiver with a file descriptor, for `poll`, epoll, glib, winit or any other loop.
    ///
    /// # Errors
    /// [`NoFd`] with this receiver in it, where the system has no such thing (it has on Linux) or
    /// the process has no descriptor left.
    pub fn into_fd(self) -> Result<FdReceiver<T>, IntoFdError<T>> {
        match Signal::new() {
            Ok(signal) => {
                let signal = Arc::new(signal);
                let waker = Waker::from(Arc::new(SignalWaker(signal.clone())));
                // The first look arms it.
                signal.raise();
                Ok(FdReceiver { inner: self, signal, waker })
            }
            Err(error) => Err(IntoFdError { receiver: self, error }),
        }
    }
}

/// A receiver with a file descriptor. Made by [`Receiver::into_fd`]; on Linux it is `AsFd`.
///
/// The descriptor is readable (level-triggered; edge-triggered works too) until
/// [`FdReceiver::try_recv`] has answered [`TryRecvError::Empty`]: so take items until it says that,
/// or come back for the rest. It is also readable when the channel has ended, and then stays so. It
/// may be readable though nothing is there. Do not read from it or write to it.
///
/// What a [`RealtimeSender`](super::RealtimeSender) sends does not make it readable: call
/// [`FdReceiver::try_recv`] from a timer of that loop too, or let something call
/// [`Look::look`](super::Look::look).
pub struct FdReceiver<T> {
    inner: Receiver<T>,
    signal: Arc<Signal>,
    waker: Waker,
}

impl<T> FdReceiver<T> {
    /// Takes the oldest item out; see [`Receiver::try_recv`].
    ///
    /// # Errors
    /// [`TryRecvError::Empty`]: from now on the descriptor becomes readable when something comes.
    /// [`TryRecvError::Closed`] when nothing can follow.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        let first = self.inner.try_recv();
        if first.as_ref().is_err_and(|&none| none == TryRecvError::Empty) {
            // In this order: what comes after the look in `leave` raises it again.
            self.signal.clear();
            let context = Context::from_waker(&self.waker);
            while self.inner.register_waker(&context) {
                match self.inner.try_recv() {
                    Err(TryRecvError::Empty) => {}
                    found => {
                        // It was taken down, and there may be more.
                        self.signal.raise();
                        return found;
                    }
                }
            }
        }
        first
    }

    /// Accepts nothing any more; see [`Receiver::close`].
    pub fn close(&mut self) {
        self.inner.close();
        self.signal.raise();
    }

    /// Gives the receiver back, without the descriptor.
    #[must_use]
    pub fn into_inner(self) -> Receiver<T> {
        self.inner
    }

    #[allow(dead_code, reason = "not everywhere is there a descriptor to give out")]
    pub(crate) fn signal(&self) -> &Signal {
        &self.signal
    }
}

impl<T> fmt::Debug for FdReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut this = f.debug_struct("FdReceiver");
        this.field("inner", &self.inner).field("signal", &self.signal).finish_non_exhaustive()
    }
}

/// A waker that raises a signal.
#[derive(Debug)]
pub(crate) struct SignalWaker(pub(crate) Arc<Signal>);

impl Wake for SignalWaker {
    fn wake(self: Arc<Self>) {
        self.0.raise();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.raise();
    }
}

/// There is no file descriptor to be had; the receiver works as before.
pub struct IntoFdError<T> {
    /// The receiver.
    pub receiver: Receiver<T>,
    /// What the system says.
    pub error: io::Error,
}

impl<T> fmt::Debug for IntoFdError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoFd").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for IntoFdError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no file descriptor for a channel ({}); poll it from a timer", self.error)
    }
}

impl<T> std::error::Error for IntoFdError<T> {}
