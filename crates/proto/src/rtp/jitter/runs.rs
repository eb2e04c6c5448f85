//! Maps the sender's numbers to the buffer's own, which continue when the sender restarts.

use super::{Arrival, TickConverter};

/// Start of the buffer's sequence numbers, so that packets from before the first received one have
/// numbers too.
pub(super) const ORIGIN: u64 = 1 << 32;

/// How far a sequence number may be ahead (RFC 3550 appendix A.1, `MAX_DROPOUT`).
pub(super) const MAX_AHEAD: u64 = 3_000;

/// Position of a packet in the buffer's numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunPosition {
    pub(super) seq: u64,
    pub(super) at: i64,
    pub(super) begins_run: bool,
}

/// Current run, and its offset from the sender's numbers.
#[derive(Debug, Default)]
pub(super) struct RunTracker {
    shift: Option<RunOffset>,
    /// Sequence number after a stray packet, which would confirm a new run.
    candidate: Option<u64>,
    /// Media time at the end of all received packets.
    pub(super) end: i64,
    /// Last packet in sequence and its timestamp, from which the packet length is computed.
    last: Option<(u64, i64)>,
}

#[derive(Clone, Copy, Debug)]
struct RunOffset {
    seq: u64,
    timestamp: u64,
    /// First number of the run; lower ones belong to the previous run.
    from: u64,
}

impl RunTracker {
    /// Position of a packet; `None` for a stray one.
    ///
    /// `top` is one more than the highest number so far. `expected` is the media time that
    /// corresponds to the arrival time, `reach` the largest accepted distance from it; a new run
    /// would begin at `fresh`.
    pub(super) fn locate(
        &mut self,
        arrival: &Arrival,
        top: u64,
        fresh: i64,
        expected: i64,
        reach: i64,
    ) -> Option<RunPosition> {
        let Some(shift) = self.shift else {
            return Some(self.begin(arrival, top, fresh));
        };
        let seq = arrival.sequence.wrapping_add(shift.seq);
        let at = arrival.timestamp.wrapping_add(shift.timestamp).cast_signed();
        let ahead = seq.wrapping_sub(top).cast_signed();
        let is_near = ahead <= MAX_AHEAD.cast_signed() && ahead >= -(MAX_AHEAD.cast_signed());
        if !is_near {
            let is_second = self.candidate == Some(arrival.sequence);
            self.candidate = Some(arrival.sequence.wrapping_add(1));
            return is_second.then(|| self.begin(arrival, top, fresh));
        }
        if seq < shift.from {
            return (seq.saturating_add(MAX_OVERTAKEN) >= shift.from && self.is_first_run(shift))
                .then_some(RunPosition { seq, at, begins_run: false })
                .filter(|place| place.at.saturating_sub(expected).saturating_abs() <= reach);
        }
        if at.saturating_sub(expected).saturating_abs() > reach {
            return (seq >= top).then(|| self.begin(arrival, top, fresh));
        }
        Some(RunPosition { seq, at, begins_run: seq == shift.from })
    }

    /// Begins a run with this packet, directly after everything received so far.
    pub(super) fn begin(&mut self, arrival: &Arrival, top: u64, fresh: i64) -> RunPosition {
        let shift = RunOffset {
            seq: top.wrapping_sub(arrival.sequence),
            timestamp: fresh.cast_unsigned().wrapping_sub(arrival.timestamp),
            from: top,
        };
        (self.shift, self.candidate, self.last) = (Some(shift), None, None);
        RunPosition { seq: top, at: fresh, begins_run: true }
    }

    /// Makes the next packet begin a run.
    pub(super) const fn end_run(&mut self) {
        self.shift = None;
    }

    /// Records an accepted packet; returns the packet length, initially `period`.
    pub(super) fn record(
        &mut self,
        arrival: &Arrival,
        place: &RunPosition,
        period: u32,
        ticks: TickConverter,
    ) -> u32 {
        let before = self.last.filter(|&(seq, _)| seq + 1 == place.seq && !arrival.marker);
        let step = before.map(|(_, at)| place.at.saturating_sub(at));
        let step = step.and_then(|step| u32::try_from(step).ok()).filter(|&step| step > 0);
        let period = match (arrival.ticks, step) {
            (0, Some(step)) if ticks.clamp_packet_length(step) == step => step,
            (0, _) => period,
            (stated, _) => ticks.clamp_packet_length(stated),
        };
        self.last = Some((place.seq, place.at));
        self.end = self.end.max(place.at.saturating_add(i64::from(period)));
        period
    }

    const fn is_first_run(&self, shift: RunOffset) -> bool {
        shift.from == ORIGIN
    }
}

/// Maximum number of packets that the first received packet may have overtaken.
const MAX_OVERTAKEN: u64 = 64;
