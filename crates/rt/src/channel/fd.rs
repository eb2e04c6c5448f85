//! A receiver with a file descriptor, for event loops that wait on descriptors.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use super::{Receiver, TryRecvError};
use crate::sys::Signal;

impl<T> Receiver<T> {
    /// Converts into a receiver with a file descriptor, for `poll`, epoll, glib, winit or any other
    /// loop.
    ///
    /// # Errors
    /// [`IntoFdError`], which contains this receiver, if the system does not support it (Linux
    /// does) or the process has no free descriptor.
    pub fn into_fd(self) -> Result<FdReceiver<T>, IntoFdError<T>> {
        match Signal::new() {
            Ok(signal) => {
                let signal = Arc::new(signal);
                let waker = Waker::from(Arc::new(SignalWaker(signal.clone())));
                // The first `try_recv` clears it and registers the waker.
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
/// [`FdReceiver::try_recv`] returns [`TryRecvError::Empty`]: receive until then, or come back for
/// the rest. It is also readable once the channel has ended, and stays so. It may be readable
/// although no item is there. Do not read from it or write to it.
///
/// Items from a [`RealtimeSender`](super::RealtimeSender) do not make it readable: also call
/// [`FdReceiver::try_recv`] from a timer of that loop, or call
/// [`ReceiverWaker::wake`](super::ReceiverWaker::wake).
pub struct FdReceiver<T> {
    inner: Receiver<T>,
    signal: Arc<Signal>,
    waker: Waker,
}

impl<T> FdReceiver<T> {
    /// Takes the oldest item; see [`Receiver::try_recv`].
    ///
    /// # Errors
    /// [`TryRecvError::Empty`]: from now on the descriptor becomes readable when an item comes.
    /// [`TryRecvError::Closed`] if no item can follow.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        let first = self.inner.try_recv();
        if first.as_ref().is_err_and(|&none| none == TryRecvError::Empty) {
            // In this order: an item that comes after the check in `register_waker` raises the
            // signal again.
            self.signal.clear();
            let context = Context::from_waker(&self.waker);
            while self.inner.register_waker(&context) {
                match self.inner.try_recv() {
                    Err(TryRecvError::Empty) => {}
                    found => {
                        // The signal was cleared, and there may be more items.
                        self.signal.raise();
                        return found;
                    }
                }
            }
        }
        first
    }

    /// Closes the channel; see [`Receiver::close`].
    pub fn close(&mut self) {
        self.inner.close();
        self.signal.raise();
    }

    /// Returns the receiver without the descriptor.
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

/// Error: no file descriptor is available; the receiver works as before.
pub struct IntoFdError<T> {
    /// The receiver.
    pub receiver: Receiver<T>,
    /// The system's error.
    pub error: io::Error,
}

impl<T> fmt::Debug for IntoFdError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoFd").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for IntoFdError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot create a file descriptor for the channel ({}); poll it from a timer",
            self.error
        )
    }
}

impl<T> std::error::Error for IntoFdError<T> {}
