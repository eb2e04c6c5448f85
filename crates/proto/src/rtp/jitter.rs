//! Jitter buffer: packets are inserted in the order of arrival, and come out in sequence and at
//! their time.
//!
//! ```text
//!  insert(arrival, payload) -> Held | Late | Duplicate | Stray | Full
//!                             (all but Held return the payload)
//!  poll(now) -> Packet | Missing | Skip | Wait
//! ```
//!
//! The buffer uses sequence numbers, timestamps and arrival times, and knows nothing of the
//! payload. Concealing a gap is left to the decoder, which has the state of the audio before it.
//!
//! The payload has any type `P` and is never copied. A thread with thousands of streams keeps the
//! bytes in one slab and inserts handles; a stream then costs its slots (about 50 bytes each) and
//! about a kilobyte of statistics, and the slab is as large as all streams together need. The
//! reasons are in `docs/decisions/packet-slab.md`. Because a handle must not get lost, the buffer
//! drops nothing: every payload is returned, with the reason.
//!
//! Packets are stored in a ring of fixed slots indexed by sequence number, with a bitmap of the
//! occupied ones.
//!
//! # The two modes
//! *Play-out* returns each packet at its playout time: its media time, plus the transit of the
//! fastest packets, plus a delay within which nearly all packets arrive. The delay follows the
//! network. It grows during concealment and silence, and shrinks during silence. Otherwise it
//! changes by at most [`MAX_SLEW`], which is as inaudible as the clock error of a sound card. A
//! caller with a time stretcher queries [`JitterBuffer::suggested_adjustment`] and applies it with
//! [`JitterBuffer::adjust`].
//!
//! *Relay* sorts packets and otherwise adds as little delay as possible: the next packet in
//! sequence comes out at once, and a packet after a gap waits as long as the missing ones can be
//! expected. One packet comes out for each inserted one.
//!
//! # Media time
//! [`BufferedPacket::position`] counts ticks from the first packet that came out. It advances
//! exactly by the packets and each [`MediaGap`], whatever is lost, duplicated or late. When a
//! sender restarts with other sequence numbers or timestamps, it continues from the current
//! position.

mod config;
mod histogram;
mod packet_ring;
mod playout;
mod received_window;
mod runs;
#[cfg(test)]
mod tests;
mod tick_converter;
mod transit_estimator;
mod types;

use aulos_core::{Instant, Span};

pub use config::{DelayPolicy, JitterConfig, JitterMode, MAX_DELAY};
pub use playout::MAX_SLEW;
pub use tick_converter::LONGEST_PACKET;
pub use types::{
    Arrival, BufferedPacket, GapCause, InsertOutcome, JitterOutput, JitterStats, MediaGap,
};

use config::sanitize;
use packet_ring::{HeldPacket, PacketRing};
use received_window::{ReceivedWindow, SequenceStatus};
use runs::{RunPosition, RunTracker};
use tick_converter::{SECOND, TickConverter, to_instant, to_nanos};
use transit_estimator::TransitEstimator;

