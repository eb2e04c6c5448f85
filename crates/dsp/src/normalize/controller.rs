//! Decides the gain: ten times a second, from the energies of 100 ms.
//!
//! A programme is a row of *sections*, each of one level: one record, one speaker, one film. Within
//! a section the gain is the target less the gated loudness of the section so far, so it hardly
//! moves and dynamics stay as they are. A level that leaves the range around it for good begins a
//! new section, at the moment at which it left ([`changes`] has the rules); fades and pauses do
//! not, and the gain is held. `docs/decisions/normalizer-sections.md` has the alternatives.
//!
//! The gain's way from one section to the next is the lower envelope of two slopes: never above what
//! any moment wants, down in time before a loud moment, up at most as fast as allowed. With
//! a look-ahead it begins before the step; without, it is the same rule with nothing known ahead.
//!
//! What the limiter takes away is measured behind it and given back within bounds, and so is what
//! integrated loudness is off, once that is more than is promised.

mod changes;

use aulos_core::{Db, Lufs};

use super::Settings;
use super::section::{Blocks, Correction, Loss, Section, window};
use crate::meter::loudness;

/// The gain of a normaliser.
#[derive(Clone, Debug)]
pub(super) struct Controller {
    settings: Settings,
    /// Hops that are known before they come out.
    ahead: u64,
    /// The last hops, a ring.
    hops: Box<[Hop]>,
    /// Hops heard.
    heard: u64,
    current: Section,
    previous: Section,
    /// At which hop the present section was found.
    changed: u64,
    sections: u32,
    /// At which hop a section was found to be the one before the last.
    returned: Option<u64>,
    /// In dB, at the beginning of the next hop that comes out.
    gain: f64,
    limited: Loss,
    correction: Correction,
    came_out: Blocks,
    /// What that was before.
    went_in: Blocks,
}

/// What is known of 100 ms.
#[derive(Clone, Copy, Debug, Default)]
struct Hop {
    /// The weighted mean square.
    energy: f64,
    /// The section it belongs to; 0 before the first.
    section: u32,
    /// That section's loudness.
    level: f64,
    /// The gain that it gets, in dB, in the middle.
    gain: f64,
    /// Whether the block that it ends counts for its section.
    counts: bool,
}

impl Controller {
    /// A controller that knows `ahead` hops before they come out.
    pub(super) fn new(settings: Settings, ahead: usize) -> Self {
        let section = Section::new(settings.memory);
        Self {
            ahead: ahead as u64,
            hops: vec![Hop::default(); RING].into(),
            heard: 0,
            current: section.clone(),
            previous: section,
            changed: 0,
            sections: 0,
            returned: None,
            gain: 0.0,
            limited: Loss::default(),
            correction: Correction::default(),
            came_out: Blocks::new(settings.memory),
            went_in: Blocks::new(settings.memory),
            settings,
        }
    }

    /// Other wishes from the next hop on.
    pub(super) fn set(&mut self, settings: Settings) {
        if settings.target != self.settings.target {
            self.came_out.clear();
            self.went_in.clear();
            self.correction = Correction::default();
        }
        let sections = [&mut self.current.blocks, &mut self.previous.blocks];
        let blocks = sections.into_iter().chain([&mut self.came_out, &mut self.went_in]);
        for blocks in blocks {
            blocks.integration.set_window(window(settings.memory));
        }
        self.settings = settings;
    }

    /// Hears the energy of a hop, and that of the hop that came out meanwhile, behind the limiter.
    /// Returns the gain in dB that must be reached at the end of the next hop to come out.
    pub(super) fn hop(&mut self, energy: f64, came_out: f64) -> f64 {
        let now = self.heard;
        self.heard += 1;
        // A gain that it already has came from the hop before.
        let (section, gain) = (self.sections, self.at(now).gain);
        *self.at_mut(now) = Hop { energy, section, level: self.level().get(), gain, counts: false };
        self.listen_behind(now, came_out);
        if self.sections == 0 {
            if loudness(energy) >= self.settings.gate.get() {
                self.begin(now);
            }
        } else {
            let learn = !self.is_far_below(now);
            self.at_mut(now).counts = self.current.push(energy, self.settings.gate.get(), learn);
            if learn {
                self.update_correction();
            }
            self.current.update();
            self.find_change(now);
        }
        self.write_levels(now);
        let gain = self.plan(now);
        if let Some(next) = (now + 1).checked_sub(self.ahead) {
            self.at_mut(next).gain = f64::midpoint(self.gain, gain);
        }
        self.gain = gain;
        gain
    }

