//! A pending answer, for a thread or a task.

use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::FileWriteError;
use super::shared::SharedState;

/// A request to the writer's thread: [`Ticket::wait`] for it on a thread, or `await` it in a task,
/// under any executor. The request is completed even if the ticket is dropped.
#[must_use = "the answer may be an error"]
#[derive(Debug)]
pub struct Ticket(Arc<TicketSlot>);

impl Ticket {
    /// A ticket and its reply.
    pub(super) fn new(shared: &Arc<SharedState>) -> (Self, TicketReply) {
        let slot = Arc::new(TicketSlot::default());
        (Self(slot.clone()), TicketReply { slot, shared: shared.clone() })
    }

    /// Sleeps until the request is complete. While the disk is full, that is until there is room
    /// again.
    ///
    /// # Errors
    /// The first error of the file.
    pub fn wait(self) -> Result<(), FileWriteError> {
        let mut state = self.0.lock();
        loop {
            match state.answer.take() {
                Some(answer) => return answer,
                None => state = self.0.done.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Like [`Ticket::wait`] with a timeout.
    ///
    /// # Errors
    /// Returns the ticket when the time has passed: wait again, or drop it.
    pub fn wait_timeout(self, limit: Duration) -> Result<Result<(), FileWriteError>, Self> {
        let until = Instant::now().checked_add(limit);
        let mut state = self.0.lock();
        loop {
            if let Some(answer) = state.answer.take() {
                return Ok(answer);
            }
            let left = until.map_or(limit, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                drop(state);
                return Err(self);
            }
            let woken = self.0.done.wait_timeout(state, left);
            (state, _) = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Future for Ticket {
    type Output = Result<(), FileWriteError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock();
        if let Some(answer) = state.answer.take() {
            return Poll::Ready(answer);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Answers a [`Ticket`]. Dropped without an answer, it reports the state of the file.
#[derive(Debug)]
pub(super) struct TicketReply {
    slot: Arc<TicketSlot>,
    shared: Arc<SharedState>,
}

impl TicketReply {
    pub(super) fn done(self) {
        self.slot.complete(Ok(()));
    }
}

impl Drop for TicketReply {
    fn drop(&mut self) {
        self.slot.complete(self.shared.result());
    }
}

#[derive(Debug, Default)]
struct TicketSlot {
    state: Mutex<TicketState>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct TicketState {
    is_answered: bool,
    answer: Option<Result<(), FileWriteError>>,
    waker: Option<Waker>,
}

impl TicketSlot {
    fn lock(&self) -> MutexGuard<'_, TicketState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first answer counts.
    fn complete(&self, result: Result<(), FileWriteError>) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_answered, true) {
            return;
        }
        state.answer = Some(result);
        let waker = state.waker.take();
        drop(state);
        self.done.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
