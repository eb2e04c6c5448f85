//! One sender, a bad network, and a receiver that polls its socket every five milliseconds.

#![allow(dead_code, reason = "each scenario uses what it needs")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::panic,
    clippy::unwrap_used,
    reason = "small numbers; and a test fails by panicking, its helpers too"
)]

use aulos_core::{Instant, Ppm, Span};
use aulos_proto::rtp::jitter::{
    Arrival, DelayPolicy, GapCause, InsertOutcome, JitterBuffer, JitterConfig, JitterMode,
    JitterOutput, JitterStats,
};
use aulos_sim::{DatagramLink, Link, LocalClock};

/// A link without faults, with a constant delay.
pub(crate) const GOOD: Link = Link {
    delay: Span::from_millis(20),
    jitter: Span::ZERO,
    max_jitter: Span::ZERO,
    detours: 0.0,
    loss: 0.0,
    duplicates: 0.0,
    segment: 1_460,
};

/// A call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimulatedCall {
    pub(crate) link: Link,
    /// Drift of the sender's clock.
    pub(crate) drift: Ppm,
    /// Duration of the call, and of its beginning that does not count.
    pub(crate) length: Span,
    pub(crate) settling: Span,
    /// Interval and duration of the link's stalls; what was sent meanwhile then arrives at once.
    pub(crate) stalls: Option<(Span, Span)>,
}

impl SimulatedCall {
    /// An hour over `link`, of which the first half minute does not count.
    pub(crate) const fn over(link: Link) -> Self {
        let (length, settling) = (Span::from_secs(3_600), Span::from_secs(30));
        Self { link, drift: Ppm::ZERO, length, settling, stalls: None }
    }
}

impl SimulatedCall {
    /// When a packet sent at `at` leaves.
    fn through_stalls(&self, at: Instant) -> Instant {
        let Some((every, length)) = self.stalls else { return at };
        let nanos = |span: Span| span.as_nanos().unsigned_abs();
        // The first stall comes after half of the interval.
        let since = (at.as_nanos() + nanos(every) / 2) % nanos(every);
        if since < nanos(length) { at + length - Span::from_nanos(since as i64) } else { at }
    }
}

/// Results of a call at the receiver.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallResult {
    /// End-to-end latency of each packet that was played, in the order of playing.
    pub(crate) latencies: Vec<Span>,
    /// Packets that were late, and packet durations that were concealed, after the settling time.
    pub(crate) late: u64,
    pub(crate) concealed: u64,
    /// Packets lost by the network after the settling time.
    pub(crate) lost: u64,
    /// Final statistics of the whole call.
    pub(crate) stats: JitterStats,
}

impl CallResult {
    /// The latency quantile, in milliseconds.
    pub(crate) fn latency(&self, quantile: f64) -> f64 {
        let mut latencies = self.latencies.clone();
        let at = ((latencies.len() - 1) as f64 * quantile) as usize;
        latencies.select_nth_unstable(at).1.as_secs_f64() * 1e3
    }

    /// The mean latency of the first and of the last hour that counts, in milliseconds.
    pub(crate) fn first_and_last_hour(&self) -> (f64, f64) {
        let mean = |latencies: &[Span]| {
            let sum: f64 = latencies.iter().map(|latency| latency.as_secs_f64()).sum();
            sum / latencies.len() as f64 * 1e3
        };
        // Fewer packets if some were lost, so that the time is an hour nevertheless.
        let hour = self.latencies.len() / 24;
        let (first, last) =
            (&self.latencies[..hour], &self.latencies[self.latencies.len() - hour..]);
        (mean(first), mean(last))
    }
}

/// Plays the received packets.
pub(crate) trait Playout {
    /// Takes a packet; returns whether it was too late.
    fn insert(&mut self, arrival: Arrival) -> bool;
    /// Plays what is due at `now`: packet numbers, and whether the packets are there.
    fn play(&mut self, now: Instant, heard: &mut dyn FnMut(u64, bool));
    /// Latest time of the next call.
    fn until(&self) -> Option<Instant>;
    /// Statistics.
    fn stats(&self) -> JitterStats;
}

/// Playout with the jitter buffer.
pub(crate) struct JitterBufferPlayout {
    buffer: JitterBuffer<u64>,
    until: Option<Instant>,
    /// Number of the first packet that was played.
    first: u64,
}

impl JitterBufferPlayout {
    pub(crate) fn new(delay: DelayPolicy) -> Self {
        let config = JitterConfig { clock_rate: RATE, slots: 32, mode: JitterMode::Playout(delay) };
        Self { buffer: JitterBuffer::new(config), until: None, first: 0 }
    }
}

impl Playout for JitterBufferPlayout {
    fn insert(&mut self, arrival: Arrival) -> bool {
        let inserted = self.buffer.insert(arrival, arrival.sequence);
        assert!(
            !matches!(inserted, InsertOutcome::Stray(_) | InsertOutcome::Full(_)),
            "{inserted:?}"
        );
        matches!(inserted, InsertOutcome::Late(_))
    }

