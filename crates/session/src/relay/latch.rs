//! Decides which sender a stream accepts (RTP latching).
//!
//! A port is open to everyone who can reach it, and RTP has no authentication. So the first sender
//! that proves to be one keeps the stream for as long as it sends (RFC 3550, 8.2: the first address
//! owns the source). Packets from other addresses, with the same SSRC or another, are counted and
//! dropped meanwhile. The sender itself may start anew with another SSRC at any time, as an encoder
//! does after a restart. Another sender takes the stream over when the current one has been silent
//! for a while or has sent a BYE.
//!
//! A new source has to send two consecutive packets (RFC 3550, A.1), of which the first is held
//! here. `docs/decisions/sender-selection.md` has what this cannot detect.

use core::net::{IpAddr, SocketAddr};

use aulos_core::{Instant, Span};

/// The origin of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketOrigin {
    /// The index of the port at which it arrived.
    pub(super) path: usize,
    pub(super) from: SocketAddr,
    pub(super) ssrc: u32,
    pub(super) sequence: u16,
}

/// The decision on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acceptance {
    /// It belongs to the current source.
    Current,
    /// Undecided. It is held and available from [`Latch::take_held`] once the decision is known.
    Held,
    /// It belongs to the current source but comes from a new address; the held packet goes first.
    AddressChanged,
    /// The second packet of a new source; the held packet goes first.
    NewSource,
    /// It belongs to another sender.
    Rejected,
}

/// Counters of the latch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LatchCounts {
    /// Packets from another address while the sender is active.
    pub(super) other_addresses: u64,
    /// Packets of other sources that did not continue.
    pub(super) other_sources: u64,
    /// How often the sender restarted with another SSRC.
    pub(super) restarts: u64,
    /// How often another sender took over.
    pub(super) takeovers: u64,
}

/// The senders of the ports of a stream.
#[derive(Debug)]
pub(super) struct Latch {
    paths: [PathSender; 2],
    takeover: Span,
    /// The previous source, of which packets may still arrive, and when it ended.
    previous: Option<(u32, Instant)>,
    counts: LatchCounts,
}

/// The sender to one port.
#[derive(Debug, Default)]
struct PathSender {
    from: Option<SocketAddr>,
    last_received: Instant,
    candidate: Candidate,
}

/// The last packet of another source.
#[derive(Debug, Default)]
struct Candidate {
    /// Its sender, SSRC and next expected sequence number; `None` when there is no candidate.
    next: Option<(SocketAddr, u32, u16)>,
    received: Instant,
    datagram: Vec<u8>,
}

impl Latch {
    pub(super) fn new(takeover: Span) -> Self {
        Self { paths: Default::default(), takeover, previous: None, counts: LatchCounts::default() }
    }

    /// Decides on a packet. `stream` is the SSRC of the current source and whether it is validated;
    /// `None` without a source.
    ///
    /// # Real-time
    /// Allocates only for a datagram that is longer than all those held before.
    pub(super) fn judge(
        &mut self,
        sender: PacketOrigin,
        stream: Option<(u32, bool)>,
        received: Instant,
        datagram: &[u8],
    ) -> Acceptance {
        let PacketOrigin { path: index, from, ssrc, .. } = sender;
        let Some((current, proven)) = stream else {
            self.reset();
            self.latch_to(index, from, received);
            return Acceptance::Current;
        };
        let is_behind = self.is_previous_source(ssrc, received);
        let alive = |path: Option<&PathSender>| {
            path.is_some_and(|path| path.is_alive(received, self.takeover))
        };
        let (here, there) = (alive(self.paths.get(index)), alive(self.paths.get(1 - index.min(1))));
        let Some(path) = self.paths.get_mut(index) else { return Acceptance::Rejected };
        let known = path.from == Some(from);
        if known && ssrc == current {
            path.last_received = received;
            self.counts.other_sources += u64::from(path.candidate.next.take().is_some());
            return Acceptance::Current;
        }
        if known {
            path.last_received = received;
            if is_behind {
                self.counts.other_sources += 1;
                return Acceptance::Rejected;
            }
        } else if proven && (here || (there && ssrc != current)) {
            self.counts.other_addresses += 1;
            return Acceptance::Rejected;
        }
        if path.candidate.next != Some((from, ssrc, sender.sequence)) {
            self.counts.other_sources += u64::from(path.candidate.next.is_some());
            path.candidate.hold(sender, received, datagram);
            return Acceptance::Held;
        }
        self.accept_source(sender, known, (current, proven), received)
    }

