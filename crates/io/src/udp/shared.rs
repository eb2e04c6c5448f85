//! One port for many streams.
//!
//! A socket for each stream costs a call for each packet; here one call takes them all. Every thread
//! has a socket of its own on the port, and a table of the streams that come to it.

use std::collections::HashMap;
use std::net::SocketAddr;

use aulos_core::{Instant, Span};

use super::machine::{MachineFactory, Packet, StreamKey};
use super::socket::SocketOptions;

/// How the streams of a shared port are told apart.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum Demux {
    /// By their SSRC ([`Key::ssrc`]), which also spreads them over the threads.
    #[default]
    Ssrc,
    /// By whom they come from. The kernel spreads them over the threads.
    Sender,
    /// By a function. Packets of one key have to come from one address, or they come to several
    /// threads, and each has a stream of that key. None is of no stream.
    Custom(fn(&[u8], SocketAddr) -> Option<u64>),
}

impl Demux {
    #[inline]
    pub(super) fn key(self, bytes: &[u8], from: SocketAddr) -> Option<StreamKey> {
        match self {
            Self::Ssrc => StreamKey::ssrc(bytes),
            Self::Sender => Some(StreamKey::Sender(from)),
            Self::Custom(number) => number(bytes, from).map(StreamKey::Custom),
        }
    }
}

/// What a shared port is to be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SharedPortConfig {
    /// Where it is; port 0 takes a free one.
    pub address: SocketAddr,
    /// How its streams are told apart.
    pub demux: Demux,
    /// What its sockets are to be. All streams share their receive buffers, so these want to be
    /// large: 50,000 packets a second for 100 ms are 4 MB.
    pub options: SocketOptions,
    /// Streams that it has at most. When there is another one, the one that has been silent for
    /// longest goes, if that is a second at least; else the new one is refused. It is refused too
    /// while thousands that ended have not been taken ([`Context::ended`](super::Context::ended)).
    pub max_streams: usize,
    /// Streams end when they have been silent for so long.
    pub idle: Span,
    /// Whether the kernel may give packets that came together in one piece: the other end is a
    /// context that sends them joined (a trunk). Costs a megabyte. Where the kernel of either end
    /// cannot do it, they come one by one. The port is then one thread's.
    pub joined: bool,
}

impl SharedPortConfig {
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
pub(super) struct StreamTable<M> {
    pub(super) port: PortId,
    pub(super) demux: Demux,
    pub(super) joined: bool,
    pub(super) idle: Span,
    pub(super) streams: HashMap<StreamKey, u64>,
    factory: Box<dyn MachineFactory<M>>,
    max_streams: usize,
    /// How many have begun at this look.
    started: usize,
    /// Whether the silent ones have been looked for at this look.
    searched: bool,
    /// Who may go, and when something came of each last; the longest silent one stands last.
    silent_streams: Vec<(Instant, u64)>,
}

impl<M: 'static> StreamTable<M> {
    pub(super) fn new(
        port: PortId,
        wish: &SharedPortConfig,
        threads: usize,
        factory: Box<dyn MachineFactory<M>>,
    ) -> Self {
        Self {
            port,
            demux: wish.demux,
            joined: wish.joined,
            idle: wish.idle,
            streams: HashMap::new(),
            factory,
            max_streams: wish.max_streams.div_ceil(threads.max(1)),
            started: 0,
            searched: false,
            silent_streams: Vec::new(),
        }
    }

    /// A look begins.
    pub(super) const fn begin_poll(&mut self) {
        (self.started, self.searched) = (0, false);
    }

    /// Whether so many have begun at this look that what is still in the kernel waits for the next
    /// one. It is not refused: a thousand calls may begin in one moment, and nothing that the kernel
    /// has is lost because we are slow.
    pub(super) const fn is_at_stream_limit(&self) -> bool {
        self.started >= MAX_NEW_STREAMS
    }

    /// Whether another stream needs the place of one that is there.
    pub(super) fn is_full(&self) -> bool {
        self.streams.len() >= self.max_streams
    }

    /// Who has been silent for longest, and for [`SILENT`] at least. `last` says when something came
    /// of a stream.
    ///
    /// The table is searched once in a look, for all who want a place. So whoever sends a new SSRC in
    /// every packet costs no more than that, and each place changes hands once in [`SILENT`] at most.
    pub(super) fn longest_silent(
        &mut self,
        now: Instant,
        last: impl Fn(u64) -> Option<Instant>,
    ) -> Option<u64> {
        loop {
            while let Some((heard, token)) = self.silent_streams.pop() {
                // It may have ended, or said something since.
                if last(token) == Some(heard) {
                    return Some(token);
                }
            }
            if std::mem::replace(&mut self.searched, true) {
                return None;
            }
            let places = self.streams.values();
            let all = places.filter_map(|token| Some((last(*token)?, *token)));
            self.silent_streams.extend(all.filter(|(heard, _)| now.since(*heard) >= MIN_SILENCE));
            self.silent_streams.sort_unstable_by(|a, b| b.cmp(a));
        }
    }

    pub(super) fn make_machine(
        &mut self,
        now: Instant,
        key: StreamKey,
        packet: &Packet<'_>,
    ) -> Option<M> {
        let machine = self.factory.make(now, key, packet)?;
        self.started += 1;
        Some(machine)
    }
}

/// A second at 50,000 packets a second.
const RECEIVE_BUFFER: usize = 8 << 20;

/// When so many streams have begun in one look, those that are served already have their turn before
/// more are read.
const MAX_NEW_STREAMS: usize = 1_024;

/// Who has been silent for less than this does not go.
pub(super) const MIN_SILENCE: Span = Span::from_secs(1);
