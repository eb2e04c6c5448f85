//! The packets of one source, in order.

use std::collections::VecDeque;

use aulos_core::{Instant, Span};
use aulos_proto::rtp::jitter::{
    Arrival, DelayPolicy, InsertOutcome, JitterBuffer, JitterConfig, JitterMode, JitterOutput,
    JitterStats, MediaGap,
};
use aulos_proto::rtp::payload::opus_fec_ticks;
use aulos_proto::rtp::red::MAX_BLOCKS;
use aulos_proto::rtp::sequence::low_16;
use aulos_proto::rtp::{Encoding, PacketPosition, ReceiveOutcome, RtpCodec, RtpReceiver};

use super::payload::{IncomingPacket, PayloadKind, event_duration};
use super::store::{PayloadHandle, PayloadStore};
use super::{MAX_REORDER_DELAY, RtpReceiveConfig};

/// A packet that is due.
#[derive(Debug)]
pub(crate) struct ReadyPacket {
    pub(crate) sequence: u64,
    pub(crate) timestamp: u64,
    pub(crate) marker: bool,
    /// The sender restarted: decoder state is invalid.
    pub(crate) begins_run: bool,
    /// It comes after later packets that were already sent.
    pub(crate) late: bool,
    /// It is skipped because more packets are queued than can be played in time. Never set in a
    /// relay.
    pub(crate) skipped: bool,
    pub(crate) received: Instant,
    pub(crate) kind: PayloadKind,
    pub(crate) handle: PayloadHandle,
}

/// A packet in the jitter buffer.
#[derive(Debug)]
struct QueuedPacket {
    handle: PayloadHandle,
    kind: PayloadKind,
    /// By how much its timestamp is behind its position in the jitter buffer.
    event_offset: u16,
    /// It was recovered from a later packet (RED).
    is_redundant: bool,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum IngressOutput {
    Packet(ReadyPacket),
    /// No packet arrived for a stretch of media time.
    Missing(MediaGap),
}

/// The packets of one source.
#[derive(Debug)]
pub(crate) struct RtpIngress {
    encoding: Encoding,
    ssrc: u32,
    receiver: RtpReceiver,
    jitter: JitterBuffer<QueuedPacket>,
    store: PayloadStore,
    /// Packets in probation, or far from all others.
    probation: VecDeque<ProbationPacket>,
    /// Packets that are too late for the jitter buffer and are still sent.
    late: VecDeque<ReadyPacket>,
    /// A packet for which the jitter buffer has no room until due packets have left.
    waiting: Option<(Arrival, QueuedPacket)>,
    /// When the jitter buffer has to be polled again.
    wake: Option<Instant>,
    last_received: Instant,
    /// The duration of the sender's packets, in ticks of its clock.
    period: u32,
    no_room: u64,
    redundancy: RedundancyCounts,
    /// How much later than a packet its repetition is sent, and when that is forgotten.
    repair: Option<(Span, Instant)>,
    /// Whether late packets are dropped, because the audio is played and not forwarded.
    drops_late: bool,
    finished: bool,
}

/// What became of redundant copies of packets (RED).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RedundancyCounts {
    /// Copies that replaced a missing packet.
    pub(crate) used: u64,
    /// Copies that arrived after the packet had been concealed, and were dropped.
    pub(crate) late: u64,
    /// Packets that arrived after their copy, and were dropped.
    pub(crate) overtaken: u64,
    /// Copies of packets that another copy had replaced already.
    pub(crate) again: u64,
}

/// A packet that is not yet known to belong to the source.
#[derive(Debug)]
struct ProbationPacket {
    sequence: u16,
    timestamp: u32,
    marker: bool,
    received: Instant,
    waiting: QueuedPacket,
}

impl RtpIngress {
    pub(crate) fn new(receive: &RtpReceiveConfig, ssrc: u32, now: Instant) -> Self {
        let mode =
            JitterMode::Relay { hold: receive.reorder_delay.clamp(Span::ZERO, MAX_REORDER_DELAY) };
        Self::with_mode(receive, mode, ssrc, now)
    }

    /// A source that is played and not forwarded: each packet is due at its playout time, `delay`
    /// later than the fastest packets. `reorder_delay` of the config determines how many packets
    /// fit.
    pub(crate) fn with_playout(
        receive: &RtpReceiveConfig,
        delay: DelayPolicy,
        ssrc: u32,
        now: Instant,
    ) -> Self {
        Self::with_mode(receive, JitterMode::Playout(delay), ssrc, now)
    }

    fn with_mode(receive: &RtpReceiveConfig, mode: JitterMode, ssrc: u32, now: Instant) -> Self {
        let encoding = receive.media.encoding;
        let slots = receive.slots();
        let config = JitterConfig { clock_rate: encoding.clock_rate, slots, mode };
        Self {
            encoding,
            ssrc,
            receiver: RtpReceiver::new(),
            jitter: JitterBuffer::new(config),
            // Shared by queued, held and late packets: unused slots would be most of the memory of
            // a telephony stream.
            store: PayloadStore::new(slots),
            probation: VecDeque::with_capacity(MAX_HELD),
            late: VecDeque::with_capacity(LATE_SLOTS + MAX_BLOCKS),
            waiting: None,
            wake: None,
            last_received: now,
            period: encoding.clock_rate / 50,
            no_room: 0,
            redundancy: RedundancyCounts::default(),
            repair: None,
            drops_late: false,
            finished: false,
        }
    }

    /// Drops copies that come too late, for a receiver that plays the audio.
    pub(crate) fn drop_late_copies(mut self) -> Self {
        self.drops_late = true;
        self
    }

