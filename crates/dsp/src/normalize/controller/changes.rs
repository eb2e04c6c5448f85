//! Detects permanent changes of a programme's level, and distinguishes them from fades and pauses.
//!
//! Short-term loudness alone cannot distinguish a quieter programme from a pause or a fade-out:
//! each is quiet for some seconds. They differ in shape and depth. A quieter programme begins
//! abruptly, then stays at its level, and is seldom more than 15 LU below the one before. Room
//! noise is deeper, a fade continues to fall. So each of them needs its own evidence; without any,
//! the section and its gain continue.

use super::Controller;
use super::hops::RING_HOPS;
use super::ramp::{self, MAX_POINTS, POINT_HOPS, POINTS_BEFORE};

/// Loudness limits of a section, in LUFS.
struct SectionLimits {
    /// Above it a louder section can begin.
    loud: f64,
    /// Below it a quieter section can begin with a step.
    quiet: f64,
    /// Below it sound is a pause, unless it varies like speech.
    pause: f64,
    /// Below it any sound is a pause.
    silent: f64,
}

/// A span of hops below a limit.
struct QuietSpan {
    /// Its first hop.
    from: u64,
    /// Mean loudness at its end.
    end_loudness: f64,
    /// Whether it neither falls nor rises.
    is_steady: bool,
}

impl Controller {
    /// Begins a section if the level has left the current one permanently.
    pub(super) fn detect_change(&mut self, now: u64) {
        let level = self.steady_level;
        let limits = self.limits(level);
        if let Some((from, is_certain)) = self.find_louder(&limits, now) {
            self.certain_since = is_certain.then_some(now);
            self.begin_section(from);
        } else if let Some(from) = self.find_quieter(level, &limits, now) {
            self.begin_section(from);
        }
    }

    /// Whether the last 3 s are so quiet that they are a pause, a fade or the start of another
    /// section. Their blocks are not counted in the section's loudness.
    pub(super) fn is_far_below_level(&self, now: u64) -> bool {
        let from = self.start_in_section(SHORT_TERM_HOPS);
        from.is_some_and(|from| {
            let limit = self.limits(self.steady_level).quiet;
            let limit = limit.min(self.steady_level - MIN_FAR_BELOW_LU);
            self.hops.ungated_mean(from, now) < limit
        })
    }

    /// Whether a hop is above all that the section may contain.
    pub(super) fn is_too_loud(&self, hop: u64) -> bool {
        self.hops.loudness(hop) > self.limits(self.steady_level).loud
    }

    fn limits(&self, level: f64) -> SectionLimits {
        let tolerance = self.settings.tolerance.get();
        let margin_scale = (tolerance / DEFAULT_TOLERANCE_LU).min(1.0);
        let (louder, quieter) = self.tolerances();
        SectionLimits {
            loud: level + louder + margin_scale * LOUD_MARGIN_LU,
            quiet: level - quieter - margin_scale * QUIET_MARGIN_LU,
            pause: level - PAUSE_DEPTH_LU.max(quieter + PAUSE_MARGIN_LU),
            silent: level - PAUSE_DEPTH_LU.max(quieter + PAUSE_MARGIN_LU) - SPEECH_DEPTH_LU,
        }
    }

    /// The start of a louder section, and whether its level is certain: far above the present one,
    /// or that of the section before (a programme returns after a pause or a quiet passage).
    ///
    /// What is louder for less than [`MIN_LOUD_HOPS`] is a hit, and left to the limiter.
    fn find_louder(&self, limits: &SectionLimits, now: u64) -> Option<(u64, bool)> {
        let known = self.previous.level.filter(|previous_level| *previous_level > limits.loud);
        let returned = known.and_then(|previous_level| {
            let limit = limits.loud.max(previous_level - RETURN_TOLERANCE_LU);
            self.loud_span(RETURN_HOPS, limit, limit, now)
        });
        returned.map(|from| (from, true)).or_else(|| {
            LOUDER_CRITERIA.iter().find_map(|(hops, margin)| {
                let from = self.loud_span(*hops, limits.loud, limits.loud + margin, now)?;
                Some((from, *margin >= CERTAIN_MARGIN_LU))
            })
        })
    }

    /// Where the loud part of the last `hops` hops begins, if more than a second of them is above
    /// the limit, and their mean is at least `mean`.
    fn loud_span(&self, hops: u64, limit: f64, mean: f64, now: u64) -> Option<u64> {
        let from = self.start_in_section(hops)?;
        let loudness = self.hops.gated_mean(from, now, self.settings.gate.get()).1;
        if loudness < mean {
            return None;
        }
        let count_above =
            (from..=now).filter(|hop| self.hops.loudness(*hop) > limit).count() as u64;
        // The last syllable of a quiet voice may be above the limit.
        let onset = f64::midpoint(limit, loudness);
        (count_above >= MIN_LOUD_HOPS)
            .then(|| (from..=now).find(|hop| self.hops.loudness(*hop) > onset).unwrap_or(now))
    }

