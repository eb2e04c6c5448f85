//! The streams of one thread.

use std::collections::HashMap;
use std::net::UdpSocket;

use aulos_core::Instant;
use aulos_session::datagram::{Machine, Outbox, Packet, Packets, SendQueue, StreamKey};

use super::shared::StreamTable;
use super::stats::{StreamStats, UdpStats};
use super::{EndedStream, StreamEndCause, StreamId};
use crate::slab::Slab;
use crate::wheel::{Timer, Wheel};

/// A stream.
pub(super) struct Stream<M> {
    pub(super) id: StreamId,
    pub(super) machine: M,
    /// Its own socket, or the shared port.
    pub(super) socket: Option<u64>,
    /// Its second socket, if it has two.
    pub(super) second: Option<u64>,
    /// Its key on a shared port.
    pub(super) key: Option<StreamKey>,
    pub(super) stats: StreamStats,
    /// The key that it claims at the context's own socket.
    pub(super) claim: Option<StreamKey>,
    last_packet: Instant,
    timer: Option<(Timer, Instant)>,
}

/// A stream that moves to a thread.
pub(super) struct HandedOverStream<M> {
    pub(super) id: StreamId,
    pub(super) machine: M,
    pub(super) socket: Option<UdpSocket>,
    /// Datagrams that the kernel has dropped at its socket so far.
    pub(super) lost: u32,
    /// The second socket, and the drops there.
    pub(super) second: Option<(UdpSocket, u32)>,
    pub(super) claim: Option<StreamKey>,
    pub(super) stats: StreamStats,
}

/// All streams of a thread.
pub(super) struct Streams<M> {
    pub(super) all: Slab<Box<Stream<M>>>,
    pub(super) tokens: HashMap<StreamId, u64>,
    pub(super) claims: HashMap<StreamKey, u64>,
    pub(super) wheel: Wheel,
    /// Streams that are to end.
    pub(super) ending: Vec<(u64, StreamEndCause)>,
    /// Whether ended streams still wait to be reported.
    pub(super) has_unreported_ends: bool,
    /// The id of the next stream of a shared port.
    next: u64,
}

impl<M: Machine> Streams<M> {
    pub(super) fn new(wheel: Wheel, first: u64) -> Self {
        Self {
            all: Slab::new(),
            tokens: HashMap::new(),
            claims: HashMap::new(),
            wheel,
            ending: Vec::new(),
            has_unreported_ends: false,
            next: first,
        }
    }

    /// Adds a stream, new or moved.
    pub(super) fn add(
        &mut self,
        (id, machine, stats): (StreamId, M, StreamStats),
        socket: Option<u64>,
        key: Option<StreamKey>,
        now: Instant,
    ) -> u64 {
        let claim = None;
        let second = None;
        let stream = Stream {
            id,
            machine,
            socket,
            second,
            key,
            stats,
            claim,
            last_packet: now,
            timer: None,
        };
        let token = self.all.insert_with(|_| Box::new(stream));
        self.tokens.insert(id, token);
        self.schedule(token);
        token
    }

    /// Calls `act` with a stream, and updates its timer.
    #[inline]
    pub(super) fn with_stream(
        &mut self,
        token: u64,
        queue: &mut SendQueue,
        now: Instant,
        act: impl FnOnce(&mut Stream<M>, &mut Outbox<'_>),
    ) {
        let Some(stream) = self.all.get_mut(token) else { return };
        let mut out = Outbox::new(queue, stream.socket, now);
        act(stream, &mut out);
        let (ended, claim) = (out.is_ended(), out.claimed_key());
        if ended {
            self.ending.push((token, StreamEndCause::Machine));
        }
        if let Some(key) = claim {
            self.claim(token, key);
        }
        self.schedule(token);
    }

    /// Delivers packets that arrive at the context's own socket under this key to the stream.
    pub(super) fn claim(&mut self, token: u64, key: StreamKey) {
        let Some(stream) = self.all.get_mut(token) else { return };
        let before = stream.claim.replace(key);
        if let Some(before) = before.filter(|before| self.claims.get(before) == Some(&token)) {
            self.claims.remove(&before);
        }
        self.claims.insert(key, token);
    }

    /// Delivers packets to a stream.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        token: u64,
        queue: &mut SendQueue,
        now: Instant,
        mut packets: Packets<'_>,
        (count, bytes): (u64, u64),
    ) {
        self.with_stream(token, queue, now, |stream, out| {
            stream.last_packet = now;
            stream.stats.packets += count;
            stream.stats.bytes += bytes;
            stream.machine.handle_packets(now, &mut packets, out);
        });
    }

