//! How datagrams come in.

use std::io::ErrorKind;
use std::os::fd::AsFd as _;

use super::super::machine::{Clock, Machine, Packet, Packets};
use super::super::slots::{Arrived, Slots};
use super::super::stats::{Stats, StreamStats};
use super::{FLUSH_AT, Kind, Socket, Thread};
use crate::SystemClock;
use crate::sys::Receiver;

/// Room for what one call brings.
pub(super) struct Intake {
    slots: Slots,
    receiver: Receiver,
}

impl Intake {
    pub(super) fn new(count: usize, largest: usize) -> Self {
        Self { slots: Slots::new(count, largest), receiver: Receiver::new(count) }
    }

    /// For what comes joined.
    pub(super) fn wide() -> Self {
        Self::new(WIDE_SLOTS, WIDEST)
    }
}

/// What one call has brought.
#[derive(Default)]
struct Tally {
    packets: u64,
    bytes: u64,
    truncated: u64,
    empty: u64,
    lost: u64,
}

impl Tally {
    fn new(arrived: &[Arrived], lost_before: &mut u32) -> Self {
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

    const fn add_losses(&self, stats: &mut Stats) {
        stats.truncated += self.truncated;
        stats.empty += self.empty;
        stats.lost_in_kernel += self.lost;
    }

    const fn add_stream_losses(&self, stats: &mut StreamStats) {
        stats.truncated += self.truncated;
        stats.lost_in_kernel += self.lost;
    }
}

impl<M: Machine> Thread<M> {
    /// Reads a socket until nothing is left, or it has had its share.
    pub(super) fn receive(&mut self, token: u64) {
        let Some(socket) = self.sockets.get_mut(token) else { return };
        let (turns, stream) = match &mut socket.kind {
            Kind::Own(stream) | Kind::Second(stream) => (OWN_TURNS, Some(*stream)),
            Kind::Shared(table) => {
                table.begin();
                (SHARED_TURNS, None)
            }
            Kind::Post => (OWN_TURNS, None),
        };
        for _ in 0..turns {
            let read = match stream {
                Some(stream) => self.receive_own(token, stream),
                None => self.receive_shared(token),
            };
            if self.queue.now.len() >= FLUSH_AT {
                self.send();
            }
            match read {
                Read::All => return,
                // What has no way out must not come in: it would be lost between.
                Read::More if self.queue.now.len() >= MOST_UNSENT => break,
                Read::More if self.has_made_enough(token) => break,
                Read::More => {}
            }
        }
        self.stats.backlogs += 1;
        self.unread = true;
    }

    fn has_made_enough(&self, token: u64) -> bool {
        let socket = self.sockets.get(token);
        socket.is_some_and(|socket| match &socket.kind {
            Kind::Shared(table) => table.has_made_enough(),
            Kind::Own(_) | Kind::Second(_) | Kind::Post => false,
        })
    }

    /// One call for the socket of one stream.
    fn receive_own(&mut self, token: u64, stream: u64) -> Read {
        let Some(socket) = self.sockets.get_mut(token) else { return Read::All };
        let is_second = matches!(socket.kind, Kind::Second(_));
        let Intake { slots, receiver } = &mut self.usual;
        self.stats.receives += 1;
        let count = match receiver.receive(socket.socket.as_fd(), slots, OWN_BATCH) {
            Ok(count) => count,
            Err(error) => return failed(error.kind(), &mut self.stats),
        };
        let clock = Clock { ahead: self.stamps_ahead, floor: self.floor, now: SystemClock::now() };
        let tally = Tally::new(&slots.arrived[..count], &mut socket.lost);
        tally.add_losses(&mut self.stats);
        if tally.truncated + tally.lost > 0
            && let Some(stream) = self.streams.all.get_mut(stream)
        {
            tally.add_stream_losses(&mut stream.stats);
        }
        if tally.packets > 0 {
            self.stats.packets += tally.packets;
            self.stats.bytes += tally.bytes;
            let packets = Packets::many(slots.first(count), clock, is_second);
            let queue = &mut self.queue;
            self.streams.packets(stream, queue, clock.now, packets, (tally.packets, tally.bytes));
        }
        if count < OWN_BATCH { Read::All } else { Read::More }
    }

    /// One call for a socket of many streams, or of none.
    fn receive_shared(&mut self, token: u64) -> Read {
        let Some(Socket { socket, kind, lost, .. }) = self.sockets.get_mut(token) else {
            return Read::All;
        };
        let joined = matches!(kind, Kind::Shared(table) if table.joined);
        let wide = if joined { self.wide.as_mut() } else { None };
        let Intake { slots, receiver } = wide.unwrap_or(&mut self.usual);
        self.stats.receives += 1;
        let most = slots.count();
        let count = match receiver.receive(socket.as_fd(), slots, most) {
            Ok(count) => count,
            Err(error) => return failed(error.kind(), &mut self.stats),
        };
        let clock = Clock { ahead: self.stamps_ahead, floor: self.floor, now: SystemClock::now() };
        let tally = Tally::new(&slots.arrived[..count], lost);
        tally.add_losses(&mut self.stats);
        let read = if count < most { Read::All } else { Read::More };
        for (arrived, bytes) in slots.first(count).filter(|(arrived, _)| arrived.is_whole()) {
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
                    Kind::Shared(table) => streams.of_key(table, token, clock.now, &packet, stats),
                    _ => {
                        packet.is_answer = true;
                        let key = (self.answers)(packet.bytes, from);
                        let stream = key.and_then(|key| streams.claims.get(&key).copied());
                        stats.keyless += u64::from(stream.is_none());
                        stream
                    }
                };
                if let Some(stream) = stream {
                    stats.packets += 1;
                    stats.joined += u64::from(len != whole);
                    stats.bytes += len;
                    streams.packets(stream, queue, clock.now, Packets::one(packet), (1, len));
                }
            }
        }
        read
    }
}

/// Whether there may be more to read.
enum Read {
    All,
    More,
}

fn failed(kind: ErrorKind, stats: &mut Stats) -> Read {
    if kind == ErrorKind::WouldBlock {
        return Read::All;
    }
    // Somebody said that nobody is there for what was sent: the kernel says it here, once. Behind
    // it there may be datagrams.
    stats.receive_errors += u64::from(kind != ErrorKind::Interrupted);
    Read::More
}

/// Datagrams of one stream in a call. Mostly there is one, and a short answer says that it was all.
const OWN_BATCH: usize = 8;

/// Calls for one socket in a look: somebody who floods it does not keep the others waiting for longer
/// than some hundred microseconds.
const OWN_TURNS: usize = 16;

/// The same where many share one: 16,384 datagrams, half a second of 600 streams.
const SHARED_TURNS: usize = 256;

/// When so many datagrams could not be sent at once, the rest waits in the kernel.
const MOST_UNSENT: usize = 4_096;

/// Pieces of up to 64 joined datagrams in a call.
const WIDE_SLOTS: usize = 16;
const WIDEST: usize = 65_536;
