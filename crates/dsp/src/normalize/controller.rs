//! Computes the gain ten times a second, from the energy of each hop of 100 ms.
//!
//! A programme is a sequence of *sections*, each of one level: one record, one speaker, one film.
//! Within a section the gain is the target less the gated loudness of the section so far, so it
//! hardly moves and the dynamics are preserved. When the level leaves the range around it
//! permanently, a new section begins at the moment at which it left ([`changes`] has the rules); at
//! fades and pauses the gain is held. `docs/decisions/normalizer-sections.md` has the alternatives.
//!
//! What is not certain moves the gain by 3 dB at most: a louder section that is known but not heard
//! yet, because the gain would fade the end of what is heard, and loudness above the range that has
//! not lasted for a second, because it may be a hit. What is heard and certain is followed within
//! some hundred milliseconds. The gain rises at most as fast as allowed.
//!
//! The gain reduction of the limiter is measured behind it and compensated within bounds, and so is
//! the error of integrated loudness, once it exceeds the specified tolerance.

mod changes;
mod hops;
mod ramp;

use aulos_core::{Db, Lufs};

use super::Settings;
use super::section::{
    LimiterLoss, LongAverage, LoudnessBlocks, LoudnessCorrection, Section, window_blocks,
};
use crate::meter::loudness;
use hops::{Hop, HopRing, RING_HOPS};

/// The gain control of a normalizer.
#[derive(Clone, Debug)]
pub(super) struct Controller {
    settings: Settings,
    /// Hops between input and output.
    look_ahead: u64,
    hops: HopRing,
    /// Hops received.
    received: u64,
    current: Section,
    previous: Section,
    /// Loudness of the current section, from which the gain is computed: it follows slowly, because
    /// a few loud hops may be a hit, or the start of another section.
    steady_level: f64,
    /// Hop at which the current section was detected.
    section_detected_at: u64,
    sections: u32,
    /// Hop at which a louder section was detected whose level is certain.
    certain_since: Option<u64>,
    /// In dB, at the start of the next output hop.
    gain: f64,
    limiter_loss: LimiterLoss,
    correction: LoudnessCorrection,
    output_blocks: LoudnessBlocks,
    /// Of the output, over minutes.
    output_average: LongAverage,
    /// The input of the hops in `output_blocks`.
    input_blocks: LoudnessBlocks,
}

impl Controller {
    /// A controller with a look-ahead of `look_ahead` hops.
    pub(super) fn new(settings: Settings, look_ahead: usize) -> Self {
        let section = Section::new(settings.memory);
        Self {
            look_ahead: look_ahead as u64,
            hops: HopRing::new(),
            received: 0,
            current: section.clone(),
            previous: section,
            steady_level: 0.0,
            section_detected_at: 0,
            sections: 0,
            certain_since: None,
            gain: 0.0,
            limiter_loss: LimiterLoss::default(),
            correction: LoudnessCorrection::default(),
            output_blocks: LoudnessBlocks::new(settings.memory),
            output_average: LongAverage::default(),
            input_blocks: LoudnessBlocks::new(settings.memory),
            settings,
        }
    }

    /// Changes the settings from the next hop on.
    pub(super) fn set_settings(&mut self, settings: Settings) {
        if settings.target != self.settings.target {
            self.output_blocks.clear();
            self.input_blocks.clear();
            self.output_average = LongAverage::default();
            self.correction = LoudnessCorrection::default();
        }
        let sections = [&mut self.current.blocks, &mut self.previous.blocks];
        let blocks = sections.into_iter().chain([&mut self.output_blocks, &mut self.input_blocks]);
        for blocks in blocks {
            blocks.gated.set_window(window_blocks(settings.memory));
        }
        self.settings = settings;
    }

    /// Takes the energy of an input hop, and that of the hop that was output meanwhile, behind the
    /// limiter. Returns the gain in dB at the end of the next output hop.
    pub(super) fn process_hop(&mut self, energy: f64, output_energy: f64) -> f64 {
        let now = self.received;
        self.received += 1;
        // The gain of this slot, if any, was set with the hop before.
        let (section, gain) = (self.sections, self.hops.at(now).gain);
        *self.hops.at_mut(now) =
            Hop { energy, section, level: self.steady_level, gain, is_counted: false };
        self.measure_output(now, output_energy);
        if self.sections == 0 {
            if loudness(energy) >= self.settings.gate.get() {
                self.begin_section(now);
            }
        } else {
            let counts_block = !self.is_far_below_level(now);
            self.hops.at_mut(now).is_counted =
                self.current.push(energy, self.settings.gate.get(), counts_block);
            if counts_block {
                self.update_correction();
            }
            self.current.update();
            self.detect_change(now);
        }
        self.follow_level(now);
        self.write_levels(now);
        let gain = self.plan_gain(now);
        if let Some(next) = (now + 1).checked_sub(self.look_ahead) {
            self.hops.at_mut(next).gain = f64::midpoint(self.gain, gain);
        }
        self.gain = gain;
        gain
    }

