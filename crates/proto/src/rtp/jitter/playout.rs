//! Play-out mode: playout times, gaps and adaptation of the delay.

use aulos_core::{Instant, Ppm, Span};

use super::tick_converter::to_instant;
use super::{GapCause, JitterBuffer, JitterMode, JitterOutput};

/// Play-out mode.
impl<P> JitterBuffer<P> {
    pub(super) fn poll_playout(&mut self) -> JitterOutput<P> {
        let Some((seq, held)) = self.slots.first() else { return self.poll_empty() };
        let at = held.at;
        if self.start.is_none() {
            // Nothing was played yet, so the delay can change freely.
            self.offset = self.target_offset();
            (self.end, self.position) = (at, at);
            let end = at.saturating_add(i64::from(held.ticks));
            // When a sender begins with a backlog, only the part that is not in the past is played.
            let is_past = self.wait_until(end).is_none() && self.slots.len() > 1;
            if is_past || seq < self.flush_below {
                return self.skip(seq);
            }
            if let Some(until) = self.wait_until(at) {
                return JitterOutput::Wait(Some(until));
            }
            self.start = Some(at);
        } else {
            self.drop_excess(seq);
            if seq < self.flush_below {
                return self.skip(seq);
            }
        }
        if let Some(until) = self.wait_until(self.position.min(at)) {
            return JitterOutput::Wait(Some(until));
        }
        // Time that was concealed as an underrun may turn out to be silence.
        let lost = self.lost_units(self.head.unwrap_or(seq), seq, at).max(0);
        let reported = self.position - self.end;
        if reported > lost {
            let ticks = (reported - lost).unsigned_abs();
            self.stats.concealed = self.stats.concealed.saturating_sub(ticks);
            self.stats.silent += ticks;
            self.end = self.position - lost;
        }
        if at <= self.position { self.emit(seq) } else { self.fill_gap(at, lost) }
    }

    /// Handles a gap before the first packet: `lost` ticks are lost, the rest is silence.
    fn fill_gap(&mut self, at: i64, lost: i64) -> JitterOutput<P> {
        if let Some(until) = self.grow_delay() {
            return JitterOutput::Wait(Some(until));
        }
        let (gap, reported) = (at - self.position, self.position - self.end);
        let piece = gap.min(self.due_units());
        if reported < lost {
            let ticks = piece.min(lost - reported);
            self.stats.concealed += ticks.unsigned_abs();
            return self.emit_gap(ticks, GapCause::Lost);
        }
        let excess = self.offset.saturating_sub(self.target_offset());
        let shorter = self.ticks.ticks_in(excess).min(gap);
        if excess >= MIN_STEP && shorter > 0 {
            self.offset -= self.ticks.nanos_of(shorter);
            return self.silence(shorter, GapCause::Shortened);
        }
        self.silence(piece, GapCause::Silence)
    }

    fn silence(&mut self, ticks: i64, cause: GapCause) -> JitterOutput<P> {
        self.stats.silent += ticks.unsigned_abs();
        self.end = self.end.saturating_add(ticks);
        self.emit_gap(ticks, cause)
    }

    /// Handles an empty buffer.
    fn poll_empty(&mut self) -> JitterOutput<P> {
        if self.start.is_none() || self.finished {
            return JitterOutput::Wait(None);
        }
        if let Some(until) = self.wait_until(self.position) {
            return JitterOutput::Wait(Some(until));
        }
        if let Some(until) = self.grow_delay() {
            return JitterOutput::Wait(Some(until));
        }
        let ticks = self.due_units();
        self.stats.concealed += ticks.unsigned_abs();
        self.emit_gap(ticks, GapCause::Underrun)
    }

    /// Increases the delay if necessary, because the output has a gap anyway.
    fn grow_delay(&mut self) -> Option<Instant> {
        let wanted = self.target_offset();
        if wanted.saturating_sub(self.offset) < MIN_STEP {
            return None;
        }
        self.added_delay = self.added_delay.saturating_add(wanted - self.offset);
        self.offset = wanted;
        self.wait_until(self.position)
    }

