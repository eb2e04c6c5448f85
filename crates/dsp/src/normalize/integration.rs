//! Gated loudness of a sliding window.
//!
//! The two gates of BS.1770-4 need two passes over all blocks. Here blocks are counted in bins of
//! 0.1 LU, each with the exact sum of its energies: a pass takes a thousand bins however long the
//! window is, and the mean is that of the definition. Only the gate is rounded to a bin.

use crate::meter::loudness;

/// Energies of blocks of 400 ms, one for each 100 ms, and their gated mean.
#[derive(Clone, Debug)]
pub(super) struct GatedLoudness {
    bins: Box<[HistogramBin]>,
    /// The last energies, a ring.
    recent_blocks: Box<[f64]>,
    /// Number of blocks that count, at most the size of the ring; `None`: all blocks so far.
    window: Option<usize>,
    next: usize,
    filled: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct HistogramBin {
    count: u64,
    energy: f64,
}

impl GatedLoudness {
    pub(super) fn new(window: Option<usize>) -> Self {
        let (bins, recent_blocks) =
            (vec![HistogramBin::default(); BINS].into(), vec![0.0; MAX_BLOCKS].into());
        Self { bins, recent_blocks, window: window.map(|n| n.min(MAX_BLOCKS)), next: 0, filled: 0 }
    }

    /// Adds a block, unless it is below the absolute gate.
    pub(super) fn push(&mut self, energy: f64) {
        let Some(bin) = bin_index(energy) else { return };
        if self.window.is_some_and(|window| self.filled >= window) {
            self.remove_oldest();
        }
        self.bins[bin].count += 1;
        self.bins[bin].energy += energy;
        self.recent_blocks[self.next] = energy;
        self.next = (self.next + 1) % MAX_BLOCKS;
        self.filled = (self.filled + 1).min(MAX_BLOCKS);
    }

    /// Removes the last `count` blocks, as far as the ring still has them.
    pub(super) fn remove_last(&mut self, count: usize) {
        for _ in 0..count.min(self.filled) {
            self.next = (self.next + MAX_BLOCKS - 1) % MAX_BLOCKS;
            self.filled -= 1;
            self.remove(self.recent_blocks[self.next]);
        }
    }

    /// Changes the number of blocks that count, and removes the oldest ones beyond it.
    pub(super) fn set_window(&mut self, window: Option<usize>) {
        let window = window.map(|n| n.min(MAX_BLOCKS));
        if self.window.is_none() && window.is_some() {
            // Blocks that the ring no longer has cannot be removed one by one.
            let first = (self.next + MAX_BLOCKS - self.filled) % MAX_BLOCKS;
            self.bins.fill(HistogramBin::default());
            for slot in first..first + self.filled {
                let energy = self.recent_blocks[slot % MAX_BLOCKS];
                if let Some(bin) = bin_index(energy) {
                    self.bins[bin].count += 1;
                    self.bins[bin].energy += energy;
                }
            }
        }
        self.window = window;
        while self.window.is_some_and(|window| self.filled > window) {
            self.remove_oldest();
        }
    }

    pub(super) fn clear(&mut self) {
        self.bins.fill(HistogramBin::default());
        (self.next, self.filled) = (0, 0);
    }

    /// Number of blocks in the window that are above the absolute gate.
    pub(super) const fn blocks(&self) -> usize {
        self.filled
    }

    /// LUFS; `None` before any block has passed the gates.
    pub(super) fn loudness(&self) -> Option<f64> {
        let gate = 0.1 * mean(&self.bins)?;
        let first = bin_index(gate).unwrap_or(0);
        mean(&self.bins[first..]).map(loudness)
    }

    fn remove_oldest(&mut self) {
        let oldest = (self.next + MAX_BLOCKS - self.filled) % MAX_BLOCKS;
        self.filled -= 1;
        self.remove(self.recent_blocks[oldest]);
    }

