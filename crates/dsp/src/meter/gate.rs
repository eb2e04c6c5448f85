//! The two gates: integrated loudness (BS.1770-4 annex 1) and loudness range (EBU Tech 3342).
//!
//! Energies are stored exactly, or counted in a histogram of 0.1 LU whose memory never grows. The
//! histogram's bins and the percentile's index are those of libebur128, so that figures agree.

use std::collections::VecDeque;

/// Energies of windows above the absolute gate.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum GatedEnergies {
    /// Each value, the oldest leaving when there are more than `limit`.
    Exact { values: VecDeque<f64>, limit: usize },
    /// Number of values per bin.
    Histogram(Box<[u64]>),
}

impl GatedEnergies {
    /// Exact values; memory for `reserved` of them is allocated at once.
    pub(super) fn exact(limit: usize, reserved: usize) -> Self {
        Self::Exact { values: VecDeque::with_capacity(reserved.min(limit)), limit }
    }

    pub(super) fn histogram() -> Self {
        Self::Histogram(vec![0; BINS].into())
    }

    /// Adds an energy, unless it is below the absolute gate (NaN is dropped as well).
    pub(super) fn push(&mut self, energy: f64) {
        if energy.is_nan() || energy < absolute_gate() {
            return;
        }
        match self {
            Self::Exact { values, limit } => {
                if values.len() >= *limit {
                    values.pop_front();
                }
                values.push_back(energy);
            }
            Self::Histogram(counts) => counts[bin_of(energy)] += 1,
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Exact { values, .. } => values.clear(),
            Self::Histogram(counts) => counts.fill(0),
        }
    }

    /// Changes the number of stored values, dropping the oldest.
    pub(super) fn set_limit(&mut self, new: usize) {
        if let Self::Exact { values, limit } = self {
            *limit = new;
            values.drain(..values.len().saturating_sub(new));
        }
    }

    /// Number and sum of all values.
    fn total(&self) -> (u64, f64) {
        match self {
            Self::Exact { values, .. } => (values.len() as u64, values.iter().sum()),
            Self::Histogram(counts) => counted(counts, 0),
        }
    }

    /// Number and sum of the values at or above `gate`.
    fn above(&self, gate: f64) -> (u64, f64) {
        match self {
            Self::Exact { values, .. } => {
                let passing = values.iter().filter(|&&energy| energy >= gate);
                passing.fold((0, 0.0), |(count, sum), energy| (count + 1, sum + energy))
            }
            Self::Histogram(counts) => counted(counts, first_bin(gate)),
        }
    }
}

/// The mean energy above both gates, over several lists; `None` if nothing passes.
pub(super) fn integrated<'a>(
    lists: impl Iterator<Item = &'a GatedEnergies> + Clone,
) -> Option<f64> {
    let gate = relative_gate(lists.clone())?;
    mean(lists.map(|list| list.above(gate)))
}

/// The energy of the relative gate, 10 LU below what passes the absolute gate.
pub(super) fn relative_gate<'a>(lists: impl Iterator<Item = &'a GatedEnergies>) -> Option<f64> {
    Some(mean(lists.map(GatedEnergies::total))? * INTEGRATED_GATE)
}

/// The loudness range in LU over several lists of one kind; 0 if nothing passes the gates.
pub(super) fn range<'a>(lists: impl Iterator<Item = &'a GatedEnergies> + Clone) -> f64 {
    let Some(mean) = mean(lists.clone().map(GatedEnergies::total)) else { return 0.0 };
    let gate = mean * RANGE_GATE;
    let mut exact = Vec::new();
    let mut counts = [0u64; BINS];
    for list in lists {
        match list {
            GatedEnergies::Exact { values, .. } => {
                exact.extend(values.iter().copied().filter(|&energy| energy >= gate));
            }
            GatedEnergies::Histogram(more) => {
                for (count, more) in counts.iter_mut().zip(more) {
                    *count += more;
                }
            }
        }
    }
    counts[..first_bin(gate)].fill(0);
    let binned: u64 = counts.iter().sum();
    if binned == 0 {
        return exact_range(&mut exact);
    }
    // A mixture is evaluated at the histogram's resolution.
    for energy in exact {
        counts[bin_of(energy)] += 1;
    }
    let total = counts.iter().sum();
    let at = |percentile| {
        let mut seen = 0;
        let passed = percentile_index(total, percentile);
        let bin = counts.iter().position(|count| {
            seen += count;
            seen > passed
        });
        loudness(bin_energy(bin.unwrap_or(BINS - 1)))
    };
    at(HIGH_PERCENTILE) - at(LOW_PERCENTILE)
}

