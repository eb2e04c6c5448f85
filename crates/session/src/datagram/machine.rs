//! The trait of the state machines, and their inputs.

use core::net::SocketAddr;

use aulos_core::Instant;

use super::{Outbox, StreamKey};

/// The state machine of one stream: its inputs are packets and time, and its output is datagrams.
///
/// Hundreds of machines share a thread, so none of them may block: no lock, no file, no blocking
/// channel, no codec that takes longer than the duration of a few packets. Blocking work belongs on
/// a thread of its own, behind a ring. A machine should not allocate per packet either. Each call
/// does what can be done at once and returns.
pub trait Machine: Send + 'static {
    /// A command from control to a running stream. It is dropped on the machine's thread.
    type Command: Send + 'static;
    /// The status of a stream.
    type Report: Send + 'static;

    /// Handles the packets that arrived since the last poll, in order. Packets left in `packets`
    /// are dropped.
    fn handle_packets(&mut self, now: Instant, packets: &mut Packets<'_>, out: &mut Outbox<'_>);

    /// Does what is due. Called at the first tick after [`Self::poll_timeout`].
    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>);

    /// When to call [`Self::handle_timeout`] next. Called after every other call; `None` means
    /// never.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Handles a command from control.
    fn handle_command(&mut self, now: Instant, command: Self::Command, out: &mut Outbox<'_>);

    /// The status of the stream.
    fn report(&self) -> Self::Report;

    /// Sends what is still to be sent: the stream is being removed, or its thread is stopping.
    /// Called once, as the last call.
    fn finish(&mut self, _now: Instant, _out: &mut Outbox<'_>) {}
}

/// Creates machines for the streams of a shared port when their first packet arrives.
///
/// Called once for each new stream, and for each packet that is refused; so a refusal should be
/// fast and not allocate.
pub trait MachineFactory<M>: Send + 'static {
    /// A machine for the stream of `key`, which then gets `first` like every other packet. `None`
    /// refuses the stream: the packet is dropped, and the next packet of the stream is offered
    /// again.
    fn make(&mut self, now: Instant, key: StreamKey, first: &Packet<'_>) -> Option<M>;
}

impl<M, F: FnMut(Instant, StreamKey, &Packet<'_>) -> Option<M> + Send + 'static> MachineFactory<M>
    for F
{
    fn make(&mut self, now: Instant, key: StreamKey, first: &Packet<'_>) -> Option<M> {
        self(now, key, first)
    }
}

/// A datagram.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "what receives datagrams makes it")]
pub struct Packet<'a> {
    /// Its payload; never empty, and never truncated. It may be modified in place.
    pub bytes: &'a mut [u8],
    /// When it arrived, by the kernel's time stamp; without one, the time of the read.
    pub received: Instant,
    /// The address of the sender.
    pub from: SocketAddr,
    /// Whether it arrived at the socket that all streams send from, as an answer to what this
    /// stream has sent; see [`Outbox::claim`].
    pub is_answer: bool,
    /// Whether it arrived at the second of the stream's own sockets, of a stream over two networks.
    pub is_second: bool,
}

/// Datagrams of one stream, in the order of their arrival.
pub struct Packets<'a>(PacketSource<'a>);

enum PacketSource<'a> {
    One(Option<Packet<'a>>),
    Many(&'a mut dyn Iterator<Item = Packet<'a>>),
}

impl<'a> Packets<'a> {
    /// A single datagram.
    #[must_use]
    pub const fn one(packet: Packet<'a>) -> Self {
        Self(PacketSource::One(Some(packet)))
    }

    /// The datagrams of an iterator.
    #[must_use]
    pub fn many(packets: &'a mut dyn Iterator<Item = Packet<'a>>) -> Self {
        Self(PacketSource::Many(packets))
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Packet<'a>;

    #[inline]
    fn next(&mut self) -> Option<Packet<'a>> {
        match &mut self.0 {
            PacketSource::One(packet) => packet.take(),
            PacketSource::Many(packets) => packets.next(),
        }
    }
}

impl std::fmt::Debug for Packets<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self.0, PacketSource::One(_)) { "One(..)" } else { "Many(..)" })
    }
}
