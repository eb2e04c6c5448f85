//! What arrives: order, reports to the sender, and the time of play-out.

use std::collections::VecDeque;

use aulos_core::{Instant, Span};
use aulos_proto::srt::{Acknowledgement, DataPacket, LossRange, Sequence};

use super::round_trip::RoundTrip;

/// The receiving half of a connection.
#[derive(Debug)]
pub(super) struct Receiver {
    /// The number of `slots[0]`: neither played nor given up.
    first: Sequence,
    /// Up to the highest number that has arrived.
    slots: VecDeque<Slot>,
    /// How many slots at the front have arrived.
    complete: usize,
    clock: SenderClock,
    latency: Span,
    acks: Acks,
    pub(super) round_trip: RoundTrip,
    next_ack: Instant,
    next_nak: Instant,
    pub(super) counts: ReceiveCounts,
}

#[derive(Debug, PartialEq, Eq)]
enum Slot {
    Missing,
    /// Missing, and the sender has it no more.
    Withdrawn,
    Arrived {
        due: Instant,
        payload: Vec<u8>,
    },
}

/// Counters of what has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReceiveCounts {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) lost: u64,
    pub(super) dropped: u64,
    pub(super) retransmitted: u64,
    pub(super) duplicates: u64,
}

/// The ACKs that were sent, for the round-trip time.
#[derive(Debug)]
struct Acks {
    sent: VecDeque<(u32, Instant)>,
    last_number: u32,
    last: Sequence,
    is_confirmed: bool,
}

/// The place of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// It is new; the range before it has not arrived.
    New(Option<LossRange>),
    /// It has arrived before, or too late.
    Old,
    /// Its number is beyond everything that the window allows.
    Beyond,
}

impl Receiver {
    /// `timestamp` is that of the sender's handshake, which has arrived `now`.
    pub(super) fn new(first: Sequence, timestamp: u32, latency: Span, now: Instant) -> Self {
        let acks = Acks { sent: VecDeque::new(), last_number: 0, last: first, is_confirmed: true };
        Self {
            first,
            slots: VecDeque::new(),
            complete: 0,
            clock: SenderClock::new(now, timestamp),
            latency,
            acks,
            round_trip: RoundTrip::new(),
            next_ack: now + ACK_INTERVAL,
            next_nak: now + SHORTEST_NAK_INTERVAL,
            counts: ReceiveCounts::default(),
        }
    }

    /// Whether the packet is wanted, and what is missing before it.
    pub(super) fn place(&mut self, sequence: Sequence) -> Placement {
        let Ok(offset) = usize::try_from(sequence.since(self.first)) else {
            self.counts.duplicates += 1;
            return Placement::Old;
        };
        if offset >= WINDOW_PACKETS {
            return Placement::Beyond;
        }
        let end = self.slots.len();
        if offset < end {
            return match self.slots.get(offset) {
                Some(Slot::Missing | Slot::Withdrawn) => Placement::New(None),
                _ => {
                    self.counts.duplicates += 1;
                    Placement::Old
                }
            };
        }
        let missing = offset - end;
        self.counts.lost += missing as u64;
        let first = self.number_at(end);
        self.slots.resize_with(offset + 1, || Slot::Missing);
        Placement::New((missing > 0).then(|| (first, first.plus(number(missing - 1)))))
    }

    /// Keeps a packet that has been placed.
    pub(super) fn keep(&mut self, now: Instant, packet: &DataPacket<'_>, payload: Vec<u8>) {
        self.counts.packets += 1;
        self.counts.bytes += payload.len() as u64;
        self.counts.retransmitted += u64::from(packet.is_retransmitted);
        let sent = self.clock.local_time(packet.timestamp);
        // A time that lies is not waited for.
        let due = (sent + self.latency).min(now + self.latency + MAX_EARLY);
        let offset = usize::try_from(packet.sequence.since(self.first)).ok();
        if let Some(slot) = offset.and_then(|offset| self.slots.get_mut(offset)) {
            *slot = Slot::Arrived { due, payload };
        }
        self.count_complete();
    }

    /// The next payload that is due. What is still missing before it is given up.
    pub(super) fn next_due(&mut self, now: Instant) -> Option<Vec<u8>> {
        let (present, _) = self.next_present().filter(|(_, due)| *due <= now)?;
        self.counts.dropped += present as u64;
        self.slots.drain(..present);
        let Some(Slot::Arrived { payload, .. }) = self.slots.pop_front() else { return None };
        self.first = self.first.plus(number(present + 1));
        self.complete = self.complete.saturating_sub(present + 1);
        self.count_complete();
        Some(payload)
    }

    /// The sender will not send these again, so they are not asked for.
    pub(super) fn withdraw(&mut self, (first, last): LossRange) {
        let from = usize::try_from(first.since(self.first)).unwrap_or(0);
        let Ok(last) = usize::try_from(last.since(self.first)) else { return };
        for slot in self.slots.iter_mut().take(last.saturating_add(1)).skip(from) {
            if *slot == Slot::Missing {
                *slot = Slot::Withdrawn;
            }
        }
    }

