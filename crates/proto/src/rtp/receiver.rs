//! Reception state of one source (RFC 3550, A.1, A.3 and A.8): validation, loss and jitter.
//!
//! It differs from the appendix in two points, because a relay sends one packet for each one it
//! receives. Packets in probation are not dropped: the caller holds them, and they count from the
//! first one on. Extended sequence numbers never go back: a source that restarts continues in the
//! next unused cycle.

use aulos_core::Instant;

use super::sequence::{
    FIRST_SEQUENCE, FIRST_TIMESTAMP, extend_sequence, extend_timestamp, low_16, low_32,
    sequence_diff, timestamp_diff,
};

/// Number of packets in sequence that validate a source (RFC 3550, A.1).
pub const MIN_SEQUENTIAL: u8 = 2;
/// A packet this far ahead does not belong to the run (RFC 3550, A.1).
pub const MAX_DROPOUT: i16 = 3_000;
/// A packet this far behind does not belong to the run (RFC 3550, A.1).
pub const MAX_MISORDER: i16 = 100;

/// Position of a packet in its stream, in numbers that do not wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "a packet has these two")]
pub struct PacketPosition {
    /// Extended sequence number; its lower 16 bits are those of the packet.
    pub sequence: u64,
    /// Extended timestamp in units of the encoding's clock; its lower 32 bits are those of the
    /// packet.
    pub timestamp: u64,
}

/// Classification of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "who forwards packets has to know every case")]
pub enum ReceiveOutcome {
    /// The packet belongs to the source. Packets that were held come first.
    Valid(PacketPosition),
    /// The source is not validated yet: hold the packet. When `fresh`, discard the packets that
    /// were held before.
    Probation {
        /// Position of the packet if the source is validated.
        position: PacketPosition,
        /// The packet does not continue the packets before it.
        fresh: bool,
    },
    /// The source has restarted, beginning with the last stray packet: its sequence number is one
    /// less, and [`RtpReceiver::position`] returns its timestamp. Sequence numbers continue,
    /// timestamps need not.
    Restarted(PacketPosition),
    /// The packet was received before.
    Duplicate,
    /// The packet is far from all others. Hold it until the next stray packet, whatever is received
    /// in between: the source may then have [`Self::Restarted`].
    Stray,
}

/// Counters of a source since its first packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverStats {
    /// Packets of the source, without duplicates and strays.
    pub received: u64,
    /// Packets that are missing, as far as is known now.
    pub lost: u64,
    /// Packets received more than once.
    pub duplicates: u64,
    /// Packets received after a later one.
    pub reordered: u64,
    /// Packets that belong to no run.
    pub strays: u64,
    /// Jumps of the sequence number that persisted.
    pub restarts: u64,
    /// Jumps of the timestamp by more than [`MAX_JUMP_SECONDS`] against the arrival time.
    pub jumps: u64,
}

/// Reception statistics for a report block (RFC 3550, 6.4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the wire has these four and no others")]
pub struct ReceptionReport {
    /// Fraction of packets lost since the last report, in 1/256.
    pub fraction_lost: u8,
    /// Packets lost since the source started, minus duplicates; a signed 24-bit number.
    pub cumulative_lost: i32,
    /// Extended highest sequence number: the cycles, and the highest value in the lower 16 bits.
    pub highest: u32,
    /// Interarrival jitter in units of the encoding's clock.
    pub jitter: u32,
}

/// A larger change of the timestamp against the arrival time is a jump and does not count as
/// jitter.
pub const MAX_JUMP_SECONDS: u32 = 5;

