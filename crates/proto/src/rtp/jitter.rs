//! The jitter buffer: packets go in as they come, and come out in order and in time.
//!
//! ```text
//!  insert(arrival, payload) -> Held | Late | Duplicate | Stray | Full     (each gives the payload back)
//!  next(now) -> Packet | Missing | Skip | Wait
//! ```
//!
//! It knows sequence numbers, timestamps and arrival times, and nothing of what is in a packet: to
//! conceal what is missing is a decoder's work, which knows what came before.
//!
//! The payload is of any type `P`, and never copied. A thread with thousands of streams has the
//! bytes in one slab of its own and gives handles to it; each stream then costs its slots (some
//! 50 bytes each) and about a kilobyte of statistics, and the slab is as large as all of them need
//! together. Slots with the bytes in them were the alternative: then each stream pays for its
//! longest packets all the time, and every packet is copied once more. Because a bare handle must
//! not get lost, nothing is dropped in here: what is not played is given back, with the reason.
//!
//! Packets stand in a ring of fixed slots, found by sequence number, with a bitmap of who is there.
//! Trees and hash maps allocate, and are slower at what is nearly always an append.
//!
//! # The two modes
//! *Play-out* gives each packet when its time has come: its media time, plus the transit of the
//! fastest packets, plus a delay that nearly all packets keep. The delay follows the network. It
//! grows where something has to be concealed anyway, and in silence; it shrinks in silence; and
//! otherwise it creeps by [`CREEP`] at most, which is as inaudible as a card that is off by as much.
//! Who can stretch time asks [`JitterBuffer::wish`] and orders with [`JitterBuffer::adjust`].
//!
//! *Relay* puts packets in order and otherwise keeps out of the way: what is next in line comes at
//! once, and what comes behind a hole waits as long as those that are missing can be expected. One
//! packet comes out for each one that went in.
//!
//! # Media time
//! [`Packet::position`] counts units from the first packet that came out. It goes on by exactly what
//! packets and [`Missing`] say, whatever is lost, doubled or late; when a sender begins anew with
//! other sequence numbers or timestamps, it goes on from where it was.

mod clock_units;
mod config;
mod histogram;
mod packet_ring;
mod playout;
mod received_window;
mod runs;
#[cfg(test)]
mod tests;
mod transit_estimator;
mod types;

use aulos_core::{Instant, Span};

pub use clock_units::LONGEST_PACKET;
pub use config::{DelayPolicy, JitterConfig, JitterMode, MAX_DELAY};
pub use playout::MAX_SLEW;
pub use types::{
    Arrival, BufferedPacket, GapCause, InsertOutcome, JitterOutput, JitterStats, MediaGap,
};

use clock_units::{ClockUnits, SECOND, to_instant, to_nanos};
use config::sanitize;
use packet_ring::{HeldPacket, PacketRing};
use received_window::{ReceivedWindow, SequenceStatus};
use runs::{RunPosition, RunTracker};
use transit_estimator::TransitEstimator;

/// Puts packets in order and in time; see the [module](self).
///
/// # Examples
/// ```
/// use aulos_core::{Instant, Span};
/// use aulos_proto::rtp::jitter::{Arrival, Config, Delay, Insert, JitterBuffer, Mode, Next};
///
/// let mode = Mode::Playout(Delay::Fixed(Span::from_millis(40)));
/// let mut buffer = JitterBuffer::new(Config { clock_rate: 8_000, slots: 16, mode });
/// let now = Instant::from_nanos(7_000_000_000);
/// let arrival =
///     Arrival { sequence: 65_535, timestamp: 0, units: 160, marker: true, received: now };
/// assert_eq!(buffer.insert(arrival, "payload"), Insert::Held);
///
/// assert_eq!(buffer.next(now), Next::Wait(Some(now + Span::from_millis(40))));
/// let Next::Packet(packet) = buffer.next(now + Span::from_millis(40)) else { unreachable!() };
/// assert_eq!((packet.payload, packet.position, packet.units), ("payload", 0, 160));
/// // The next one has not come when it should be played.
/// let Next::Missing(hole) = buffer.next(now + Span::from_millis(60)) else { unreachable!() };
/// assert_eq!((hole.position, hole.units), (160, 160));
/// ```
#[derive(Debug)]
pub struct JitterBuffer<P> {
    mode: JitterMode,
    units: ClockUnits,
    slots: PacketRing<P>,
    seen: ReceivedWindow,
    runs: RunTracker,
    transit: TransitEstimator,
    stats: JitterStats,
    /// The number that is next in line; `None` until a packet came out.
    head: Option<u64>,
    /// Where the media time began, as soon as something came out that was not skipped; where the
    /// last packet ended; and how far it is by now.
    start: Option<i64>,
    end: i64,
    position: i64,
    /// From media time to the time at which it is played, in nanoseconds.
    offset: i64,
    /// What of its creeping is less than a nanosecond.
    creep: f64,
    /// By how much play-out has become later in holes, and [`JitterBuffer::take_growth`] has not told.
    grown: i64,
    now: i64,
    /// When the last packet came.
    latest: i64,
    /// Everything below this number is due, to make room.
    press: u64,
    finished: bool,
    /// Since when every packet has come too late.
    late_since: Option<i64>,
    /// The length of the last packet, in units.
    period: u32,
}

