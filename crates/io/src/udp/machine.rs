//! What runs on the shared threads, and what it is given.

use std::net::SocketAddr;

use aulos_core::Instant;

use super::Outbox;
use super::slots::{DatagramInfo, ReceivedDatagrams};

/// One stream: it is told what came and what the time is, and says what is to be sent.
///
/// Hundreds of machines share a thread, so none of them may wait: no lock, no file, no channel that
/// blocks, no codec that takes longer than a few packets' time. What has to wait belongs to a thread
/// of its own, with a ring between. Nor should a machine allocate for a packet. Each call does what
/// is to be done at once and returns.
pub trait Machine: Send + 'static {
    /// What control can tell a stream while it runs. It is dropped on the shared thread.
    type Command: Send + 'static;
    /// What a stream says of itself when control asks for all of them.
    type Report: Send + 'static;

    /// Takes what came for this stream since the last look, in the order of arrival. What is left in
    /// `packets` is lost.
    fn handle_packets(&mut self, now: Instant, packets: &mut Packets<'_>, out: &mut Outbox<'_>);

    /// Does what is due. Called at the first tick behind [`Self::poll_timeout`].
    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>);

    /// When to call [`Self::handle_timeout`] next. Asked behind every other call; none costs nothing.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Does as control says.
    fn handle_command(&mut self, now: Instant, order: Self::Command, out: &mut Outbox<'_>);

    /// What there is to know.
    fn report(&self) -> Self::Report;

    /// Sends what is still to be sent: the stream is removed, or the whole context stops. Called
    /// once, and nothing is called behind it.
    fn finish(&mut self, _now: Instant, _out: &mut Outbox<'_>) {}
}

/// Makes machines for the streams of a shared port when their first packet comes.
///
/// Called once for each stream that begins, and for each packet that it refuses; so a refusal should
/// be quick and not allocate.
pub trait MachineFactory<M>: Send + 'static {
    /// A machine for the stream of `key`, which then gets `first` like every other packet. None
    /// refuses: the packet is lost, and the next one of that stream asks again.
    fn make(&mut self, now: Instant, key: StreamKey, first: &Packet<'_>) -> Option<M>;
}

impl<M, F: FnMut(Instant, StreamKey, &Packet<'_>) -> Option<M> + Send + 'static> MachineFactory<M>
    for F
{
    fn make(&mut self, now: Instant, key: StreamKey, first: &Packet<'_>) -> Option<M> {
        self(now, key, first)
    }
}

/// What tells the streams of a shared port apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamKey {
    /// The synchronisation source of RTP.
    Ssrc(u32),
    /// Where the packets come from.
    Sender(SocketAddr),
    /// Whatever a function of the user's own makes of a packet.
    Custom(u64),
}

impl StreamKey {
    /// The SSRC of a packet of RTP, or of the RTCP that shares its port (RFC 5761). None when it is
    /// too short or of another version than 2.
    #[must_use]
    pub fn ssrc(bytes: &[u8]) -> Option<Self> {
        let [first, kind, ..] = *bytes else { return None };
        let at = if matches!(kind, RTCP_FIRST..=RTCP_LAST) { 4 } else { 8 };
        let ssrc = bytes.get(at..)?.first_chunk()?;
        (first >> 6 == RTP_VERSION).then_some(Self::Ssrc(u32::from_be_bytes(*ssrc)))
    }

    /// The SSRC that a packet of RTCP is about: that of its first report if it has one, else its
    /// sender's. None for everything else.
    #[must_use]
    pub fn reported_ssrc(bytes: &[u8]) -> Option<Self> {
        let [first, kind, ..] = *bytes else { return None };
        if first >> 6 != RTP_VERSION || !matches!(kind, RTCP_FIRST..=RTCP_LAST) {
            return None;
        }
        // RFC 3550 section 6.4: reports stand behind the header, or behind what a sender says.
        let at = match (kind, first & RTCP_COUNT) {
            (RTCP_SENDER, 1..) => 28,
            (RTCP_RECEIVER, 1..) => 8,
            _ => 4,
        };
        Some(Self::Ssrc(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?)))
    }
}

/// A datagram.
#[derive(Debug)]
#[non_exhaustive]
pub struct Packet<'a> {
    /// What is in it; never empty, and never cut. It may be changed in place.
    pub bytes: &'a mut [u8],
    /// When it came to this machine, as the kernel noted. Only where the kernel does not: when it was
    /// read.
    pub received: Instant,
    /// Who sent it.
    pub from: SocketAddr,
    /// Whether it came to the socket that the context sends from: an answer to what this stream has
    /// sent; see [`Outbox::claim`].
    pub is_answer: bool,
    /// Whether it came to the second of the stream's own sockets; see [`super::Context::add_two`].
    pub is_second: bool,
}

