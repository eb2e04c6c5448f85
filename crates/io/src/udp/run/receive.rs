//! Receives datagrams.

use std::io::ErrorKind;
use std::os::fd::AsFd as _;

use aulos_session::datagram::{Machine, Packet, Packets};

use super::super::arrival::ArrivalClock;
use super::super::slots::DatagramInfo;
use super::super::stats::{StreamStats, UdpStats};
use super::buffers::ReceiveBuffers;
use super::{FLUSH_AT, SocketRole, UdpThread, WatchedSocket};
use crate::SystemClock;

/// What one call has received.
#[derive(Default)]
struct ReceiveCounts {
    packets: u64,
    bytes: u64,
    truncated: u64,
    empty: u64,
    lost: u64,
}

impl ReceiveCounts {
    fn new(arrived: &[DatagramInfo], lost_before: &mut u32) -> Self {
        let mut tally = Self::default();
        for one in arrived {
            if let Some(lost) = one.lost {
                tally.lost += u64::from(lost.wrapping_sub(*lost_before));
                *lost_before = lost;
            }
            if one.truncated {
                tally.truncated += 1;
            } else if one.len == 0 {
                tally.empty += 1;
            } else {
                tally.packets += 1;
                tally.bytes += one.len as u64;
            }
        }
        tally
    }

    const fn add_losses(&self, stats: &mut UdpStats) {
        stats.truncated += self.truncated;
        stats.empty += self.empty;
        stats.lost_in_kernel += self.lost;
    }

    const fn add_stream_losses(&self, stats: &mut StreamStats) {
        stats.truncated += self.truncated;
        stats.lost_in_kernel += self.lost;
    }
}

impl<M: Machine> UdpThread<M> {
    /// Reads a socket until it is empty or its share of the poll is used up.
    pub(super) fn receive(&mut self, token: u64) {
        let Some(socket) = self.sockets.get_mut(token) else { return };
        let (turns, stream) = match &mut socket.kind {
            SocketRole::Own(stream) | SocketRole::Second(stream) => {
                (MAX_STREAM_CALLS, Some(*stream))
            }
            SocketRole::Shared(table) => {
                table.begin_poll();
                (MAX_SHARED_CALLS, None)
            }
            SocketRole::Sending => (MAX_STREAM_CALLS, None),
        };
        for _ in 0..turns {
            let read = match stream {
                Some(stream) => self.receive_stream_socket(token, stream),
                None => self.receive_shared(token),
            };
            if self.queue.ready_count() >= FLUSH_AT {
                self.send();
            }
            match read {
                ReadStatus::Drained => return,
                // With a full send queue, packets stay in the kernel; reading them would only drop
                // them later.
                ReadStatus::More if self.queue.ready_count() >= MAX_UNSENT => break,
                ReadStatus::More if self.is_at_stream_limit(token) => break,
                ReadStatus::More => {}
            }
        }
        self.stats.backlogs += 1;
        self.unread = true;
    }

    fn is_at_stream_limit(&self, token: u64) -> bool {
        let socket = self.sockets.get(token);
        socket.is_some_and(|socket| match &socket.kind {
            SocketRole::Shared(table) => table.is_at_stream_limit(),
            SocketRole::Own(_) | SocketRole::Second(_) | SocketRole::Sending => false,
        })
    }

    /// One call for the socket of one stream.
    fn receive_stream_socket(&mut self, token: u64, stream: u64) -> ReadStatus {
        let Some(socket) = self.sockets.get_mut(token) else { return ReadStatus::Drained };
        let is_second = matches!(socket.kind, SocketRole::Second(_));
        let ReceiveBuffers { slots, receiver } = &mut self.normal_buffers;
        self.stats.receives += 1;
        let count = match receiver.receive(socket.socket.as_fd(), slots, DATAGRAMS_PER_STREAM_CALL)
        {
            Ok(count) => count,
            Err(error) => return handle_read_error(error.kind(), &mut self.stats),
        };
        let clock = ArrivalClock {
            ahead: self.timestamp_clock_offset_nanos,
            earliest_unread: self.earliest_unread,
            now: SystemClock::now(),
        };
        let tally = ReceiveCounts::new(&slots.datagrams[..count], &mut socket.lost);
        tally.add_losses(&mut self.stats);
        if tally.truncated + tally.lost > 0
            && let Some(stream) = self.streams.all.get_mut(stream)
        {
            tally.add_stream_losses(&mut stream.stats);
        }
        if tally.packets > 0 {
            self.stats.packets += tally.packets;
            self.stats.bytes += tally.bytes;
            let deliverable = slots.received(count).filter(|(arrived, _)| arrived.is_deliverable());
            let mut packets = deliverable.map(|(arrived, bytes)| {
                let received = clock.received(arrived.stamp);
                Packet { bytes, received, from: arrived.from, is_answer: false, is_second }
            });
            let (queue, packets) = (&mut self.queue, Packets::many(&mut packets));
            self.streams.deliver(stream, queue, clock.now, packets, (tally.packets, tally.bytes));
        }
        if count < DATAGRAMS_PER_STREAM_CALL { ReadStatus::Drained } else { ReadStatus::More }
    }

