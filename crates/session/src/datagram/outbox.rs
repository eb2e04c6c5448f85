//! Where a machine writes what it sends.

use core::net::SocketAddr;

use aulos_core::Instant;

use super::{SendQueue, StreamKey};

/// The destination of a datagram, its source socket and its send time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    to: SocketAddr,
    is_from_own_socket: bool,
    due: Option<Instant>,
}

impl Route {
    /// To `to`, from the socket that all streams share, with the next call. This is the cheapest
    /// route, because the datagrams of all streams go together.
    #[must_use]
    pub const fn to(to: SocketAddr) -> Self {
        Self { to, is_from_own_socket: false, due: None }
    }

    /// From the stream's own socket or shared port, so that the peer can answer there. A stream
    /// without one uses the socket that all streams share.
    #[must_use]
    pub const fn from_own_socket(mut self) -> Self {
        self.is_from_own_socket = true;
        self
    }

    /// Not before `due`, with a resolution of a millisecond: for packets that must be evenly spaced
    /// rather than in one burst per tick. May cost a wake-up of the thread for each. A time later
    /// than [`PACE_AHEAD`](super::PACE_AHEAD) from now is limited to that.
    #[must_use]
    pub const fn not_before(mut self, due: Instant) -> Self {
        self.due = Some(due);
        self
    }
}

/// The output of a machine.
#[derive(Debug)]
pub struct Outbox<'a> {
    queue: &'a mut SendQueue,
    /// The stream's own socket.
    own: Option<u64>,
    now: Instant,
    ended: bool,
    claim: Option<StreamKey>,
}

impl<'a> Outbox<'a> {
    /// The output of a stream for one call at `now`, into the queue of its thread. `own` is the
    /// stream's own socket, a number that whatever sends the queue understands.
    pub const fn new(queue: &'a mut SendQueue, own: Option<u64>, now: Instant) -> Self {
        Self { queue, own, now, ended: false, claim: None }
    }

    /// Whether the machine has ended its stream ([`Self::end`]).
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        self.ended
    }

    /// The key that the machine has claimed ([`Self::claim`]).
    #[must_use]
    pub const fn claimed_key(&self) -> Option<StreamKey> {
        self.claim
    }

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
        self.queue.write((route.to, from), due.map(|due| (self.now, due)), most, fill)
    }

    /// Claims the packets that arrive under `key` at the socket that all streams share: they are
    /// delivered to this stream with [`Packet::is_answer`](super::Packet::is_answer) set. These are
    /// reports of receivers, which know no other address. A stream has one claim, and of two claims
    /// for the same key the later one wins.
    pub const fn claim(&mut self, key: StreamKey) {
        self.claim = Some(key);
    }

    /// Ends this stream when the call returns: its socket is closed, and control gets its machine.
    pub const fn end(&mut self) {
        self.ended = true;
    }
}
