//! What a receiver keeps about one source (RFC 3550, A.1, A.3 and A.8): whether it is one at all,
//! which of its packets are missing, and how unevenly they come.
//!
//! Two things differ from the appendix, both because a relay gives one packet for each that it gets.
//! Packets in probation are not thrown away: whoever asks holds them, and they count from the first
//! of them on. And numbers never go back: a source that starts again gets the next free turn.

use aulos_core::Instant;

use super::sequence::{
    FIRST_SEQUENCE, FIRST_TIMESTAMP, extend_sequence, extend_timestamp, low_16, low_32,
    sequence_diff, timestamp_diff,
};

/// Packets in a row that make a source of an SSRC (RFC 3550, A.1).
pub const MIN_SEQUENTIAL: u8 = 2;
/// A packet that is this far ahead does not belong to the run (RFC 3550, A.1).
pub const MAX_DROPOUT: i16 = 3_000;
/// A packet that is this far behind does not belong to the run (RFC 3550, A.1).
pub const MAX_MISORDER: i16 = 100;

/// A packet's place among those of its source, in numbers that do not wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "a packet has these two")]
pub struct PacketPosition {
    /// The sequence number; the lower 16 bits are the packet's.
    pub sequence: u64,
    /// The timestamp in units of the encoding's clock; the lower 32 bits are the packet's.
    pub timestamp: u64,
}

/// What a packet is to its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "who forwards packets has to know every case")]
pub enum ReceiveOutcome {
    /// It belongs to the source. What was held goes first.
    Valid(PacketPosition),
    /// Too early to say: hold it. When `fresh`, what was held before belongs to nothing.
    Probation {
        /// Where it will be when the source turns out to be one.
        position: PacketPosition,
        /// It has nothing to do with the packets before it.
        fresh: bool,
    },
    /// The source started again, with the last stray packet: that one's number is one less, and
    /// [`Receiver::position`] knows its timestamp. Numbers go on, timestamps need not.
    Restarted(PacketPosition),
    /// It was there before.
    Duplicate,
    /// It is far from all others. Hold it until the next stray one, whatever comes between: then the
    /// source has perhaps [`Self::Restarted`].
    Stray,
}

/// What a source's packets came to since it was first heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverStats {
    /// Packets of the source, duplicates and strays not counted.
    pub received: u64,
    /// Packets that never came, as far as is known now.
    pub lost: u64,
    /// Packets that came again.
    pub duplicates: u64,
    /// Packets that came behind a later one.
    pub reordered: u64,
    /// Packets that belong to no run.
    pub strays: u64,
    /// Jumps of the sequence number that went on.
    pub restarts: u64,
    /// Jumps of the timestamp by more than [`MAX_JUMP_SECONDS`] against the time of arrival.
    pub jumps: u64,
}

/// What a reception report says of a source (RFC 3550, 6.4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the wire has these four and no others")]
pub struct ReceptionReport {
    /// Share of packets lost since the last report, in 1/256.
    pub fraction_lost: u8,
    /// Packets lost since the source started, less duplicates; 24 bits with their sign.
    pub cumulative_lost: i32,
    /// Turns of the sequence number, and its highest value in the lower 16 bits.
    pub highest: u32,
    /// Mean deviation of the time between packets, in units of the encoding's clock.
    pub jitter: u32,
}

/// A timestamp that moves this much against the time of arrival has jumped: that is not jitter.
pub const MAX_JUMP_SECONDS: u32 = 5;

/// One source as its receiver sees it; 176 bytes.
///
/// # Examples
/// ```
/// use aulos_core::Instant;
/// use aulos_proto::rtp::{Accepted, Receiver};
///
/// let mut receiver = Receiver::new();
/// let mut accept = |sequence| receiver.receive(Instant::ZERO, sequence, 0, 8_000);
/// assert!(matches!(accept(65_535), Accepted::Probation { .. }));
/// assert!(matches!(accept(0), Accepted::Valid(_)));
/// assert!(matches!(accept(40_000), Accepted::Stray));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    state: SourceState,
    /// Packets in a row while in probation.
    in_row: u8,
    clock_rate: u32,
    /// Jitter times 16, as A.8 keeps it.
    jitter: u64,
    /// Time of arrival less timestamp of the last packet.
    transit: Option<u32>,
    /// The number that would follow the last stray packet.
    suspect: Option<u16>,
    /// The highest packet so far.
    highest: PacketPosition,
    /// Bit n is set when `highest.sequence - n` has come.
    seen: u128,
    run: RunCounters,
    tally: ReceiverStats,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SourceState {
    /// Nothing has come.
    #[default]
    Empty,
    /// Waits for packets in a row.
    Probation,
    Valid,
}

/// What reports count: it begins again with each start of the source.
#[derive(Clone, Copy, Debug, Default)]
struct RunCounters {
    /// The lowest number.
    base: u64,
    /// Where the turn of the first packet began.
    turn: u64,
    /// Duplicates are among them.
    received: u64,
    duplicates: u64,
    expected_prior: u64,
    received_prior: u64,
}