    /// Back to the initial state.
    pub(super) fn reset(&mut self) {
        for section in [&mut self.current, &mut self.previous] {
            section.clear();
        }
        self.output_blocks.clear();
        self.input_blocks.clear();
        self.output_average = LongAverage::default();
        self.hops.clear();
        (self.received, self.section_detected_at, self.sections) = (0, 0, 0);
        (self.gain, self.limiter_loss) = (0.0, LimiterLoss::default());
        (self.certain_since, self.correction) = (None, LoudnessCorrection::default());
    }

    /// A copy for sound that continues only the level of the input so far.
    pub(super) fn successor(&self) -> Self {
        let mut new = self.clone();
        new.interrupt();
        new
    }

    /// Marks a discontinuity: the next input continues only the level of the input so far.
    pub(super) fn interrupt(&mut self) {
        self.hops.clear();
        self.current.blocks.count = 0;
        (self.output_blocks.count, self.input_blocks.count) = (0, 0);
        (self.received, self.section_detected_at, self.certain_since) = (0, 0, None);
        self.sections = u32::from(self.current.level.is_some());
    }

    pub(super) const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The gain at the start of the next output hop.
    pub(super) fn gain(&self) -> Db {
        Db::new(self.gain)
    }

    /// The constant gain at which the input would be as loud as the output, within the memory.
    pub(super) fn matching_gain(&self) -> Db {
        let loudness = |blocks: &LoudnessBlocks| blocks.gated.loudness();
        let both = loudness(&self.output_blocks).zip(loudness(&self.input_blocks));
        Db::new(both.map_or(self.gain, |(after, before)| after - before))
    }

    /// Loudness of the current section.
    pub(super) fn level(&self) -> Lufs {
        self.current.level.map_or(Lufs::SILENCE, Lufs::new)
    }

    /// Measures the effect of the limiter and of the gain ramp on the hop that was output.
    fn measure_output(&mut self, now: u64, after: f64) {
        let Some(hop) = now.checked_sub(self.look_ahead) else { return };
        let hop = *self.hops.at(hop);
        let before = hop.energy * 10f64.powf(hop.gain / 10.0);
        // At the start the limiter replaces the gain that is not known yet.
        if hop.section > 0
            && loudness(hop.energy) > hop.level - RELATIVE_GATE_LU
            && !self.is_starting()
        {
            self.limiter_loss.push(before, after);
        }
        let block = self.output_blocks.push_hop(after);
        self.output_blocks.gated.push(block);
        let lufs = self.output_blocks.gated.loudness();
        if lufs.is_some_and(|lufs| loudness(block) >= lufs - RELATIVE_GATE_LU) {
            self.output_average.push(block);
        }
        let block = self.input_blocks.push_hop(hop.energy);
        self.input_blocks.gated.push(block);
    }

    /// How much louder and quieter than its level a section may be, in LU.
    fn tolerances(&self) -> (f64, f64) {
        let tolerance = self.settings.tolerance.get();
        (tolerance / 2.0, tolerance)
    }

    /// Begins a section at a hop in the past. If the section before the current one had this level,
    /// that section continues.
    fn begin_section(&mut self, from: u64) {
        let now = self.received - 1;
        let level = self.hops.gated_mean(from, now, self.settings.gate.get()).1;
        // Blocks of the new section that the old one has counted are removed from it.
        let miscounted = (from..=now).filter(|hop| self.hops.at(*hop).is_counted).count();
        self.current.blocks.gated.remove_last(miscounted);
        self.current.update();
        self.follow_level(now);
        self.write_levels(now);
        let is_return =
            self.previous.level.is_some_and(|old| (old - level).abs() < self.tolerances().0);
        core::mem::swap(&mut self.current, &mut self.previous);
        if !is_return {
            self.current.clear();
        }
        self.current.blocks.count = 0;
        self.sections += 1;
        self.section_detected_at = now;
        for hop in from..=now {
            let energy = self.hops.at(hop).energy;
            let is_counted = self.current.push(energy, self.settings.gate.get(), true);
            (self.hops.at_mut(hop).section, self.hops.at_mut(hop).is_counted) =
                (self.sections, is_counted);
        }
        self.current.update();
        self.follow_level(now);
        // Also for hops that were output: the section's limits are computed from them.
        let level = self.steady_level;
        (from..=now).for_each(|hop| self.hops.at_mut(hop).level = level);
    }

