//! What machines want to send, until it is sent.
//!
//! A system call for each datagram is what a transport of many streams spends most on. So machines
//! write into one piece of memory, and what is there goes out 64 messages in a call; neighbours of
//! the same length to the same place are one message (`UDP_SEGMENT`), which the kernel or the card
//! takes apart again. The receiver sees ordinary datagrams.

mod flush;

use std::net::SocketAddr;

use aulos_core::{Instant, Span};

use super::StreamKey;
pub(super) use flush::BatchSender;

/// Where a datagram goes, from which socket and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    to: SocketAddr,
    is_from_own_socket: bool,
    due: Option<Instant>,
}

impl Route {
    /// To `to`, from the context's socket, with the next call. Cheapest, because the datagrams of
    /// all streams go together.
    #[must_use]
    pub const fn to(to: SocketAddr) -> Self {
        Self { to, is_from_own_socket: false, due: None }
    }

    /// From the stream's own socket or shared port, so that the peer can answer there. A stream
    /// without one uses the context's.
    #[must_use]
    pub const fn from_own_socket(mut self) -> Self {
        self.is_from_own_socket = true;
        self
    }

    /// Not before `due`, to the millisecond: for those who want packets on their grid and not in a
    /// burst once in a tick. Costs up to a wake of the thread for each. More than
    /// [`PACE_AHEAD`] from now is taken as that.
    #[must_use]
    pub const fn not_before(mut self, due: Instant) -> Self {
        self.due = Some(due);
        self
    }
}

/// What a machine sends with.
#[derive(Debug)]
pub struct Outbox<'a> {
    pub(super) queue: &'a mut SendQueue,
    /// The stream's own socket.
    pub(super) own: Option<u64>,
    pub(super) now: Instant,
    pub(super) ended: bool,
    pub(super) claim: Option<StreamKey>,
}

impl Outbox<'_> {
    /// Sends a copy of `bytes`. False when too much waits to be sent; it is counted.
    ///
    /// # Real-time
    /// Copies. Allocates only when more waits to be sent than 4,096 datagrams of 256 bytes, or
    /// 1,024 for one millisecond, and more than ever before.
    #[inline]
    pub fn send(&mut self, route: Route, bytes: &[u8]) -> bool {
        self.write(route, bytes.len(), |room| {
            room.copy_from_slice(bytes);
            bytes.len()
        })
    }

    /// Lets `fill` write a datagram of up to `most` bytes where it is sent from; it says how many
    /// they are, and with none nothing is sent. False as above, and then `fill` is not called.
    ///
    /// # Real-time
    /// As above, without the copy.
    #[inline]
    pub fn write(
        &mut self,
        route: Route,
        most: usize,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> bool {
        let from = if route.is_from_own_socket { self.own } else { None };
        let due = route.due.filter(|due| *due > self.now);
        let batch = match due {
            Some(due) => self.queue.paced.batch(self.now, due),
            None => &mut self.queue.ready,
        };
        let before = batch.len();
        let done = batch.write(route.to, from, most, fill);
        if due.is_some() {
            self.queue.paced.waiting += batch.len() - before;
        }
        self.queue.dropped += u64::from(!done);
        done
    }

    /// Has what comes to the context's own socket under `key` given to this stream, as packets with
    /// `is_answer`: reports of those whom it sends to, who know no other address.
    /// [`Config::answers`](super::Config::answers) says what makes the key. A stream has one claim,
    /// and of two with the same key the later one has it.
    pub const fn claim(&mut self, key: StreamKey) {
        self.claim = Some(key);
    }

    /// Ends this stream when the call returns: its socket is closed, and its machine goes to
    /// [`Context::ended`](super::Context::ended).
    pub const fn end(&mut self) {
        self.ended = true;
    }
}

/// All that waits on one thread.
#[derive(Debug)]
pub(super) struct SendQueue {
    /// What goes with the next call.
    pub(super) ready: DatagramBatch,
    pub(super) paced: PacedQueue,
    /// What found no room.
    pub(super) dropped: u64,
}

impl SendQueue {
    pub(super) fn new() -> Self {
        Self { ready: DatagramBatch::new(ROOM_NOW), paced: PacedQueue::new(), dropped: 0 }
    }
}

/// Datagrams in one piece of memory.
#[derive(Debug)]
pub(super) struct DatagramBatch {
    bytes: Vec<u8>,
    entries: Vec<BatchEntry>,
}