/// Sorts packets and returns them at their time; see the [module](self).
///
/// # Examples
/// ```
/// use aulos_core::{Instant, Span};
/// use aulos_proto::rtp::jitter::{
///     Arrival, DelayPolicy, InsertOutcome, JitterBuffer, JitterConfig, JitterMode, JitterOutput,
/// };
///
/// let mode = JitterMode::Playout(DelayPolicy::Fixed(Span::from_millis(40)));
/// let mut buffer = JitterBuffer::new(JitterConfig { clock_rate: 8_000, slots: 16, mode });
/// let now = Instant::from_nanos(7_000_000_000);
/// let arrival =
///     Arrival { sequence: 65_535, timestamp: 0, ticks: 160, marker: true, received: now };
/// assert_eq!(buffer.insert(arrival, "payload"), InsertOutcome::Held);
///
/// assert_eq!(buffer.poll(now), JitterOutput::Wait(Some(now + Span::from_millis(40))));
/// let output = buffer.poll(now + Span::from_millis(40));
/// let JitterOutput::Packet(packet) = output else { unreachable!() };
/// assert_eq!((packet.payload, packet.position, packet.ticks), ("payload", 0, 160));
/// // The next packet is missing at its playout time.
/// let output = buffer.poll(now + Span::from_millis(60));
/// let JitterOutput::Missing(gap) = output else { unreachable!() };
/// assert_eq!((gap.position, gap.ticks), (160, 160));
/// ```
#[derive(Debug)]
pub struct JitterBuffer<P> {
    mode: JitterMode,
    ticks: TickConverter,
    slots: PacketRing<P>,
    window: ReceivedWindow,
    runs: RunTracker,
    transit: TransitEstimator,
    stats: JitterStats,
    /// Sequence number of the next packet to come out; `None` until one came out.
    head: Option<u64>,
    /// Media time at which output began, not counting skipped packets; media time at the end of the
    /// last packet; and current media time.
    start: Option<i64>,
    end: i64,
    position: i64,
    /// Playout time minus media time, in nanoseconds.
    offset: i64,
    /// Fraction of a nanosecond left over from the last slew.
    slew_remainder: f64,
    /// Delay added in gaps since the last call of [`JitterBuffer::take_added_delay`].
    added_delay: i64,
    now: i64,
    /// Arrival time of the last packet.
    last_arrival: i64,
    /// Packets below this number are due at once, to make room.
    flush_below: u64,
    finished: bool,
    /// Time since which every packet has been late.
    late_since: Option<i64>,
    /// Length of the last packet, in ticks.
    period: u32,
    /// See [`JitterBuffer::set_repair_time`].
    repair: Span,
}

impl<P> JitterBuffer<P> {
    /// Creates an empty buffer.
    ///
    /// Values of `config` that are out of range are clamped.
    #[must_use]
    pub fn new(config: JitterConfig) -> Self {
        let ticks = TickConverter::new(config.clock_rate);
        let (mode, most, guess, quantile) = sanitize(config.mode);
        Self {
            mode,
            ticks,
            slots: PacketRing::new(config.slots.clamp(MIN_SLOTS, MAX_SLOTS)),
            window: ReceivedWindow::new(runs::ORIGIN),
            runs: RunTracker::default(),
            transit: TransitEstimator::new(most.as_nanos(), guess.as_nanos(), quantile),
            stats: JitterStats::default(),
            head: None,
            start: None,
            end: 0,
            position: 0,
            offset: 0,
            slew_remainder: 0.0,
            added_delay: 0,
            now: 0,
            last_arrival: 0,
            flush_below: 0,
            finished: false,
            late_since: None,
            period: ticks.ticks_in_span(DEFAULT_PACKET_TIME),
            repair: Span::ZERO,
        }
    }

    /// Inserts a packet.
    ///
    /// # Real-time
    /// Neither allocates nor frees; its time does not depend on what is held.
    pub fn insert(&mut self, arrival: Arrival, payload: P) -> InsertOutcome<P> {
        // A clock that goes back is followed, but at most by the largest accepted timestamp error.
        let at = to_nanos(arrival.received).max(self.last_arrival - MAX_TIMESTAMP_ERROR);
        self.last_arrival = self.last_arrival.max(at);
        let base = if self.transit.is_new() { at } else { self.transit.base(at) };
        let end = self.runs.end.max(self.position);
        let fresh = self.ticks.ticks_in(at.saturating_sub(base)).max(end);
        let expected = self.ticks.ticks_in(at.saturating_sub(base));
        let reach = self.ticks.ticks_in(MAX_TIMESTAMP_ERROR);
        let place = self.runs.locate(&arrival, self.window.top(), fresh, expected, reach);
        let Some(mut place) = place else {
            self.stats.strays += 1;
            return InsertOutcome::Stray(payload);
        };
        match self.window.status(place.seq) {
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
            place = self.runs.begin(&arrival, self.window.top(), fresh);
            late = false;
            // That lateness was not caused by the network.
            self.reset_lateness();
        }
        if !late && !self.slots.fits(place.seq) {
            if self.slots.first().is_some_and(|(first, _)| place.seq > first) {
                let most = self.slots.capacity() - 1;
                let kept = match self.mode {
                    JitterMode::Relay { .. } => most,
                    JitterMode::Playout(_) => self.packets_to_keep().min(most),
                };
                self.flush_below = place.seq.saturating_sub(kept);
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
                ticks: self.period_of(&arrival),
                marker: arrival.marker,
                begins_run: place.begins_run,
                payload,
            },
        );
        InsertOutcome::Held
    }

