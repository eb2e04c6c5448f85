//! The energy of each of the last frames: for the partial slots of windows, and for maxima.
//!
//! 8 bytes a frame are 1.2 MB for 3 s at 48 kHz. The many meters of a server keep only the frames
//! of the current hop, and sums of slots before them.

use core::ops::Range;

use crate::simd::sum;

/// A ring of hops. Pages that no audio has reached yet cost nothing.
#[derive(Clone, Debug)]
pub(super) enum EnergyRing {
    /// All hops.
    All(Box<[f64]>),
    /// The current hop alone.
    Current(Box<[f64]>),
}

impl EnergyRing {
    pub(super) fn new(hop: usize, hops: usize, coarse: bool) -> Self {
        match coarse {
            false => Self::All(vec![0.0; hops * hop].into()),
            true => Self::Current(vec![0.0; hop].into()),
        }
    }

    /// Buffer for the energies of the next frames in the current hop. Positions are those in the
    /// ring.
    pub(super) fn next(&mut self, at: Range<usize>) -> &mut [f64] {
        match self {
            Self::All(ring) => &mut ring[at],
            Self::Current(hop) => {
                let at = in_hop(at, hop.len());
                &mut hop[at]
            }
        }
    }

    /// Energies of the current hop.
    pub(super) fn newest(&self, at: Range<usize>) -> &[f64] {
        match self {
            Self::All(ring) => &ring[at],
            Self::Current(hop) => &hop[in_hop(at, hop.len())],
        }
    }

    /// The energy of these frames, which are in the current hop if `present`; `None` if they are
    /// not kept.
    pub(super) fn sum(&self, at: Range<usize>, present: bool) -> Option<f64> {
        match self {
            Self::Current(_) if !present => None,
            _ => Some(sum(self.newest(at))),
        }
    }

    /// The greatest of the sums after each of `frames` steps, in which the frame at `entering`, of
    /// the current hop, enters and the one at `leaving`, of an earlier hop, leaves. `None` if
    /// earlier frames are not kept.
    pub(super) fn greatest_sum(
        &self,
        before: f64,
        entering: usize,
        leaving: usize,
        frames: usize,
    ) -> Option<f64> {
        let Self::All(ring) = self else { return None };
        let entering = &ring[entering..entering + frames];
        Some(greatest_sum(before, entering, &ring[leaving..leaving + frames]))
    }
}

fn in_hop(at: Range<usize>, hop: usize) -> Range<usize> {
    let start = at.start % hop;
    start..start + at.len()
}

/// The greatest of the sums after each step in which one value enters and one leaves.
fn greatest_sum(before: f64, entering: &[f64], leaving: &[f64]) -> f64 {
    let (mut sum, mut greatest) = (before, f64::NEG_INFINITY);
    // Only one of several additions depends on the previous one.
    for (entering, leaving) in entering.chunks(8).zip(leaving.chunks(8)) {
        let (mut change, mut top) = (0.0, f64::NEG_INFINITY);
        for (new, old) in entering.iter().zip(leaving) {
            change += new - old;
            top = if change > top { change } else { top };
        }
        greatest = if sum + top > greatest { sum + top } else { greatest };
        sum += change;
    }
    greatest
}