    fn find_quieter(&self, level: f64, limits: &SectionLimits, now: u64) -> Option<u64> {
        let steady =
            |hops, limit| self.quiet_span(hops, limit, now).filter(|quiet| quiet.is_steady);
        let is_programme = |quiet: &QuietSpan| quiet.end_loudness > limits.pause;
        let step = self.find_step(level, (limits.quiet, limits.pause), now);
        let speech_limit = limits.pause + SPEECH_MARGIN_LU;
        let speech_step = || {
            self.find_step(level, (speech_limit, limits.silent), now)
                .filter(|from| self.varies_like_speech(*from, now))
        };
        if let Some(from) = step.or_else(speech_step) {
            return Some(from);
        }
        // A gradual change, or a level just outside the range; but it persists.
        if let Some(before) = self.start_in_section(QUIETER_GRADUAL_HOPS) {
            // The level of the section has followed it meanwhile.
            let edge = self.hops.at(before).level - self.settings.tolerance.get();
            if let Some(quiet) = steady(QUIETER_GRADUAL_HOPS, edge).filter(is_programme) {
                return Some(self.hops.first_below(edge, quiet.from, now));
            }
        }
        // So deep that it is probably a pause; but longer than any pause.
        let quiet = self.quiet_span(MAX_PAUSE_HOPS, limits.quiet, now)?;
        steady(STEADY_PAUSE_HOPS, limits.quiet)?;
        Some(self.hops.first_below(limits.quiet, quiet.from, now))
    }

    /// The start of a quieter programme that began with a step, below the first limit and above the
    /// second. It is steady from the step on: the more of it has been heard, the less its words and
    /// gaps count.
    fn find_step(&self, level: f64, (limit, lowest): (f64, f64), now: u64) -> Option<u64> {
        let oldest = self.start_in_section(QUIETER_STEP_HOPS.0)?;
        let oldest = oldest.saturating_sub(QUIETER_STEP_HOPS.1 - QUIETER_STEP_HOPS.0);
        let is_loud = |hop: &u64| self.hops.loudness(*hop) >= limit + CREST_LU;
        let last_loud = (oldest..=now).rev().find(is_loud)?;
        let step = self.hops.first_below(limit, last_loud + 1, now);
        let hops = (now + 1).checked_sub(step).filter(|hops| *hops >= QUIETER_STEP_HOPS.0)?;
        let quiet = self.quiet_span(hops, limit, now)?;
        (quiet.is_steady && quiet.end_loudness > lowest && self.is_step(step, level, limit))
            .then_some(step)
    }

    /// Whether the loudness of these hops varies as that of syllables does, and that of a room's
    /// noise does not: the mean of the energies is far above the mean of the levels.
    #[allow(clippy::cast_precision_loss, reason = "some dozens")]
    fn varies_like_speech(&self, from: u64, now: u64) -> bool {
        let mean = self.hops.ungated_mean(from, now);
        // A gap counts as a weak syllable, however silent it is.
        let below = |hop| (mean - self.hops.loudness(hop)).min(MAX_GAP_LU);
        (from..=now).map(below).sum::<f64>() / (now + 1 - from) as f64 > SPEECH_VARIATION_LU
    }

    /// The last `hops` hops, if they are below `limit` as a whole and at both ends (the mean of the
    /// whole hides a loud end), and half of them are not silent.
    fn quiet_span(&self, hops: u64, limit: f64, now: u64) -> Option<QuietSpan> {
        let from = self.start_in_section(hops)?;
        let part = (hops / 5).min(MAX_PART_HOPS);
        let (begin, end) = ((from, from + part - 1), (now + 1 - part, now));
        let gated_mean = |from, to| self.hops.gated_mean(from, to, self.settings.gate.get());
        let (count, mean) = gated_mean(from, now);
        let (first, last) = (gated_mean(begin.0, begin.1).1, gated_mean(end.0, end.1).1);
        if 2 * count < hops || mean.max(first).max(last) >= limit {
            return None;
        }
        let middle = now + 1 - hops / 2;
        // Silence counts here; otherwise a fade would seem to stop at the absolute gate.
        let trend = self.hops.ungated_mean(middle, now) - self.hops.ungated_mean(from, middle - 1);
        let fall = self.hops.ungated_mean(begin.0, begin.1) - self.hops.ungated_mean(end.0, end.1);
        // In speech, gaps hide a fade from the means; the loudest syllables show it.
        let peaks_fall =
            self.hops.max_loudness(from, middle - 1) - self.hops.max_loudness(middle, now);
        let steady = trend.abs() < MAX_STEADY_TREND_LU
            && fall < MAX_STEADY_FALL_LU
            && peaks_fall < MAX_STEADY_PEAK_FALL_LU;
        Some(QuietSpan { from, end_loudness: last, is_steady: steady })
    }