/// Reception state of one source; 176 bytes.
///
/// # Examples
/// ```
/// use aulos_core::Instant;
/// use aulos_proto::rtp::{ReceiveOutcome, RtpReceiver};
///
/// let mut receiver = RtpReceiver::new();
/// let mut accept = |sequence| receiver.receive(Instant::ZERO, sequence, 0, 8_000);
/// assert!(matches!(accept(65_535), ReceiveOutcome::Probation { .. }));
/// assert!(matches!(accept(0), ReceiveOutcome::Valid(_)));
/// assert!(matches!(accept(40_000), ReceiveOutcome::Stray));
/// ```
#[derive(Clone, Debug, Default)]
pub struct RtpReceiver {
    state: SourceState,
    /// Number of packets in sequence during probation.
    in_row: u8,
    clock_rate: u32,
    /// Jitter times 16, as in A.8.
    jitter: u64,
    /// Arrival time minus timestamp of the last packet.
    transit: Option<u32>,
    /// The sequence number after the last stray packet.
    stray_successor: Option<u16>,
    /// Position of the highest packet so far.
    highest: PacketPosition,
    /// Bit n is set when `highest.sequence - n` was received.
    received_bits: u128,
    run: RunCounters,
    stats: ReceiverStats,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SourceState {
    /// Nothing was received.
    #[default]
    Empty,
    /// Fewer than [`MIN_SEQUENTIAL`] packets in sequence were received.
    Probation,
    Valid,
}

/// Counters for reports; they restart whenever the source restarts.
#[derive(Clone, Copy, Debug, Default)]
struct RunCounters {
    /// Lowest sequence number.
    base: u64,
    /// Start of the cycle of the first packet.
    cycle: u64,
    /// Received packets, including duplicates.
    received: u64,
    duplicates: u64,
    expected_prior: u64,
    received_prior: u64,
}

impl RtpReceiver {
    /// A source without packets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Classifies a packet that arrived at `now`. `clock_rate` is the RTP clock of its payload type
    /// in Hz; 0 disables the jitter measurement. When the rate changes, the measurement continues
    /// in the new units (RFC 7160).
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub fn receive(
        &mut self,
        now: Instant,
        sequence: u16,
        timestamp: u32,
        clock_rate: u32,
    ) -> ReceiveOutcome {
        let off = sequence_diff(sequence, low_16(self.highest.sequence));
        let near = -MAX_MISORDER < off && off < MAX_DROPOUT;
        let accepted = match self.state {
            SourceState::Valid if near => self.accept(sequence, timestamp),
            SourceState::Valid if self.stray_successor == Some(sequence) => {
                self.restart(sequence, timestamp)
            }
            SourceState::Valid => {
                self.stray_successor = Some(sequence.wrapping_add(1));
                self.stats.strays += 1;
                ReceiveOutcome::Stray
            }
            SourceState::Probation if near => self.prove(off, sequence, timestamp),
            SourceState::Probation | SourceState::Empty => self.begin(sequence, timestamp),
        };
        if !matches!(accepted, ReceiveOutcome::Duplicate | ReceiveOutcome::Stray) {
            self.measure(now, timestamp, clock_rate);
        }
        accepted
    }

    /// Statistics for the next report block; also begins the interval of the next one. `None` while
    /// the source is in probation, or when nothing was received since the last report.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub fn report(&mut self) -> Option<ReceptionReport> {
        let run = self.run;
        if self.state != SourceState::Valid || run.received == run.received_prior {
            return None;
        }
        let expected = self.expected();
        let signed = |of: u64| i64::try_from(of).unwrap_or(i64::MAX);
        let lost = signed(expected) - signed(run.received);
        let expected_now = signed(expected) - signed(run.expected_prior);
        let lost_now = expected_now - (signed(run.received) - signed(run.received_prior));
        let fraction = if lost_now <= 0 { 0 } else { (lost_now << 8) / expected_now.max(1) };
        (self.run.expected_prior, self.run.received_prior) = (expected, run.received);
        Some(ReceptionReport {
            fraction_lost: u8::try_from(fraction).unwrap_or(u8::MAX),
            cumulative_lost: i32::try_from(lost.clamp(MIN_LOST, MAX_LOST)).unwrap_or(0),
            highest: low_32(self.highest.sequence - run.cycle),
            jitter: self.jitter(),
        })
    }

