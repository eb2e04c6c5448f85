//! The loudness that the gain is made for, and when it moves.
//!
//! A gain that follows the average of a section moves with every verse and every chorus, and still does
//! not make the whole right: what was too loud before the average had followed stays too loud. Here the
//! gain is a fader that is left alone. It moves when integrated loudness is going to be off by more than
//! is accepted if it stays and the next seconds are as the last, and then as far as that takes.
//! Rejected was a correction in proportion to the present error: it moves the gain to and fro.

use super::{Controller, GATE_LU};
use crate::meter::loudness;

/// What has come out, and what it should have been.
struct Outlook {
    /// Blocks above the gates, and the sum of their energies by that of a block at the target.
    blocks: f64,
    energy: f64,
}

impl Outlook {
    /// By how many LU integrated loudness is off after so many more blocks, each off by `offset` LU.
    fn error_after(&self, blocks: f64, offset: f64) -> f64 {
        decibels((self.energy + blocks * power(offset)) / (self.blocks + blocks))
    }

    /// By how many LU so many more blocks have to be off for an error of `error` LU, within bounds.
    fn offset_for(&self, error: f64, blocks: f64, bounds: (f64, f64)) -> f64 {
        let energy = (self.blocks + blocks) * power(error) - self.energy;
        decibels((energy / blocks).max(power(bounds.0))).min(bounds.1)
    }

    /// Blocks until the error counts: a minute after the beginning, and always `soon` more.
    fn horizon(&self, soon: f64) -> f64 {
        (COUNTS_AFTER - self.blocks).max(soon)
    }
}

impl Controller {
    /// The first reference of a section that began at a hop; `before` is the level of the one before.
    /// What a programme begins with is more often quieter than what follows. What is louder, or came to be
    /// quieter gradually, is left a little as it is; but without a long look-ahead the beginning of what is
    /// louder was too loud, which is made up for.
    pub(super) fn begin_reference(&mut self, before: Option<f64>, from: u64) {
        let Some(level) = self.current.level else { return };
        if self.current.reference.is_some() {
            return;
        }
        let found_late = self.heard - from > GRADUAL;
        self.current.reserve = match before {
            None => START_LU,
            Some(before) if before < level && self.is_far_ahead() => LOUDER_LU,
            Some(before) if before < level => LOUDER_BLIND_LU,
            Some(_) if found_late => QUIETER_LU,
            Some(_) => 0.0,
        };
        self.current.reference = Some(level + self.current.reserve);
    }

    /// Moves the reference of the present section, if it has to be.
    pub(super) fn update_reference(&mut self, now: u64) {
        let Some(level) = self.current.level else { return };
        let calm = level + self.reserve();
        let reference = match self.current.reference {
            Some(reference) if self.current.learned >= YOUNG => {
                let (to, rate) = self.wanted_reference(reference, calm, now);
                let moved = reference + (to - reference).clamp(-rate, rate);
                moved.clamp(level - FARTHEST_LU, level + FARTHEST_LU)
            }
            _ => calm,
        };
        self.current.reference = Some(reference);
    }

    /// Where the reference has to go, and how fast in LU per hop.
    fn wanted_reference(&self, reference: f64, calm: f64, now: u64) -> (f64, f64) {
        let outlook = self.outlook();
        let Some(recent) = self.recent(now) else { return (reference, 0.0) };
        let (loud, quiet) = (outlook.horizon(SOON_LOUD), outlook.horizon(SOON_QUIET));
        let offset = recent - reference;
        let bounds = if self.is_far_ahead() { MAKE_UP_LU } else { MAKE_UP_BLIND_LU };
        if outlook.error_after(loud, offset) > ACCEPTED_LU {
            let to = recent - outlook.offset_for(ACCEPTED_LU, loud, bounds);
            (to.max(reference), DOWN)
        } else if outlook.error_after(quiet, offset) < -ACCEPTED_LU {
            let to = recent - outlook.offset_for(-ACCEPTED_LU, quiet, bounds);
            (to.min(reference), UP)
        } else {
            (calm, CALM)
        }
    }

    /// Of a young section, how far from its level its reference is.
    #[allow(clippy::cast_precision_loss, reason = "blocks of a section")]
    fn reserve(&self) -> f64 {
        let late = self.current.learned.saturating_sub(RESERVED) as f64 / GIVEN_UP as f64;
        self.current.reserve * (1.0 - late).max(0.0)
    }

    /// What came out, but no block of it louder than what a limited look-ahead lets through for a second:
    /// that is over, and would keep the gain down for minutes.
    pub(super) fn deliver(&mut self, block: f64) {
        let most = power(self.settings.target.get() - loudness(1.0) + LOUDEST_LU);
        self.delivered.push(block.min(most));
    }

