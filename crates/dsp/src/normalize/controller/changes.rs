//! Recognises where the level of a programme changes for good, and what only looks like it.
//!
//! Short-term loudness alone cannot tell a quieter programme from a pause or a fade-out: each is
//! quiet for some seconds. What differs is the shape and the depth. A quieter programme begins at
//! once, then stays where it is, and is seldom more than 15 LU below the one before. The noise of a
//! room is deeper, a fade goes on falling. So each of them needs its own evidence, and without any
//! the section goes on and its gain with it.

use super::{Controller, Hop, RING};
use crate::meter::loudness;

/// Loudness limits around a section's level, in LUFS.
struct Limits {
    /// Above it a louder section can begin.
    loud: f64,
    /// Below it a quieter section can begin at once.
    quiet: f64,
    /// Below it sound is a pause.
    pause: f64,
}

/// Some time below a limit.
struct Quiet {
    /// Its first hop.
    from: u64,
    /// Mean loudness at its end.
    last: f64,
    /// Whether it goes neither down nor up.
    steady: bool,
}

impl Controller {
    /// Begins a section where the level has left the present one for good.
    pub(super) fn find_change(&mut self, now: u64) {
        let Some(level) = self.current.level else { return };
        let limits = self.limits(level);
        if let Some(from) = self.return_from(&limits, now) {
            self.returned = Some(now);
            self.begin(from);
        } else if let Some(from) = self.louder_from(&limits, now) {
            self.begin(from);
        } else if let Some(from) = self.quieter_from(level, &limits, now) {
            self.begin(from);
        }
    }

    /// Whether the last 3 s are so quiet that they are a pause, a fade or the beginning of another
    /// section: nothing is learned from them.
    pub(super) fn is_far_below(&self, now: u64) -> bool {
        let from = self.within_section(SHORT_TERM);
        from.zip(self.current.level).is_some_and(|(from, level)| {
            self.plain_mean(from, now) < self.limits(level).quiet.min(level - LEAST_FAR)
        })
    }

    fn limits(&self, level: f64) -> Limits {
        let range = self.settings.range.get();
        let narrow = (range / USUAL_RANGE).min(1.0);
        let (louder, quieter) = self.band();
        Limits {
            loud: level + louder + narrow * LOUD_MARGIN,
            quiet: level - quieter - narrow * QUIET_MARGIN,
            pause: level - PAUSE_LU.max(quieter + PAUSE_MARGIN),
        }
    }

    /// The programme before a pause or a quieter section is known, so a moment of it is enough.
    fn return_from(&self, limits: &Limits, now: u64) -> Option<u64> {
        let known = self.previous.level.filter(|known| *known > limits.loud)?;
        let from = self.within_section(RETURN)?;
        let limit = limits.loud.max(known - RETURN_LU);
        (from..=now).all(|hop| self.loudness_of(hop) > limit).then_some(from)
    }

    fn louder_from(&self, limits: &Limits, now: u64) -> Option<u64> {
        let is_above = |hop: &u64| self.loudness_of(*hop) > limits.loud;
        LOUD.iter().find_map(|(hops, margin)| {
            let from = self.within_section(*hops)?;
            let loud = self.mean(from, now).1 >= limits.loud + margin
                && 2 * (from..=now).filter(is_above).count() as u64 >= *hops;
            loud.then(|| (from..=now).find(is_above).unwrap_or(now))
        })
    }

    fn quieter_from(&self, level: f64, limits: &Limits, now: u64) -> Option<u64> {
        let steady = |hops, limit| self.quiet(hops, limit, now).filter(|quiet| quiet.steady);
        let programme = |quiet: &Quiet| quiet.last > limits.pause;
        // A step.
        let is_all = |quiet: &Quiet| self.loudest(quiet.from, now) < limits.quiet + CREST_LU;
        let quiet = steady(QUIET, limits.quiet).filter(programme).filter(is_all);
        if let Some(quiet) = quiet.filter(|quiet| self.is_step(quiet.from, level, limits.quiet)) {
            return Some(self.first_below(limits.quiet, quiet.from, now));
        }
        // Came gradually, or is hardly outside the range; but stays there.
        if let Some(before) = self.within_section(QUIET_FOR_SURE) {
            // The level has learned from it meanwhile.
            let edge = self.at(before).level - self.settings.range.get();
            if let Some(quiet) = steady(QUIET_FOR_SURE, edge).filter(programme) {
                return Some(self.first_below(edge, quiet.from, now));
            }
        }
        // So deep that it is probably a pause; but no pause is that long.
        let quiet = self.quiet(LONGEST_PAUSE, limits.quiet, now)?;
        steady(PAUSE_STEADY, limits.quiet)?;
        Some(self.first_below(limits.quiet, quiet.from, now))
    }