    /// Drops packets when the buffer holds much more than the longest delay, because the sender was
    /// faster than real time: only as much as the target delay is kept. The decision depends on the
    /// number of packets and not on the base transit, so that a single wrong timestamp has no
    /// effect.
    fn drop_excess(&mut self, first: u64) {
        let JitterMode::Playout(delay) = self.mode else { return };
        let held = self.slots.len() as u64;
        if held > 2 * self.packets(delay.max_delay()) + EXCESS_PACKETS {
            self.flush_below =
                self.flush_below.max(first + held.saturating_sub(self.packets_to_keep()));
        }
    }

    /// Number of packets to keep when there are too many.
    pub(super) fn packets_to_keep(&self) -> u64 {
        self.packets(self.target()) + 1
    }

    fn packets(&self, span: Span) -> u64 {
        let period = self.ticks.nanos_of(i64::from(self.period)).max(1);
        (span.as_nanos() / period).max(0).unsigned_abs()
    }

    /// Skips the first packet, because there are more packets than slots or than can be played;
    /// later ones move forward.
    fn skip(&mut self, seq: u64) -> JitterOutput<P> {
        let (before, next) = (self.position, self.slots.first().map_or(0, |(_, held)| held.at));
        if self.start.is_some() && next > before {
            let hole = next - before;
            self.offset = self.offset.saturating_sub(self.ticks.nanos_of(hole));
            return self.emit_gap(hole, GapCause::Shortened);
        }
        let JitterOutput::Packet(packet) = self.emit(seq) else { return JitterOutput::Wait(None) };
        self.stats.skipped += 1;
        if self.start.is_some() {
            let skipped = self.ticks.nanos_of((self.position - before).max(0));
            self.offset = self.offset.saturating_sub(skipped);
        }
        JitterOutput::Skip(packet)
    }

    /// Follows the sender's clock and the target delay at an inaudible rate.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "a part of a millisecond"
    )]
    pub(super) fn slew(&mut self, elapsed: i64) {
        if self.start.is_none() || elapsed == 0 {
            return;
        }
        let seconds = elapsed.min(LONGEST_STEP) as f64 * 1e-9;
        let difference = self.target_offset().saturating_sub(self.offset) as f64;
        let most = f64::from(MAX_SLEW.as_ppb());
        let speed = self.transit.slope() + (difference / SLEW_TIME_S).clamp(-most, most);
        self.slew_remainder += speed * seconds;
        self.offset = self.offset.saturating_add(self.slew_remainder as i64);
        self.slew_remainder = self.slew_remainder.fract();
    }

    /// Units to output: those of one packet, or of several after a pause of the caller.
    fn due_units(&self) -> i64 {
        let due = self.ticks.ticks_in(self.now.saturating_sub(self.offset));
        let period = i64::from(self.period);
        period * (due.saturating_sub(self.position).max(0) / period + 1)
    }

    /// Playout time of `position`, if it is in the future.
    fn wait_until(&self, position: i64) -> Option<Instant> {
        let due = self.ticks.nanos_of(position).saturating_add(self.offset);
        (due > self.now).then(|| to_instant(due))
    }
}

/// Maximum rate at which the delay changes during playout: the tolerance of a sound card's clock.
pub const MAX_SLEW: Ppm = Ppm::from_ppm(100);

/// Smaller differences from the target are ignored, in nanoseconds.
const MIN_STEP: i64 = 2_000_000;

/// Packets in excess of twice the longest delay before packets are dropped.
const EXCESS_PACKETS: u64 = 3;

/// Time constant of adjustments in seconds, limited by [`MAX_SLEW`].
const SLEW_TIME_S: f64 = 10.0;

/// Maximum elapsed time of one slew step, in nanoseconds.
const LONGEST_STEP: i64 = 60_000_000_000;
