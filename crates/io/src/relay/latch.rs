//! Who may send to a stream.
//!
//! A port is open to everybody who can reach it, and RTP has no password. So the first sender who
//! proves to be one keeps the stream for as long as he sends (RFC 3550, 8.2: the first address has
//! the source). Who sends from elsewhere meanwhile is counted and not heard, under the same number or
//! under another. The sender himself may begin anew under another number at any time, as an encoder
//! does that is started again. Somebody else takes the stream over when the sender has been silent
//! for a while, or has said good-bye.
//!
//! Whatever is new has to send two packets in a row (RFC 3550, A.1), of which the first is kept here.
//! Who can write the sender's own address into his packets is not found out this way: against him
//! there is only a network that refuses such packets, or encryption.

use std::net::{IpAddr, SocketAddr};

use aulos_core::{Instant, Span};

/// A packet, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketOrigin {
    /// Which of the stream's ports it came to.
    pub(super) path: usize,
    pub(super) from: SocketAddr,
    pub(super) ssrc: u32,
    pub(super) sequence: u16,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is one of the stream.
    Ours,
    /// Nobody can say yet. It is kept, and stands behind [`Latch::take_kept`] when it is known.
    Held,
    /// Of the same source from another address; what was kept goes first.
    Joins,
    /// The first two packets of another source; what was kept goes first.
    Begins,
    /// Of somebody else.
    Foreign,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LatchCounts {
    /// Packets from another address while the sender sends.
    pub(super) other_addresses: u64,
    /// Packets of other sources that did not go on.
    pub(super) other_sources: u64,
    /// How often the sender began anew under another number.
    pub(super) restarts: u64,
    /// How often somebody else took his place.
    pub(super) takeovers: u64,
}

/// Who sends, on each of the stream's ports.
#[derive(Debug)]
pub(super) struct Latch {
    paths: [PathSender; 2],
    takeover: Span,
    /// The source before, of which packets may still be on their way, and when it ended.
    previous: Option<(u32, Instant)>,
    counts: LatchCounts,
}

/// Who sends to one port.
#[derive(Debug, Default)]
struct PathSender {
    from: Option<SocketAddr>,
    last_received: Instant,
    candidate: Candidate,
}

/// The last packet of somebody else.
#[derive(Debug, Default)]
struct Candidate {
    /// Whose it is, and the number that would be next; none when there is none.
    next: Option<(SocketAddr, u32, u16)>,
    received: Instant,
    datagram: Vec<u8>,
}

impl Latch {
    pub(super) fn new(takeover: Span) -> Self {
        Self { paths: Default::default(), takeover, previous: None, counts: LatchCounts::default() }
    }

    /// Judges a packet. `stream` is the number of the source that is followed, and whether it has
    /// proved to be one; none when there is none yet.
    ///
    /// # Real-time
    /// Allocates only for a datagram that is longer than all that were kept before.
    pub(super) fn judge(
        &mut self,
        sender: PacketOrigin,
        stream: Option<(u32, bool)>,
        received: Instant,
        datagram: &[u8],
    ) -> Verdict {
        let PacketOrigin { path: index, from, ssrc, .. } = sender;
        let Some((current, proven)) = stream else {
            self.reset();
            self.latch_to(index, from, received);
            return Verdict::Ours;
        };
        let is_behind = self.is_previous_source(ssrc, received);
        let alive =
            |way: Option<&PathSender>| way.is_some_and(|way| way.is_alive(received, self.takeover));
        let (here, there) = (alive(self.paths.get(index)), alive(self.paths.get(1 - index.min(1))));
        let Some(way) = self.paths.get_mut(index) else { return Verdict::Foreign };
        let known = way.from == Some(from);
        if known && ssrc == current {
            way.last_received = received;
            self.counts.other_sources += u64::from(way.candidate.next.take().is_some());
            return Verdict::Ours;
        }
        if known {
            way.last_received = received;
            if is_behind {
                self.counts.other_sources += 1;
                return Verdict::Foreign;
            }
        } else if proven && (here || (there && ssrc != current)) {
            self.counts.other_addresses += 1;
            return Verdict::Foreign;
        }
        if way.candidate.next != Some((from, ssrc, sender.sequence)) {
            self.counts.other_sources += u64::from(way.candidate.next.is_some());
            way.candidate.hold(sender, received, datagram);
            return Verdict::Held;
        }
        self.accept_source(sender, known, (current, proven), received)
    }

    /// The packet that was kept on that way, when it came, and where to give its memory back to.
    pub(super) fn take_held(&mut self, way: usize) -> (Instant, Vec<u8>) {
        let Some(way) = self.paths.get_mut(way) else { return Default::default() };
        (way.candidate.received, core::mem::take(&mut way.candidate.datagram))
    }

    /// Gives the memory of [`Self::take_kept`] back.
    pub(super) fn return_buffer(&mut self, way: usize, datagram: Vec<u8>) {
        if let Some(way) = self.paths.get_mut(way) {
            way.candidate.datagram = datagram;
        }
    }

    /// Nobody sends any more: whoever comes next is heard.
    pub(super) fn reset(&mut self) {
        for way in &mut self.paths {
            self.counts.other_sources += u64::from(way.candidate.next.take().is_some());
            way.from = None;
        }
        self.previous = None;
    }

    /// Packets of a source that was none: what it had sent is somebody else's.
    pub(super) const fn count_abandoned(&mut self, packets: u64) {
        self.counts.other_sources += packets;
    }

    /// Whether the sender has that address, with whatever port: reports may come from another.
    pub(super) fn is_from(&self, address: IpAddr) -> bool {
        self.paths.iter().any(|way| way.from.is_some_and(|from| from.ip() == address))
    }

    /// Who sends to that port.
    pub(super) fn sender_address(&self, way: usize) -> Option<SocketAddr> {
        self.paths.get(way)?.from
    }

    pub(super) const fn counts(&self) -> LatchCounts {
        self.counts
    }

    /// The second packet in a row.
    fn accept_source(
        &mut self,
        sender: PacketOrigin,
        known: bool,
        (current, proven): (u32, bool),
        received: Instant,
    ) -> Verdict {
        let moved = self.sender_address(sender.path).is_some() && !known;
        self.latch_to(sender.path, sender.from, received);
        if sender.ssrc == current {
            self.counts.takeovers += u64::from(moved && proven);
            return Verdict::Joins;
        }
        if known {
            self.counts.restarts += u64::from(proven);
        } else {
            self.counts.takeovers += u64::from(proven);
            // What came the other way was the old sender's.
            self.reset();
            self.latch_to(sender.path, sender.from, received);
        }
        self.previous = proven.then_some((current, received));
        Verdict::Begins
    }

    fn latch_to(&mut self, way: usize, from: SocketAddr, received: Instant) {
        if let Some(way) = self.paths.get_mut(way) {
            (way.from, way.last_received, way.candidate.next) = (Some(from), received, None);
        }
    }

    /// Of two ways one is behind: then the source that has ended is heard there for a while.
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
