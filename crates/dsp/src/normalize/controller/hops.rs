//! What is known of the last hops of 100 ms.

use crate::meter::loudness;

/// State of one hop.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hop {
    /// The weighted mean square.
    pub(super) energy: f64,
    /// Number of its section; 0 before the first.
    pub(super) section: u32,
    /// Loudness of that section.
    pub(super) level: f64,
    /// Gain in dB in the middle of the hop.
    pub(super) gain: f64,
    /// Whether the block that ends with this hop is part of its section's loudness.
    pub(super) is_counted: bool,
}

/// The last [`RING_HOPS`] hops, by their number.
#[derive(Clone, Debug)]
pub(super) struct HopRing(Box<[Hop]>);

impl HopRing {
    /// Hops of silence.
    pub(super) fn new() -> Self {
        Self(vec![Hop::default(); RING_HOPS].into())
    }

    pub(super) fn clear(&mut self) {
        self.0.fill(Hop::default());
    }

    pub(super) fn at(&self, hop: u64) -> &Hop {
        &self.0[ring_index(hop)]
    }

    pub(super) fn at_mut(&mut self, hop: u64) -> &mut Hop {
        &mut self.0[ring_index(hop)]
    }

    /// The loudness of a hop.
    pub(super) fn loudness(&self, hop: u64) -> f64 {
        loudness(self.at(hop).energy)
    }

    /// The number of these hops that are not below the gate, and their mean loudness.
    #[allow(clippy::cast_precision_loss, reason = "some dozens")]
    pub(super) fn gated_mean(&self, from: u64, to: u64, gate: f64) -> (u64, f64) {
        let (count, sum) = (from..=to)
            .map(|hop| self.at(hop).energy)
            .filter(|energy| loudness(*energy) >= gate)
            .fold((0, 0.0), |(count, sum), energy| (count + 1, sum + energy));
        (count, loudness(sum / (count as f64).max(1.0)))
    }

    /// The mean loudness of these hops, silent ones included.
    #[allow(clippy::cast_precision_loss, reason = "some dozens")]
    pub(super) fn ungated_mean(&self, from: u64, to: u64) -> f64 {
        let sum: f64 = (from..=to).map(|hop| self.at(hop).energy).sum();
        loudness(sum / (to + 1 - from) as f64).max(SILENCE_LUFS)
    }

    /// The loudness of the loudest of these hops.
    pub(super) fn max_loudness(&self, from: u64, to: u64) -> f64 {
        let energies = (from..=to).map(|hop| self.at(hop).energy);
        loudness(energies.fold(0.0, f64::max)).max(SILENCE_LUFS)
    }

    /// The first of these hops below the limit: the loud end before it is not part of the quiet
    /// span.
    pub(super) fn first_below(&self, limit: f64, from: u64, to: u64) -> u64 {
        (from..=to).find(|hop| self.loudness(*hop) < limit).unwrap_or(from)
    }
}

#[allow(clippy::cast_possible_truncation, reason = "below the ring's length")]
const fn ring_index(hop: u64) -> usize {
    (hop % RING_HOPS as u64) as usize
}

/// Loudness of digital silence, in LUFS.
const SILENCE_LUFS: f64 = -120.0;
/// Hops that are stored: the longest search and the longest look-ahead fit.
pub(super) const RING_HOPS: usize = 128;