impl Receiver {
    /// A source that has not been heard yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Judges a packet that arrived at `now`. `clock_rate` is that of its payload type, in Hz; with 0
    /// jitter is not measured. At another rate than before, it goes on in the new units (RFC 7160).
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
            SourceState::Valid if self.suspect == Some(sequence) => {
                self.restart(sequence, timestamp)
            }
            SourceState::Valid => {
                self.suspect = Some(sequence.wrapping_add(1));
                self.tally.strays += 1;
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

    /// What goes into the next reception report, and begins the interval of the one after; none while
    /// the source is in probation, or when nothing has come since the last report.
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
            highest: low_32(self.highest.sequence - run.turn),
            jitter: self.jitter(),
        })
    }

    /// Whether the source has proved to be one.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.state == SourceState::Valid
    }

    /// What has been counted since the source was first heard.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        ReceiverStats { lost: self.tally.lost + self.missing(), ..self.tally }
    }

    /// Mean deviation of the time between packets, in units of the encoding's clock.
    #[must_use]
    pub fn jitter(&self) -> u32 {
        u32::try_from(self.jitter >> 4).unwrap_or(u32::MAX)
    }

    /// Where a packet with these numbers is, next to the highest so far.
    #[must_use]
    pub fn position(&self, sequence: u16, timestamp: u32) -> PacketPosition {
        PacketPosition {
            sequence: extend_sequence(self.highest.sequence, sequence),
            timestamp: extend_timestamp(self.highest.timestamp, timestamp),
        }
    }

    /// Whether this number is one of the run's, and its packet has not come: what repairs a loss need
    /// not look at others. Farther behind than 127 packets nothing is said to be missing.
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    #[must_use]
    pub fn is_missing(&self, sequence: u16) -> bool {
        let sequence = extend_sequence(self.highest.sequence, sequence);
        let behind = self.highest.sequence.checked_sub(sequence);
        let bit = behind.and_then(|behind| 1_u128.checked_shl(u32::try_from(behind).ok()?));
        let here = self.state == SourceState::Valid && sequence >= self.run.base;
        here && bit.is_some_and(|bit| self.seen & bit == 0)
    }

    /// The first packet, or the first of another numbering while in probation.
    fn begin(&mut self, sequence: u16, timestamp: u32) -> ReceiveOutcome {
        let fresh = self.state == SourceState::Probation;
        if fresh {
            self.tally.strays += self.run.received - self.run.duplicates;
            self.tally.received -= self.run.received - self.run.duplicates;
            self.tally.lost += self.missing();
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

    /// Two packets in a row far from all others: the stray one is the first of the new run.
    fn restart(&mut self, sequence: u16, timestamp: u32) -> ReceiveOutcome {
        self.tally.lost += self.missing();
        self.tally.restarts += 1;
        self.tally.strays -= 1;
        self.suspect = None;
        self.start(sequence.wrapping_sub(1), timestamp);
        self.mark(sequence, timestamp).map_or(ReceiveOutcome::Duplicate, ReceiveOutcome::Restarted)
    }

    /// A run that begins with `sequence`, in a turn that no packet before was in.
    fn start(&mut self, sequence: u16, timestamp: u32) -> PacketPosition {
        let turn = (self.highest.sequence & !u64::from(u16::MAX)) + FIRST_SEQUENCE;
        let base = turn | u64::from(sequence);
        let reference = self.highest.timestamp.max(FIRST_TIMESTAMP);
        self.highest =
            PacketPosition { sequence: base, timestamp: extend_timestamp(reference, timestamp) };
        self.seen = 1;
        self.run = RunCounters { base, turn, received: 1, ..RunCounters::default() };
        self.tally.received += 1;
        self.transit = None;
        self.highest
    }

    /// Enters a packet that is near the others; none when it has been there before.
    fn mark(&mut self, sequence: u16, timestamp: u32) -> Option<PacketPosition> {
        let position = self.position(sequence, timestamp);
        self.run.received += 1;
        if position.sequence > self.highest.sequence {
            let ahead = u32::try_from(position.sequence - self.highest.sequence).ok();
            let seen = ahead.and_then(|ahead| self.seen.checked_shl(ahead));
            self.seen = seen.unwrap_or(0) | 1;
            self.highest = position;
        } else {
            let behind = u32::try_from(self.highest.sequence - position.sequence).ok();
            let bit = behind.and_then(|behind| 1_u128.checked_shl(behind)).unwrap_or(0);
            if self.seen & bit != 0 {
                self.run.duplicates += 1;
                self.tally.duplicates += 1;
                return None;
            }
            self.seen |= bit;
            self.run.base = self.run.base.min(position.sequence);
            self.tally.reordered += 1;
        }
        self.tally.received += 1;
        Some(position)
    }

    /// RFC 3550, A.8, without what a jump of the timestamp or of the clock's rate would do to it.
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
            self.tally.jumps += 1;
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

    /// Packets of this run that have not come.
    const fn missing(&self) -> u64 {
        self.expected().saturating_sub(self.run.received - self.run.duplicates)
    }
}

const MAX_LOST: i64 = 0x7f_ffff;
const MIN_LOST: i64 = -0x80_0000;

/// A moment in units of a clock of that rate; its lower bits, and rounded down.
const fn units(now: Instant, clock_rate: u32) -> u64 {
    let (nanos, rate) = (now.as_nanos(), clock_rate as u64);
    let part = (nanos % NANOS * rate) / NANOS;
    (nanos / NANOS).wrapping_mul(rate).wrapping_add(part)
}

const NANOS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests;