    /// As at the beginning.
    pub(super) fn reset(&mut self) {
        for section in [&mut self.current, &mut self.previous] {
            section.clear();
        }
        self.came_out.clear();
        self.went_in.clear();
        self.hops.fill(Hop::default());
        (self.heard, self.changed, self.sections) = (0, 0, 0);
        (self.gain, self.limited) = (0.0, Loss::default());
        (self.returned, self.correction) = (None, Correction::default());
    }

    /// One for sound that follows and has nothing in common with what was heard but its level.
    pub(super) fn successor(&self) -> Self {
        let mut new = self.clone();
        new.interrupt();
        new
    }

    /// What comes next follows, and has nothing in common with what was heard but its level.
    pub(super) fn interrupt(&mut self) {
        self.hops.fill(Hop::default());
        self.current.blocks.count = 0;
        (self.came_out.count, self.went_in.count) = (0, 0);
        (self.heard, self.changed, self.returned) = (0, 0, None);
        self.sections = u32::from(self.current.level.is_some());
    }

    pub(super) const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The gain at the beginning of the next hop that comes out.
    pub(super) fn gain(&self) -> Db {
        Db::new(self.gain)
    }

    /// The one gain at which what was heard would be as loud as what came out, as far as is
    /// remembered.
    pub(super) fn matching(&self) -> Db {
        let loudness = |blocks: &Blocks| blocks.integration.loudness();
        let both = loudness(&self.came_out).zip(loudness(&self.went_in));
        Db::new(both.map_or(self.gain, |(after, before)| after - before))
    }

    /// The loudness of the present section.
    pub(super) fn level(&self) -> Lufs {
        self.current.level.map_or(Lufs::SILENCE, Lufs::new)
    }

    fn at(&self, hop: u64) -> &Hop {
        &self.hops[ring_index(hop)]
    }

    fn at_mut(&mut self, hop: u64) -> &mut Hop {
        &mut self.hops[ring_index(hop)]
    }

    /// Learns what the limiter and the way of the gain have made of a hop.
    fn listen_behind(&mut self, now: u64, after: f64) {
        let Some(hop) = now.checked_sub(self.ahead) else { return };
        let hop = *self.at(hop);
        let before = hop.energy * 10f64.powf(hop.gain / 10.0);
        if hop.section > 0 && loudness(hop.energy) > hop.level - GATE_LU {
            self.limited.push(before, after);
        }
        for (blocks, energy) in [(&mut self.came_out, after), (&mut self.went_in, hop.energy)] {
            let block = blocks.next(energy);
            blocks.integration.push(block);
        }
    }

    /// The range that a section may use: louder and quieter than its level, in LU.
    fn band(&self) -> (f64, f64) {
        let range = self.settings.range.get();
        (range / 2.0, range)
    }

    /// A section begins at a hop that has been heard. If the one before the last had this level, it
    /// goes on.
    fn begin(&mut self, from: u64) {
        let now = self.heard - 1;
        let level = self.mean(from, now).1;
        // What the old section has heard of the new one was not its own.
        let foreign = (from..=now).filter(|hop| self.at(*hop).counts).count();
        self.current.blocks.integration.take_back(foreign);
        self.current.update();
        self.write_levels(now);
        let back = self.previous.level.is_some_and(|old| (old - level).abs() < self.band().0);
        core::mem::swap(&mut self.current, &mut self.previous);
        if !back {
            self.current.clear();
        }
        self.current.blocks.count = 0;
        self.sections += 1;
        self.changed = now;
        for hop in from..=now {
            let energy = self.at(hop).energy;
            let counts = self.current.push(energy, self.settings.gate.get(), true);
            (self.at_mut(hop).section, self.at_mut(hop).counts) = (self.sections, counts);
        }
        self.current.update();
        // Older hops than those that are still to come out, too: limits are taken from them.
        let level = self.level().get();
        (from..=now).for_each(|hop| self.at_mut(hop).level = level);
    }

