//! From the sender's numbers to the buffer's own, which go on when the sender begins anew.

use super::{Arrival, ClockUnits};

/// Where the buffer's own sequence numbers begin: what was sent before the first packet that came has
/// a number too.
pub(super) const ORIGIN: u64 = 1 << 32;

/// The farthest that a sequence number is ahead of its time (RFC 3550 appendix A.1, `MAX_DROPOUT`).
pub(super) const MAX_AHEAD: u64 = 3_000;

/// A packet's place in the buffer's own numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunPosition {
    pub(super) seq: u64,
    pub(super) at: i64,
    pub(super) begins_run: bool,
}

/// What is added to the sender's numbers.
#[derive(Debug, Default)]
pub(super) struct RunTracker {
    shift: Option<RunOffset>,
    /// One that did not belong to anything, and what would come behind it.
    candidate: Option<u64>,
    /// Where the media that has come ends.
    pub(super) end: i64,
    /// The last packet that came in order, and its timestamp: the next one tells how long it is.
    last: Option<(u64, i64)>,
}

#[derive(Clone, Copy, Debug)]
struct RunOffset {
    seq: u64,
    timestamp: u64,
    /// Where the run began: what is before it belongs to another one.
    from: u64,
}

impl RunTracker {
    /// Where a packet belongs; `None` when it belongs to nothing.
    ///
    /// `top` is one more than the highest number so far. By the time of its arrival its media would
    /// be at `expected`, and farther from there than `reach` it cannot be; a new run would begin at
    /// `fresh`.
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

    /// Begins a run with this packet, right behind all that has come.
    pub(super) fn begin(&mut self, arrival: &Arrival, top: u64, fresh: i64) -> RunPosition {
        let shift = RunOffset {
            seq: top.wrapping_sub(arrival.sequence),
            timestamp: fresh.cast_unsigned().wrapping_sub(arrival.timestamp),
            from: top,
        };
        (self.shift, self.candidate, self.last) = (Some(shift), None, None);
        RunPosition { seq: top, at: fresh, begins_run: true }
    }

    /// The next packet begins a run.
    pub(super) const fn end_run(&mut self) {
        self.shift = None;
    }

    /// Notes a packet that was accepted; returns how long packets are, which was `period`.
    pub(super) fn record(
        &mut self,
        arrival: &Arrival,
        place: &RunPosition,
        period: u32,
        units: ClockUnits,
    ) -> u32 {
        let before = self.last.filter(|&(seq, _)| seq + 1 == place.seq && !arrival.marker);
        let step = before.map(|(_, at)| place.at.saturating_sub(at));
        let step = step.and_then(|step| u32::try_from(step).ok()).filter(|&step| step > 0);
        let period = match (arrival.units, step) {
            (0, Some(step)) if units.sane(step) == step => step,
            (0, _) => period,
            (told, _) => units.sane(told),
        };
        self.last = Some((place.seq, place.at));
        self.end = self.end.max(place.at.saturating_add(i64::from(period)));
        period
    }

    const fn is_first_run(&self, shift: RunOffset) -> bool {
        shift.from == ORIGIN
    }
}

/// The first packet that comes may be one that overtook so many others.
const MAX_OVERTAKEN: u64 = 64;
