//! One port for many streams.
//!
//! A socket for each stream costs a call for each packet; here one call takes them all. Every thread
//! has a socket of its own on the port, and a table of the streams that come to it.

use std::collections::HashMap;
use std::net::SocketAddr;

use aulos_core::{Instant, Span};

use super::machine::{Factory, Key, Packet};
use super::socket::SocketOptions;

/// How the streams of a shared port are told apart.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum Demux {
    /// By their SSRC ([`Key::ssrc`]), which also spreads them over the threads.
    #[default]
    Ssrc,
    /// By whom they come from. The kernel spreads them over the threads.
    From,
    /// By a function. Packets of one key have to come from one address, or they come to several
    /// threads, and each has a stream of that key. None is of no stream.
    Number(fn(&[u8], SocketAddr) -> Option<u64>),
}

impl Demux {
    #[inline]
    pub(super) fn key(self, bytes: &[u8], from: SocketAddr) -> Option<Key> {
        match self {
            Self::Ssrc => Key::ssrc(bytes),
            Self::From => Some(Key::From(from)),
            Self::Number(number) => number(bytes, from).map(Key::Number),
        }
    }
}

/// What a shared port is to be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SharedPort {
    /// Where it is; port 0 takes a free one.
    pub address: SocketAddr,
    /// How its streams are told apart.
    pub demux: Demux,
    /// What its sockets are to be. All streams share their receive buffers, so these want to be
    /// large: 50,000 packets a second for 100 ms are 4 MB.
    pub options: SocketOptions,
    /// Streams that it has at most. When there is another one, the one that has been silent for
    /// longest goes, if that is a second at least; else the new one is refused.
    pub max_streams: usize,
    /// Streams end when they have been silent for so long.
    pub idle: Span,
    /// Whether the kernel may give packets that came together in one piece: the other end is a
    /// context that sends them joined (a trunk). Costs a megabyte for each thread.
    pub joined: bool,
}

impl SharedPort {
    /// A port at `address` for 10,000 streams told apart by SSRC, of which each ends after half a
    /// minute of silence, with a receive buffer of 8 MB.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            demux: Demux::Ssrc,
            options: SocketOptions { receive_buffer: RECEIVE_BUFFER, ..SocketOptions::default() },
            max_streams: 10_000,
            idle: Span::from_secs(30),
            joined: false,
        }
    }
}

/// A shared port, for those who close it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortId(pub(super) u64);

/// A shared port that is open.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct OpenPort {
    /// Its name.
    pub id: PortId,
    /// Where it is.
    pub address: SocketAddr,
    /// How many bytes the kernel keeps for each thread's socket, as it counts them (a datagram of
    /// 172 bytes as some 832): less than was asked for, where the system's limit is lower.
    pub receive_buffer: usize,
}

/// One thread's part of a shared port.
pub(super) struct Table<M> {
    pub(super) port: PortId,
    pub(super) demux: Demux,
    pub(super) joined: bool,
    pub(super) idle: Span,
    pub(super) streams: HashMap<Key, u64>,
    factory: Box<dyn Factory<M>>,
    max_streams: usize,
    /// How many more may begin, and be looked for to go, at this look.
    may_make: usize,
    may_search: usize,
}

/// What is to become of a stream that is not in the table.
pub(super) enum Newcomer {
    /// There is room.
    Welcome,
    /// There is, if the longest silent one goes.
    InsteadOfOldest,
    Refused,
}

impl<M: 'static> Table<M> {
    pub(super) fn new(
        port: PortId,
        wish: &SharedPort,
        threads: usize,
        factory: Box<dyn Factory<M>>,
    ) -> Self {
        Self {
            port,
            demux: wish.demux,
            joined: wish.joined,
            idle: wish.idle,
            streams: HashMap::new(),
            factory,
            max_streams: wish.max_streams.div_ceil(threads.max(1)),
            may_make: 0,
            may_search: 0,
        }
    }

    /// A look begins.
    pub(super) const fn begin(&mut self) {
        (self.may_make, self.may_search) = (MAKES, SEARCHES);
    }

    pub(super) const fn newcomer(&mut self, streams: usize) -> Newcomer {
        if self.may_make == 0 {
            return Newcomer::Refused;
        }
        self.may_make -= 1;
        if streams < self.max_streams {
            return Newcomer::Welcome;
        }
        if self.may_search == 0 {
            return Newcomer::Refused;
        }
        self.may_search -= 1;
        Newcomer::InsteadOfOldest
    }

    pub(super) fn make(&mut self, now: Instant, key: Key, packet: &Packet<'_>) -> Option<M> {
        self.factory.make(now, key, packet)
    }
}

/// A second at 50,000 packets a second.
const RECEIVE_BUFFER: usize = 8 << 20;

/// Streams that may begin in one look. Whoever sends a new SSRC in every packet costs no more.
const MAKES: usize = 1_024;
/// Of these, how many may be searched a place for.
const SEARCHES: usize = 16;

/// Who has been silent for less than this does not go.
pub(super) const SILENT: Span = Span::from_secs(1);