    /// Whether the sound fell below the limit abruptly at this hop: within the second before, it
    /// was near the section's level.
    fn is_step(&self, step: u64, level: f64, limit: f64) -> bool {
        let oldest = self.received.saturating_sub(RING_HOPS as u64);
        let before = step.saturating_sub(MAX_STEP_HOPS).max(oldest);
        let gate = self.settings.gate.get();
        step > before
            && self.hops.gated_mean(before, step - 1, gate).1 > f64::midpoint(level, limit)
            && !self.is_ramp(step)
    }

    /// Whether the loudness around this hop falls like a ramp and not like a step.
    fn is_ramp(&self, step: u64) -> bool {
        let oldest = self.received.saturating_sub(RING_HOPS as u64);
        let before = ((step - oldest) / POINT_HOPS).min(POINTS_BEFORE);
        let from = step - before * POINT_HOPS;
        let count = ((self.received - from) / POINT_HOPS).min(MAX_POINTS as u64);
        let mut points = [0.0; MAX_POINTS];
        for (point, hop) in points.iter_mut().zip((0..count).map(|nth| from + nth * POINT_HOPS)) {
            *point = self.hops.max_loudness(hop, hop + POINT_HOPS - 1);
        }
        ramp::is_ramp(&points[..count as usize], before as usize)
    }

    /// The start of the last `hops` hops, if all of them are in the current section.
    fn start_in_section(&self, hops: u64) -> Option<u64> {
        let from = self.received.checked_sub(hops)?;
        (self.hops.at(from).section == self.sections).then_some(from)
    }
}

/// The tolerance below which the margins are reduced, in LU: the default of `Settings::tolerance`.
const DEFAULT_TOLERANCE_LU: f64 = 7.0;
/// With a small range, a section counts blocks down to this far below its level: the gate of
/// BS.1770-4.
const MIN_FAR_BELOW_LU: f64 = 10.0;
/// Hops of short-term loudness.
const SHORT_TERM_HOPS: u64 = 30;
/// A louder section begins this far above the range. What is between is compressed to the range.
const LOUD_MARGIN_LU: f64 = 1.5;
/// A quieter section begins with a step this far below the range.
const QUIET_MARGIN_LU: f64 = 1.5;
/// Sound this far below its section is a pause and not part of it. A quieter programme is seldom
/// more than 15 LU below, room noise seldom less than 20.
const PAUSE_DEPTH_LU: f64 = 16.0;
/// Minimum distance of a pause below the range.
const PAUSE_MARGIN_LU: f64 = 9.0;
/// Speech, which varies as no room does, is a programme so far below that.
const SPEECH_DEPTH_LU: f64 = 6.0;
/// Speech whose level is just above a pause has syllables above it.
const SPEECH_MARGIN_LU: f64 = 3.0;
/// Variation of speech; that of noise, also of a crowd, is below 1 LU.
const SPEECH_VARIATION_LU: f64 = 2.0;
const MAX_GAP_LU: f64 = 20.0;
/// Hops that have to be loud before a louder section begins, more than a second: a shorter hit is
/// none.
const MIN_LOUD_HOPS: u64 = 11;
/// Criteria of a louder section: so many hops are on average so much above the limit. A greater
/// change needs fewer hops, and is looked for first, because its level is certain.
const LOUDER_CRITERIA: [(u64, f64); 3] = [(MIN_LOUD_HOPS, 6.0), (15, 3.0), (30, 0.0)];
/// With this margin the level is certain.
const CERTAIN_MARGIN_LU: f64 = 6.0;
/// Hops within which a programme has returned, and how far below the known level it may be.
const RETURN_HOPS: u64 = 15;
const RETURN_TOLERANCE_LU: f64 = 5.0;
/// Minimum and maximum hops of a quieter programme after a step. With the minimum its gain is right
/// 4 s after it began, the look-ahead of 3 s included; pauses in speech are shorter. Speech is not
/// always steady so soon.
const QUIETER_STEP_HOPS: (u64, u64) = (29, 60);
/// No hop of a quieter programme exceeds the limit by more than this; in a fade that begins with a
/// gap between two words, some do.
const CREST_LU: f64 = 4.0;
/// Maximum hops of a step.
const MAX_STEP_HOPS: u64 = 10;
/// Hops after which a quieter level counts as a section even if it came gradually.
const QUIETER_GRADUAL_HOPS: u64 = 100;
/// Maximum hops of a pause; the second figure of them must be steady at its end.
const MAX_PAUSE_HOPS: u64 = 120;
const STEADY_PAUSE_HOPS: u64 = 80;
/// A steady span changes by less than this from its first half to the second, ...
const MAX_STEADY_TREND_LU: f64 = 2.5;
/// ... falls by less than this from the first fifth to the last, ...
const MAX_STEADY_FALL_LU: f64 = 4.0;
/// ... and in its loudest hops by less than this from half to half.
const MAX_STEADY_PEAK_FALL_LU: f64 = 3.0;
/// Maximum hops of the parts that are compared at both ends.
const MAX_PART_HOPS: u64 = 10;