    /// Hops of the present section have its newest level; silence before the first has it too.
    fn write_levels(&mut self, now: u64) {
        let Some(level) = self.current.level else { return };
        for hop in now.saturating_sub(self.ahead)..=now {
            let present = self.sections;
            let hop = self.at_mut(hop);
            if hop.section == present || (hop.section == 0 && present == 1) {
                hop.level = level;
            }
        }
    }

    /// The gain that a hop should have; `None` before anything was heard.
    fn wish(&self, hop: u64, now: u64, given_back: f64) -> Option<f64> {
        if self.sections == 0 {
            return None;
        }
        let level = self.at(hop).level;
        let Settings { target, min_gain, max_gain, .. } = &self.settings;
        let wish = target.get() - level - self.excess(hop, now) + given_back;
        Some(wish.clamp(min_gain.get(), max_gain.get()))
    }

    /// How far the short-term loudness around a hop is outside the section's range.
    #[allow(clippy::cast_precision_loss, reason = "some dozens")]
    fn excess(&self, hop: u64, now: u64) -> f64 {
        let Hop { section, level, .. } = *self.at(hop);
        let gate = self.settings.gate.get().max(level - DEEP_LU);
        let oldest = (now + 1).saturating_sub(RING as u64);
        let around =
            hop.saturating_sub(HALF_SHORT_TERM).max(oldest)..=(hop + HALF_SHORT_TERM).min(now);
        let (count, sum) = around
            .map(|hop| self.at(hop))
            .filter(|other| other.section == section && loudness(other.energy) >= gate)
            .fold((0_u32, 0.0), |(count, sum), other| (count + 1, sum + other.energy));
        if count < FEWEST {
            return 0.0;
        }
        let difference = loudness(sum / f64::from(count)) - level;
        let (louder, quieter) = self.band();
        // Without a long look-ahead, this would be too loud for a moment when a pause is over.
        let most = if self.is_far_ahead() { MOST_BELOW } else { 0.0 };
        let below = (BELOW_TIMES * (difference + quieter)).clamp(-most, 0.0);
        (difference - louder).max(0.0) + below
    }

    fn update_correction(&mut self) {
        let integration = &self.came_out.integration;
        let target = self.settings.target.get();
        let error = integration.loudness().map_or(0.0, |lufs| target - lufs);
        // Without a long look-ahead the gain is on its way in the first second of all; that is no
        // property of the programme, and is made up for at once.
        let late_start = self.sections == 1 && !self.is_far_ahead();
        self.correction.update(error, integration.blocks(), late_start);
    }

    /// What the limiter took, and what integrated loudness is off, within bounds.
    fn given_back(&self) -> f64 {
        // Without a long look-ahead, a step that came too loud is over and not to be made up for.
        let most = if !self.is_far_ahead() {
            MOST_BLIND
        } else if self.is_young(self.heard) {
            MOST_CORRECTION / 2.0
        } else {
            MOST_CORRECTION
        };
        self.limited.get() + self.correction.get(most)
    }

    /// The gain at the end of the next hop that comes out.
    fn plan(&self, now: u64) -> f64 {
        // Before the programme comes out there is silence: the gain may be anything.
        let before_start = now + 1 < self.ahead;
        let next = (now + 1).saturating_sub(self.ahead).min(now);
        let given_back = self.given_back();
        let mut wishes = [0.0; AHEAD_AT_MOST];
        let known = (now + 1 - next).min(AHEAD_AT_MOST as u64);
        #[allow(clippy::cast_possible_truncation, reason = "at most thirty")]
        let wishes = &mut wishes[..known as usize];
        for (wish, hop) in wishes.iter_mut().zip(next..) {
            match self.wish(hop, now, given_back) {
                Some(db) => *wish = db,
                None => return self.gain,
            }
        }
        let (rise, fall) = self.slopes(now);
        let mut cap = f64::INFINITY;
        let mut slack = 0.0;
        for hop in 1..=wishes.len() {
            cap = cap.min(at_node(wishes, hop) + slack);
            slack += fall;
        }
        if before_start || self.is_inaudible(next) {
            return cap;
        }
        cap.clamp(self.gain - fall, self.gain + rise)
    }

