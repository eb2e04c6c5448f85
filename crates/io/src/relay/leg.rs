//! The sender's side of a relay: one source, its packets in order.

use std::collections::VecDeque;

use aulos_core::{Instant, Span};
use aulos_proto::rtp::jitter::{
    Arrival, Config, Delay, Insert, JitterBuffer, Missing, Mode, Next, Stats,
};
use aulos_proto::rtp::red::MAX_BLOCKS;
use aulos_proto::rtp::sequence::low_16;
use aulos_proto::rtp::{Accepted, Encoding, Position, Receiver};

use super::Wishes;
use super::kind::{Incoming, Kind, event_duration};
use super::store::{Handle, Store};

/// A packet whose turn it is.
#[derive(Debug)]
pub(crate) struct Ready {
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
    pub(crate) kind: Kind,
    pub(crate) handle: Handle,
}

/// What stands in line.
#[derive(Debug)]
struct Waiting {
    handle: Handle,
    kind: Kind,
    /// By how much its timestamp is behind the time that it has in line.
    back: u16,
    /// It was taken out of a later packet (RED).
    copy: bool,
}

/// What a leg has to say.
#[derive(Debug)]
pub(crate) enum Turn {
    Packet(Ready),
    /// Nothing came for a piece of media time.
    Missing(Missing),
}

/// One source.
#[derive(Debug)]
pub(crate) struct Leg {
    encoding: Encoding,
    ssrc: u32,
    receiver: Receiver,
    jitter: JitterBuffer<Waiting>,
    store: Store,
    /// In probation, or far from all others.
    held: VecDeque<Held>,
    /// Too late for its turn, and to be sent all the same.
    late: VecDeque<Ready>,
    /// What found no room until what is due has gone.
    waiting: Option<(Arrival, Waiting)>,
    /// When the jitter buffer wants to be asked again.
    wake: Option<Instant>,
    heard: Instant,
    /// How long the sender's packets are, in units of its clock.
    period: u32,
    no_room: u64,
    copies: Copies,
    /// What is late is of no use: it is played, not sent on.
    drops_late: bool,
    finished: bool,
}

/// What became of packets that later ones carried again (RED).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copies {
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
struct Held {
    sequence: u16,
    timestamp: u32,
    marker: bool,
    received: Instant,
    waiting: Waiting,
}

impl Leg {
    pub(crate) fn new(wishes: &Wishes, ssrc: u32, now: Instant) -> Self {
        let mode = Mode::Relay { hold: wishes.hold.clamp(Span::ZERO, super::MAX_HOLD) };
        Self::with_mode(wishes, mode, ssrc, now)
    }

    /// A source that is played, and not sent on: each packet has its turn when it is to be heard, by
    /// `delay` later than the fastest ones. `wishes.hold` says how much has to have room.
    pub(crate) fn playing_out(wishes: &Wishes, delay: Delay, ssrc: u32, now: Instant) -> Self {
        Self::with_mode(wishes, Mode::Playout(delay), ssrc, now)
    }

    fn with_mode(wishes: &Wishes, mode: Mode, ssrc: u32, now: Instant) -> Self {
        let encoding = wishes.from.encoding;
        let slots = wishes.slots();
        let config = Config { clock_rate: encoding.clock_rate, slots, mode };
        Self {
            encoding,
            ssrc,
            receiver: Receiver::new(),
            jitter: JitterBuffer::new(config),
            // Those in line, held and late together: places that nobody ever takes would be most of
            // what a stream of telephony costs.
            store: Store::new(slots),
            held: VecDeque::with_capacity(MOST_HELD),
            late: VecDeque::with_capacity(LATE + MAX_BLOCKS),
            waiting: None,
            wake: None,
            heard: now,
            period: encoding.clock_rate / 50,
            no_room: 0,
            copies: Copies::default(),
            drops_late: false,
            finished: false,
        }
    }

    /// The same for a receiver that plays: a copy that comes too late is dropped, because nothing can
    /// be done with it.
    pub(crate) fn dropping_late_copies(mut self) -> Self {
        self.drops_late = true;
        self
    }

