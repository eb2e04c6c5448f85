//! The sender's side of a relay: one source, its packets in order.

use std::collections::VecDeque;

use aulos_core::{Instant, Span};
use aulos_proto::rtp::jitter::{Arrival, Config, Insert, JitterBuffer, Mode, Next, Stats};
use aulos_proto::rtp::{Accepted, Encoding, Packet, Position, Receiver};

use super::Wishes;
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
    pub(crate) received: Instant,
    pub(crate) handle: Handle,
}

/// What a leg has to say.
#[derive(Debug)]
pub(crate) enum Turn {
    Packet(Ready),
    /// Nothing came for so many units of the encoding's clock.
    Missing(u64),
}

/// One source.
#[derive(Debug)]
pub(crate) struct Leg {
    encoding: Encoding,
    ssrc: u32,
    receiver: Receiver,
    jitter: JitterBuffer<Handle>,
    store: Store,
    /// In probation, or far from all others.
    held: VecDeque<Held>,
    /// Too late for its turn, and to be sent all the same.
    late: VecDeque<Ready>,
    /// What found no room until what is due has gone.
    waiting: Option<(Arrival, Handle)>,
    /// When the jitter buffer wants to be asked again.
    wake: Option<Instant>,
    heard: Instant,
    no_room: u64,
    finished: bool,
}

/// A packet of which nobody can say yet whether it belongs here.
#[derive(Debug)]
struct Held {
    sequence: u16,
    timestamp: u32,
    marker: bool,
    received: Instant,
    handle: Handle,
}

impl Leg {
    pub(crate) fn new(wishes: &Wishes, ssrc: u32, now: Instant) -> Self {
        let encoding = wishes.from.encoding;
        let slots = wishes.slots();
        let mode = Mode::Relay { hold: wishes.hold.clamp(Span::ZERO, super::MAX_HOLD) };
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
            late: VecDeque::with_capacity(LATE),
            waiting: None,
            wake: None,
            heard: now,
            no_room: 0,
            finished: false,
        }
    }

    /// Takes a packet of this source. [`Leg::turn`] is to be asked until it has nothing more before
    /// the next one.
    ///
    /// # Real-time
    /// Allocates only for a payload that is longer than all before it.
    pub(crate) fn receive(&mut self, packet: &Packet<'_>, received: Instant) {
        self.heard = received;
        let (sequence, timestamp) = (packet.sequence(), packet.timestamp());
        let clock_rate = self.encoding.clock_rate;
        match self.receiver.receive(received, sequence, timestamp, clock_rate) {
            Accepted::Valid(position) => {
                self.let_in(None);
                self.keep(packet, position, received);
            }
            Accepted::Restarted(position) => {
                // The one before it is the first of the new run.
                self.jitter.begin_run();
                self.let_in(Some(position.sequence.saturating_sub(1)));
                self.keep(packet, position, received);
            }
            Accepted::Probation { fresh, .. } => {
                if fresh {
                    self.forget_held();
                }
                self.hold(packet, received);
            }
            Accepted::Stray => {
                self.forget_held();
                self.hold(packet, received);
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
            match self.jitter.next(now) {
                Next::Packet(packet) | Next::Skip(packet) => {
                    return Some(Turn::Packet(Ready {
                        sequence: packet.sequence,
                        timestamp: packet.timestamp,
                        marker: packet.marker,
                        begins_run: packet.begins_run,
                        late: false,
                        received: packet.received,
                        handle: packet.payload,
                    }));
                }
                Next::Missing(missing) => return Some(Turn::Missing(missing.units)),
                Next::Wait(until) => {
                    self.wake = until;
                    // Everything before it has gone now.
                    let (arrival, handle) = self.waiting.take()?;
                    self.insert(arrival, handle, false);
                    if self.finished {
                        self.jitter.finish();
                    }
                }
            }
        }
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

    fn keep(&mut self, packet: &Packet<'_>, position: Position, received: Instant) {
        let Some(handle) = self.store.put(packet.payload()) else {
            self.no_room += 1;
            return;
        };
        self.line_up(position, packet.marker(), received, handle);
    }

    fn line_up(&mut self, position: Position, marker: bool, received: Instant, handle: Handle) {
        let units = self.encoding.ticks(self.store.get(&handle)).unwrap_or(0);
        let Position { sequence, timestamp } = position;
        self.insert(Arrival { sequence, timestamp, units, marker, received }, handle, true);
    }

    fn insert(&mut self, arrival: Arrival, handle: Handle, again: bool) {
        match self.jitter.insert(arrival, handle) {
            Insert::Held => {}
            Insert::Late(handle) => {
                let Arrival { sequence, timestamp, marker, received, .. } = arrival;
                let (begins_run, late) = (false, true);
                self.late.push_back(Ready {
                    sequence,
                    timestamp,
                    marker,
                    begins_run,
                    late,
                    received,
                    handle,
                });
            }
            Insert::Full(handle) if again && self.waiting.is_none() => {
                self.waiting = Some((arrival, handle));
            }
            Insert::Full(handle) => {
                self.no_room += 1;
                self.store.give_back(handle);
            }
            Insert::Duplicate(handle) | Insert::Stray(handle) => self.store.give_back(handle),
        }
    }

    fn hold(&mut self, packet: &Packet<'_>, received: Instant) {
        let room = self.held.len() < MOST_HELD;
        let Some(handle) = room.then(|| self.store.put(packet.payload())).flatten() else {
            self.no_room += 1;
            return;
        };
        let (sequence, timestamp) = (packet.sequence(), packet.timestamp());
        let marker = packet.marker();
        self.held.push_back(Held { sequence, timestamp, marker, received, handle });
    }

    /// Puts what was held in line, under the number `sequence` if that is not its own.
    fn let_in(&mut self, sequence: Option<u64>) {
        while let Some(held) = self.held.pop_front() {
            let own = self.receiver.position(held.sequence, held.timestamp);
            let position = Position { sequence: sequence.unwrap_or(own.sequence), ..own };
            self.line_up(position, held.marker, held.received, held.handle);
        }
    }

    fn forget_held(&mut self) {
        while let Some(held) = self.held.pop_front() {
            self.store.give_back(held.handle);
        }
    }
}

/// A sender of whose first packets no two stand together is none that anybody could listen to.
const MOST_HELD: usize = 8;

/// A packet brings in itself, and those that were held.
const LATE: usize = MOST_HELD + 1;
