//! The energy of each of the last frames: for the partial slots of windows, and for maxima.
//!
//! Stored as doubles, 8 bytes a frame, 1.2 MB for 3 s at 48 kHz; or dense, in half of that, for the
//! many meters of a server. Plain single precision would have a relative error of 2^-25. Here each
//! single absorbs the rounding error of those after it in its quarter of a slot, so that the sum
//! from any frame to the slot's end has an error of at most 2^-25 of four frames, which is
//! negligible in a window of thousands.

use core::ops::Range;

use crate::simd::sum;

/// A ring of hops. Pages that no audio has reached yet cost nothing.
#[derive(Clone, Debug)]
pub(super) enum EnergyRing {
    Exact(Box<[f64]>),
    Dense {
        hop: usize,
        /// The current hop.
        now: Box<[f64]>,
        /// The ring; the current hop is not in it yet.
        before: Box<[f32]>,
    },
}

impl EnergyRing {
    pub(super) fn new(hop: usize, hops: usize, dense: bool) -> Self {
        if !dense {
            return Self::Exact(vec![0.0; hops * hop].into());
        }
        Self::Dense { hop, now: vec![0.0; hop].into(), before: vec![0.0; hops * hop].into() }
    }

    /// Buffer for the energies of the next frames in the current hop. Positions are those in the
    /// ring.
    pub(super) fn next(&mut self, at: Range<usize>) -> &mut [f64] {
        match self {
            Self::Exact(ring) => &mut ring[at],
            Self::Dense { hop, now, .. } => &mut now[in_hop(at, *hop)],
        }
    }

    /// Energies of the current hop.
    pub(super) fn newest(&self, at: Range<usize>) -> &[f64] {
        match self {
            Self::Exact(ring) => &ring[at],
            Self::Dense { hop, now, .. } => &now[in_hop(at, *hop)],
        }
    }

    /// Stores a complete slot of the current hop in the ring.
    pub(super) fn keep(&mut self, slot: Range<usize>) {
        let Self::Dense { hop, now, before } = self else { return };
        let now = &now[in_hop(slot.clone(), *hop)];
        round(now, &mut before[slot]);
    }

    /// The energy of frames up to the end of a slot; `present` is true for the current hop.
    pub(super) fn sum(&self, at: Range<usize>, present: bool) -> f64 {
        match self {
            Self::Dense { before, .. } if !present => {
                before[at].iter().rev().map(|&energy| f64::from(energy)).sum()
            }
            _ => sum(self.newest(at)),
        }
    }

    /// The greatest of the sums after each of `frames` steps, in which the frame at `entering`, of
    /// the current hop, enters and the one at `leaving`, of an earlier hop, leaves.
    pub(super) fn greatest_sum(
        &self,
        before: f64,
        entering: usize,
        leaving: usize,
        frames: usize,
    ) -> f64 {
        let entering = self.newest(entering..entering + frames);
        let leaving = leaving..leaving + frames;
        match self {
            Self::Exact(ring) => greatest_sum(before, entering, &ring[leaving]),
            Self::Dense { before: ring, .. } => greatest_sum(before, entering, &ring[leaving]),
        }
    }
}

/// Rounds each energy, plus the rounding error of those after it, to a single.
///
/// Each frame depends on the next one, so quarters of a slot are processed side by side.
#[allow(clippy::cast_possible_truncation, reason = "what is lost is carried on")]
fn round(energies: &[f64], kept: &mut [f32]) {
    let quarter = energies.len() / SIDE_BY_SIDE;
    let mut carries = [0.0; SIDE_BY_SIDE];
    let mut keep = |at: usize, carry: &mut f64| {
        let wanted = energies[at] + *carry;
        // A value too great for a single is too great for any loudness.
        let single = (wanted as f32).min(f32::MAX);
        let lost = wanted - f64::from(single);
        *carry = if lost.abs() < wanted { lost } else { 0.0 };
        kept[at] = single;
    };
    // The last quarter begins with the remainder of the division.
    for at in (SIDE_BY_SIDE * quarter..energies.len()).rev() {
        keep(at, &mut carries[SIDE_BY_SIDE - 1]);
    }
    for at in (0..quarter).rev() {
        for (lane, carry) in carries.iter_mut().enumerate() {
            keep(lane * quarter + at, carry);
        }
    }
}

/// Parts of a slot that are rounded side by side.
const SIDE_BY_SIDE: usize = 4;

fn in_hop(at: Range<usize>, hop: usize) -> Range<usize> {
    let start = at.start % hop;
    start..start + at.len()
}

/// The greatest of the sums after each step in which one value enters and one leaves.
fn greatest_sum<T: Copy + Into<f64>>(before: f64, entering: &[f64], leaving: &[T]) -> f64 {
    let (mut sum, mut greatest) = (before, f64::NEG_INFINITY);
    // Only one of several additions depends on the previous one.
    for (entering, leaving) in entering.chunks(8).zip(leaving.chunks(8)) {
        let (mut change, mut top) = (0.0, f64::NEG_INFINITY);
        for (new, old) in entering.iter().zip(leaving) {
            change += new - (*old).into();
            top = if change > top { change } else { top };
        }
        greatest = if sum + top > greatest { sum + top } else { greatest };
        sum += change;
    }
    greatest
}