    /// By how many dB the gain may rise and fall in a hop.
    fn slopes(&self, now: u64) -> (f64, f64) {
        let rise = self.settings.rise.get() / HOPS_PER_S;
        let fall = self.settings.fall.get() / HOPS_PER_S;
        // What begins far too loud, and was not known before, must not stay so.
        let first = self.sections == 1 && self.ahead == 0 && now - self.changed < FIRST_FOR;
        // Neither must a programme that is back and whose gain is known.
        let back = self.returned.is_some_and(|hop| now - hop < FIRST_FOR) && !self.is_far_ahead();
        let rise = if self.is_young(now) { YOUNG_RISE * rise } else { rise };
        (rise, if first || back { FIRST_FALL * fall } else { fall })
    }

    /// Whether the look-ahead is longer than any way of the gain.
    const fn is_far_ahead(&self) -> bool {
        self.ahead == AHEAD_AT_MOST as u64
    }

    /// Whether the section that comes out began lately.
    fn is_young(&self, now: u64) -> bool {
        now - self.changed < YOUNG_FOR + self.ahead
    }

    /// Whether the hop that comes out next is so quiet that nobody hears its gain jump.
    fn is_inaudible(&self, hop: u64) -> bool {
        loudness(self.at(hop).energy) < INAUDIBLE
    }
}

/// What the beginning of a hop wants, of those known: that of the lower side, so that a fall is over
/// in time; a rise may begin a little before.
fn at_node(wishes: &[f64], hop: usize) -> f64 {
    let last = wishes[wishes.len() - 1];
    let now = wishes[hop - 1].min(*wishes.get(hop).unwrap_or(&last));
    let Some(soon) = wishes.get(hop..hop + EARLY) else { return now };
    let between = soon.iter().copied().fold(f64::INFINITY, f64::min);
    if between >= now { soon[EARLY - 1].min(now + EARLY_DB) } else { now }
}

#[allow(clippy::cast_possible_truncation, reason = "below the ring's length")]
const fn ring_index(hop: u64) -> usize {
    (hop % RING as u64) as usize
}

const HOPS_PER_S: f64 = 10.0;
/// Hops in the longest look-ahead, 3 s.
pub(super) const AHEAD_AT_MOST: usize = 30;
/// Hops that are remembered: the longest search, and the longest look-ahead.
const RING: usize = 128;
/// The relative gate of BS.1770-4.
const GATE_LU: f64 = 10.0;
/// So much below the level, nothing counts for the short-term loudness of a section.
const DEEP_LU: f64 = 20.0;
/// What is below the range is raised by so many times as much, and at most by so much: it may be a
/// fade or a pause.
const BELOW_TIMES: f64 = 4.0;
const MOST_BELOW: f64 = 3.0;
/// Half of the 3 s of short-term loudness.
const HALF_SHORT_TERM: u64 = 15;
/// Hops, at least, of which a short-term value is made.
const FEWEST: u32 = 4;
/// Hops by which a rise may begin before the quiet that it is for, and how far it comes meanwhile.
const EARLY: usize = 4;
const EARLY_DB: f64 = 2.4;
/// Hops after the beginning of a section in which the gain may rise faster, and by how much.
const YOUNG_FOR: u64 = 100;
const YOUNG_RISE: f64 = 2.0;
/// Hops after the beginning of all in which the gain falls faster when nothing is known ahead.
const FIRST_FOR: u64 = 10;
const FIRST_FALL: f64 = 4.0;
/// By how much the gain is lowered at most for what has come out too loud, in LU; half of it while a
/// section is young.
const MOST_CORRECTION: f64 = 2.0;
/// The same in the modes that hear a step too late.
const MOST_BLIND: f64 = 0.75;
/// Below the absolute gate of BS.1770-4 nothing counts as sound.
const INAUDIBLE: f64 = -70.0;
