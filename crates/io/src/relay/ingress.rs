//! The sender's side of a relay: one source, its packets in order.

use std::collections::VecDeque;

use aulos_core::{Instant, Span};
use aulos_proto::rtp::jitter::{
    Arrival, DelayPolicy, InsertOutcome, JitterBuffer, JitterConfig, JitterMode, JitterOutput,
    JitterStats, MediaGap,
};
use aulos_proto::rtp::red::MAX_BLOCKS;
use aulos_proto::rtp::sequence::low_16;
use aulos_proto::rtp::{Encoding, PacketPosition, ReceiveOutcome, Receiver};

use super::RelayStreamConfig;
use super::payload::{IncomingPacket, PayloadKind, event_duration};
use super::store::{PayloadHandle, PayloadStore};

/// A packet whose turn it is.
#[derive(Debug)]
pub(crate) struct ReadyPacket {
    pub(crate) sequence: u64,
    pub(crate) timestamp: u64,
    pub(crate) marker: bool,
    /// The sender began anew: what a decoder remembers is void.
    pub(crate) begins_run: bool,
    /// It comes behind some that were sent already.
    pub(crate) late: bool,
    /// There are more than can be played in time: it is passed over. Never in a relay.
    pub(crate) skipped: bool,
    pub(crate) received: Instant,
    pub(crate) kind: PayloadKind,
    pub(crate) handle: PayloadHandle,
}

/// What stands in line.
#[derive(Debug)]
struct QueuedPacket {
    handle: PayloadHandle,
    kind: PayloadKind,
    /// By how much its timestamp is behind the time that it has in line.
    event_offset: u16,
    /// It was taken out of a later packet (RED).
    is_redundant: bool,
}

/// What a leg has to say.
#[derive(Debug)]
pub(crate) enum IngressOutput {
    Packet(ReadyPacket),
    /// Nothing came for a piece of media time.
    Missing(MediaGap),
}

/// One source.
#[derive(Debug)]
pub(crate) struct RtpIngress {
    encoding: Encoding,
    ssrc: u32,
    receiver: Receiver,
    jitter: JitterBuffer<QueuedPacket>,
    store: PayloadStore,
    /// In probation, or far from all others.
    probation: VecDeque<ProbationPacket>,
    /// Too late for its turn, and to be sent all the same.
    late: VecDeque<ReadyPacket>,
    /// What found no room until what is due has gone.
    waiting: Option<(Arrival, QueuedPacket)>,
    /// When the jitter buffer wants to be asked again.
    wake: Option<Instant>,
    last_received: Instant,
    /// How long the sender's packets are, in units of its clock.
    period: u32,
    no_room: u64,
    redundancy: RedundancyCounts,
    /// What is late is of no use: it is played, not sent on.
    drops_late: bool,
    finished: bool,
}

/// What became of packets that later ones carried again (RED).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RedundancyCounts {
    /// They took the place of a missing packet.
    pub(crate) used: u64,
    /// They came when something had been made up for the packet, and were dropped.
    pub(crate) late: u64,
    /// Packets that arrived themselves after their copy, and were dropped.
    pub(crate) overtaken: u64,
    /// Another copy had taken that place already.
    pub(crate) again: u64,
}

/// A packet of which nobody can say yet whether it belongs here.
#[derive(Debug)]
struct ProbationPacket {
    sequence: u16,
    timestamp: u32,
    marker: bool,
    received: Instant,
    waiting: QueuedPacket,
}

impl RtpIngress {
    pub(crate) fn new(wishes: &RelayStreamConfig, ssrc: u32, now: Instant) -> Self {
        let mode = JitterMode::Relay {
            hold: wishes.reorder_delay.clamp(Span::ZERO, super::MAX_REORDER_DELAY),
        };
        Self::with_mode(wishes, mode, ssrc, now)
    }

    /// A source that is played, and not sent on: each packet has its turn when it is to be heard, by
    /// `delay` later than the fastest ones. `wishes.hold` says how much has to have room.
    pub(crate) fn with_playout(
        wishes: &RelayStreamConfig,
        delay: DelayPolicy,
        ssrc: u32,
        now: Instant,
    ) -> Self {
        Self::with_mode(wishes, JitterMode::Playout(delay), ssrc, now)
    }

