//! Shared ports: one port for many streams.
//!
//! A socket per stream costs a call per packet; here one call reads packets of many streams. Every
//! thread has a socket of its own on the port, and a table of the streams that arrive there.

use std::collections::HashMap;
use std::net::SocketAddr;

use aulos_core::{Instant, Span};
use aulos_session::datagram::{MachineFactory, Packet, StreamKey};

use super::socket::SocketOptions;

/// How the streams of a shared port are distinguished.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum Demux {
    /// By SSRC ([`StreamKey::ssrc`]), which also distributes them over the threads.
    #[default]
    Ssrc,
    /// By sender address. The kernel distributes them over the threads.
    Sender,
    /// By a function; `None` belongs to no stream. Packets with the same key must come from one
    /// address; otherwise they reach several threads, and each has its own stream for the key.
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

/// The configuration of a shared port.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SharedPortConfig {
    /// Its local address; port 0 selects a free one.
    pub address: SocketAddr,
    /// How its streams are distinguished.
    pub demux: Demux,
    /// Its socket options. All streams share the receive buffers, so these should be large: 50,000
    /// packets per second for 100 ms need 4 MB.
    pub options: SocketOptions,
    /// The most streams. A further stream replaces the one that has been silent for longest if that
    /// is at least a second; otherwise it is refused. It is also refused while thousands of ended
    /// streams have not been taken ([`UdpContext::poll_ended`](super::UdpContext::poll_ended)).
    pub max_streams: usize,
    /// Streams end after a silence of this length.
    pub idle: Span,
    /// Whether the kernel may deliver packets that arrived together in one piece: the peer is a
    /// context that joins its sends (a trunk). Costs a megabyte. If either kernel does not support
    /// it, packets arrive one by one. The port then belongs to a single thread.
    pub joined: bool,
}

impl SharedPortConfig {
    /// A port at `address` for 10,000 streams distinguished by SSRC, which end after half a minute
    /// of silence, with a receive buffer of 8 MB.
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

/// Identifies a shared port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortId(pub(super) u64);

/// An open shared port.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct OpenPort {
    /// Its id.
    pub id: PortId,
    /// Its local address.
    pub address: SocketAddr,
    /// The receive buffer of each thread's socket in bytes, in the kernel's accounting (a datagram
    /// of 172 bytes counts as about 832). It is smaller than requested where the system's limit is
    /// lower.
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
    /// Streams started in this poll.
    started: usize,
    /// Whether silent streams have been collected in this poll.
    searched: bool,
    /// Streams that may be replaced, with the time of their last packet; the longest silent one
    /// comes last.
    silent_streams: Vec<(Instant, u64)>,
}

impl<M: 'static> StreamTable<M> {
    pub(super) fn new(
        port: PortId,
        config: &SharedPortConfig,
        threads: usize,
        factory: Box<dyn MachineFactory<M>>,
    ) -> Self {
        Self {
            port,
            demux: config.demux,
            joined: config.joined,
            idle: config.idle,
            streams: HashMap::new(),
            factory,
            max_streams: config.max_streams.div_ceil(threads.max(1)),
            started: 0,
            searched: false,
            silent_streams: Vec::new(),
        }
    }

    /// Starts a poll.
    pub(super) const fn begin_poll(&mut self) {
        (self.started, self.searched) = (0, false);
    }

    /// Whether this poll has started so many streams that the remaining packets wait in the kernel
    /// for the next one. They are not refused: a thousand calls may begin at the same moment, and a
    /// slow poll must not lose packets that the kernel holds.
    pub(super) const fn is_at_stream_limit(&self) -> bool {
        self.started >= MAX_NEW_STREAMS
    }

    /// Whether a new stream has to replace an existing one.
    pub(super) fn is_full(&self) -> bool {
        self.streams.len() >= self.max_streams
    }

    /// The stream that has been silent for longest, and for at least [`MIN_SILENCE`]. `last`
    /// returns the time of a stream's last packet.
    ///
    /// The table is searched once per poll for all new streams. So a sender with a new SSRC in
    /// every packet costs no more than that, and each place is replaced at most once per
    /// [`MIN_SILENCE`].
    pub(super) fn longest_silent(
        &mut self,
        now: Instant,
        last: impl Fn(u64) -> Option<Instant>,
    ) -> Option<u64> {
        loop {
            while let Some((heard, token)) = self.silent_streams.pop() {
                // It may have ended, or received a packet since.
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

/// One second at 50,000 packets per second.
const RECEIVE_BUFFER: usize = 8 << 20;

/// After this many new streams in one poll, existing streams are served before more is read.
const MAX_NEW_STREAMS: usize = 1_024;

/// A stream that was silent for less than this is not replaced.
pub(super) const MIN_SILENCE: Span = Span::from_secs(1);