    /// The packet held on that path, with its time of arrival. Its buffer has to be returned.
    pub(super) fn take_held(&mut self, path: usize) -> (Instant, Vec<u8>) {
        let Some(path) = self.paths.get_mut(path) else { return Default::default() };
        (path.candidate.received, core::mem::take(&mut path.candidate.datagram))
    }

    /// Returns the buffer of [`Self::take_held`].
    pub(super) fn return_buffer(&mut self, path: usize, datagram: Vec<u8>) {
        if let Some(path) = self.paths.get_mut(path) {
            path.candidate.datagram = datagram;
        }
    }

    /// Resets the latch: the next sender is accepted.
    pub(super) fn reset(&mut self) {
        for path in &mut self.paths {
            self.counts.other_sources += u64::from(path.candidate.next.take().is_some());
            path.from = None;
        }
        self.previous = None;
    }

    /// Counts the packets of a source that was never validated as foreign.
    pub(super) const fn count_abandoned(&mut self, packets: u64) {
        self.counts.other_sources += packets;
    }

    /// Whether the sender has that address, with any port: reports may come from another port.
    pub(super) fn is_from(&self, address: IpAddr) -> bool {
        self.paths.iter().any(|path| path.from.is_some_and(|from| from.ip() == address))
    }

    /// The address of the sender to that port.
    pub(super) fn sender_address(&self, path: usize) -> Option<SocketAddr> {
        self.paths.get(path)?.from
    }

    pub(super) const fn counts(&self) -> LatchCounts {
        self.counts
    }

    /// Accepts a source at its second consecutive packet.
    fn accept_source(
        &mut self,
        sender: PacketOrigin,
        known: bool,
        (current, proven): (u32, bool),
        received: Instant,
    ) -> Acceptance {
        let moved = self.sender_address(sender.path).is_some() && !known;
        self.latch_to(sender.path, sender.from, received);
        if sender.ssrc == current {
            self.counts.takeovers += u64::from(moved && proven);
            return Acceptance::AddressChanged;
        }
        if known {
            self.counts.restarts += u64::from(proven);
        } else {
            self.counts.takeovers += u64::from(proven);
            // Packets on the other path belong to the previous sender.
            self.reset();
            self.latch_to(sender.path, sender.from, received);
        }
        self.previous = proven.then_some((current, received));
        Acceptance::NewSource
    }

    fn latch_to(&mut self, path: usize, from: SocketAddr, received: Instant) {
        if let Some(path) = self.paths.get_mut(path) {
            (path.from, path.last_received, path.candidate.next) = (Some(from), received, None);
        }
    }

    /// One of two redundant paths lags behind, so packets of the previous source arrive there for a
    /// while.
    fn is_previous_source(&self, ssrc: u32, received: Instant) -> bool {
        self.previous
            .is_some_and(|(before, ended)| before == ssrc && received.since(ended) < self.takeover)
    }
}

impl PathSender {
    fn is_alive(&self, now: Instant, takeover: Span) -> bool {
        self.from.is_some() && now.since(self.last_received) < takeover
    }
}

impl Candidate {
    fn hold(&mut self, sender: PacketOrigin, received: Instant, datagram: &[u8]) {
        self.next = Some((sender.from, sender.ssrc, sender.sequence.wrapping_add(1)));
        self.received = received;
        self.datagram.clear();
        self.datagram.extend_from_slice(datagram);
    }
}
