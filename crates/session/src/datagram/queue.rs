//! The datagrams of all machines of a thread until they are sent.

use core::net::SocketAddr;
use std::ops::Range;

use aulos_core::{Instant, Span};

/// All queued datagrams of one thread: those for the next call, and paced ones for later.
#[derive(Debug)]
pub struct SendQueue {
    ready: DatagramBatch,
    paced: PacedQueue,
    dropped: u64,
}

/// A datagram in a [`SendQueue`].
#[derive(Clone, Copy, Debug)]
pub struct QueuedDatagram {
    /// Its destination.
    pub to: SocketAddr,
    /// The socket that it is sent from; `None` is the one that all streams share.
    pub from: Option<u64>,
    at: u32,
    len: u16,
}

impl QueuedDatagram {
    /// Where its bytes are.
    #[must_use]
    pub const fn range(&self) -> Range<usize> {
        self.at as usize..self.at as usize + self.len as usize
    }
}

impl SendQueue {
    /// An empty queue. Reserves what 3,000 streams need; the system provides the memory on first
    /// use.
    #[must_use]
    pub fn new() -> Self {
        Self { ready: DatagramBatch::new(ROOM_NOW), paced: PacedQueue::new(), dropped: 0 }
    }

    /// Queues what `fill` writes, for the next call or for the second of two times: now and due.
    #[inline]
    pub(super) fn write(
        &mut self,
        (to, from): (SocketAddr, Option<u64>),
        due: Option<(Instant, Instant)>,
        most: usize,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> bool {
        let batch = match due {
            Some((now, due)) => self.paced.batch(now, due),
            None => &mut self.ready,
        };
        let before = batch.len();
        let done = batch.write(to, from, most, fill);
        if due.is_some() {
            self.paced.waiting += batch.len() - before;
        }
        self.dropped += u64::from(!done);
        done
    }

    /// Calls `send` with the datagrams of the next call: runs of one socket (`from`, and the
    /// address family where it is `None`), and the bytes that their ranges refer to. Consecutive
    /// datagrams of a run are contiguous. `send` returns how many of a run's last datagrams remain.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn drain_runs(&mut self, send: impl FnMut(&[QueuedDatagram], &[u8]) -> usize) {
        self.ready.drain_runs(send);
    }

    /// Moves the datagrams that are due at `now` to the next call.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.paced.release(now, &mut self.ready);
    }

    /// The datagrams dropped since the last call because too much was queued.
    pub const fn take_dropped(&mut self) -> u64 {
        core::mem::replace(&mut self.dropped, 0)
    }

    /// The number of datagrams for the next call.
    #[must_use]
    pub const fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// When the first paced datagram is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.paced.poll_timeout()
    }
}

impl Default for SendQueue {
    fn default() -> Self {
        Self::new()
    }
}

/// Datagrams in one buffer.
#[derive(Debug)]
struct DatagramBatch {
    bytes: Vec<u8>,
    entries: Vec<QueuedDatagram>,
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
            self.entries.push(QueuedDatagram { to, from, at, len });
        }
        true
    }

    const fn len(&self) -> usize {
        self.entries.len()
    }

    fn drain_runs(&mut self, mut send: impl FnMut(&[QueuedDatagram], &[u8]) -> usize) {
        let Self { bytes, entries } = self;
        let (mut first, mut kept) = (0, 0);
        while let Some(entry) = entries.get(first) {
            let same = |other: &&QueuedDatagram| {
                other.from == entry.from
                    && (entry.from.is_some() || other.to.is_ipv6() == entry.to.is_ipv6())
            };
            let run = entries[first..].iter().take_while(same).count();
            let end = first + run;
            let stays = send(&entries[first..end], bytes).min(run);
            entries.copy_within(end - stays..end, kept);
            kept += stays;
            first = end;
        }
        entries.truncate(kept);
        // Moves the remaining datagrams to the front.
        let mut len = 0;
        for entry in entries {
            let range = entry.range();
            let size = range.len();
            bytes.copy_within(range, len);
            entry.at = u32::try_from(len).unwrap_or(0);
            len += size;
        }
        bytes.truncate(len);
    }

    /// Appends another batch. This may exceed the limit by one batch.
    fn append(&mut self, other: &mut Self) {
        let behind = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes.append(&mut other.bytes);
        let moved =
            other.entries.drain(..).map(|entry| QueuedDatagram { at: entry.at + behind, ..entry });
        self.entries.extend(moved);
    }
}

/// Paced datagrams: a batch for each millisecond.
#[derive(Debug)]
struct PacedQueue {
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
    fn poll_timeout(&self) -> Option<Instant> {
        if self.waiting == 0 {
            return None;
        }
        (self.next..self.next + PACED_MILLIS)
            .find(|at| self.at(*at).is_some_and(|batch| batch.len() > 0))
            .map(|at| Instant::from_nanos(at * MILLI))
    }

    /// Moves the datagrams that are due at `now` to the next call.
    fn release(&mut self, now: Instant, to: &mut DatagramBatch) {
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