    /// Moves the level towards that of the section's blocks; at once while these are few. What is
    /// too loud for the section does not raise it before it is known to be no other section.
    fn follow_level(&mut self, now: u64) {
        let Some(level) = self.current.level else { return };
        if now - self.section_detected_at < SETTLING_HOPS {
            self.steady_level = level;
            return;
        }
        let rise = if self.is_too_loud(now) { 0.0 } else { MAX_LEVEL_STEP_LU };
        let (min, max) = (self.steady_level - MAX_LEVEL_STEP_LU, self.steady_level + rise);
        self.steady_level = level.clamp(min, max);
    }

    /// Writes the current level into the hops of the section, and into silence before the first
    /// section.
    fn write_levels(&mut self, now: u64) {
        let level = self.steady_level;
        if self.current.level.is_none() {
            return;
        }
        for hop in now.saturating_sub(self.look_ahead)..=now {
            let present = self.sections;
            let hop = self.hops.at_mut(hop);
            if hop.section == present || (hop.section == 0 && present == 1) {
                hop.level = level;
            }
        }
    }

    /// The target gain of a hop; `None` before the first section.
    fn target_gain(&self, hop: u64, now: u64, compensation: f64) -> Option<f64> {
        if self.sections == 0 {
            return None;
        }
        let level = self.hops.at(hop).level;
        let Settings { target, min_gain, max_gain, .. } = &self.settings;
        let target_gain = target.get() - level - self.range_excess(hop, now) + compensation;
        Some(target_gain.clamp(min_gain.get(), max_gain.get()))
    }

    /// How far the short-term loudness around a hop is outside the section's range, in LU.
    #[allow(clippy::cast_precision_loss, reason = "some dozens")]
    fn range_excess(&self, hop: u64, now: u64) -> f64 {
        let Hop { section, level, .. } = *self.hops.at(hop);
        let gate = self.settings.gate.get().max(level - SHORT_TERM_GATE_LU);
        let oldest = (now + 1).saturating_sub(RING_HOPS as u64);
        let around = hop.saturating_sub(HALF_SHORT_TERM_HOPS).max(oldest)
            ..=(hop + HALF_SHORT_TERM_HOPS).min(now);
        let (count, sum) = around
            .map(|hop| self.hops.at(hop))
            .filter(|other| other.section == section && loudness(other.energy) >= gate)
            .fold((0_u32, 0.0), |(count, sum), other| (count + 1, sum + other.energy));
        if count < MIN_SHORT_TERM_HOPS {
            return 0.0;
        }
        let difference = loudness(sum / f64::from(count)) - level;
        let (louder, quieter) = self.tolerances();
        // Without a full look-ahead, the gain would be too high for a moment at the end of a pause.
        let max = if self.has_full_look_ahead() { MAX_BELOW_RANGE_LU } else { 0.0 };
        let below = (BELOW_RANGE_FACTOR * (difference + quieter)).clamp(-max, 0.0);
        (difference - louder).clamp(0.0, MAX_ABOVE_RANGE_LU) + below
    }

    fn update_correction(&mut self) {
        let gated = &self.output_blocks.gated;
        let target = self.settings.target.get();
        let error = gated.loudness().map_or(0.0, |lufs| target - lufs);
        // In a song the memory holds more of the verses at one time and more of the choruses at
        // another; to correct that would move the gain against its dynamics.
        let long_error = target - self.output_average.loudness();
        let (min, max) = (long_error.min(0.0), long_error.max(0.0));
        let error = error.clamp(min - LONG_ERROR_MARGIN_LU, max + LONG_ERROR_MARGIN_LU);
        // Without a full look-ahead the gain moves from 0 dB in the first second; this error is no
        // property of the programme and is compensated at once.
        let late_start = self.sections == 1 && !self.has_full_look_ahead();
        // Without a full look-ahead, a step that was output too loud is past and not compensated.
        let max = if !self.has_full_look_ahead() {
            MAX_CORRECTION_SHORT_LU
        } else if self.is_recent(self.received) {
            MAX_CORRECTION_RECENT_LU
        } else {
            MAX_CORRECTION_LU
        };
        self.correction.update(error, gated.blocks(), late_start, max);
    }

