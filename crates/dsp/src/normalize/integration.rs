//! The gated loudness of what has been heard lately.
//!
//! The two gates of BS.1770-4 ask for two passes over all blocks. Here blocks are counted in bins of
//! 0.1 LU, each of which has the exact sum of its energies: a pass is over a thousand bins however
//! long the memory is, and the mean is that of the definition. Only the gate is rounded to a bin.

use crate::meter::loudness;

/// Energies of 400 ms, each 100 ms, and their gated mean.
#[derive(Clone, Debug)]
pub(super) struct Integration {
    bins: Box<[Bin]>,
    /// The last energies, a ring.
    recent: Box<[f64]>,
    /// How many of them count, at most as many as there is room; `None`: all there ever were.
    window: Option<usize>,
    next: usize,
    filled: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    count: u64,
    energy: f64,
}

impl Integration {
    pub(super) fn new(window: Option<usize>) -> Self {
        let (bins, recent) = (vec![Bin::default(); BINS].into(), vec![0.0; LONGEST].into());
        Self { bins, recent, window: window.map(|n| n.min(LONGEST)), next: 0, filled: 0 }
    }

    /// Takes a block, unless it is below the absolute gate.
    pub(super) fn push(&mut self, energy: f64) {
        let Some(bin) = bin_of(energy) else { return };
        if self.window.is_some_and(|window| self.filled >= window) {
            self.drop_oldest();
        }
        self.bins[bin].count += 1;
        self.bins[bin].energy += energy;
        self.recent[self.next] = energy;
        self.next = (self.next + 1) % LONGEST;
        self.filled = (self.filled + 1).min(LONGEST);
    }

    /// Forgets the last blocks that it took, as far as it still has them.
    pub(super) fn take_back(&mut self, count: usize) {
        for _ in 0..count.min(self.filled) {
            self.next = (self.next + LONGEST - 1) % LONGEST;
            self.filled -= 1;
            self.leave(self.recent[self.next]);
        }
    }

    /// Counts so many blocks from now on, dropping the oldest.
    pub(super) fn set_window(&mut self, window: Option<usize>) {
        let window = window.map(|n| n.min(LONGEST));
        if self.window.is_none() && window.is_some() {
            // What the ring has lost cannot be taken away one by one.
            let first = (self.next + LONGEST - self.filled) % LONGEST;
            self.bins.fill(Bin::default());
            for at in first..first + self.filled {
                let energy = self.recent[at % LONGEST];
                if let Some(bin) = bin_of(energy) {
                    self.bins[bin].count += 1;
                    self.bins[bin].energy += energy;
                }
            }
        }
        self.window = window;
        while self.window.is_some_and(|window| self.filled > window) {
            self.drop_oldest();
        }
    }

    pub(super) fn clear(&mut self) {
        self.bins.fill(Bin::default());
        (self.next, self.filled) = (0, 0);
    }

    /// How many blocks count that are above the absolute gate.
    pub(super) const fn blocks(&self) -> usize {
        self.filled
    }

    /// LUFS; `None` before anything has passed the gates.
    pub(super) fn loudness(&self) -> Option<f64> {
        let gate = 0.1 * mean(&self.bins)?;
        let first = bin_of(gate).unwrap_or(0);
        mean(&self.bins[first..]).map(loudness)
    }

    fn drop_oldest(&mut self) {
        let oldest = (self.next + LONGEST - self.filled) % LONGEST;
        self.filled -= 1;
        self.leave(self.recent[oldest]);
    }

    fn leave(&mut self, energy: f64) {
        let Some(bin) = bin_of(energy) else { return };
        let bin = &mut self.bins[bin];
        bin.count = bin.count.saturating_sub(1);
        // All energies of a bin are alike, so what rounding leaves is nothing beside one of them.
        bin.energy = if bin.count == 0 { 0.0 } else { bin.energy - energy };
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn mean(bins: &[Bin]) -> Option<f64> {
    let (count, energy) =
        bins.iter().fold((0, 0.0), |(count, sum), bin| (count + bin.count, sum + bin.energy));
    (count > 0).then(|| energy / count as f64)
}

/// `None` below the absolute gate of -70 LUFS.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by the bins")]
fn bin_of(energy: f64) -> Option<usize> {
    let above = loudness(energy) - LOWEST;
    (above >= 0.0).then(|| ((above * 10.0) as usize).min(BINS - 1))
}

/// Ten minutes at ten a second, the longest memory.
pub(super) const LONGEST: usize = 6_000;
/// From -70 to +30 LUFS; what is louder counts in the last.
const BINS: usize = 1_000;
const LOWEST: f64 = -70.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// BS.1770-4, written out.
    fn plain(all: &[f64]) -> Option<f64> {
        let passing = |gate: f64| {
            let these: Vec<f64> = all.iter().copied().filter(|energy| *energy >= gate).collect();
            #[allow(clippy::cast_precision_loss, reason = "some hundreds")]
            let mean = these.iter().sum::<f64>() / these.len() as f64;
            (!these.is_empty()).then_some(mean)
        };
        let absolute = 10f64.powf((-70.0 + 0.691) / 10.0);
        let mean = passing(absolute)?;
        passing((0.1 * mean).max(absolute)).map(loudness)
    }

    #[test]
    fn it_is_the_loudness_of_the_last_blocks_that_the_definition_has() {
        let mut seed = 7_u32;
        let mut integration = Integration::new(Some(600));
        let mut all = Vec::new();
        assert_eq!(integration.loudness(), None);
        for n in 0..20_000_u32 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let lufs = f64::from(n / 500 % 4) * -12.0 - f64::from(seed >> 24) / 20.0;
            let energy = 10f64.powf((lufs + 0.691) / 10.0);
            integration.push(energy);
            all.push(energy);
            if n % 97 == 0 {
                let from = all.len().saturating_sub(600);
                let (ours, wanted) = (integration.loudness(), plain(&all[from..]));
                assert!((ours.unwrap() - wanted.unwrap()).abs() < 0.1, "{n} {ours:?} {wanted:?}");
            }
        }
        integration.set_window(Some(100));
        let wanted = plain(&all[all.len() - 100..]).unwrap();
        assert!((integration.loudness().unwrap() - wanted).abs() < 0.06);
    }

    #[test]
    fn what_is_taken_back_was_never_there() {
        let energy = |lufs: f64| 10f64.powf((lufs + 0.691) / 10.0);
        let mut integration = Integration::new(Some(100));
        (0..90).for_each(|_| integration.push(energy(-30.0)));
        (0..7).for_each(|_| integration.push(energy(-10.0)));
        integration.take_back(7);
        assert!((integration.loudness().unwrap() + 30.0).abs() < 1e-9);
        integration.take_back(1_000);
        assert_eq!(integration.loudness(), None);
    }

    #[test]
    fn endless_forgets_nothing_until_it_is_told_to() {
        let energy = |lufs: f64| 10f64.powf((lufs + 0.691) / 10.0);
        let mut integration = Integration::new(None);
        for n in 0..20_000 {
            integration.push(energy(if n < 10_000 { -20.0 } else { -22.0 }));
        }
        let all = 10.0 * f64::midpoint(10f64.powf(-2.0), 10f64.powf(-2.2)).log10();
        assert!((integration.loudness().unwrap() - all).abs() < 1e-6);
        integration.set_window(Some(600));
        assert!((integration.loudness().unwrap() + 22.0).abs() < 1e-6);
        integration.push(f64::NAN);
        integration.push(0.0);
        assert!((integration.loudness().unwrap() + 22.0).abs() < 1e-6);
    }
}