    fn play(&mut self, now: Instant, heard: &mut dyn FnMut(u64, bool)) {
        loop {
            match self.buffer.poll(now) {
                JitterOutput::Packet(packet) => {
                    if packet.position == 0 {
                        self.first = packet.payload;
                    }
                    assert_eq!(packet.position, (packet.payload - self.first) * FRAME);
                    heard(packet.payload, true);
                }
                JitterOutput::Missing(missing) => {
                    assert!(
                        matches!(missing.cause, GapCause::Lost | GapCause::Underrun),
                        "{missing:?}"
                    );
                    let at = self.first + missing.position / FRAME;
                    (at..at + missing.ticks / FRAME).for_each(|number| heard(number, false));
                }
                JitterOutput::Skip(packet) => panic!("{packet:?} was too much"),
                JitterOutput::Wait(until) => return self.until = until,
            }
        }
    }

    fn until(&self) -> Option<Instant> {
        self.until
    }

    fn stats(&self) -> JitterStats {
        self.buffer.stats()
    }
}

/// Reference playout: a fixed latency, computed from the arrival of the first packet.
pub(crate) struct FixedDelayPlayout {
    latency: Span,
    start: Option<Instant>,
    /// The next packet, and packets received after it.
    next: u64,
    there: std::collections::BTreeSet<u64>,
}

impl FixedDelayPlayout {
    pub(crate) fn new(latency: Span) -> Self {
        let (start, next) = (None, 0);
        Self { latency, start, next, there: Default::default() }
    }
}

impl Playout for FixedDelayPlayout {
    fn insert(&mut self, arrival: Arrival) -> bool {
        self.start.get_or_insert_with(|| {
            self.next = arrival.sequence;
            arrival.received + self.latency - PACKET * arrival.sequence.cast_signed()
        });
        self.there.insert(arrival.sequence);
        arrival.sequence < self.next
    }

    fn play(&mut self, now: Instant, heard: &mut dyn FnMut(u64, bool)) {
        while self.until().is_some_and(|due| due <= now) {
            heard(self.next, self.there.remove(&self.next));
            self.next += 1;
        }
    }

    fn until(&self) -> Option<Instant> {
        Some(self.start? + PACKET * self.next.cast_signed())
    }

    fn stats(&self) -> JitterStats {
        JitterStats::default()
    }
}

/// Simulates a call.
pub(crate) fn simulate(call: SimulatedCall, listener: &mut dyn Playout) -> CallResult {
    let speaker = LocalClock::new(Instant::ZERO, call.drift);
    let sent_at = |number: u64| speaker.world_at(Instant::ZERO + PACKET * number.cast_signed());
    let mut network = DatagramLink::new(call.link, 8);
    let (mut heard, mut sent) = (CallResult::default(), 0_u64);
    let end = Instant::ZERO + call.length;
    // Packets still in flight at the end are not counted.
    let number = |at: Span| speaker.read(Instant::ZERO + at).as_nanos() / 20_000_000;
    let counted = number(call.settling)..number(call.length - Span::from_secs(2));
    let (mut came, mut late) = (Vec::new(), Vec::new());
    let mut now = Instant::ZERO;
    while now < end {
        while sent_at(sent) <= now {
            network.send(call.through_stalls(sent_at(sent)), &sent.to_be_bytes());
            sent += 1;
        }
        while let Some((received, packet)) = arrival(&mut network, now) {
            let is_late = listener.insert(Arrival {
                sequence: packet,
                timestamp: packet * FRAME,
                ticks: 160,
                marker: false,
                received,
            });
            if counted.contains(&packet) {
                came.push(packet);
                late.extend(is_late.then_some(packet));
            }
        }
        listener.play(now, &mut |number, there| {
            if !counted.contains(&number) {
                return;
            }
            if there {
                heard.latencies.push(now - sent_at(number));
            } else {
                heard.concealed += 1;
            }
        });
        let events = [listener.until(), network.poll_timeout(), Some(sent_at(sent))];
        let next = events.into_iter().flatten().min().unwrap_or(end);
        now = tick_at(next.max(now + Span::from_nanos(1)));
    }
    heard.stats = listener.stats();
    let distinct = |numbers: &mut Vec<u64>| {
        numbers.sort_unstable();
        numbers.dedup();
        numbers.len() as u64
    };
    heard.late = distinct(&mut late);
    heard.lost = counted.end - counted.start - distinct(&mut came);
    heard
}

/// The next packet that has arrived by `now`, with its time of arrival, which the kernel stamps.
pub(crate) fn arrival(network: &mut DatagramLink, now: Instant) -> Option<(Instant, u64)> {
    let received = network.poll_timeout()?;
    let packet = network.receive(now)?;
    Some((received, u64::from_be_bytes(packet.try_into().unwrap())))
}

/// The first tick that is not before `at`.
pub(crate) fn tick_at(at: Instant) -> Instant {
    let tick = TICK.as_nanos().unsigned_abs();
    Instant::from_nanos(at.as_nanos().div_ceil(tick) * tick)
}

pub(crate) const PACKET: Span = Span::from_millis(20);
pub(crate) const FRAME: u64 = 160;
pub(crate) const RATE: u32 = 8_000;
pub(crate) const TICK: Span = Span::from_millis(5);