    /// Takes a packet of this source. [`RtpIngress::poll_output`] has to be drained before the next
    /// one.
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
                self.update_repair_time(packet, received);
                self.recover(packet, position, received);
                self.enqueue_packet(packet, position, back, received);
            }
            ReceiveOutcome::Restarted(position) => {
                // The packet before it is the first of the new run.
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

    /// The next output at `now`; `None` when there is none.
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
                    // All packets before it have left.
                    let (arrival, waiting) = self.waiting.take()?;
                    let _ = self.insert(arrival, waiting, false);
                    if self.finished {
                        self.jitter.finish();
                    }
                }
            }
        }
    }

    /// By how much playout was delayed in gaps since the last call.
    pub(crate) const fn take_growth(&mut self) -> Span {
        self.jitter.take_added_delay()
    }

    /// By how much earlier everything could be played.
    pub(crate) fn surplus(&self) -> Span {
        (Span::ZERO - self.jitter.suggested_adjustment()).max(Span::ZERO)
    }

    /// Tells the jitter buffer that the caller has skipped this much of a silence.
    pub(crate) fn shorten(&mut self, by: Span) {
        self.jitter.adjust(Span::ZERO - by);
    }

    /// The audio right after the packet that [`RtpIngress::poll_output`] has just reported as
    /// missing, if it is there.
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

    /// No more packets will come; what is queued becomes due.
    pub(crate) fn finish(&mut self) {
        self.release_held(None);
        self.finished = true;
        self.jitter.finish();
    }

    pub(crate) const fn receiver_mut(&mut self) -> &mut RtpReceiver {
        &mut self.receiver
    }

    pub(crate) const fn receiver(&self) -> &RtpReceiver {
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

    /// The duration of the sender's packets.
    pub(crate) fn packet_span(&self) -> Span {
        self.span_of(self.period)
    }

    /// The duration of this many ticks of the sender's clock.
    fn span_of(&self, ticks: u32) -> Span {
        let clock_rate = i64::from(self.encoding.clock_rate.max(1));
        Span::from_nanos(i64::from(ticks) * 1_000_000_000 / clock_rate)
    }

    /// Packets for which there was no room.
    pub(crate) const fn no_room(&self) -> u64 {
        self.no_room
    }

    /// What became of redundant copies.
    pub(crate) const fn redundancy_counts(&self) -> RedundancyCounts {
        self.redundancy
    }

    /// Gives repetitions of packets the time to arrive. A sender repeats nothing in its pauses, so
    /// the longest time is kept for a while.
    fn update_repair_time(&mut self, packet: &IncomingPacket<'_>, received: Instant) {
        let found = match &packet.red {
            Some(red) => red
                .iter()
                .filter(|block| !block.data.is_empty())
                .map(|one| one.timestamp_offset)
                .max()
                .map(|ticks| self.span_of(ticks.into())),
            None if self.encoding.codec == RtpCodec::Opus && packet.kind == PayloadKind::Audio => {
                opus_fec_ticks(packet.payload).map(|_| self.packet_span())
            }
            None => None,
        };
        let known = self.repair.filter(|(_, until)| received < *until);
        self.repair = match (found, known) {
            (Some(found), known) => {
                let longest = known.map_or(found, |(known, _)| known.max(found));
                Some((longest, received + REPAIR_MEMORY))
            }
            (None, known) => known,
        };
        self.jitter.set_repair_time(self.repair.map_or(Span::ZERO, |(time, _)| time));
    }

    /// All packets of a telephone event carry the time of its beginning. They are queued where
    /// audio of the same send time would be; otherwise all of them would seem late.
    fn event_offset(&self, packet: &IncomingPacket<'_>) -> u16 {
        match packet.kind {
            PayloadKind::TelephoneEvent => {
                let period = u16::try_from(self.period).unwrap_or(u16::MAX);
                event_duration(packet.payload).saturating_sub(period)
            }
            PayloadKind::Audio | PayloadKind::ComfortNoise => 0,
        }
    }

    /// Recovers missing packets from the redundant blocks of a packet. The blocks carry no sequence
    /// numbers: the number follows from the time offset, or else from the position among the
    /// blocks.
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
            // The nominal time of arrival, because the delay of the copy says nothing about the
            // network.
            let received = received - self.span_of(offset);
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

    /// Queues a packet. Returns whether it is new.
    fn enqueue(
        &mut self,
        position: PacketPosition,
        marker: bool,
        received: Instant,
        waiting: QueuedPacket,
    ) -> bool {
        let ticks = match waiting.kind {
            PayloadKind::Audio => self.encoding.ticks(self.store.get(&waiting.handle)).unwrap_or(0),
            // The duration of the audio that would have come instead.
            PayloadKind::TelephoneEvent | PayloadKind::ComfortNoise => self.period,
        };
        if ticks > 0 {
            self.period = ticks;
        }
        let PacketPosition { sequence, timestamp } = position;
        self.insert(Arrival { sequence, timestamp, ticks, marker, received }, waiting, true)
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
                // The receiver has removed real duplicates already, so this packet's copy came
                // before it.
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

    /// Queues the held packets, with the number `sequence` if it is given.
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

/// A sender without two consecutive packets among this many cannot be played.
const MAX_HELD: usize = 8;

/// A packet may release itself and all held packets.
const LATE_SLOTS: usize = MAX_HELD + 1;

/// How long after the last repetition its delay is kept: longer than a pause of a speaker.
const REPAIR_MEMORY: Span = Span::from_secs(20);