    /// One call for a shared port, or for the context's own socket.
    fn receive_shared(&mut self, token: u64) -> ReadStatus {
        let Some(WatchedSocket { socket, kind, lost, .. }) = self.sockets.get_mut(token) else {
            return ReadStatus::Drained;
        };
        let joined = matches!(kind, SocketRole::Shared(table) if table.joined);
        let wide = if joined { self.joined_buffers.as_mut() } else { None };
        let ReceiveBuffers { slots, receiver } = wide.unwrap_or(&mut self.normal_buffers);
        self.stats.receives += 1;
        let most = slots.count();
        let count = match receiver.receive(socket.as_fd(), slots, most) {
            Ok(count) => count,
            Err(error) => return handle_read_error(error.kind(), &mut self.stats),
        };
        let clock = ArrivalClock {
            ahead: self.timestamp_clock_offset_nanos,
            earliest_unread: self.earliest_unread,
            now: SystemClock::now(),
        };
        let tally = ReceiveCounts::new(&slots.datagrams[..count], lost);
        tally.add_losses(&mut self.stats);
        let read = if count < most { ReadStatus::Drained } else { ReadStatus::More };
        for (arrived, bytes) in
            slots.received(count).filter(|(arrived, _)| arrived.is_deliverable())
        {
            let received = clock.received(arrived.stamp);
            let whole = bytes.len() as u64;
            let size = arrived.segment.unwrap_or(bytes.len()).max(1);
            for bytes in bytes.chunks_mut(size) {
                let len = bytes.len() as u64;
                let from = arrived.from;
                let (is_answer, is_second) = (false, false);
                let mut packet = Packet { bytes, received, from, is_answer, is_second };
                let Self { streams, stats, queue, .. } = self;
                let stream = match kind {
                    SocketRole::Shared(table) => {
                        streams.find_or_start(table, token, clock.now, &packet, stats)
                    }
                    _ => {
                        packet.is_answer = true;
                        let key = (self.answer_key)(packet.bytes, from);
                        let stream = key.and_then(|key| streams.claims.get(&key).copied());
                        stats.keyless += u64::from(stream.is_none());
                        stream
                    }
                };
                if let Some(stream) = stream {
                    stats.packets += 1;
                    stats.joined += u64::from(len != whole);
                    stats.bytes += len;
                    streams.deliver(stream, queue, clock.now, Packets::one(packet), (1, len));
                }
            }
        }
        read
    }
}

/// Whether there may be more to read.
enum ReadStatus {
    Drained,
    More,
}

fn handle_read_error(kind: ErrorKind, stats: &mut UdpStats) -> ReadStatus {
    if kind == ErrorKind::WouldBlock {
        return ReadStatus::Drained;
    }
    // An ICMP error for an earlier datagram is reported here, once. Datagrams may follow.
    stats.receive_errors += u64::from(kind != ErrorKind::Interrupted);
    ReadStatus::More
}

/// Datagrams per call for a single stream. Usually there is one, and a short result means that
/// there are no more.
const DATAGRAMS_PER_STREAM_CALL: usize = 8;

/// Calls per poll for one socket: a flood delays the other sockets by no more than a few hundred
/// microseconds.
const MAX_STREAM_CALLS: usize = 16;

/// The same for shared sockets: 16,384 datagrams, half a second of 600 streams.
const MAX_SHARED_CALLS: usize = 256;

/// Reading pauses when this many datagrams are unsent.
const MAX_UNSENT: usize = 4_096;