    fn outlook(&self) -> Outlook {
        let (blocks, energy) = self.delivered.gated().unwrap_or((0.0, 0.0));
        let target = self.settings.target.get();
        Outlook { blocks, energy: energy / power(target - loudness(1.0)) }
    }

    /// The gated loudness of the last blocks of the present section, if there are some.
    fn recent(&self, now: u64) -> Option<f64> {
        let level = self.current.level?;
        let hops = (now + 1).saturating_sub(RECENT)..=now;
        let (count, sum) = hops
            .map(|hop| self.at(hop))
            .filter(|hop| hop.section == self.sections)
            .filter_map(|hop| hop.block)
            .filter(|block| loudness(*block) > level - GATE_LU)
            .fold((0_u32, 0.0), |(count, sum), block| (count + 1, sum + block));
        (count >= FEWEST_RECENT).then(|| loudness(sum / f64::from(count)))
    }
}

fn power(db: f64) -> f64 {
    10f64.powf(db / 10.0)
}

fn decibels(power: f64) -> f64 {
    10.0 * power.log10()
}

/// Blocks of the output that should be right on average: 3 min.
pub(super) const WINDOW: usize = 1_800;
/// Of these, what was before a new section counts for a minute.
pub(super) const KEPT: usize = 600;
/// A block of the output counts as so much above the target at most.
const LOUDEST_LU: f64 = 10.0;
/// Integrated loudness may be off by so much: less than the 0.5 LU that are promised.
const ACCEPTED_LU: f64 = 0.36;
/// Integrated loudness is promised for a minute and more.
const COUNTS_AFTER: f64 = 600.0;
/// Blocks for which the next seconds are thought to be as the last: 18 s when they are too loud, 6 s when
/// they are too quiet, which harms less and is over sooner in music.
const SOON_LOUD: f64 = 180.0;
const SOON_QUIET: f64 = 60.0;
/// Hops of what is recent, 20 s, and the fewest blocks of them.
const RECENT: u64 = 200;
const FEWEST_RECENT: u32 = 10;
/// The output is off by so much at most, downwards and upwards, to make up for what was before. What is
/// too loud is worse; in the modes that hear a step too late, that step is over.
const MAKE_UP_LU: (f64, f64) = (-1.0, 0.5);
const MAKE_UP_BLIND_LU: (f64, f64) = (-0.75, 0.4);
/// The reference is never so far from the section's level.
const FARTHEST_LU: f64 = 3.0;
/// LU per hop by which the reference moves when what comes out is too loud, too quiet, and right.
const DOWN: f64 = 0.06;
const UP: f64 = 0.03;
const CALM: f64 = 0.001;
/// Blocks of a section until which its reference follows its level.
const YOUNG: usize = 300;
/// By how much more than its level the reference of a young section is: in the first of all, in a louder
/// one, in one that was found long after it began.
const START_LU: f64 = 0.2;
const LOUDER_LU: f64 = -0.5;
const LOUDER_BLIND_LU: f64 = 0.9;
const QUIETER_LU: f64 = 0.8;
/// Hops after which a section is found late.
const GRADUAL: u64 = 40;
/// Blocks for which that lasts, and over which it is given up then.
const RESERVED: usize = 100;
const GIVEN_UP: usize = 150;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_of_the_next_blocks_brings_the_error_that_was_asked_for() {
        let outlook = Outlook { blocks: 400.0, energy: 400.0 * power(0.7) };
        assert!((outlook.error_after(0.0, 0.0) - 0.7).abs() < 1e-9);
        for error in [0.6, 0.5, 0.4] {
            let offset = outlook.offset_for(error, 300.0, MAKE_UP_LU);
            assert!(offset > MAKE_UP_LU.0 && offset < error, "{offset}");
            assert!((outlook.error_after(300.0, offset) - error).abs() < 1e-9);
        }
        // What cannot be made up for within bounds is not.
        let bounds = [-3.0, 3.0].map(|error| outlook.offset_for(error, 300.0, MAKE_UP_LU));
        assert!((bounds[0] - MAKE_UP_LU.0).abs() < 1e-9, "{bounds:?}");
        assert!((bounds[1] - MAKE_UP_LU.1).abs() < 1e-9, "{bounds:?}");
    }

    #[test]
    fn an_error_counts_after_a_minute_and_always_soon() {
        let horizon = |blocks| Outlook { blocks, energy: blocks }.horizon(150.0);
        assert_eq!([0.0, 300.0, 500.0, 5_000.0].map(horizon), [600.0, 300.0, 150.0, 150.0]);
    }
}