    /// The stream of a packet on a shared port; starts a new one if allowed.
    pub(super) fn find_or_start(
        &mut self,
        table: &mut StreamTable<M>,
        socket: u64,
        now: Instant,
        packet: &Packet<'_>,
        stats: &mut UdpStats,
    ) -> Option<u64> {
        let Some(key) = table.demux.key(packet.bytes, packet.from) else {
            stats.keyless += 1;
            return None;
        };
        if let Some(token) = table.streams.get(&key) {
            return Some(*token);
        }
        let token = self.start(table, socket, now, key, packet);
        stats.refused += u64::from(token.is_none());
        token
    }

    fn start(
        &mut self,
        table: &mut StreamTable<M>,
        socket: u64,
        now: Instant,
        key: StreamKey,
        packet: &Packet<'_>,
    ) -> Option<u64> {
        if table.is_full() {
            self.evict_longest_silent(table, now)?;
        }
        let machine = table.make_machine(now, key, packet)?;
        let id = StreamId(self.next);
        self.next += 1;
        let stats = StreamStats::default();
        let token = self.add((id, machine, stats), Some(socket), Some(key), now);
        table.streams.insert(key, token);
        Some(token)
    }

    /// `None` when no stream has been silent for long enough, or when ended streams still wait for
    /// control to take them: their number must stay bounded.
    fn evict_longest_silent(&mut self, table: &mut StreamTable<M>, now: Instant) -> Option<()> {
        if self.has_unreported_ends {
            return None;
        }
        let last = |token| self.all.get(token).map(|stream| stream.last_packet);
        let token = table.longest_silent(now, last)?;
        table.streams.remove(self.all.get(token)?.key.as_ref()?);
        self.ending.push((token, StreamEndCause::Silent));
        Some(())
    }

    /// Ends the streams of a shared port that have been silent for too long.
    pub(super) fn expire(&mut self, table: &StreamTable<M>, now: Instant) {
        for token in table.streams.values() {
            if self.all.get(*token).is_some_and(|stream| now.since(stream.last_packet) > table.idle)
            {
                self.ending.push((*token, StreamEndCause::Silent));
            }
        }
    }

    /// Fires the timer of a stream.
    pub(super) fn fire_timer(&mut self, token: u64, queue: &mut SendQueue, now: Instant) {
        let Some(stream) = self.all.get_mut(token) else { return };
        stream.timer = None;
        // The deadline may have moved, or lie beyond the span of the wheel.
        if stream.machine.poll_timeout().is_some_and(|at| at <= now) {
            self.with_stream(token, queue, now, |stream, out| {
                stream.machine.handle_timeout(now, out);
            });
        } else {
            self.schedule(token);
        }
    }

    /// Removes a stream.
    pub(super) fn remove(&mut self, token: u64) -> Option<Stream<M>> {
        let stream = self.all.remove(token)?;
        self.tokens.remove(&stream.id);
        if let Some(key) = stream.claim.filter(|key| self.claims.get(key) == Some(&token)) {
            self.claims.remove(&key);
        }
        if let Some((timer, _)) = stream.timer {
            self.wheel.remove(timer);
        }
        Some(*stream)
    }

    #[inline]
    fn schedule(&mut self, token: u64) {
        let Some(stream) = self.all.get_mut(token) else { return };
        let Some(at) = stream.machine.poll_timeout() else { return };
        if let Some((timer, before)) = stream.timer {
            // A call too early costs little, and most deadlines only move later.
            if before <= at {
                return;
            }
            self.wheel.remove(timer);
        }
        stream.timer = Some((self.wheel.add_at(token, at), at));
    }
}

impl<M> Stream<M> {
    pub(super) fn into_ended(self, cause: StreamEndCause) -> EndedStream<M> {
        EndedStream { id: self.id, machine: self.machine, stats: self.stats, cause }
    }
}