#[derive(Clone, Copy, Debug)]
struct BatchEntry {
    to: SocketAddr,
    /// None is the context's socket.
    from: Option<u64>,
    at: u32,
    len: u16,
}

impl DatagramBatch {
    /// With room for so many datagrams of 256 bytes; the system gives the memory when it is used.
    fn new(room: usize) -> Self {
        Self { bytes: Vec::with_capacity(room * 256), entries: Vec::with_capacity(room) }
    }

    #[inline]
    fn write(
        &mut self,
        to: SocketAddr,
        from: Option<u64>,
        most: usize,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> bool {
        let at = self.bytes.len();
        let most = most.min(MAX_DATAGRAM);
        if self.entries.len() >= MAX_WAITING || at + most > MAX_BYTES {
            return false;
        }
        self.bytes.resize(at + most, 0);
        let len = fill(&mut self.bytes[at..]).min(most);
        self.bytes.truncate(at + len);
        // Both fit: see the limits.
        if let (Ok(at), Ok(len @ 1..)) = (u32::try_from(at), u16::try_from(len)) {
            self.entries.push(BatchEntry { to, from, at, len });
        }
        true
    }

    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    #[cfg(test)]
    pub(super) fn datagrams(&self) -> Vec<(SocketAddr, Vec<u8>)> {
        let bytes =
            |entry: &BatchEntry| self.bytes[entry.at as usize..][..usize::from(entry.len)].to_vec();
        self.entries.iter().map(|entry| (entry.to, bytes(entry))).collect()
    }

    /// Takes all of another one. Once in a while that is more than may wait, by one batch.
    fn append(&mut self, other: &mut Self) {
        let behind = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes.append(&mut other.bytes);
        let moved =
            other.entries.drain(..).map(|entry| BatchEntry { at: entry.at + behind, ..entry });
        self.entries.extend(moved);
    }
}

/// What waits for its moment: a batch for each millisecond.
#[derive(Debug)]
pub(super) struct PacedQueue {
    batches: Box<[DatagramBatch]>,
    /// The millisecond that is to be sent next; those before it are empty.
    next: u64,
    waiting: usize,
}

impl PacedQueue {
    fn new() -> Self {
        let batches = (0..PACED_MILLIS).map(|_| DatagramBatch::new(ROOM_PACED)).collect();
        Self { batches, next: 0, waiting: 0 }
    }

    fn batch(&mut self, now: Instant, due: Instant) -> &mut DatagramBatch {
        let due = due.min(now + PACE_AHEAD);
        let millis = |at: Instant| at.as_nanos().div_ceil(MILLI);
        if self.waiting == 0 {
            self.next = millis(now);
        }
        // If what is due before has not gone yet, the last place is as early as it gets.
        let at = millis(due).clamp(self.next, self.next + PACED_MILLIS - 1);
        &mut self.batches[usize::try_from(at % PACED_MILLIS).unwrap_or(0)]
    }

    /// When the first of them is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.waiting == 0 {
            return None;
        }
        (self.next..self.next + PACED_MILLIS)
            .find(|at| self.at(*at).is_some_and(|batch| batch.len() > 0))
            .map(|at| Instant::from_nanos(at * MILLI))
    }

    /// Moves what is due at `now` behind what goes with the next call.
    pub(super) fn release(&mut self, now: Instant, to: &mut DatagramBatch) {
        if self.waiting == 0 {
            return;
        }
        while self.next * MILLI <= now.as_nanos() && self.waiting > 0 {
            let at = usize::try_from(self.next % PACED_MILLIS).unwrap_or(0);
            self.waiting -= self.batches[at].len();
            to.append(&mut self.batches[at]);
            self.next += 1;
        }
    }

    fn at(&self, millis: u64) -> Option<&DatagramBatch> {
        self.batches.get(usize::try_from(millis % PACED_MILLIS).ok()?)
    }
}

/// How far ahead a datagram may be given its moment: more than the longest wait between two looks.
pub const PACE_AHEAD: Span = Span::from_millis(30);

const PACED_MILLIS: u64 = 32;
const MILLI: u64 = 1_000_000;

/// Datagrams that find room without an allocation: a burst of 3,000 streams, and of 1,000 in one
/// millisecond.
const ROOM_NOW: usize = 4_096;
const ROOM_PACED: usize = 1_024;

/// Datagrams that may wait to be sent, and their bytes: five for each of 3,000 streams.
const MAX_WAITING: usize = 16_384;
const MAX_BYTES: usize = 4 << 20;

/// The longest that IP carries.
const MAX_DATAGRAM: usize = 65_507;