    /// An ACK, if one is due.
    pub(super) fn poll_ack(&mut self, now: Instant) -> Option<Acknowledgement> {
        if now < self.next_ack {
            return None;
        }
        let next = self.number_at(self.complete);
        let has_moved = next != self.acks.last;
        let waited = self
            .acks
            .sent
            .back()
            .is_none_or(|(_, sent)| now.since(*sent) > self.round_trip.longest());
        self.next_ack = now + ACK_INTERVAL;
        if !has_moved && (self.acks.is_confirmed || !waited) {
            return None;
        }
        let acks = &mut self.acks;
        acks.last_number = acks.last_number.wrapping_add(1).max(1);
        (acks.last, acks.is_confirmed) = (next, false);
        if acks.sent.len() >= MAX_ACKS {
            acks.sent.pop_front();
        }
        acks.sent.push_back((acks.last_number, now));
        let round_trip = self.round_trip.on_wire();
        let room = number(WINDOW_PACKETS - self.slots.len().min(WINDOW_PACKETS - 2));
        Some(Acknowledgement { number: acks.last_number, next, round_trip, room, rates: (0, 0, 0) })
    }

    /// The sender's answer to an ACK.
    pub(super) fn handle_ack_ack(&mut self, now: Instant, ack: u32, timestamp: u32) {
        let Some(at) = self.acks.sent.iter().position(|(sent, _)| *sent == ack) else { return };
        let Some((_, sent)) = self.acks.sent.get(at).copied() else { return };
        self.acks.sent.drain(..=at);
        self.acks.is_confirmed |= ack == self.acks.last_number;
        let sample = now.since(sent);
        self.round_trip.measure(sample);
        self.clock.follow(now, timestamp, sample);
    }

    /// Everything that is missing, if it is time to ask again.
    pub(super) fn poll_nak(&mut self, now: Instant) -> Option<Vec<LossRange>> {
        if now < self.next_nak {
            return None;
        }
        // A report may be lost as well; a sender does not send again what it has just sent again.
        self.next_nak = now + (self.round_trip.longest() / 3).max(SHORTEST_NAK_INTERVAL);
        let mut missing: Vec<LossRange> = Vec::new();
        let holes = self.slots.iter().enumerate().skip(self.complete);
        for (offset, _) in holes.filter(|(_, slot)| **slot == Slot::Missing) {
            let sequence = self.number_at(offset);
            match missing.last_mut() {
                Some((_, last)) if last.plus(1) == sequence => *last = sequence,
                _ => missing.push((sequence, sequence)),
            }
        }
        (!missing.is_empty()).then_some(missing)
    }

    /// When a payload is due, or a report.
    pub(super) fn poll_timeout(&self) -> Instant {
        let due = self.next_present().map_or(self.next_nak, |(_, due)| due);
        due.min(self.next_ack).min(self.next_nak)
    }

    /// The first slot that has arrived, and when it is due.
    fn next_present(&self) -> Option<(usize, Instant)> {
        self.slots.iter().enumerate().find_map(|(at, slot)| match slot {
            Slot::Arrived { due, .. } => Some((at, *due)),
            Slot::Missing | Slot::Withdrawn => None,
        })
    }

    fn count_complete(&mut self) {
        while matches!(self.slots.get(self.complete), Some(Slot::Arrived { .. })) {
            self.complete += 1;
        }
    }

    fn number_at(&self, offset: usize) -> Sequence {
        self.first.plus(number(offset))
    }
}

/// The sender's clock in local time.
#[derive(Debug)]
struct SenderClock {
    /// The local time at which its first time arrived.
    base: Instant,
    first: u64,
    /// The last of its times, extended to 64 bits; there is a cycle before the first one.
    last: u64,
    /// Deviations since the base was last moved: their sum in microseconds, and their number.
    deviations: (i64, i64),
    first_round_trip: Option<Span>,
}

impl SenderClock {
    const fn new(base: Instant, timestamp: u32) -> Self {
        let first = CYCLE + timestamp as u64;
        Self { base, first, last: first, deviations: (0, 0), first_round_trip: None }
    }

    fn local_time(&mut self, timestamp: u32) -> Instant {
        #[allow(clippy::cast_possible_truncation, reason = "the lower bits are those on the wire")]
        let ahead = timestamp.wrapping_sub(self.last as u32).cast_signed();
        self.last = self.last.saturating_add_signed(i64::from(ahead));
        self.base
            + Span::from_micros(self.last.cast_signed().saturating_sub(self.first.cast_signed()))
    }

    /// A packet that was sent just now: half of what the round trip has grown by is the network.
    fn follow(&mut self, now: Instant, timestamp: u32, round_trip: Span) {
        let first = *self.first_round_trip.get_or_insert(round_trip);
        let deviation = now - self.local_time(timestamp) - (round_trip - first) / 2;
        let (sum, count) = (self.deviations.0 + deviation.as_micros(), self.deviations.1 + 1);
        self.deviations = (sum, count);
        if count == DRIFT_SAMPLES {
            let mean = Span::from_micros(sum / count);
            if mean.abs() > DRIFT_TOLERANCE {
                self.base += mean;
            }
            self.deviations = (0, 0);
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "at most the window")]
const fn number(count: usize) -> u32 {
    count as u32
}

/// Packets that a receiver holds, 10 MB of the largest ones: 600 ms of 180 Mbit/s.
pub(super) const WINDOW_PACKETS: usize = 8_192;

/// libsrt's pace of ACKs.
const ACK_INTERVAL: Span = Span::from_millis(10);
const SHORTEST_NAK_INTERVAL: Span = Span::from_millis(20);

/// ACKs that are remembered: two thirds of a second.
const MAX_ACKS: usize = 64;

/// A packet may be due so much later than if it had been sent when it arrived.
const MAX_EARLY: Span = Span::from_secs(1);

/// Answers to ACKs, ten seconds of them, whose mean moves the clock, and by how much at least.
const DRIFT_SAMPLES: i64 = 1_000;
const DRIFT_TOLERANCE: Span = Span::from_millis(5);

const CYCLE: u64 = 1 << 32;