/// Some datagrams of one stream.
#[derive(Debug)]
pub struct Packets<'a>(PacketSource<'a>);

enum PacketSource<'a> {
    One(Option<Packet<'a>>),
    Many(ReceivedDatagrams<'a>, ArrivalClock, bool),
}

impl std::fmt::Debug for PacketSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::One(_)) { "One(..)" } else { "Many(..)" })
    }
}

impl<'a> Packets<'a> {
    pub(super) const fn one(packet: Packet<'a>) -> Self {
        Self(PacketSource::One(Some(packet)))
    }

    pub(super) const fn many(
        batch: ReceivedDatagrams<'a>,
        clock: ArrivalClock,
        is_second: bool,
    ) -> Self {
        Self(PacketSource::Many(batch, clock, is_second))
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Packet<'a>;

    #[inline]
    fn next(&mut self) -> Option<Packet<'a>> {
        match &mut self.0 {
            PacketSource::One(packet) => packet.take(),
            PacketSource::Many(batch, clock, is_second) => {
                let (arrived, bytes) = batch.find(|(arrived, _)| arrived.is_deliverable())?;
                let received = clock.received(arrived.stamp);
                let (from, is_second) = (arrived.from, *is_second);
                Some(Packet { bytes, received, from, is_answer: false, is_second })
            }
        }
    }
}

/// Turns the kernel's stamps, which are of the wall clock, into the house's time.
///
/// An administrator may set the wall clock between the stamp and its reading. So a packet is never
/// said to have come after it was read, or before the last look at which nothing was left unread.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivalClock {
    /// Nanoseconds from the house's clock to the wall's.
    pub(super) ahead: i64,
    pub(super) earliest_unread: Instant,
    pub(super) now: Instant,
}

impl ArrivalClock {
    #[inline]
    pub(super) fn received(&self, stamp: Option<u64>) -> Instant {
        let Some(stamp) = stamp else { return self.now };
        let at = stamp.checked_add_signed(self.ahead.saturating_neg()).unwrap_or(0);
        Instant::from_nanos(at).clamp(self.earliest_unread.min(self.now), self.now)
    }
}

impl DatagramInfo {
    /// Whether somebody is to have it.
    #[inline]
    pub(super) const fn is_deliverable(&self) -> bool {
        self.len > 0 && !self.truncated
    }
}

const RTP_VERSION: u8 = 2;

/// Sender and receiver reports, and how many reports they hold.
const RTCP_SENDER: u8 = 200;
const RTCP_RECEIVER: u8 = 201;
const RTCP_COUNT: u8 = 0x1F;

/// Where RTCP shares a port with RTP, these are its packet types (RFC 5761 section 4).
const RTCP_FIRST: u8 = 192;
const RTCP_LAST: u8 = 223;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_never_of_the_future_nor_from_before_the_last_look() {
        let at = Instant::from_nanos;
        let clock = ArrivalClock { ahead: 1_000_000, earliest_unread: at(500), now: at(900) };
        assert_eq!(clock.received(Some(1_000_700)), at(700));
        assert_eq!(clock.received(Some(1_000_950)), at(900));
        // The wall clock was set, by a year and to its beginning.
        assert_eq!(clock.received(Some(31_536_000_000_000_000)), at(900));
        assert_eq!(clock.received(Some(0)), at(500));
        assert_eq!(clock.received(None), at(900));
    }

    #[test]
    fn an_ssrc_is_found_in_rtp_and_in_rtcp_and_in_nothing_else() {
        let rtp = [0x80, 0, 0, 1, 0, 0, 0, 2, 0xDE, 0xAD, 0xBE, 0xEF];
        assert_eq!(StreamKey::ssrc(&rtp), Some(StreamKey::Ssrc(0xDEAD_BEEF)));
        // The marker makes 128 more of the payload type, 0 to 34 and 96 to 127.
        assert_eq!(
            StreamKey::ssrc(&[&[0x80, 0x80 | 34], &rtp[2..]].concat()),
            Some(StreamKey::Ssrc(0xDEAD_BEEF))
        );
        let report = [0x80, 200, 0, 1, 0xDE, 0xAD, 0xBE, 0xEF];
        assert_eq!(StreamKey::ssrc(&report), Some(StreamKey::Ssrc(0xDEAD_BEEF)));
        for wrong in [&rtp[..11], &report[..7], &[][..], &[0x80][..], &[0x40; 12][..]] {
            assert_eq!(StreamKey::ssrc(wrong), None, "{wrong:?}");
        }
    }
}
