//! Which long call runs next, and how many bytes of answers are in memory: the decisions, without
//! tasks and without a clock.
//!
//! One long call runs at a time. Addresses are served by start-time fair queueing: the next call is
//! that of the address whose calls have taken the least time, and one that had no call starts level
//! with the address that is served. In one queue for all, or with a turn for each address whatever
//! it costs, a status would wait for the batches of attackers.

use std::collections::{HashMap, VecDeque};

/// Bytes of large answers for one address and one [`CallKind`], from which its next call waits
/// until some are sent: two full statuses, for the pages behind one proxy, some of which may have
/// stopped reading.
pub(crate) const ANSWER_BYTES_PER_ADDRESS: usize = 8 << 20;

/// Bytes of large answers for all addresses, from which the next call waits.
pub(crate) const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Addresses that are remembered before idle ones are forgotten.
pub(crate) const IDLE_ADDRESSES: usize = 64;

/// What a call belongs to. The calls of an address take turns by kind, so that a status does not
/// wait for the batches of its neighbours behind the same router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// A single call, a status over HTTP or a part of a feed.
    Single,
    /// A call of a batch.
    Batch,
}

/// What a line waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TurnRequest {
    /// The caller's, by `address_key`.
    pub(crate) address: u128,
    pub(crate) kind: CallKind,
    /// Bytes to reserve for the answer; 0 when the line has reserved them.
    pub(crate) reserve: usize,
    /// Whether a call is to run. A text that is rendered already only needs its bytes.
    pub(crate) runs: bool,
}

/// The place of a line in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(u64);

/// The queue of all addresses.
#[derive(Debug, Default)]
pub(crate) struct LongCallQueue {
    addresses: HashMap<u128, AddressQueue>,
    is_running: bool,
    /// Bytes reserved or held by answers of all addresses.
    bytes: usize,
    /// The time that had been given to the address served last, when its call began, in
    /// nanoseconds.
    progress: u64,
    next_ticket: u64,
}

#[derive(Debug, Default)]
struct AddressQueue {
    /// The time given to this address; what is less than the queue's progress counts as that.
    given: u64,
    single: CallQueue,
    batch: CallQueue,
    batch_was_last: bool,
}

#[derive(Debug, Default)]
struct CallQueue {
    waiting: VecDeque<(Ticket, TurnRequest)>,
    /// Bytes reserved or held by answers.
    bytes: usize,
}

impl LongCallQueue {
    /// Adds a line; [`Self::grant`] says when it is its turn.
    pub(crate) fn wait(&mut self, request: TurnRequest) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        if self.addresses.len() >= IDLE_ADDRESSES {
            self.addresses.retain(|_, queue| !queue.is_idle());
        }
        let queue = self.addresses.entry(request.address).or_default();
        queue.of_mut(request.kind).waiting.push_back((ticket, request));
        ticket
    }

    /// The next line whose turn has come. Its bytes are reserved, and if it runs a call,
    /// [`Self::end_turn`] ends that. Called until it returns `None`, after each other function.
    pub(crate) fn grant(&mut self) -> Option<Ticket> {
        let is_free = |request: &TurnRequest| {
            (!self.is_running || !request.runs)
                && (request.reserve == 0 || self.bytes < MAX_ANSWER_BYTES)
        };
        let next = self.addresses.iter().filter_map(|(address, queue)| {
            let (kind, at) = queue.next(is_free)?;
            let ticket = queue.of(kind).waiting.get(at)?.0;
            Some((queue.given.max(self.progress), ticket, *address, kind, at))
        });
        let (given, ticket, address, kind, at) = next.min_by_key(|next| (next.0, next.1))?;
        let queue = self.addresses.get_mut(&address)?;
        let (_, request) = queue.of_mut(kind).waiting.remove(at)?;
        queue.batch_was_last = kind == CallKind::Batch;
        queue.of_mut(kind).bytes += request.reserve;
        self.bytes += request.reserve;
        if request.runs {
            queue.given = given;
            self.progress = given;
            self.is_running = true;
        }
        Some(ticket)
    }

    /// Removes a line that waits; false if its turn has come already.
    pub(crate) fn cancel(&mut self, ticket: Ticket, request: &TurnRequest) -> bool {
        let Some(queue) = self.addresses.get_mut(&request.address) else { return false };
        let waiting = &mut queue.of_mut(request.kind).waiting;
        let before = waiting.len();
        waiting.retain(|(one, _)| *one != ticket);
        waiting.len() < before
    }

    /// Ends the call that runs, of this address, after so many nanoseconds.
    pub(crate) fn end_turn(&mut self, address: u128, took: u64) {
        self.is_running = false;
        if let Some(queue) = self.addresses.get_mut(&address) {
            queue.given = queue.given.saturating_add(took);
        }
        if self.addresses.values().all(AddressQueue::is_empty) {
            // Everything that was asked for has been given: all begin anew.
            self.progress = 0;
            self.addresses.retain(|_, queue| {
                queue.given = 0;
                !queue.is_idle()
            });
        }
    }

    /// Changes what an answer reserves or holds.
    pub(crate) fn change_bytes(&mut self, address: u128, kind: CallKind, from: usize, to: usize) {
        self.bytes = self.bytes.saturating_sub(from) + to;
        if let Some(queue) = self.addresses.get_mut(&address) {
            let bytes = &mut queue.of_mut(kind).bytes;
            *bytes = bytes.saturating_sub(from) + to;
        }
    }

    /// Number of addresses that are remembered.
    #[cfg(test)]
    pub(crate) fn address_count(&self) -> usize {
        self.addresses.len()
    }
}

impl AddressQueue {
    const fn of(&self, kind: CallKind) -> &CallQueue {
        match kind {
            CallKind::Single => &self.single,
            CallKind::Batch => &self.batch,
        }
    }

    const fn of_mut(&mut self, kind: CallKind) -> &mut CallQueue {
        match kind {
            CallKind::Single => &mut self.single,
            CallKind::Batch => &mut self.batch,
        }
    }

    /// The kind and place of the line to be served next.
    fn next(&self, is_free: impl Fn(&TurnRequest) -> bool) -> Option<(CallKind, usize)> {
        let kinds = if self.batch_was_last {
            [CallKind::Single, CallKind::Batch]
        } else {
            [CallKind::Batch, CallKind::Single]
        };
        kinds.into_iter().find_map(|kind| Some((kind, self.of(kind).next(&is_free)?)))
    }

    fn is_empty(&self) -> bool {
        self.single.waiting.is_empty() && self.batch.waiting.is_empty()
    }

    /// Whether nothing is lost when it is forgotten, but the time that it was given.
    fn is_idle(&self) -> bool {
        self.is_empty() && self.single.bytes == 0 && self.batch.bytes == 0
    }
}

impl CallQueue {
    /// The place of the first line that may be served. A batch reserves more than the limit, so one
    /// batch of an address runs at a time: several would each hold a half-built answer.
    fn next(&self, is_free: impl Fn(&TurnRequest) -> bool) -> Option<usize> {
        let fits = self.bytes < ANSWER_BYTES_PER_ADDRESS;
        self.waiting.iter().position(|(_, one)| (one.reserve == 0 || fits) && is_free(one))
    }
}