    fn with_mode(wishes: &RelayStreamConfig, mode: JitterMode, ssrc: u32, now: Instant) -> Self {
        let encoding = wishes.from.encoding;
        let slots = wishes.slots();
        let config = JitterConfig { clock_rate: encoding.clock_rate, slots, mode };
        Self {
            encoding,
            ssrc,
            receiver: Receiver::new(),
            jitter: JitterBuffer::new(config),
            // Those in line, held and late together: places that nobody ever takes would be most of
            // what a stream of telephony costs.
            store: PayloadStore::new(slots),
            probation: VecDeque::with_capacity(MAX_HELD),
            late: VecDeque::with_capacity(LATE_SLOTS + MAX_BLOCKS),
            waiting: None,
            wake: None,
            last_received: now,
            period: encoding.clock_rate / 50,
            no_room: 0,
            redundancy: RedundancyCounts::default(),
            drops_late: false,
            finished: false,
        }
    }

    /// The same for a receiver that plays: a copy that comes too late is dropped, because nothing can
    /// be done with it.
    pub(crate) fn drop_late_copies(mut self) -> Self {
        self.drops_late = true;
        self
    }

    /// Takes a packet of this source. [`Leg::turn`] is to be asked until it has nothing more before
    /// the next one.
    ///
    /// # Real-time
    /// Allocates only for a payload that is longer than all before it.
    pub(crate) fn receive(&mut self, packet: &IncomingPacket<'_>, received: Instant) {
        self.last_received = received;
        let back = self.event_offset(packet);
        let (sequence, clock_rate) = (packet.sequence, self.encoding.clock_rate);
        let timestamp = packet.timestamp.wrapping_add(back.into());
        match self.receiver.receive(received, sequence, timestamp, clock_rate) {
            ReceiveOutcome::Valid(position) => {
                self.release_held(None);
                self.recover(packet, position, received);
                self.enqueue_packet(packet, position, back, received);
            }
            ReceiveOutcome::Restarted(position) => {
                // The one before it is the first of the new run.
                self.jitter.begin_run();
                self.release_held(Some(position.sequence.saturating_sub(1)));
                self.enqueue_packet(packet, position, back, received);
            }
            ReceiveOutcome::Probation { fresh, .. } => {
                if fresh {
                    self.discard_held();
                }
                self.hold(packet, timestamp, back, received);
            }
            ReceiveOutcome::Stray => {
                self.discard_held();
                self.hold(packet, timestamp, back, received);
            }
            ReceiveOutcome::Duplicate => {}
        }
    }