    fn remove(&mut self, energy: f64) {
        let Some(bin) = bin_index(energy) else { return };
        let bin = &mut self.bins[bin];
        bin.count = bin.count.saturating_sub(1);
        // All energies of a bin are similar, so rounding errors are negligible.
        bin.energy = if bin.count == 0 { 0.0 } else { bin.energy - energy };
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn mean(bins: &[HistogramBin]) -> Option<f64> {
    let (count, energy) =
        bins.iter().fold((0, 0.0), |(count, sum), bin| (count + bin.count, sum + bin.energy));
    (count > 0).then(|| energy / count as f64)
}

/// `None` below the absolute gate of -70 LUFS.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by the bins")]
fn bin_index(energy: f64) -> Option<usize> {
    let above = loudness(energy) - MIN_LUFS;
    (above >= 0.0).then(|| ((above * 10.0) as usize).min(BINS - 1))
}

/// Ten minutes at ten blocks per second, the longest memory.
pub(super) const MAX_BLOCKS: usize = 6_000;
/// From -70 to +30 LUFS; louder blocks count in the last bin.
const BINS: usize = 1_000;
const MIN_LUFS: f64 = -70.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference implementation of BS.1770-4.
    fn reference_loudness(all: &[f64]) -> Option<f64> {
        let passing = |gate: f64| {
            let passing_blocks: Vec<f64> =
                all.iter().copied().filter(|energy| *energy >= gate).collect();
            #[allow(clippy::cast_precision_loss, reason = "some hundreds")]
            let mean = passing_blocks.iter().sum::<f64>() / passing_blocks.len() as f64;
            (!passing_blocks.is_empty()).then_some(mean)
        };
        let absolute = 10f64.powf((-70.0 + 0.691) / 10.0);
        let mean = passing(absolute)?;
        passing((0.1 * mean).max(absolute)).map(loudness)
    }

    #[test]
    fn loudness_agrees_with_the_definition_over_the_last_blocks() {
        let mut seed = 7_u32;
        let mut gated = GatedLoudness::new(Some(600));
        let mut all = Vec::new();
        assert_eq!(gated.loudness(), None);
        for n in 0..20_000_u32 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let lufs = f64::from(n / 500 % 4) * -12.0 - f64::from(seed >> 24) / 20.0;
            let energy = 10f64.powf((lufs + 0.691) / 10.0);
            gated.push(energy);
            all.push(energy);
            if n % 97 == 0 {
                let from = all.len().saturating_sub(600);
                let (ours, expected) = (gated.loudness(), reference_loudness(&all[from..]));
                assert!(
                    (ours.unwrap() - expected.unwrap()).abs() < 0.1,
                    "{n} {ours:?} {expected:?}"
                );
            }
        }
        gated.set_window(Some(100));
        let expected = reference_loudness(&all[all.len() - 100..]).unwrap();
        assert!((gated.loudness().unwrap() - expected).abs() < 0.06);
    }

    #[test]
    fn removed_blocks_do_not_count() {
        let energy = |lufs: f64| 10f64.powf((lufs + 0.691) / 10.0);
        let mut gated = GatedLoudness::new(Some(100));
        (0..90).for_each(|_| gated.push(energy(-30.0)));
        (0..7).for_each(|_| gated.push(energy(-10.0)));
        gated.remove_last(7);
        assert!((gated.loudness().unwrap() + 30.0).abs() < 1e-9);
        gated.remove_last(1_000);
        assert_eq!(gated.loudness(), None);
    }

    #[test]
    fn an_endless_window_keeps_all_blocks_until_it_is_limited() {
        let energy = |lufs: f64| 10f64.powf((lufs + 0.691) / 10.0);
        let mut gated = GatedLoudness::new(None);
        for n in 0..20_000 {
            gated.push(energy(if n < 10_000 { -20.0 } else { -22.0 }));
        }
        let all = 10.0 * f64::midpoint(10f64.powf(-2.0), 10f64.powf(-2.2)).log10();
        assert!((gated.loudness().unwrap() - all).abs() < 1e-6);
        gated.set_window(Some(600));
        assert!((gated.loudness().unwrap() + 22.0).abs() < 1e-6);
        gated.push(f64::NAN);
        gated.push(0.0);
        assert!((gated.loudness().unwrap() + 22.0).abs() < 1e-6);
    }
}