impl<P> JitterBuffer<P> {
    /// An empty buffer.
    ///
    /// What is out of range in `config` is brought into it.
    #[must_use]
    pub fn new(config: JitterConfig) -> Self {
        let units = ClockUnits::new(config.clock_rate);
        let (mode, most, guess, quantile) = sanitize(config.mode);
        Self {
            mode,
            units,
            slots: PacketRing::new(config.slots.clamp(MIN_SLOTS, MAX_SLOTS)),
            seen: ReceivedWindow::new(runs::ORIGIN),
            runs: RunTracker::default(),
            transit: TransitEstimator::new(most.as_nanos(), guess.as_nanos(), quantile),
            stats: JitterStats::default(),
            head: None,
            start: None,
            end: 0,
            position: 0,
            offset: 0,
            creep: 0.0,
            grown: 0,
            now: 0,
            latest: 0,
            press: 0,
            finished: false,
            late_since: None,
            period: units.units_in_span(DEFAULT_PACKET_TIME),
        }
    }

    /// Puts a packet in line.
    ///
    /// # Real-time
    /// Neither allocates nor frees; its time does not depend on what is held.
    pub fn insert(&mut self, arrival: Arrival, payload: P) -> InsertOutcome<P> {
        // A clock that goes back is followed for as long as packets can be late, and no farther.
        let at = to_nanos(arrival.received).max(self.latest - MAX_TIMESTAMP_ERROR);
        self.latest = self.latest.max(at);
        let base = if self.transit.is_new() { at } else { self.transit.base(at) };
        let end = self.runs.end.max(self.position);
        let fresh = self.units.units_in(at.saturating_sub(base)).max(end);
        let expected = self.units.units_in(at.saturating_sub(base));
        let reach = self.units.units_in(MAX_TIMESTAMP_ERROR);
        let place = self.runs.locate(&arrival, self.seen.top(), fresh, expected, reach);
        let Some(mut place) = place else {
            self.stats.strays += 1;
            return InsertOutcome::Stray(payload);
        };
        match self.seen.status(place.seq) {
            SequenceStatus::New => {}
            SequenceStatus::Duplicate => {
                self.stats.duplicates += 1;
                return InsertOutcome::Duplicate(payload);
            }
            SequenceStatus::TooOld => {
                self.stats.strays += 1;
                return InsertOutcome::Stray(payload);
            }
        }
        let mut late = self.is_late(&place);
        if late && self.is_permanently_late(&place, at) {
            place = self.runs.begin(&arrival, self.seen.top(), fresh);
            late = false;
            // How late all that was says nothing of the way.
            self.reset_lateness();
        }
        if !late && !self.slots.fits(place.seq) {
            if self.slots.first().is_some_and(|(first, _)| place.seq > first) {
                let most = self.slots.capacity() - 1;
                let kept = match self.mode {
                    JitterMode::Relay { .. } => most,
                    JitterMode::Playout(_) => self.packets_to_keep().min(most),
                };
                self.press = place.seq.saturating_sub(kept);
                return InsertOutcome::Full(payload);
            }
            late = true;
        }
        self.record_arrival(&arrival, &place, at, late);
        if late {
            return InsertOutcome::Late(payload);
        }
        self.slots.insert(
            place.seq,
            HeldPacket {
                at: place.at,
                sequence: arrival.sequence,
                timestamp: arrival.timestamp,
                received: arrival.received,
                units: self.period_of(&arrival),
                marker: arrival.marker,
                begins_run: place.begins_run,
                payload,
            },
        );
        InsertOutcome::Held
    }