    /// What is to be done at `now`; none when there is nothing more.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub(crate) fn poll_output(&mut self, now: Instant) -> Option<IngressOutput> {
        if let Some(late) = self.late.pop_front() {
            return Some(IngressOutput::Packet(late));
        }
        loop {
            let next = self.jitter.poll(now);
            let skipped = matches!(next, JitterOutput::Skip(_));
            match next {
                JitterOutput::Packet(packet) | JitterOutput::Skip(packet) => {
                    let QueuedPacket { handle, kind, event_offset: back, .. } = packet.payload;
                    return Some(IngressOutput::Packet(ReadyPacket {
                        sequence: packet.sequence,
                        timestamp: packet.timestamp.saturating_sub(back.into()),
                        marker: packet.marker,
                        begins_run: packet.begins_run,
                        late: false,
                        skipped,
                        received: packet.received,
                        kind,
                        handle,
                    }));
                }
                JitterOutput::Missing(missing) => return Some(IngressOutput::Missing(missing)),
                JitterOutput::Wait(until) => {
                    self.wake = until;
                    // Everything before it has gone now.
                    let (arrival, waiting) = self.waiting.take()?;
                    let _ = self.insert(arrival, waiting, false);
                    if self.finished {
                        self.jitter.finish();
                    }
                }
            }
        }
    }

    /// By how much play-out has become later in holes since the last call.
    pub(crate) const fn take_growth(&mut self) -> Span {
        self.jitter.take_added_delay()
    }

    /// By how much earlier everything could be played than it is.
    pub(crate) fn surplus(&self) -> Span {
        (Span::ZERO - self.jitter.suggested_adjustment()).max(Span::ZERO)
    }

    /// The caller has left out so much of a silence.
    pub(crate) fn shorten(&mut self, by: Span) {
        self.jitter.adjust(Span::ZERO - by);
    }

    /// The sound right behind what [`Leg::turn`] has just called missing, if it is there.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub(crate) fn following(&self) -> Option<&[u8]> {
        let waiting =
            self.jitter.peek_following().filter(|waiting| waiting.kind == PayloadKind::Audio)?;
        Some(self.store.get(&waiting.handle))
    }

    pub(crate) fn payload(&self, ready: &ReadyPacket) -> &[u8] {
        self.store.get(&ready.handle)
    }

    pub(crate) fn release(&mut self, ready: ReadyPacket) {
        self.store.release(ready.handle);
    }

    /// Nothing more comes: what is there is all that there is to be sent.
    pub(crate) fn finish(&mut self) {
        self.release_held(None);
        self.finished = true;
        self.jitter.finish();
    }

    pub(crate) const fn receiver_mut(&mut self) -> &mut Receiver {
        &mut self.receiver
    }

    pub(crate) const fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    pub(crate) fn jitter_stats(&self) -> JitterStats {
        self.jitter.stats()
    }

    pub(crate) const fn ssrc(&self) -> u32 {
        self.ssrc
    }

    pub(crate) const fn last_received(&self) -> Instant {
        self.last_received
    }

    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        self.wake
    }

    /// Packets for which there was no place.
    pub(crate) const fn no_room(&self) -> u64 {
        self.no_room
    }

    /// What became of packets that others carried again.
    pub(crate) const fn redundancy_counts(&self) -> RedundancyCounts {
        self.redundancy
    }

    /// An event's packets all say when it began. In line they stand where sound would stand that was
    /// sent with them, or they would all seem to be late.
    fn event_offset(&self, packet: &IncomingPacket<'_>) -> u16 {
        match packet.kind {
            PayloadKind::TelephoneEvent => {
                let period = u16::try_from(self.period).unwrap_or(u16::MAX);
                event_duration(packet.payload).saturating_sub(period)
            }
            PayloadKind::Audio | PayloadKind::ComfortNoise => 0,
        }
    }

    /// Takes what is missing out of a packet that carries it again. Numbers are not written there:
    /// it is the one so many packets before that its time is before, or else its place among the
    /// blocks says it.
    fn recover(
        &mut self,
        packet: &IncomingPacket<'_>,
        position: PacketPosition,
        received: Instant,
    ) {
        let Some(red) = &packet.red else { return };
        let own = self.encoding.ticks(packet.payload).filter(|ticks| *ticks > 0);
        let kind = red.primary().payload_type;
        for (block, behind) in red.iter().zip((0..red.iter().len()).rev()) {
            let (offset, behind) = (u32::from(block.timestamp_offset), behind as u64);
            let by_time = own.filter(|own| offset.is_multiple_of(*own)).map(|own| offset / own);
            let by_time = by_time
                .map(u64::from)
                .filter(|by_time| (behind..=MAX_BLOCKS as u64).contains(by_time));
            let behind = by_time.unwrap_or(behind);
            let repeats = behind > 0 && block.payload_type == kind && !block.data.is_empty();
            let Some(sequence) = position.sequence.checked_sub(behind).filter(|_| repeats) else {
                continue;
            };
            if !self.receiver.is_missing(low_16(sequence)) {
                continue;
            }
            let Some(handle) = self.store.put(block.data) else { continue };
            let waiting =
                QueuedPacket { handle, kind: packet.kind, event_offset: 0, is_redundant: true };
            let timestamp = position.timestamp.saturating_sub(offset.into());
            let position = PacketPosition { sequence, timestamp };
            // When it would have come: how late it is says nothing of the way.
            let nanos =
                i64::from(offset) * 1_000_000_000 / i64::from(self.encoding.clock_rate.max(1));
            let received = received - Span::from_nanos(nanos);
            self.redundancy.used += u64::from(self.enqueue(position, false, received, waiting));
        }
    }

    fn enqueue_packet(
        &mut self,
        packet: &IncomingPacket<'_>,
        position: PacketPosition,
        back: u16,
        received: Instant,
    ) {
        let Some(handle) = self.store.put(packet.payload) else {
            self.no_room += 1;
            return;
        };
        let waiting =
            QueuedPacket { handle, kind: packet.kind, event_offset: back, is_redundant: false };
        self.enqueue(position, packet.marker, received, waiting);
    }

    /// Whether it is one that was not there before.
    fn enqueue(
        &mut self,
        position: PacketPosition,
        marker: bool,
        received: Instant,
        waiting: QueuedPacket,
    ) -> bool {
        let units = match waiting.kind {
            PayloadKind::Audio => self.encoding.ticks(self.store.get(&waiting.handle)).unwrap_or(0),
            // As long as whatever would have come in its place.
            PayloadKind::TelephoneEvent | PayloadKind::ComfortNoise => self.period,
        };
        if units > 0 {
            self.period = units;
        }
        let PacketPosition { sequence, timestamp } = position;
        self.insert(Arrival { sequence, timestamp, units, marker, received }, waiting, true)
    }

    fn insert(&mut self, arrival: Arrival, waiting: QueuedPacket, again: bool) -> bool {
        match self.jitter.insert(arrival, waiting) {
            InsertOutcome::Held => true,
            InsertOutcome::Late(waiting) if waiting.is_redundant && self.drops_late => {
                self.redundancy.late += 1;
                self.store.release(waiting.handle);
                false
            }
            InsertOutcome::Late(QueuedPacket { handle, kind, event_offset: back, .. }) => {
                let Arrival { sequence, timestamp, marker, received, .. } = arrival;
                let timestamp = timestamp.saturating_sub(back.into());
                let (begins_run, late, skipped) = (false, true, false);
                self.late.push_back(ReadyPacket {
                    sequence,
                    timestamp,
                    marker,
                    begins_run,
                    late,
                    skipped,
                    received,
                    kind,
                    handle,
                });
                true
            }
            InsertOutcome::Full(waiting) if again && self.waiting.is_none() => {
                self.waiting = Some((arrival, waiting));
                true
            }
            InsertOutcome::Full(waiting) => {
                self.no_room += 1;
                self.store.release(waiting.handle);
                false
            }
            InsertOutcome::Duplicate(waiting) => {
                // The receiver has seen to packets that come twice: this one's copy was faster.
                self.redundancy.overtaken += u64::from(!waiting.is_redundant);
                self.redundancy.again += u64::from(waiting.is_redundant);
                self.store.release(waiting.handle);
                false
            }
            InsertOutcome::Stray(waiting) => {
                self.store.release(waiting.handle);
                false
            }
        }
    }

    fn hold(&mut self, packet: &IncomingPacket<'_>, timestamp: u32, back: u16, received: Instant) {
        let room = self.probation.len() < MAX_HELD;
        let Some(handle) = room.then(|| self.store.put(packet.payload)).flatten() else {
            self.no_room += 1;
            return;
        };
        let (sequence, marker) = (packet.sequence, packet.marker);
        let waiting =
            QueuedPacket { handle, kind: packet.kind, event_offset: back, is_redundant: false };
        self.probation.push_back(ProbationPacket {
            sequence,
            timestamp,
            marker,
            received,
            waiting,
        });
    }

    /// Puts what was held in line, under the number `sequence` if that is not its own.
    fn release_held(&mut self, sequence: Option<u64>) {
        while let Some(held) = self.probation.pop_front() {
            let own = self.receiver.position(held.sequence, held.timestamp);
            let position = PacketPosition { sequence: sequence.unwrap_or(own.sequence), ..own };
            self.enqueue(position, held.marker, held.received, held.waiting);
        }
    }

    fn discard_held(&mut self) {
        while let Some(held) = self.probation.pop_front() {
            self.store.release(held.waiting.handle);
        }
    }
}

/// A sender of whose first packets no two stand together is none that anybody could listen to.
const MAX_HELD: usize = 8;

/// A packet brings in itself, and those that were held.
const LATE_SLOTS: usize = MAX_HELD + 1;