    /// The next output at `now`. To be called until it returns `Wait`.
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

    /// Ends the stream: the held packets come out without waiting for missing ones. Inserting a
    /// packet revokes this.
    pub const fn finish(&mut self) {
        self.finished = true;
    }

    /// Makes the next inserted packet begin a new run, whatever its numbers are, when the receiver
    /// has detected a restart of the sender.
    pub const fn begin_run(&mut self) {
        self.runs.end_run();
    }

    /// Payload of the packet directly after the last reported gap, for codecs whose packets repeat
    /// the previous one (Opus with in-band FEC, RFC 2198).
    #[must_use]
    pub fn peek_following(&self) -> Option<&P> {
        let (_, held) = self.slots.first()?;
        (self.head.is_some() && held.at == self.position).then_some(&held.payload)
    }

    /// By how much later (earlier if negative) playout should be than it is.
    #[must_use]
    pub fn suggested_adjustment(&self) -> Span {
        match self.mode {
            JitterMode::Playout(_) if self.start.is_some() => {
                Span::from_nanos(self.target_offset().saturating_sub(self.offset))
            }
            _ => Span::ZERO,
        }
    }

    /// Applies a time stretch of the caller: playout becomes later by `by`, or earlier if negative.
    /// Returns the applied change, which keeps the delay between zero and the maximum.
    pub fn adjust(&mut self, by: Span) -> Span {
        let JitterMode::Playout(delay) = self.mode else { return Span::ZERO };
        if self.start.is_none() {
            return Span::ZERO;
        }
        let base = self.transit.base(self.now);
        let (low, high) = (base, base.saturating_add(delay.max_delay().as_nanos()));
        let to = self.offset.saturating_add(by.as_nanos());
        // A delay that is already out of range may stay, but does not move further out.
        let to = to.clamp(low.min(self.offset), high.max(self.offset));
        let done = Span::from_nanos(to.saturating_sub(self.offset));
        self.offset = to;
        done
    }

    /// Sets how much later than a packet its repetition is sent (Opus in-band FEC, RFC 2198): an
    /// adaptive playout delay is longer by it, so that repetitions arrive in time too.
    pub const fn set_repair_time(&mut self, time: Span) {
        self.repair = time;
    }

    /// Delay added in gaps since the last call. A caller with a continuous output conceals for this
    /// long; one that outputs packets ignores it.
    #[must_use = "each output is returned once"]
    pub const fn take_added_delay(&mut self) -> Span {
        let added_delay = self.added_delay;
        self.added_delay = 0;
        Span::from_nanos(added_delay)
    }

    /// Counters, and statistics of the network.
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

    /// Whether the media time of the packet has already passed.
    fn is_late(&self, place: &RunPosition) -> bool {
        let Some(head) = self.head else { return false };
        let dry = self.position > self.end && matches!(self.mode, JitterMode::Playout(_));
        place.seq < head || (dry && place.at < self.position)
    }

    /// Whether all further packets would be late as well: the sender has paused without advancing
    /// its timestamps.
    fn is_permanently_late(&self, place: &RunPosition, at: i64) -> bool {
        let since =
            self.late_since.is_some_and(|since| at.saturating_sub(since) >= PERMANENTLY_LATE_AFTER);
        since && self.slots.len() == 0 && place.seq >= self.window.top()
    }

    fn reset_lateness(&mut self) {
        let (_, _, guess, _) = sanitize(self.mode);
        self.transit.reset_lateness(guess.as_nanos());
    }