    /// The gain at the end of the next output hop.
    fn plan_gain(&self, now: u64) -> f64 {
        // Before the programme is output there is silence: the gain may have any value.
        let before_start = now + 1 < self.look_ahead;
        let next = (now + 1).saturating_sub(self.look_ahead).min(now);
        // Both are within bounds.
        let compensation = self.limiter_loss.get() + self.correction.get();
        let mut target_gains = [0.0; MAX_LOOK_AHEAD_HOPS];
        let known = (now + 1 - next).min(MAX_LOOK_AHEAD_HOPS as u64);
        #[allow(clippy::cast_possible_truncation, reason = "at most thirty")]
        let target_gains = &mut target_gains[..known as usize];
        for (target_gain, hop) in target_gains.iter_mut().zip(next..) {
            match self.target_gain(hop, now, compensation) {
                Some(db) => *target_gain = db,
                None => return self.gain,
            }
        }
        let present = target_gains[0];
        let (rise, fall) = self.max_changes(now);
        // What is still to come may hardly fade the end of what is heard.
        let lowest = present - MAX_PREPARATION_DB;
        let mut cap = f64::INFINITY;
        let mut slack = 0.0;
        for hop in 1..=target_gains.len() {
            cap = cap.min(target_at_start(target_gains, hop).max(lowest) + slack);
            slack += fall;
        }
        if before_start || self.is_inaudible(next) {
            return cap;
        }
        let fall = fall.max(self.certain_fall(next, present, now));
        cap.clamp(self.gain - fall, self.gain + rise)
    }

    /// By how many dB the gain falls in the next output hop because that is too loud for certain:
    /// its section has been heard for long enough. Otherwise 0.
    fn certain_fall(&self, next: u64, present: f64, now: u64) -> f64 {
        let is_certain = self.has_full_look_ahead()
            || self.is_first_second(now)
            || self.certain_since.is_some_and(|hop| now - hop < FAST_FALL_HOPS);
        let excess = self.gain - present;
        if !is_certain || excess <= 0.0 {
            return 0.0;
        }
        // The attack of a sound is louder than what follows, so the part looks greater than it is.
        let part = self.loud_part(next, now).powi(2);
        part * (CERTAIN_FALL_SHARE * excess).min(MAX_CERTAIN_FALL_DB)
    }

    /// The part of a hop that belongs to its section, by the energies around it: the loud sound
    /// may begin late in the hop, and what is before it is not to be faded.
    fn loud_part(&self, hop: u64, now: u64) -> f64 {
        let Some(before) = hop.checked_sub(1).map(|before| *self.hops.at(before)) else {
            return 1.0;
        };
        if hop >= now || before.section == self.hops.at(hop).section {
            return 1.0;
        }
        let [present, after] = [hop, hop + 1].map(|hop| self.hops.at(hop).energy);
        let part = (present - before.energy) / (after - before.energy);
        if part.is_finite() { part.clamp(0.0, 1.0) } else { 1.0 }
    }

    /// By how many dB the gain may rise and fall in one hop.
    fn max_changes(&self, now: u64) -> (f64, f64) {
        let rise = self.settings.max_rise.get() / HOPS_PER_S;
        let rise = if self.is_recent(now) { RECENT_RISE_FACTOR * rise } else { rise };
        (rise, self.settings.max_fall.get() / HOPS_PER_S)
    }

    /// Whether, without a look-ahead, the programme has begun within the last second.
    fn is_first_second(&self, now: u64) -> bool {
        self.look_ahead == 0
            && self.sections == 1
            && now - self.section_detected_at < FAST_FALL_HOPS
    }

    /// Whether the gain is not yet that of a programme that has just begun: without a look-ahead,
    /// the level is known when its first hop is over.
    pub(super) fn is_starting(&self) -> bool {
        // Where it cannot move, the gain is known.
        let can_move = self.settings.min_gain < self.settings.max_gain;
        let is_too_high = |now: u64| {
            self.target_gain(now, now, 0.0).is_some_and(|gain| self.gain > gain + START_LU)
        };
        let now = self.received.checked_sub(1).filter(|now| self.is_first_second(*now));
        self.look_ahead == 0 && can_move && (self.sections == 0 || now.is_some_and(is_too_high))
    }