    /// The last so many hops, if they are below a limit as a whole and at both ends (of what is loud
    /// at an end, little is left in the mean of the whole), and half of them are not silent.
    fn quiet(&self, hops: u64, limit: f64, now: u64) -> Option<Quiet> {
        let from = self.within_section(hops)?;
        let part = (hops / 5).min(LONGEST_PART);
        let (begin, end) = ((from, from + part - 1), (now + 1 - part, now));
        let (count, mean) = self.mean(from, now);
        let (first, last) = (self.mean(begin.0, begin.1).1, self.mean(end.0, end.1).1);
        if 2 * count < hops || mean.max(first).max(last) >= limit {
            return None;
        }
        let middle = now + 1 - hops / 2;
        // Silence counts here, or a fade would seem to stop at the absolute gate.
        let trend = self.plain_mean(middle, now) - self.plain_mean(from, middle - 1);
        let fall = self.plain_mean(begin.0, begin.1) - self.plain_mean(end.0, end.1);
        // In speech, the loudest syllables show a fade that its gaps hide from the means.
        let peaks_fall = self.loudest(from, middle - 1) - self.loudest(middle, now);
        let steady =
            trend.abs() < STEADY_LU && fall < STEADY_ENDS_LU && peaks_fall < STEADY_PEAKS_LU;
        Some(Quiet { from, last, steady })
    }

    /// Whether sound fell below the limit at once: a second before it was near the section's level.
    fn is_step(&self, from: u64, level: f64, limit: f64) -> bool {
        let first = self.first_below(limit, from, self.heard - 1);
        let oldest = self.heard.saturating_sub(RING as u64);
        let before = first.saturating_sub(STEP_WITHIN).max(oldest);
        first > before && self.mean(before, first - 1).1 > f64::midpoint(level, limit)
    }

    /// The first of these hops that is quieter: the end of what was loud is not part of the quiet.
    fn first_below(&self, limit: f64, from: u64, to: u64) -> u64 {
        (from..=to).find(|hop| self.loudness_of(*hop) < limit).unwrap_or(from)
    }

    /// Where the last so many hops began, if all of them are of the present section.
    fn within_section(&self, hops: u64) -> Option<u64> {
        let from = self.heard.checked_sub(hops)?;
        (self.at(from).section == self.sections).then_some(from)
    }

    /// How many of these hops are not silent, and their mean loudness.
    #[allow(clippy::cast_precision_loss, reason = "some dozens")]
    pub(super) fn mean(&self, from: u64, to: u64) -> (u64, f64) {
        let gate = self.settings.gate.get();
        let (count, sum) = (from..=to)
            .map(|hop| self.at(hop).energy)
            .filter(|energy| loudness(*energy) >= gate)
            .fold((0, 0.0), |(count, sum), energy| (count + 1, sum + energy));
        (count, loudness(sum / (count as f64).max(1.0)))
    }

    /// The mean loudness of these hops, silent or not.
    #[allow(clippy::cast_precision_loss, reason = "some dozens")]
    fn plain_mean(&self, from: u64, to: u64) -> f64 {
        let sum: f64 = (from..=to).map(|hop| self.at(hop).energy).sum();
        loudness(sum / (to + 1 - from) as f64).max(SILENT)
    }

    fn loudest(&self, from: u64, to: u64) -> f64 {
        let energies = (from..=to).map(|hop| self.at(hop)).map(|Hop { energy, .. }| *energy);
        loudness(energies.fold(0.0, f64::max)).max(SILENT)
    }

    fn loudness_of(&self, hop: u64) -> f64 {
        loudness(self.at(hop).energy)
    }
}

/// The range up to which the margins below are smaller, in LU: the default of `Settings::range`.
const USUAL_RANGE: f64 = 7.0;
/// With a small range, a section learns down to this far below its level: the gate of BS.1770-4.
const LEAST_FAR: f64 = 10.0;
/// Hops of short-term loudness.
const SHORT_TERM: u64 = 30;
/// So much above its range a section ends. What is between is compressed to the range.
const LOUD_MARGIN: f64 = 1.5;
/// So much below its range a section ends at a step.
const QUIET_MARGIN: f64 = 1.5;
/// So far below its section, sound is a pause and not part of it. A quieter programme is seldom more
/// than 15 LU below, the noise of a room seldom less than 20.
const PAUSE_LU: f64 = 16.0;
/// And at least so much below the range.
const PAUSE_MARGIN: f64 = 9.0;
/// A section is over when so many hops are on average so much above the limit, and half of them are
/// above it each: what is much louder is believed sooner.
const LOUD: [(u64, f64); 3] = [(30, 0.0), (15, 3.0), (8, 6.0)];
/// Hops, each within so many LU of the known level, after which a programme is back.
const RETURN: u64 = 3;
const RETURN_LU: f64 = 5.0;
/// Hops of a quieter programme after a step. With them its gain is right 4 s after it began, the
/// look-ahead of 3 s included; the pauses of speech are shorter.
const QUIET: u64 = 29;
/// No hop of it is louder than its limit by more than this: a fade that begins with a gap between two
/// words is.
const CREST_LU: f64 = 4.0;
/// A step takes at most so many hops.
const STEP_WITHIN: u64 = 10;
/// Hops after which it does not matter how a quieter level came.
const QUIET_FOR_SURE: u64 = 100;
/// A pause lasts so many hops at most, of which the last so many are steady.
const LONGEST_PAUSE: u64 = 120;
const PAUSE_STEADY: u64 = 80;
/// What is steady differs by less than this from the first half to the second, ...
const STEADY_LU: f64 = 2.5;
/// ... falls by less than this from the first fifth to the last, ...
const STEADY_ENDS_LU: f64 = 4.0;
/// ... and in its loudest hops by less than this from half to half.
const STEADY_PEAKS_LU: f64 = 3.0;
/// Hops, at most, of the parts that are compared at both ends.
const LONGEST_PART: u64 = 10;
/// Stands for the loudness of digital silence, in LUFS.
const SILENT: f64 = -120.0;