    /// What is to be done at `now`. To be called until it says `Wait`.
    ///
    /// # Real-time
    /// Neither allocates nor frees.
    pub fn poll(&mut self, now: Instant) -> JitterOutput<P> {
        let now = to_nanos(now).max(self.now);
        let elapsed = now - self.now;
        self.now = now;
        match self.mode {
            JitterMode::Relay { hold } => self.poll_relay(hold),
            JitterMode::Playout(_) => {
                self.slew(elapsed);
                self.poll_playout()
            }
        }
    }

    /// What is still there is the rest: nothing is waited for behind it. Inserting a packet takes
    /// that back.
    pub const fn finish(&mut self) {
        self.finished = true;
    }

    /// The next packet that is inserted begins a new run, whatever its numbers are: the receiver
    /// knows that the sender began anew.
    pub const fn begin_run(&mut self) {
        self.runs.end_run();
    }

    /// The payload of the packet right behind what was last said to be missing, for a codec that
    /// repeats the packet before in each (Opus with in-band error correction, RFC 2198).
    #[must_use]
    pub fn peek_following(&self) -> Option<&P> {
        let (_, held) = self.slots.first()?;
        (self.head.is_some() && held.at == self.position).then_some(&held.payload)
    }

    /// By how much later (or, when it is negative, earlier) everything should be played than it is.
    #[must_use]
    pub fn suggested_adjustment(&self) -> Span {
        match self.mode {
            JitterMode::Playout(_) if self.start.is_some() => {
                Span::from_nanos(self.target_offset().saturating_sub(self.offset))
            }
            _ => Span::ZERO,
        }
    }

    /// The caller has stretched time: everything is played later by `by`, or earlier when it is
    /// negative. Returns what was done of it: the delay stays between nothing and the most.
    pub fn adjust(&mut self, by: Span) -> Span {
        let JitterMode::Playout(delay) = self.mode else { return Span::ZERO };
        if self.start.is_none() {
            return Span::ZERO;
        }
        let base = self.transit.base(self.now);
        let (low, high) = (base, base.saturating_add(delay.most().as_nanos()));
        let to = self.offset.saturating_add(by.as_nanos());
        // What is outside already may stay there, but is not moved farther out.
        let to = to.clamp(low.min(self.offset), high.max(self.offset));
        let done = Span::from_nanos(to.saturating_sub(self.offset));
        self.offset = to;
        done
    }

    /// By how much play-out has become later in holes since the last call. A caller that hands on an
    /// unbroken stream conceals for so long, and does nothing when packets only wait.
    #[must_use = "what is taken is not told again"]
    pub const fn take_added_delay(&mut self) -> Span {
        let grown = self.grown;
        self.grown = 0;
        Span::from_nanos(grown)
    }

    /// What was counted, and what is known of the way.
    #[must_use]
    pub fn stats(&self) -> JitterStats {
        let playing = matches!(self.mode, JitterMode::Playout(_)) && self.start.is_some();
        let delay = self.offset.saturating_sub(self.transit.base(self.now));
        JitterStats {
            held: self.slots.len(),
            jitter: Span::from_nanos(self.transit.jitter()),
            delay: if playing { Span::from_nanos(delay) } else { Span::ZERO },
            target: self.target(),
            drift: self.transit.drift(),
            ..self.stats
        }
    }

    /// The time that has no packet any more, or no packet yet.
    fn is_late(&self, place: &RunPosition) -> bool {
        let Some(head) = self.head else { return false };
        let dry = self.position > self.end && matches!(self.mode, JitterMode::Playout(_));
        place.seq < head || (dry && place.at < self.position)
    }

    /// Whether a late packet is one of a stream that will never be in time again: the sender has
    /// made a pause and not told its timestamps.
    fn is_permanently_late(&self, place: &RunPosition, at: i64) -> bool {
        let since =
            self.late_since.is_some_and(|since| at.saturating_sub(since) >= PERMANENTLY_LATE_AFTER);
        since && self.slots.len() == 0 && place.seq >= self.seen.top()
    }

    fn reset_lateness(&mut self) {
        let (_, _, guess, _) = sanitize(self.mode);
        self.transit.reset_lateness(guess.as_nanos());
    }

    fn record_arrival(&mut self, arrival: &Arrival, place: &RunPosition, at: i64, late: bool) {
        self.finished = false;
        self.stats.received += 1;
        self.stats.reordered += u64::from(place.seq < self.seen.top());
        self.stats.restarts += u64::from(place.begins_run && self.stats.received > 1);
        self.seen.mark_received(place.seq);
        if place.begins_run {
            self.transit.restart();
        }
        self.transit.record(at.saturating_sub(self.units.nanos_of(place.at)), at);
        self.period = self.runs.record(arrival, place, self.period, self.units);
        if late {
            self.stats.late += 1;
            if self.head.is_some_and(|head| place.seq < head) {
                self.stats.lost = self.stats.lost.saturating_sub(1);
            }
            self.late_since = self.late_since.or(Some(at));
        } else {
            self.late_since = None;
        }
    }

