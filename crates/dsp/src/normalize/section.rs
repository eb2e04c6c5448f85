//! State of the controller: level of a section, loss in the limiter, and error of the output's
//! loudness.

use super::Memory;
use super::integration::GatedLoudness;
use crate::meter::loudness;

/// A stretch of programme at one level.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) blocks: LoudnessBlocks,
    /// LUFS.
    pub(super) level: Option<f64>,
}

impl Section {
    pub(super) fn new(memory: Memory) -> Self {
        Self { blocks: LoudnessBlocks::new(memory), level: None }
    }

    /// Takes a hop. Returns whether its block is counted: blocks below the absolute gate are not,
    /// nor any if `count_block` is false.
    pub(super) fn push(&mut self, energy: f64, gate: f64, count_block: bool) -> bool {
        let block = self.blocks.push_hop(energy);
        let is_counted = count_block && loudness(block) >= gate;
        if is_counted {
            self.blocks.gated.push(block);
        }
        is_counted
    }

    /// Recomputes the level.
    pub(super) fn update(&mut self) {
        self.level = self.blocks.gated.loudness();
    }

    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        self.level = None;
    }
}

/// Overlapping blocks of 400 ms, one for each 100 ms.
#[derive(Clone, Debug)]
pub(super) struct LoudnessBlocks {
    pub(super) gated: GatedLoudness,
    last_hops: [f64; BLOCK_HOPS],
    pub(super) count: usize,
}

impl LoudnessBlocks {
    pub(super) fn new(memory: Memory) -> Self {
        let gated = GatedLoudness::new(window_blocks(memory));
        Self { gated, last_hops: [0.0; BLOCK_HOPS], count: 0 }
    }

    /// The mean energy of the block that ends with this hop, or of its hops so far.
    #[allow(clippy::cast_precision_loss, reason = "up to four")]
    pub(super) fn push_hop(&mut self, energy: f64) -> f64 {
        self.last_hops.rotate_left(1);
        self.last_hops[BLOCK_HOPS - 1] = energy;
        self.count = (self.count + 1).min(BLOCK_HOPS);
        self.last_hops[BLOCK_HOPS - self.count..].iter().sum::<f64>() / self.count as f64
    }

    pub(super) fn clear(&mut self) {
        self.gated.clear();
        self.count = 0;
    }
}

/// Energy that the limiter removes, averaged over some seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LimiterLoss {
    before: f64,
    after: f64,
}

impl LimiterLoss {
    pub(super) fn push(&mut self, before: f64, after: f64) {
        self.before += before - self.before * LOSS_WEIGHT;
        self.after += after - self.after * LOSS_WEIGHT;
    }

    /// In LU, within bounds.
    pub(super) fn get(&self) -> f64 {
        let loss = 10.0 * (self.before / self.after).log10();
        if loss.is_finite() { loss.clamp(0.0, MAX_LOSS_LU) } else { 0.0 }
    }
}

/// Mean energy over minutes, which a verse or a chorus hardly changes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LongAverage {
    mean: f64,
    blocks: f64,
}

impl LongAverage {
    /// Takes a block that has passed the gates.
    pub(super) fn push(&mut self, energy: f64) {
        self.blocks = (self.blocks + 1.0).min(MAX_AVERAGED_BLOCKS);
        self.mean += (energy - self.mean) / self.blocks;
    }

    /// In LUFS.
    pub(super) fn loudness(&self) -> f64 {
        loudness(self.mean)
    }
}

/// Correction of the gain for an error of integrated loudness at the output.
///
/// It starts only when the error is near the specified tolerance: each correction moves the
/// gain, and a programme whose level merely varies is right on average without one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoudnessCorrection {
    active: bool,
    /// In LU; positive raises the gain.
    value: f64,
}

impl LoudnessCorrection {
    /// Takes the current error: target less integrated loudness, over `blocks` blocks. With
    /// `late_start` fewer blocks are sufficient. Corrects by at most `max` downwards and half of it
    /// upwards, because being too loud is worse.
    pub(super) fn update(&mut self, error: f64, blocks: usize, late_start: bool, max: f64) {
        let min_blocks = if late_start { MIN_BLOCKS_AT_START } else { MIN_BLOCKS };
        if error.abs() < RELEASE_LU {
            self.active = false;
        } else if error.abs() > TRIGGER_LU && blocks >= min_blocks {
            self.active = true;
        }
        let excess = error - error.clamp(-ACCEPTED_LU, ACCEPTED_LU);
        let wanted = if self.active { CORRECTION_FACTOR * excess } else { 0.0 };
        let change = wanted.clamp(-max, max / 2.0) - self.value;
        self.value += change.clamp(-MAX_CORRECTION_STEP_LU, MAX_CORRECTION_STEP_LU);
    }

    /// In LU.
    pub(super) const fn get(&self) -> f64 {
        self.value
    }
}

/// Blocks within a memory; `None` for all.
pub(super) fn window_blocks(memory: Memory) -> Option<usize> {
    match memory {
        Memory::Sliding { seconds } => Some(seconds as usize * 10),
        Memory::Endless => None,
    }
}

/// 400 ms, the block of BS.1770-4.
const BLOCK_HOPS: usize = 4;
/// Time constant of the average over minutes: two of them, the length of some verses and choruses.
const MAX_AVERAGED_BLOCKS: f64 = 1_200.0;
/// Weight of a hop in the average of the limiter's loss: 6 s.
const LOSS_WEIGHT: f64 = 1.0 / 60.0;
/// Maximum compensation of the limiter's loss, in LU.
const MAX_LOSS_LU: f64 = 6.0;
/// Integrated loudness is corrected once its error exceeds this, before it is that of the
/// specified tolerance of 0.5 LU, ...
const TRIGGER_LU: f64 = 0.4;
/// ... until the error is below this.
const RELEASE_LU: f64 = 0.3;
/// The correction aims at this error, so that it does not overshoot.
const ACCEPTED_LU: f64 = 0.2;
/// Minimum number of blocks for a correction: 20 s.
const MIN_BLOCKS: usize = 200;
/// The same for the initial error of a gain that starts at 0 dB: 2 s.
const MIN_BLOCKS_AT_START: usize = 20;
/// Correction per LU beyond the accepted error, so that the average is soon right.
const CORRECTION_FACTOR: f64 = 8.0;
/// Maximum change of the correction in a hop: slower movements are not heard.
const MAX_CORRECTION_STEP_LU: f64 = 0.05;