    /// Whether the look-ahead is longer than any movement of the gain.
    const fn has_full_look_ahead(&self) -> bool {
        self.look_ahead == MAX_LOOK_AHEAD_HOPS as u64
    }

    /// Whether the section that is output began recently.
    fn is_recent(&self, now: u64) -> bool {
        now - self.section_detected_at < RECENT_HOPS + self.look_ahead
    }

    /// Whether the next output hop is so quiet that a jump of the gain is inaudible.
    fn is_inaudible(&self, hop: u64) -> bool {
        loudness(self.hops.at(hop).energy) < INAUDIBLE_LUFS
    }
}

/// Target gain at the start of a known hop: the lower of the two sides, so that a fall is complete
/// in time; a rise may begin a little before.
fn target_at_start(target_gains: &[f64], hop: usize) -> f64 {
    let last = target_gains[target_gains.len() - 1];
    let now = target_gains[hop - 1].min(*target_gains.get(hop).unwrap_or(&last));
    let Some(soon) = target_gains.get(hop..hop + EARLY_RISE_HOPS) else { return now };
    let between = soon.iter().copied().fold(f64::INFINITY, f64::min);
    if between >= now { soon[EARLY_RISE_HOPS - 1].min(now + EARLY_RISE_DB) } else { now }
}

const HOPS_PER_S: f64 = 10.0;
/// Hops in the longest look-ahead, 3 s.
pub(super) const MAX_LOOK_AHEAD_HOPS: usize = 30;
/// The relative gate of BS.1770-4.
const RELATIVE_GATE_LU: f64 = 10.0;
/// Hops so far below the level are not counted in the short-term loudness of a section.
const SHORT_TERM_GATE_LU: f64 = 20.0;
/// Loudness below the range is raised by this factor of its distance, up to the maximum: it may be
/// a fade or a pause.
const BELOW_RANGE_FACTOR: f64 = 4.0;
const MAX_BELOW_RANGE_LU: f64 = 3.0;
/// Loudness above the range is reduced by at most this; if it persists, a louder section begins.
const MAX_ABOVE_RANGE_LU: f64 = 0.8;
/// Half of the 3 s of short-term loudness.
const HALF_SHORT_TERM_HOPS: u64 = 15;
/// Minimum number of hops of a short-term value.
const MIN_SHORT_TERM_HOPS: u32 = 4;
/// Hops by which a rise may begin before the quiet passage, and its extent by then.
const EARLY_RISE_HOPS: usize = 4;
const EARLY_RISE_DB: f64 = 2.4;
/// Hops after the start of a section in which the gain may rise faster, and the factor.
const RECENT_HOPS: u64 = 100;
const RECENT_RISE_FACTOR: f64 = 2.0;
/// By how much the gain falls before a louder section begins to be heard.
const MAX_PREPARATION_DB: f64 = 2.2;
/// Once a louder section is heard and certain, the gain falls by this part of what is left in each
/// hop, ...
const CERTAIN_FALL_SHARE: f64 = 0.9;
/// ... and by at most this, so that it does not click.
const MAX_CERTAIN_FALL_DB: f64 = 10.0;
/// Hops after the detection in which it does, without a full look-ahead.
const FAST_FALL_HOPS: u64 = 10;
/// A gain so far above that of a programme that has just begun is left to the limiter.
const START_LU: f64 = 1.0;
/// Maximum attenuation that compensates output that was too loud, in LU, and in a recent section.
const MAX_CORRECTION_LU: f64 = 2.0;
const MAX_CORRECTION_RECENT_LU: f64 = 1.4;
/// The same without a full look-ahead, where a step is noticed too late.
const MAX_CORRECTION_SHORT_LU: f64 = 0.75;
/// By how much the error over the memory may exceed that over minutes.
const LONG_ERROR_MARGIN_LU: f64 = 0.15;
/// Hops after which the level of a section is settled, and its maximum change in a hop then.
const SETTLING_HOPS: u64 = 30;
const MAX_LEVEL_STEP_LU: f64 = 0.05;
/// Below the absolute gate of BS.1770-4 sound counts as silence.
const INAUDIBLE_LUFS: f64 = -70.0;
