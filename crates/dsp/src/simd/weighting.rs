//! What both kernels of the K-weighting share: their task, and the filter in registers.

use super::lanes::F64Lanes;
use crate::meter::SampleView;
use crate::meter::weighting::Coefficients;

/// The location of the samples of some channels, and of their energies.
pub(crate) struct WeightingTask<'a> {
    pub(crate) view: SampleView<'a>,
    /// Number of samples between frames.
    pub(crate) stride: usize,
    /// The first channel.
    pub(crate) first: usize,
    /// One per channel.
    pub(crate) weights: &'a [f64],
    /// Whether energies are added to the contents of `out`.
    pub(crate) add: bool,
    pub(crate) out: &'a mut [f64],
}

/// Two values, each broadcast to all lanes. (`map` on arrays is not always inlined.)
#[inline(always)]
pub(super) fn broadcast_pair<V: F64Lanes>([one, other]: [f64; 2]) -> [V; 2] {
    [V::splat(one), V::splat(other)]
}

/// Loads the state of all lanes, from one row per value.
#[inline(always)]
pub(super) fn load_states<V: F64Lanes>(
    [w1, w2, difference, before]: &[[f64; WIDEST]; 4],
) -> [V; 4] {
    [V::read(w1), V::read(w2), V::read(difference), V::read(before)]
}

/// Stores the state of each lane, one row per value.
#[inline(always)]
pub(super) fn store_states<V: F64Lanes>(states: [V; 4]) -> [[f64; WIDEST]; 4] {
    let mut ends = [[0.0; WIDEST]; 4];
    for (end, state) in ends.iter_mut().zip(states) {
        state.write(end);
    }
    ends
}

/// The coefficients in registers.
pub(super) struct KernelCoefficients<V> {
    zeros: [V; 2],
    poles: [V; 2],
    keep: V,
    leak: V,
}

impl<V: F64Lanes> KernelCoefficients<V> {
    #[inline(always)]
    pub(super) fn new(coefficients: &Coefficients) -> Self {
        Self {
            zeros: broadcast_pair(coefficients.zeros),
            poles: broadcast_pair(coefficients.poles),
            keep: V::splat(coefficients.keep),
            leak: V::splat(coefficients.leak),
        }
    }

    /// [`Coefficients::step`], in all lanes.
    #[inline(always)]
    pub(super) fn step(&self, x: V, states: &mut [V; 4]) -> V {
        let [w1, w2, difference, before] = *states;
        let w = w1.times_from(self.poles[0], w2.times_from(self.poles[1], x));
        let y = w2.times_plus(self.zeros[1], w1.times_plus(self.zeros[0], w));
        let new = difference.times_plus(self.keep, before.times_from(self.leak, y));
        *states = [w, w1, new, before.plus(difference)];
        new.minus(difference)
    }
}

/// Lanes of the widest register.
pub(super) const WIDEST: usize = 8;