    /// Whether the source is validated.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.state == SourceState::Valid
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        ReceiverStats { lost: self.stats.lost + self.missing(), ..self.stats }
    }

    /// Interarrival jitter in units of the encoding's clock.
    #[must_use]
    pub fn jitter(&self) -> u32 {
        u32::try_from(self.jitter >> 4).unwrap_or(u32::MAX)
    }

    /// Position of a packet with these numbers, relative to the highest packet so far.
    #[must_use]
    pub fn position(&self, sequence: u16, timestamp: u32) -> PacketPosition {
        PacketPosition {
            sequence: extend_sequence(self.highest.sequence, sequence),
            timestamp: extend_timestamp(self.highest.timestamp, timestamp),
        }
    }

    /// Whether the packet belongs to the current run and is missing; loss recovery can ignore all
    /// others. Packets more than 127 behind are never reported as missing.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    #[must_use]
    pub fn is_missing(&self, sequence: u16) -> bool {
        let sequence = extend_sequence(self.highest.sequence, sequence);
        let behind = self.highest.sequence.checked_sub(sequence);
        let bit = behind.and_then(|behind| 1_u128.checked_shl(u32::try_from(behind).ok()?));
        let here = self.state == SourceState::Valid && sequence >= self.run.base;
        here && bit.is_some_and(|bit| self.received_bits & bit == 0)
    }

    /// Handles the first packet, or the first packet of another run during probation.
    fn begin(&mut self, sequence: u16, timestamp: u32) -> ReceiveOutcome {
        let fresh = self.state == SourceState::Probation;
        if fresh {
            self.stats.strays += self.run.received - self.run.duplicates;
            self.stats.received -= self.run.received - self.run.duplicates;
            self.stats.lost += self.missing();
        }
        self.state = SourceState::Probation;
        self.in_row = 1;
        let position = self.start(sequence, timestamp);
        ReceiveOutcome::Probation { position, fresh }
    }

    fn prove(&mut self, off: i16, sequence: u16, timestamp: u32) -> ReceiveOutcome {
        let Some(position) = self.mark(sequence, timestamp) else {
            return ReceiveOutcome::Duplicate;
        };
        self.in_row = if off == 1 { self.in_row + 1 } else { 1 };
        if self.in_row < MIN_SEQUENTIAL {
            return ReceiveOutcome::Probation { position, fresh: false };
        }
        self.state = SourceState::Valid;
        ReceiveOutcome::Valid(position)
    }

    fn accept(&mut self, sequence: u16, timestamp: u32) -> ReceiveOutcome {
        self.mark(sequence, timestamp).map_or(ReceiveOutcome::Duplicate, ReceiveOutcome::Valid)
    }

    /// Handles two packets in sequence that are far from all others: the first of them, the stray
    /// one, begins a new run.
    fn restart(&mut self, sequence: u16, timestamp: u32) -> ReceiveOutcome {
        self.stats.lost += self.missing();
        self.stats.restarts += 1;
        self.stats.strays -= 1;
        self.stray_successor = None;
        self.start(sequence.wrapping_sub(1), timestamp);
        self.mark(sequence, timestamp).map_or(ReceiveOutcome::Duplicate, ReceiveOutcome::Restarted)
    }

    /// Begins a run at `sequence`, in an unused cycle.
    fn start(&mut self, sequence: u16, timestamp: u32) -> PacketPosition {
        let cycle = (self.highest.sequence & !u64::from(u16::MAX)) + FIRST_SEQUENCE;
        let base = cycle | u64::from(sequence);
        let reference = self.highest.timestamp.max(FIRST_TIMESTAMP);
        self.highest =
            PacketPosition { sequence: base, timestamp: extend_timestamp(reference, timestamp) };
        self.received_bits = 1;
        self.run = RunCounters { base, cycle, received: 1, ..RunCounters::default() };
        self.stats.received += 1;
        self.transit = None;
        self.highest
    }

    /// Records a packet of the current run; `None` for a duplicate.
    fn mark(&mut self, sequence: u16, timestamp: u32) -> Option<PacketPosition> {
        let position = self.position(sequence, timestamp);
        self.run.received += 1;
        if position.sequence > self.highest.sequence {
            let ahead = u32::try_from(position.sequence - self.highest.sequence).ok();
            let received_bits = ahead.and_then(|ahead| self.received_bits.checked_shl(ahead));
            self.received_bits = received_bits.unwrap_or(0) | 1;
            self.highest = position;
        } else {
            let behind = u32::try_from(self.highest.sequence - position.sequence).ok();
            let bit = behind.and_then(|behind| 1_u128.checked_shl(behind)).unwrap_or(0);
            if self.received_bits & bit != 0 {
                self.run.duplicates += 1;
                self.stats.duplicates += 1;
                return None;
            }
            self.received_bits |= bit;
            self.run.base = self.run.base.min(position.sequence);
            self.stats.reordered += 1;
        }
        self.stats.received += 1;
        Some(position)
    }

    /// Updates the jitter after RFC 3550, A.8, but ignores jumps of the timestamp and changes of
    /// the clock rate.
    fn measure(&mut self, now: Instant, timestamp: u32, clock_rate: u32) {
        if clock_rate == 0 {
            return;
        }
        if clock_rate != self.clock_rate {
            let rates = (u64::from(clock_rate), u64::from(self.clock_rate.max(1)));
            self.jitter = self.jitter.saturating_mul(rates.0) / rates.1;
            (self.clock_rate, self.transit) = (clock_rate, None);
        }
        let transit = low_32(units(now, clock_rate)).wrapping_sub(timestamp);
        let Some(before) = self.transit.replace(transit) else { return };
        let moved = timestamp_diff(transit, before).unsigned_abs();
        if moved > clock_rate.saturating_mul(MAX_JUMP_SECONDS) {
            self.stats.jumps += 1;
        } else {
            self.jitter = self.jitter + u64::from(moved) - ((self.jitter + 8) >> 4);
        }
    }

    const fn expected(&self) -> u64 {
        match self.state {
            SourceState::Empty => 0,
            _ => self.highest.sequence - self.run.base + 1,
        }
    }

    /// Number of missing packets of this run.
    const fn missing(&self) -> u64 {
        self.expected().saturating_sub(self.run.received - self.run.duplicates)
    }
}

const MAX_LOST: i64 = 0x7f_ffff;
const MIN_LOST: i64 = -0x80_0000;

/// Converts an instant into units of the clock, rounded down; only the lower bits are meaningful.
const fn units(now: Instant, clock_rate: u32) -> u64 {
    let (nanos, rate) = (now.as_nanos(), clock_rate as u64);
    let part = (nanos % NANOS * rate) / NANOS;
    (nanos / NANOS).wrapping_mul(rate).wrapping_add(part)
}

const NANOS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests;