    /// Takes a packet of this source. [`Leg::turn`] is to be asked until it has nothing more before
    /// the next one.
    ///
    /// # Real-time
    /// Allocates only for a payload that is longer than all before it.
    pub(crate) fn receive(&mut self, packet: &Incoming<'_>, received: Instant) {
        self.heard = received;
        let back = self.back(packet);
        let (sequence, clock_rate) = (packet.sequence, self.encoding.clock_rate);
        let timestamp = packet.timestamp.wrapping_add(back.into());
        match self.receiver.receive(received, sequence, timestamp, clock_rate) {
            Accepted::Valid(position) => {
                self.let_in(None);
                self.recover(packet, position, received);
                self.keep(packet, position, back, received);
            }
            Accepted::Restarted(position) => {
                // The one before it is the first of the new run.
                self.jitter.begin_run();
                self.let_in(Some(position.sequence.saturating_sub(1)));
                self.keep(packet, position, back, received);
            }
            Accepted::Probation { fresh, .. } => {
                if fresh {
                    self.forget_held();
                }
                self.hold(packet, timestamp, back, received);
            }
            Accepted::Stray => {
                self.forget_held();
                self.hold(packet, timestamp, back, received);
            }
            Accepted::Duplicate => {}
        }
    }

    /// What is to be done at `now`; none when there is nothing more.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub(crate) fn turn(&mut self, now: Instant) -> Option<Turn> {
        if let Some(late) = self.late.pop_front() {
            return Some(Turn::Packet(late));
        }
        loop {
            let next = self.jitter.next(now);
            let skipped = matches!(next, Next::Skip(_));
            match next {
                Next::Packet(packet) | Next::Skip(packet) => {
                    let Waiting { handle, kind, back, .. } = packet.payload;
                    return Some(Turn::Packet(Ready {
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
                Next::Missing(missing) => return Some(Turn::Missing(missing)),
                Next::Wait(until) => {
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
        self.jitter.take_growth()
    }

    /// By how much earlier everything could be played than it is.
    pub(crate) fn surplus(&self) -> Span {
        (Span::ZERO - self.jitter.wish()).max(Span::ZERO)
    }

    /// The caller has left out so much of a silence.
    pub(crate) fn shortened(&mut self, by: Span) {
        self.jitter.adjust(Span::ZERO - by);
    }

    /// The sound right behind what [`Leg::turn`] has just called missing, if it is there.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub(crate) fn following(&self) -> Option<&[u8]> {
        let waiting = self.jitter.following().filter(|waiting| waiting.kind == Kind::Sound)?;
        Some(self.store.get(&waiting.handle))
    }

    pub(crate) fn payload(&self, ready: &Ready) -> &[u8] {
        self.store.get(&ready.handle)
    }

    pub(crate) fn sent(&mut self, ready: Ready) {
        self.store.give_back(ready.handle);
    }

    /// Nothing more comes: what is there is all that there is to be sent.
    pub(crate) fn finish(&mut self) {
        self.let_in(None);
        self.finished = true;
        self.jitter.finish();
    }

    pub(crate) const fn receiver_mut(&mut self) -> &mut Receiver {
        &mut self.receiver
    }

    pub(crate) const fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    pub(crate) fn line(&self) -> Stats {
        self.jitter.stats()
    }

    pub(crate) const fn ssrc(&self) -> u32 {
        self.ssrc
    }

    pub(crate) const fn heard(&self) -> Instant {
        self.heard
    }

    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        self.wake
    }

    /// Packets for which there was no place.
    pub(crate) const fn no_room(&self) -> u64 {
        self.no_room
    }

    /// What became of packets that others carried again.
    pub(crate) const fn copies(&self) -> Copies {
        self.copies
    }

    /// An event's packets all say when it began. In line they stand where sound would stand that was
    /// sent with them, or they would all seem to be late.
    fn back(&self, packet: &Incoming<'_>) -> u16 {
        match packet.kind {
            Kind::Event => {
                let period = u16::try_from(self.period).unwrap_or(u16::MAX);
                event_duration(packet.payload).saturating_sub(period)
            }
            Kind::Sound | Kind::Noise => 0,
        }
    }

    /// Takes what is missing out of a packet that carries it again. Numbers are not written there:
    /// it is the one so many packets before that its time is before, or else its place among the
    /// blocks says it.
    fn recover(&mut self, packet: &Incoming<'_>, position: Position, received: Instant) {
        let Some(red) = &packet.red else { return };
        let own = self.encoding.ticks(packet.payload).filter(|ticks| *ticks > 0);
        let kind = red.own().payload_type;
        for (block, behind) in red.iter().zip((0..red.iter().len()).rev()) {
            let (offset, behind) = (u32::from(block.offset), behind as u64);
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
            let waiting = Waiting { handle, kind: packet.kind, back: 0, copy: true };
            let timestamp = position.timestamp.saturating_sub(offset.into());
            let position = Position { sequence, timestamp };
            // When it would have come: how late it is says nothing of the way.
            let nanos =
                i64::from(offset) * 1_000_000_000 / i64::from(self.encoding.clock_rate.max(1));
            let received = received - Span::from_nanos(nanos);
            self.copies.used += u64::from(self.line_up(position, false, received, waiting));
        }
    }

    fn keep(&mut self, packet: &Incoming<'_>, position: Position, back: u16, received: Instant) {
        let Some(handle) = self.store.put(packet.payload) else {
            self.no_room += 1;
            return;
        };
        let waiting = Waiting { handle, kind: packet.kind, back, copy: false };
        self.line_up(position, packet.marker, received, waiting);
    }

    /// Whether it is one that was not there before.
    fn line_up(
        &mut self,
        position: Position,
        marker: bool,
        received: Instant,
        waiting: Waiting,
    ) -> bool {
        let units = match waiting.kind {
            Kind::Sound => self.encoding.ticks(self.store.get(&waiting.handle)).unwrap_or(0),
            // As long as whatever would have come in its place.
            Kind::Event | Kind::Noise => self.period,
        };
        if units > 0 {
            self.period = units;
        }
        let Position { sequence, timestamp } = position;
        self.insert(Arrival { sequence, timestamp, units, marker, received }, waiting, true)
    }

    fn insert(&mut self, arrival: Arrival, waiting: Waiting, again: bool) -> bool {
        match self.jitter.insert(arrival, waiting) {
            Insert::Held => true,
            Insert::Late(waiting) if waiting.copy && self.drops_late => {
                self.copies.late += 1;
                self.store.give_back(waiting.handle);
                false
            }
            Insert::Late(Waiting { handle, kind, back, .. }) => {
                let Arrival { sequence, timestamp, marker, received, .. } = arrival;
                let timestamp = timestamp.saturating_sub(back.into());
                let (begins_run, late, skipped) = (false, true, false);
                self.late.push_back(Ready {
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
            Insert::Full(waiting) if again && self.waiting.is_none() => {
                self.waiting = Some((arrival, waiting));
                true
            }
            Insert::Full(waiting) => {
                self.no_room += 1;
                self.store.give_back(waiting.handle);
                false
            }
            Insert::Duplicate(waiting) => {
                // The receiver has seen to packets that come twice: this one's copy was faster.
                self.copies.overtaken += u64::from(!waiting.copy);
                self.copies.again += u64::from(waiting.copy);
                self.store.give_back(waiting.handle);
                false
            }
            Insert::Stray(waiting) => {
                self.store.give_back(waiting.handle);
                false
            }
        }
    }

    fn hold(&mut self, packet: &Incoming<'_>, timestamp: u32, back: u16, received: Instant) {
        let room = self.held.len() < MOST_HELD;
        let Some(handle) = room.then(|| self.store.put(packet.payload)).flatten() else {
            self.no_room += 1;
            return;
        };
        let (sequence, marker) = (packet.sequence, packet.marker);
        let waiting = Waiting { handle, kind: packet.kind, back, copy: false };
        self.held.push_back(Held { sequence, timestamp, marker, received, waiting });
    }

    /// Puts what was held in line, under the number `sequence` if that is not its own.
    fn let_in(&mut self, sequence: Option<u64>) {
        while let Some(held) = self.held.pop_front() {
            let own = self.receiver.position(held.sequence, held.timestamp);
            let position = Position { sequence: sequence.unwrap_or(own.sequence), ..own };
            self.line_up(position, held.marker, held.received, held.waiting);
        }
    }

    fn forget_held(&mut self) {
        while let Some(held) = self.held.pop_front() {
            self.store.give_back(held.waiting.handle);
        }
    }
}

/// A sender of whose first packets no two stand together is none that anybody could listen to.
const MOST_HELD: usize = 8;

/// A packet brings in itself, and those that were held.
const LATE: usize = MOST_HELD + 1;