fn exact_range(energies: &mut [f64]) -> f64 {
    if energies.is_empty() {
        return 0.0;
    }
    energies.sort_unstable_by(f64::total_cmp);
    #[allow(clippy::cast_possible_truncation, reason = "below the length of a slice")]
    let at = |p| loudness(energies[percentile_index(energies.len() as u64, p) as usize]);
    at(HIGH_PERCENTILE) - at(LOW_PERCENTILE)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "rounding is meant"
)]
fn percentile_index(count: u64, percentile: f64) -> u64 {
    ((count - 1) as f64 * percentile + 0.5) as u64
}

/// The loudness in LUFS of a weighted mean square.
#[must_use]
pub fn loudness(energy: f64) -> f64 {
    10.0 * energy.log10() - 0.691
}

#[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn mean(parts: impl Iterator<Item = (u64, f64)>) -> Option<f64> {
    let (count, sum) = parts.fold((0, 0.0), |(n, s), (count, sum)| (n + count, s + sum));
    (count > 0).then(|| sum / count as f64)
}

#[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn counted(counts: &[u64], first: usize) -> (u64, f64) {
    let passing = counts.iter().enumerate().skip(first).filter(|&(_, &count)| count > 0);
    passing
        .fold((0, 0.0), |(n, sum), (bin, &count)| (n + count, sum + count as f64 * bin_energy(bin)))
}

/// The energy of -70 LUFS.
pub(super) fn absolute_gate() -> f64 {
    energy_of(LOWEST)
}

fn energy_of(lufs: f64) -> f64 {
    10f64.powf((lufs + 0.691) / 10.0)
}

/// The first bin whose center is not below `gate`.
fn first_bin(gate: f64) -> usize {
    if gate < absolute_gate() {
        return 0;
    }
    let bin = bin_of(gate);
    bin + usize::from(gate > bin_energy(bin))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "clamped to the bins"
)]
fn bin_of(energy: f64) -> usize {
    let guess = ((loudness(energy) - LOWEST) * 10.0).clamp(0.0, (BINS - 1) as f64) as usize;
    // The logarithm may be off by a rounding at a bin's edge; the edge itself decides.
    let edge = |bin: usize| energy_of(bin as f64 / 10.0 + LOWEST);
    if guess > 0 && energy < edge(guess) {
        guess - 1
    } else if guess + 1 < BINS && energy >= edge(guess + 1) {
        guess + 1
    } else {
        guess
    }
}

#[allow(clippy::cast_precision_loss, reason = "a thousand bins")]
fn bin_energy(bin: usize) -> f64 {
    energy_of(bin as f64 / 10.0 + LOWEST_CENTER)
}

/// Bins of 0.1 LU from -70 to +30 LUFS; louder values count in the last.
pub(super) const BINS: usize = 1000;
const LOWEST: f64 = -70.0;
const LOWEST_CENTER: f64 = -69.95;
/// -10 LU (BS.1770-4) and -20 LU (EBU Tech 3342) as ratios of energy.
const INTEGRATED_GATE: f64 = 0.1;
const RANGE_GATE: f64 = 0.01;
const LOW_PERCENTILE: f64 = 0.10;
const HIGH_PERCENTILE: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bin_has_the_values_between_its_edges() {
        for bin in 0..BINS {
            assert_eq!(bin_of(bin_energy(bin)), bin);
            #[allow(clippy::cast_precision_loss, reason = "a thousand bins")]
            let edge = energy_of(bin as f64 / 10.0 + LOWEST);
            assert_eq!(bin_of(edge), bin);
            assert_eq!(bin_of(edge * (1.0 - 1e-15)), bin.saturating_sub(1));
        }
        assert_eq!(bin_of(f64::INFINITY), BINS - 1);
    }

    #[test]
    fn the_oldest_leave_a_bounded_history() {
        let mut list = GatedEnergies::exact(2, 2);
        for energy in [1.0, 2.0, 3.0, 1e-9, f64::NAN] {
            list.push(energy);
        }
        assert_eq!(list.total(), (2, 5.0));
    }
}
