//! The order of calls whose work grows with the number of clients, and the memory of their answers.
//!
//! One such call runs at a time, so that a short call waits for at most one of them. The decisions
//! are those of [`queue`]; this module lets tasks wait for them. Whatever waits or runs here ends
//! when its task is dropped, so that a connection that is closed leaves nothing behind.

mod queue;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aulos_core::Instant;
use aulos_io::reactor::address_key;
use tokio::sync::oneshot;

use crate::control::clock::Clock;
use crate::methods::rpc::MAX_BATCH_COST;
use queue::{CallKind, LongCallQueue, Ticket, TurnRequest};

/// Bytes from which an answer is large.
pub(crate) const LARGE_ANSWER: usize = 64 << 10;

/// Grants the turns, and the memory for large answers.
#[derive(Clone, Debug)]
pub(crate) struct LongCalls {
    lines: Arc<Mutex<WaitingLines>>,
    clock: Clock,
}

#[derive(Debug)]
struct WaitingLines {
    queue: LongCallQueue,
    wakers: HashMap<Ticket, oneshot::Sender<()>>,
    /// The length of large answers of late: what the next one is expected to have.
    answer_length: usize,
}

impl Default for WaitingLines {
    fn default() -> Self {
        let queue = LongCallQueue::default();
        Self { queue, wakers: HashMap::new(), answer_length: LARGE_ANSWER }
    }
}

/// A line of JSON-RPC or a request of the status, whose answer may be large.
#[derive(Debug)]
pub(crate) struct LongCallRequest {
    calls: LongCalls,
    address: u128,
    kind: CallKind,
    permit: Option<AnswerPermit>,
}

/// The right to run a long call, until it is dropped.
#[derive(Debug)]
pub(crate) struct LongCallTurn {
    calls: LongCalls,
    address: u128,
    begin: Instant,
}

/// The right to keep a large answer in memory, until it is dropped.
#[derive(Debug)]
pub struct AnswerPermit {
    calls: LongCalls,
    address: u128,
    kind: CallKind,
    bytes: usize,
}

impl LongCalls {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { lines: Arc::default(), clock }
    }

    /// A line from this address; it holds nothing yet.
    pub(crate) fn request(&self, from: IpAddr, is_batch: bool) -> LongCallRequest {
        let kind = if is_batch { CallKind::Batch } else { CallKind::Single };
        let address = address_key(from.to_canonical());
        LongCallRequest { calls: self.clone(), address, kind, permit: None }
    }

    /// A permit for a large answer that is already rendered.
    pub(crate) async fn answer_permit(&self, from: IpAddr, length: usize) -> AnswerPermit {
        let (kind, address) = (CallKind::Single, address_key(from.to_canonical()));
        self.wait(TurnRequest { address, kind, reserve: length, runs: false }).await;
        AnswerPermit { calls: self.clone(), address, kind, bytes: length }
    }

    /// Waits until the request is granted. What is granted to a task that is dropped is returned.
    async fn wait(&self, request: TurnRequest) {
        let (ticket, granted) = self.enter(request);
        let mut waiting = WaitingLine { calls: self, ticket, request, is_granted: false };
        // The sender is dropped with the line alone.
        waiting.is_granted = granted.await.is_ok();
    }

    fn enter(&self, request: TurnRequest) -> (Ticket, oneshot::Receiver<()>) {
        let (waker, granted) = oneshot::channel();
        let mut lines = self.lock();
        let ticket = lines.queue.wait(request);
        lines.wakers.insert(ticket, waker);
        lines.wake_granted();
        (ticket, granted)
    }

    fn lock(&self) -> MutexGuard<'_, WaitingLines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitingLines {
    fn wake_granted(&mut self) {
        while let Some(ticket) = self.queue.grant() {
            if let Some(waker) = self.wakers.remove(&ticket) {
                // A task that was dropped returns what it was granted.
                let _ = waker.send(());
            }
        }
    }
}

struct WaitingLine<'a> {
    calls: &'a LongCalls,
    ticket: Ticket,
    request: TurnRequest,
    is_granted: bool,
}

impl Drop for WaitingLine<'_> {
    fn drop(&mut self) {
        if self.is_granted {
            return;
        }
        let (mut lines, request) = (self.calls.lock(), self.request);
        lines.wakers.remove(&self.ticket);
        if !lines.queue.cancel(self.ticket, &request) {
            lines.queue.change_bytes(request.address, request.kind, request.reserve, 0);
            if request.runs {
                lines.queue.end_turn(request.address, 0);
            }
        }
        lines.wake_granted();
    }
}

impl LongCallRequest {
    /// Waits for the memory of the answer; at once from the second time on.
    pub(crate) async fn begin(&mut self) {
        self.wait(false).await;
    }

    /// Waits for the turn of a long call, and at the first time for the memory of the answer.
    pub(crate) async fn turn(&mut self) -> LongCallTurn {
        self.wait(true).await;
        LongCallTurn {
            calls: self.calls.clone(),
            address: self.address,
            begin: self.calls.clock.local(),
        }
    }

    async fn wait(&mut self, runs: bool) {
        let reserve = if self.permit.is_some() { 0 } else { self.expected_length() };
        if !runs && reserve == 0 {
            return;
        }
        let (address, kind) = (self.address, self.kind);
        self.calls.wait(TurnRequest { address, kind, reserve, runs }).await;
        self.permit.get_or_insert_with(|| AnswerPermit {
            calls: self.calls.clone(),
            address,
            kind,
            bytes: reserve,
        });
    }

    /// Reserved for the whole line, because a batch that waits with a half-built answer could wait
    /// for others that do the same.
    fn expected_length(&self) -> usize {
        let one = self.calls.lock().answer_length;
        match self.kind {
            CallKind::Single => one,
            CallKind::Batch => MAX_BATCH_COST + one,
        }
    }

    /// Returns what is reserved while a call of the line waits for another program, unless the
    /// answer so far is large.
    pub(crate) fn pause(&mut self, answer_length: usize) {
        self.permit.take_if(|_| answer_length < LARGE_ANSWER);
    }

    /// Ends the line, and returns the permit for its answer of this length; none for a small one.
    pub(crate) fn end(self, answer_length: usize) -> Option<AnswerPermit> {
        let mut permit = self.permit?;
        if self.kind == CallKind::Single {
            let mut lines = self.calls.lock();
            // Halved, so that one long answer is not expected for ever.
            lines.answer_length = answer_length.max(lines.answer_length / 2).max(LARGE_ANSWER);
        }
        permit.set_bytes(answer_length);
        Some(permit).filter(|_| answer_length >= LARGE_ANSWER)
    }
}

impl Drop for LongCallTurn {
    fn drop(&mut self) {
        let took = (self.calls.clock.local() - self.begin).as_nanos();
        let mut lines = self.calls.lock();
        lines.queue.end_turn(self.address, u64::try_from(took).unwrap_or(0));
        lines.wake_granted();
    }
}

impl AnswerPermit {
    fn set_bytes(&mut self, bytes: usize) {
        let mut lines = self.calls.lock();
        lines.queue.change_bytes(self.address, self.kind, self.bytes, bytes);
        self.bytes = bytes;
        lines.wake_granted();
    }
}

impl Drop for AnswerPermit {
    fn drop(&mut self) {
        self.set_bytes(0);
    }
}

#[cfg(test)]
mod tests;
