//! The datagrams of all machines until they are sent.
//!
//! A system call per datagram is the largest cost of a transport with many streams. So machines
//! write into one buffer, which is sent with 64 messages per call. Consecutive datagrams of the
//! same length to the same destination form one message (`UDP_SEGMENT`), which the kernel or the
//! network interface splits again. The receiver sees ordinary datagrams.

mod flush;

use std::net::SocketAddr;

use aulos_core::{Instant, Span};

use super::StreamKey;
pub(super) use flush::BatchSender;

/// The destination of a datagram, its source socket and its send time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    to: SocketAddr,
    is_from_own_socket: bool,
    due: Option<Instant>,
}

impl Route {
    /// To `to`, from the context's socket, with the next call. This is the cheapest route, because
    /// the datagrams of all streams go together.
    #[must_use]
    pub const fn to(to: SocketAddr) -> Self {
        Self { to, is_from_own_socket: false, due: None }
    }

    /// From the stream's own socket or shared port, so that the peer can answer there. A stream
    /// without one uses the context's socket.
    #[must_use]
    pub const fn from_own_socket(mut self) -> Self {
        self.is_from_own_socket = true;
        self
    }

    /// Not before `due`, with a resolution of a millisecond: for packets that must be evenly spaced
    /// rather than in one burst per tick. May cost a wake-up of the thread for each. A time later
    /// than [`PACE_AHEAD`] from now is limited to that.
    #[must_use]
    pub const fn not_before(mut self, due: Instant) -> Self {
        self.due = Some(due);
        self
    }
}

/// The output of a machine.
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
    /// Queues a copy of `bytes`. False when too much is queued; the drop is counted.
    ///
    /// # Real-time
    /// Copies. Allocates only when more is queued than ever before and exceeds 4,096 datagrams of
    /// 256 bytes, or 1,024 for one millisecond.
    #[inline]
    pub fn send(&mut self, route: Route, bytes: &[u8]) -> bool {
        self.write(route, bytes.len(), |room| {
            room.copy_from_slice(bytes);
            bytes.len()
        })
    }

    /// Lets `fill` write a datagram of up to `most` bytes in place; it returns the length, and
    /// nothing is sent for zero. False as above, in which case `fill` is not called.
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

    /// Claims the packets that arrive at the context's own socket under `key`: they are delivered
    /// to this stream with `is_answer` set. These are reports of receivers, which know no other
    /// address. [`UdpConfig::answer_key`](super::UdpConfig::answer_key) finds the key of a packet.
    /// A stream has one claim, and of two claims for the same key the later one wins.
    pub const fn claim(&mut self, key: StreamKey) {
        self.claim = Some(key);
    }

    /// Ends this stream when the call returns: its socket is closed, and
    /// [`UdpContext::poll_ended`](super::UdpContext::poll_ended) returns its machine.
    pub const fn end(&mut self) {
        self.ended = true;
    }
}

/// All queued datagrams of one thread.
#[derive(Debug)]
pub(super) struct SendQueue {
    /// Datagrams for the next call.
    pub(super) ready: DatagramBatch,
    pub(super) paced: PacedQueue,
    /// Datagrams dropped because the queue was full.
    pub(super) dropped: u64,
}

impl SendQueue {
    pub(super) fn new() -> Self {
        Self { ready: DatagramBatch::new(ROOM_NOW), paced: PacedQueue::new(), dropped: 0 }
    }
}

/// Datagrams in one buffer.
#[derive(Debug)]
pub(super) struct DatagramBatch {
    bytes: Vec<u8>,
    entries: Vec<BatchEntry>,
}

#[derive(Clone, Copy, Debug)]
struct BatchEntry {
    to: SocketAddr,
    /// `None` is the context's socket.
    from: Option<u64>,
    at: u32,
    len: u16,
}

impl DatagramBatch {
    /// Reserves room for `room` datagrams of 256 bytes; the system provides the memory on first
    /// use.
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
        // Both fit because of the limits.
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

    /// Appends another batch. This may exceed the limit by one batch.
    fn append(&mut self, other: &mut Self) {
        let behind = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes.append(&mut other.bytes);
        let moved =
            other.entries.drain(..).map(|entry| BatchEntry { at: entry.at + behind, ..entry });
        self.entries.extend(moved);
    }
}

/// Paced datagrams: a batch for each millisecond.
#[derive(Debug)]
pub(super) struct PacedQueue {
    batches: Box<[DatagramBatch]>,
    /// The next millisecond to send; earlier batches are empty.
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
        // While earlier batches are still unsent, the last slot is the closest possible time.
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

    /// Moves the datagrams that are due at `now` to the next call.
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

/// The longest pacing delay: more than the longest interval between two polls.
pub const PACE_AHEAD: Span = Span::from_millis(30);

const PACED_MILLIS: u64 = 32;
const MILLI: u64 = 1_000_000;

/// Datagrams that fit without an allocation: a burst of 3,000 streams, and of 1,000 within one
/// millisecond.
const ROOM_NOW: usize = 4_096;
const ROOM_PACED: usize = 1_024;

/// Limits of queued datagrams and of their bytes: five for each of 3,000 streams.
const MAX_WAITING: usize = 16_384;
const MAX_BYTES: usize = 4 << 20;

/// The longest UDP datagram over IPv4.
const MAX_DATAGRAM: usize = 65_507;