    fn period_of(&self, arrival: &Arrival) -> u32 {
        if arrival.units == 0 { self.period } else { self.units.sane(arrival.units) }
    }
}

/// Relaying.
impl<P> JitterBuffer<P> {
    fn poll_relay(&mut self, hold: Span) -> JitterOutput<P> {
        let Some((seq, held)) = self.slots.first() else { return JitterOutput::Wait(None) };
        let (at, received) = (held.at, to_nanos(held.received));
        let head = *self.head.get_or_insert_with(|| {
            (self.start, self.end, self.position) = (Some(at), at, at);
            seq
        });
        if seq == head {
            return self.emit(seq);
        }
        let expected = self.units.nanos_of(at).saturating_add(self.target_offset());
        let patience = received.saturating_add(hold.as_nanos());
        let until = expected.clamp(received, patience);
        if self.now < until && seq >= self.press && !self.finished {
            return JitterOutput::Wait(Some(to_instant(until)));
        }
        // Before the first packet there is nothing to be missing behind.
        let units = self.lost_units(head, seq, at);
        self.stats.lost += self.seen.count_missing(head, seq);
        self.head = Some(seq);
        if units <= 0 {
            return self.emit(seq);
        }
        self.stats.concealed += units.unsigned_abs();
        self.emit_gap(units, GapCause::Lost)
    }
}

impl<P> JitterBuffer<P> {
    /// The first packet in line, whose number is `seq`.
    fn emit(&mut self, seq: u64) -> JitterOutput<P> {
        let Some(held) = self.slots.take_first() else { return JitterOutput::Wait(None) };
        let head = self.head.unwrap_or(seq);
        if seq > head {
            self.stats.lost += self.seen.count_missing(head, seq);
        }
        self.head = Some(seq + 1);
        self.end = self.position.max(held.at.saturating_add(i64::from(held.units)));
        self.position = self.end;
        JitterOutput::Packet(BufferedPacket {
            sequence: held.sequence,
            timestamp: held.timestamp,
            position: self.since_start(held.at),
            units: held.units,
            marker: held.marker,
            begins_run: held.begins_run,
            received: held.received,
            payload: held.payload,
        })
    }

    /// How much of the media time between `head` and `seq`, which begins at `at`, was in packets. The
    /// rest is a silence for which nothing was sent.
    fn lost_units(&self, head: u64, seq: u64, at: i64) -> i64 {
        let packets = seq.saturating_sub(head).min(runs::MAX_AHEAD).cast_signed();
        (packets * i64::from(self.period)).min(at.saturating_sub(self.end))
    }

    fn emit_gap(&mut self, units: i64, cause: GapCause) -> JitterOutput<P> {
        let position = self.since_start(self.position);
        self.position = self.position.saturating_add(units);
        JitterOutput::Missing(MediaGap { position, units: units.unsigned_abs(), cause })
    }

    fn since_start(&self, at: i64) -> u64 {
        at.saturating_sub(self.start.unwrap_or(at)).max(0).unsigned_abs()
    }

    /// What `offset` should be.
    fn target_offset(&self) -> i64 {
        let base = if self.transit.is_new() { 0 } else { self.transit.base(self.now) };
        base.saturating_add(self.target().as_nanos())
    }

    fn target(&self) -> Span {
        let lateness = Span::from_nanos(self.transit.lateness(self.now));
        match self.mode {
            JitterMode::Playout(DelayPolicy::Fixed(delay)) => delay,
            JitterMode::Playout(DelayPolicy::Adaptive { least, most, .. }) => {
                lateness.clamp(least, most)
            }
            JitterMode::Relay { hold } => lateness.min(hold),
        }
    }
}

const MIN_SLOTS: usize = 8;
const MAX_SLOTS: usize = 4_096;

/// As long as nothing else is known.
const DEFAULT_PACKET_TIME: Span = Span::from_millis(20);

/// A timestamp that is this far from where it should be is that of a sender who began anew.
const MAX_TIMESTAMP_ERROR: i64 = 10 * SECOND;

/// When everything has come too late for so long, it will go on like that.
const PERMANENTLY_LATE_AFTER: i64 = SECOND / 2;
