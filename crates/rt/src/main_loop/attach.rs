//! Futures that serve channels and dispatchers on the loop.

use std::future::pending;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::handle::{LocalHandle, LoopHandle};
use super::task::Task;
use super::timer::Sleep;
use crate::channel::Receiver;
use crate::notify::Dispatcher;

impl LocalHandle {
    /// Runs `each` for every item of the channel, in order. The task is finished after the last
    /// item, when the channel is closed; if it is dropped before that, the receiver is dropped.
    ///
    /// While there is a [`RealtimeSender`](crate::channel::RealtimeSender), which does not wake the
    /// loop, the loop polls the channel every 5 ms.
    pub fn attach<T, F>(&self, receiver: Receiver<T>, each: F) -> Task<()>
    where
        T: Send + 'static,
        F: FnMut(T) + 'static,
    {
        self.spawn(AttachedReceiver::new(self.handle.clone(), receiver, each))
    }

    /// Polls a dispatcher at the times that it returns, so that its callbacks run on this loop. Not
    /// for [`PollStrategy::Event`](crate::notify::PollStrategy::Event), which returns no time.
    ///
    /// [`Notifier::callback_ended`](crate::notify::Notifier::callback_ended) and the loop must use
    /// the same clock.
    pub fn dispatch<F>(&self, dispatcher: Dispatcher<F>) -> Task<()>
    where
        F: ?Sized + FnMut() + 'static,
    {
        self.spawn(dispatch(self.handle.clone(), dispatcher))
    }
}

/// Runs a closure for every item of a channel.
struct AttachedReceiver<T, F> {
    handle: LoopHandle,
    receiver: Receiver<T>,
    each: F,
    /// Timer of the next poll, for items that came without a wake.
    poll_timer: Option<Sleep>,
}

impl<T, F> AttachedReceiver<T, F> {
    fn new(handle: LoopHandle, receiver: Receiver<T>, each: F) -> Self {
        Self { handle, receiver, each, poll_timer: None }
    }
}

/// No field is ever pinned.
impl<T, F> Unpin for AttachedReceiver<T, F> {}

impl<T, F: FnMut(T)> Future for AttachedReceiver<T, F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        for _ in 0..MAX_ITEMS_PER_TURN {
            match this.receiver.poll_recv(context) {
                Poll::Ready(Some(item)) => (this.each)(item),
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending if this.receiver.has_realtime() => {
                    let handle = &this.handle;
                    let look = this.poll_timer.get_or_insert_with(|| handle.sleep(POLL_INTERVAL));
                    ready!(Pin::new(look).poll(context));
                    this.poll_timer = None;
                }
                // The last real-time sender may have gone since the poll.
                Poll::Pending if this.receiver.is_ready() => {}
                Poll::Pending => return Poll::Pending,
            }
        }
        // There are more items, but other tasks run first.
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Maximum number of items of a channel before other tasks run.
const MAX_ITEMS_PER_TURN: usize = 64;
/// Poll interval for items of real-time senders: the same as
/// [`PollStrategy::HighResolution`](crate::notify::PollStrategy::HighResolution).
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Polls a dispatcher at the times that it returns.
async fn dispatch<F>(handle: LoopHandle, mut dispatcher: Dispatcher<F>)
where
    F: ?Sized + FnMut(),
{
    loop {
        match dispatcher.poll(handle.now()) {
            Some(next) => handle.sleep_until(next).await,
            None => pending().await,
        }
    }
}