    fn record_arrival(&mut self, arrival: &Arrival, place: &RunPosition, at: i64, late: bool) {
        self.finished = false;
        self.stats.received += 1;
        self.stats.reordered += u64::from(place.seq < self.window.top());
        self.stats.restarts += u64::from(place.begins_run && self.stats.received > 1);
        self.window.mark_received(place.seq);
        if place.begins_run {
            self.transit.restart();
        }
        self.transit.record(at.saturating_sub(self.ticks.nanos_of(place.at)), at);
        self.period = self.runs.record(arrival, place, self.period, self.ticks);
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
        if arrival.ticks == 0 { self.period } else { self.ticks.clamp_packet_length(arrival.ticks) }
    }
}

/// Relay mode.
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
        let expected = self.ticks.nanos_of(at).saturating_add(self.target_offset());
        let patience = received.saturating_add(hold.as_nanos());
        let until = expected.clamp(received, patience);
        if self.now < until && seq >= self.flush_below && !self.finished {
            return JitterOutput::Wait(Some(to_instant(until)));
        }
        // Nothing can be missing before the first packet.
        let ticks = self.lost_units(head, seq, at);
        self.stats.lost += self.window.count_missing(head, seq);
        self.head = Some(seq);
        if ticks <= 0 {
            return self.emit(seq);
        }
        self.stats.concealed += ticks.unsigned_abs();
        self.emit_gap(ticks, GapCause::Lost)
    }
}

impl<P> JitterBuffer<P> {
    /// Takes out the first packet, whose number is `seq`.
    fn emit(&mut self, seq: u64) -> JitterOutput<P> {
        let Some(held) = self.slots.take_first() else { return JitterOutput::Wait(None) };
        let head = self.head.unwrap_or(seq);
        if seq > head {
            self.stats.lost += self.window.count_missing(head, seq);
        }
        self.head = Some(seq + 1);
        self.end = self.position.max(held.at.saturating_add(i64::from(held.ticks)));
        self.position = self.end;
        JitterOutput::Packet(BufferedPacket {
            sequence: held.sequence,
            timestamp: held.timestamp,
            position: self.since_start(held.at),
            ticks: held.ticks,
            marker: held.marker,
            begins_run: held.begins_run,
            received: held.received,
            payload: held.payload,
        })
    }

    /// How much of the media time between `head` and `seq`, which begins at `at`, was in packets.
    /// The rest is silence for which the sender sent nothing.
    fn lost_units(&self, head: u64, seq: u64, at: i64) -> i64 {
        let packets = seq.saturating_sub(head).min(runs::MAX_AHEAD).cast_signed();
        (packets * i64::from(self.period)).min(at.saturating_sub(self.end))
    }

    fn emit_gap(&mut self, ticks: i64, cause: GapCause) -> JitterOutput<P> {
        let position = self.since_start(self.position);
        self.position = self.position.saturating_add(ticks);
        JitterOutput::Missing(MediaGap { position, ticks: ticks.unsigned_abs(), cause })
    }

    fn since_start(&self, at: i64) -> u64 {
        at.saturating_sub(self.start.unwrap_or(at)).max(0).unsigned_abs()
    }

    /// Target of `offset`.
    fn target_offset(&self) -> i64 {
        let base = if self.transit.is_new() { 0 } else { self.transit.base(self.now) };
        base.saturating_add(self.target().as_nanos())
    }

    fn target(&self) -> Span {
        let lateness = Span::from_nanos(self.transit.lateness(self.now));
        match self.mode {
            JitterMode::Playout(DelayPolicy::Fixed(delay)) => delay,
            JitterMode::Playout(DelayPolicy::Adaptive { min, max, .. }) => {
                (lateness + self.repair).clamp(min, max)
            }
            JitterMode::Relay { hold } => lateness.min(hold),
        }
    }
}

const MIN_SLOTS: usize = 8;
const MAX_SLOTS: usize = 4_096;

/// Packet length until a better value is known.
const DEFAULT_PACKET_TIME: Span = Span::from_millis(20);

/// A larger deviation of a timestamp from its expected value is a restart of the sender.
const MAX_TIMESTAMP_ERROR: i64 = 10 * SECOND;

/// When all packets have been late for this long, the sender's timestamps are assumed to be
/// permanently behind.
const PERMANENTLY_LATE_AFTER: i64 = SECOND / 2;
