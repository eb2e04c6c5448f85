//! Playing: when a packet's time has come, and what is said when it is not there.

use aulos_core::{Instant, Ppm, Span};

use super::clock_units::to_instant;
use super::{GapCause, JitterBuffer, JitterMode, JitterOutput};

/// Playing.
impl<P> JitterBuffer<P> {
    pub(super) fn poll_playout(&mut self) -> JitterOutput<P> {
        let Some((seq, held)) = self.slots.first() else { return self.poll_empty() };
        let at = held.at;
        if self.start.is_none() {
            // Nobody has heard anything yet: what the first packets tell costs nothing.
            self.offset = self.target_offset();
            (self.end, self.position) = (at, at);
            let end = at.saturating_add(i64::from(held.units));
            // Of a sender who begins with all that he has, only what is not past is played.
            let is_past = self.wait_until(end).is_none() && self.slots.len() > 1;
            if is_past || seq < self.press {
                return self.skip(seq);
            }
            if let Some(until) = self.wait_until(at) {
                return JitterOutput::Wait(Some(until));
            }
            self.start = Some(at);
        } else {
            self.drop_excess(seq);
            if seq < self.press {
                return self.skip(seq);
            }
        }
        if let Some(until) = self.wait_until(self.position.min(at)) {
            return JitterOutput::Wait(Some(until));
        }
        // What was concealed for want of anything better may have been a silence.
        let lost = self.lost_units(self.head.unwrap_or(seq), seq, at).max(0);
        let said = self.position - self.end;
        if said > lost {
            let units = (said - lost).unsigned_abs();
            self.stats.concealed = self.stats.concealed.saturating_sub(units);
            self.stats.silent += units;
            self.end = self.position - lost;
        }
        if at <= self.position { self.emit(seq) } else { self.fill_gap(at, lost) }
    }

    /// Something before the first packet in line is missing: so many units are lost, and the rest is
    /// a silence.
    fn fill_gap(&mut self, at: i64, lost: i64) -> JitterOutput<P> {
        if let Some(until) = self.grow_delay() {
            return JitterOutput::Wait(Some(until));
        }
        let (gap, said) = (at - self.position, self.position - self.end);
        let piece = gap.min(self.due_units());
        if said < lost {
            let units = piece.min(lost - said);
            self.stats.concealed += units.unsigned_abs();
            return self.emit_gap(units, GapCause::Lost);
        }
        let excess = self.offset.saturating_sub(self.target_offset());
        let shorter = self.units.units_in(excess).min(gap);
        if excess >= LEAST_STEP && shorter > 0 {
            self.offset -= self.units.nanos_of(shorter);
            return self.silence(shorter, GapCause::Shortened);
        }
        self.silence(piece, GapCause::Silence)
    }

    fn silence(&mut self, units: i64, cause: GapCause) -> JitterOutput<P> {
        self.stats.silent += units.unsigned_abs();
        self.end = self.end.saturating_add(units);
        self.emit_gap(units, cause)
    }

    /// Nothing is in line.
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
        let units = self.due_units();
        self.stats.concealed += units.unsigned_abs();
        self.emit_gap(units, GapCause::Underrun)
    }

    /// Something has to be filled in anyway: the moment to become later, if that is needed.
    fn grow_delay(&mut self) -> Option<Instant> {
        let wanted = self.target_offset();
        if wanted.saturating_sub(self.offset) < LEAST_STEP {
            return None;
        }
        self.grown = self.grown.saturating_add(wanted - self.offset);
        self.offset = wanted;
        self.wait_until(self.position)
    }

    /// When much more is in line than the longest delay, somebody has sent faster than time passes: only as
    /// much is kept as the delay should be. It is packets that count here, and not what the base says:
    /// one wrong timestamp must not move everything.
    fn drop_excess(&mut self, first: u64) {
        let JitterMode::Playout(delay) = self.mode else { return };
        let held = self.slots.len() as u64;
        if held > 2 * self.packets(delay.most()) + EXCESS_PACKETS {
            self.press = self.press.max(first + held.saturating_sub(self.packets_to_keep()));
        }
    }

    /// How many packets are kept when there are too many.
    pub(super) fn packets_to_keep(&self) -> u64 {
        self.packets(self.target()) + 1
    }

    fn packets(&self, span: Span) -> u64 {
        let period = self.units.nanos_of(i64::from(self.period)).max(1);
        (span.as_nanos() / period).max(0).unsigned_abs()
    }

    /// There are more packets than slots, or than can be played: those in front go, and what is behind
    /// moves up.
    fn skip(&mut self, seq: u64) -> JitterOutput<P> {
        let (before, next) = (self.position, self.slots.first().map_or(0, |(_, held)| held.at));
        if self.start.is_some() && next > before {
            let hole = next - before;
            self.offset = self.offset.saturating_sub(self.units.nanos_of(hole));
            return self.emit_gap(hole, GapCause::Shortened);
        }
        let JitterOutput::Packet(packet) = self.emit(seq) else { return JitterOutput::Wait(None) };
        self.stats.skipped += 1;
        if self.start.is_some() {
            let skipped = self.units.nanos_of((self.position - before).max(0));
            self.offset = self.offset.saturating_sub(skipped);
        }
        JitterOutput::Skip(packet)
    }

    /// Follows the sender's clock, and the wish, as slowly as nobody hears.
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
        let wish = self.target_offset().saturating_sub(self.offset) as f64;
        let most = f64::from(MAX_SLEW.as_ppb());
        let speed = self.transit.slope() + (wish / SLEW_TIME_S).clamp(-most, most);
        self.creep += speed * seconds;
        self.offset = self.offset.saturating_add(self.creep as i64);
        self.creep = self.creep.fract();
    }

    /// The units that are due: those of a packet, and of several if nobody has asked for a while.
    fn due_units(&self) -> i64 {
        let due = self.units.units_in(self.now.saturating_sub(self.offset));
        let period = i64::from(self.period);
        period * (due.saturating_sub(self.position).max(0) / period + 1)
    }

    /// When `position` is to be played, if that is not yet.
    fn wait_until(&self, position: i64) -> Option<Instant> {
        let due = self.units.nanos_of(position).saturating_add(self.offset);
        (due > self.now).then(|| to_instant(due))
    }
}

/// How fast the delay changes while something is heard: no more than a card may be off.
pub const MAX_SLEW: Ppm = Ppm::from_ppm(100);

/// What is less than this is not worth a step, in nanoseconds.
const LEAST_STEP: i64 = 2_000_000;

/// So many packets more than twice the longest delay are in line only when there are too many.
const EXCESS_PACKETS: u64 = 3;

/// A wish is followed in so many seconds, if [`CREEP`] lets it.
const SLEW_TIME_S: f64 = 10.0;

/// Who has not asked for longer than this, in nanoseconds, does not creep on in one jump.
const LONGEST_STEP: i64 = 60_000_000_000;
