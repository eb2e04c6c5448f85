//! What the controller remembers: the level of a section, and what the limiter took.

use super::Memory;
use super::integration::Integration;
use crate::meter::loudness;

/// A stretch of programme at one level.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) blocks: Blocks,
    /// The gated loudness, LUFS.
    pub(super) level: Option<f64>,
    /// The loudness that the gain is made for, LUFS. It stays where it is as long as the output is right.
    pub(super) reference: Option<f64>,
    /// How far the reference of a young section is from its level, in LU.
    pub(super) reserve: f64,
    /// Blocks that have been learned from, at most [`usize::MAX`].
    pub(super) learned: usize,
}

impl Section {
    pub(super) fn new(memory: Memory) -> Self {
        Self { blocks: Blocks::new(memory), level: None, reference: None, reserve: 0.0, learned: 0 }
    }

    /// Takes a hop. Returns the energy of its block if that counts: none does that is below the absolute
    /// gate, or while the section does not learn.
    pub(super) fn push(&mut self, energy: f64, gate: f64, learn: bool) -> Option<f64> {
        let block = self.blocks.next(energy);
        let counts = learn && loudness(block) >= gate;
        if counts {
            self.blocks.integration.push(block);
            self.learned = self.learned.saturating_add(1);
        }
        counts.then_some(block)
    }

    /// Forgets the last so many blocks, which belong to another section, and what they did to the
    /// reference.
    pub(super) fn take_back(&mut self, count: usize, reference: Option<f64>) {
        self.blocks.integration.take_back(count);
        self.learned = self.learned.saturating_sub(count);
        self.reference = reference.or(self.reference);
        self.update();
    }

    /// Computes the level anew.
    pub(super) fn update(&mut self) {
        self.level = self.blocks.integration.loudness();
    }

    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        (self.level, self.reference) = (None, None);
        (self.reserve, self.learned) = (0.0, 0);
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
