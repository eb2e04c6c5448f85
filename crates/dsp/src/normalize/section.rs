//! What the controller remembers: the level of a section, what the limiter took, and by how much the
//! output is off.

use super::Memory;
use super::integration::Integration;
use crate::meter::loudness;

/// A stretch of programme at one level.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) blocks: Blocks,
    /// LUFS.
    pub(super) level: Option<f64>,
}

impl Section {
    pub(super) fn new(memory: Memory) -> Self {
        Self { blocks: Blocks::new(memory), level: None }
    }

    /// Takes a hop. Returns whether its block counts: none does that is below the absolute gate, or
    /// while the section does not learn.
    pub(super) fn push(&mut self, energy: f64, gate: f64, learn: bool) -> bool {
        let block = self.blocks.next(energy);
        let counts = learn && loudness(block) >= gate;
        if counts {
            self.blocks.integration.push(block);
        }
        counts
    }

    /// Computes the level anew.
    pub(super) fn update(&mut self) {
        self.level = self.blocks.integration.loudness();
    }

    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        self.level = None;
    }
}

/// Blocks of 400 ms, each 100 ms.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    pub(super) integration: Integration,
    last: [f64; BLOCK_HOPS],
    pub(super) count: usize,
}

impl Blocks {
    pub(super) fn new(memory: Memory) -> Self {
        let integration = Integration::new(window(memory));
        Self { integration, last: [0.0; BLOCK_HOPS], count: 0 }
    }

    /// The energy of the block that ends with this hop, or of what there is of it.
    #[allow(clippy::cast_precision_loss, reason = "up to four")]
    pub(super) fn next(&mut self, energy: f64) -> f64 {
        self.last.rotate_left(1);
        self.last[BLOCK_HOPS - 1] = energy;
        self.count = (self.count + 1).min(BLOCK_HOPS);
        self.last[BLOCK_HOPS - self.count..].iter().sum::<f64>() / self.count as f64
    }

    pub(super) fn clear(&mut self) {
        self.integration.clear();
        self.count = 0;
    }
}

/// What the limiter takes away, averaged over some seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loss {
    before: f64,
    after: f64,
}

impl Loss {
    pub(super) fn push(&mut self, before: f64, after: f64) {
        self.before += before - self.before * LOSS_SHARE;
        self.after += after - self.after * LOSS_SHARE;
    }

    /// In LU, within bounds.
    pub(super) fn get(&self) -> f64 {
        let loss = 10.0 * (self.before / self.after).log10();
        if loss.is_finite() { loss.clamp(0.0, MOST_LOSS) } else { 0.0 }
    }
}

/// What the gain is moved by when integrated loudness at the output is off.
///
/// It waits until the error has reached what is promised, because each correction moves the gain, and
/// a programme whose level merely varies is right on average without one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Correction {
    active: bool,
    /// In LU; positive raises the gain.
    value: f64,
}

impl Correction {
    /// Takes the present error: target less integrated loudness, over `blocks` blocks. With
    /// `late_start` fewer blocks are enough.
    pub(super) fn update(&mut self, error: f64, blocks: usize, late_start: bool) {
        let trusted = if late_start { START_BLOCKS } else { TRUSTED_BLOCKS };
        if error.abs() < RELEASE_LU {
            self.active = false;
        } else if error.abs() > TRIGGER_LU && blocks >= trusted {
            self.active = true;
        }
        let beyond = error - error.clamp(-ACCEPTED_LU, ACCEPTED_LU);
        self.value = if self.active { CORRECTION_TIMES * beyond } else { 0.0 };
    }

    /// In LU, at most so much downwards and half of it upwards: what is too loud is worse.
    pub(super) fn get(&self, most: f64) -> f64 {
        self.value.clamp(-most, most / 2.0)
    }
}

/// Blocks that a memory holds; `None` for all.
pub(super) fn window(memory: Memory) -> Option<usize> {
    match memory {
        Memory::Sliding { seconds } => Some(seconds as usize * 10),
        Memory::Endless => None,
    }
}

/// 400 ms, the block of BS.1770-4.
const BLOCK_HOPS: usize = 4;
/// The share of a hop in the average of what the limiter takes: 6 s.
const LOSS_SHARE: f64 = 1.0 / 60.0;
/// The most that is given back of what the limiter took, in LU.
const MOST_LOSS: f64 = 6.0;
/// Integrated loudness is corrected once it is off by more than this, which is what is promised, ...
const TRIGGER_LU: f64 = 0.5;
/// ... until it is off by less than this.
const RELEASE_LU: f64 = 0.3;
/// The correction aims at this error, so that it does not go past zero.
const ACCEPTED_LU: f64 = 0.2;
/// Blocks, at least, of which an error is computed that can be trusted: 20 s.
const TRUSTED_BLOCKS: usize = 200;
/// The same for the error that a gain makes which has to come from 0 dB: 2 s.
const START_BLOCKS: usize = 20;
/// By so many times as much as the error is beyond the accepted one, so that the average is soon right.
const CORRECTION_TIMES: f64 = 20.0;
