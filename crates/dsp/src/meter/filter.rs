//! The K-weighting filters of all channels: their states, and the kernel or the scalar code that
//! runs them.

use core::slice::Chunks;

use super::sample::SampleView;
use super::weighting::{Coefficients, FilterState};
use crate::simd::{self, PairContext, SimdLevel, WeightingTask};

/// The filters of all channels.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    coefficients: Coefficients,
    states: Vec<FilterState>,
    saved: Vec<FilterState>,
    weights: Vec<f64>,
    level: SimdLevel,
    context: PairContext,
}

impl Filter {
    pub(super) fn new(hz: f64, weights: Vec<f64>, level: SimdLevel) -> Self {
        let coefficients = Coefficients::new(hz);
        let states = vec![[0.0; 4]; weights.len()];
        let saved = states.clone();
        Self {
            coefficients,
            states,
            saved,
            weights,
            level,
            context: PairContext::new(&coefficients, level),
        }
    }

    pub(super) fn reset(&mut self) {
        self.states.fill([0.0; 4]);
    }

    /// Saves the states for [`Filter::restore`].
    pub(super) fn save(&mut self) {
        self.saved.copy_from_slice(&self.states);
    }

    /// Undoes the last run.
    pub(super) fn restore(&mut self) {
        self.states.copy_from_slice(&self.saved);
    }

    /// Whether the energy of a run reveals samples of absurd size by itself: no finite sample may
    /// overflow, and of each pair of channels one must have a weight (the other is then read with
    /// it).
    pub(super) fn detects_overflow(&self, view: SampleView<'_>) -> bool {
        let counts = |pair: &[f64]| pair.iter().any(|&weight| weight > 0.0);
        matches!(view, SampleView::Narrow(_)) && self.weights.chunks(2).all(counts)
    }

    pub(super) fn level(&self) -> SimdLevel {
        self.level
    }

    /// Factor for the energies: the filters apply their gain at the end.
    pub(super) fn unit(&self) -> f64 {
        self.coefficients.gain.powi(2)
    }

    pub(super) fn set_weight(&mut self, channel: usize, weight: f64) {
        self.weights[channel] = weight;
    }

    /// Writes the weighted energy of each frame, summed over channels, in [`Filter::unit`]s.
    ///
    /// A value that is not finite, even in a channel without weight, gives an energy that is not
    /// finite. With `plain`, one sample after the other, without the channels that have no weight:
    /// a value that is not finite then contaminates exactly the samples after it.
    pub(super) fn energies(&mut self, view: SampleView<'_>, plain: bool, out: &mut [f64]) {
        let level = if plain { SimdLevel::Scalar } else { self.level };
        let stride = self.states.len();
        let (mut fresh, mut first) = (true, 0);
        while first < stride {
            let channels = first..first + simd::side_by_side(level, stride - first);
            let weights = &self.weights[channels.clone()];
            let states = &mut self.states[channels.clone()];
            first = channels.end;
            if weights.iter().all(|&weight| weight <= 0.0) {
                continue;
            }
            let add = !core::mem::take(&mut fresh);
            let first = channels.start;
            let task = WeightingTask { view, stride, first, weights, add, out: &mut *out };
            let done = simd::weigh(&self.context, level, task, states);
            let out = &mut out[done..];
            if out.is_empty() {
                continue;
            }
            if !add {
                out.fill(0.0);
            }
            let pairs = states.chunks_mut(2).zip(weights.chunks(2));
            for (first, (states, weights)) in (first..).step_by(2).zip(pairs) {
                let from = done * stride + first;
                let (filter, gentle) = (&self.coefficients, !plain);
                match view {
                    SampleView::Narrow(x) => {
                        let frames = x[from..].chunks(stride);
                        scalar(filter, frames, weights, gentle, states, out);
                    }
                    SampleView::Wide(x) => {
                        let frames = x[from..].chunks(stride);
                        scalar(filter, frames, weights, gentle, states, out);
                    }
                }
            }
        }
        if fresh {
            out.fill(0.0);
        }
        for state in self.states.iter_mut().flatten() {
            // Silence after music would otherwise decay into denormals, which are slow.
            if state.abs() < VANISHED {
                *state = 0.0;
            }
        }
    }
}

fn scalar<T: Copy + Into<f64>>(
    coefficients: &Coefficients,
    frames: Chunks<'_, T>,
    weights: &[f64],
    tell: bool,
    states: &mut [FilterState],
    out: &mut [f64],
) {
    if let ([first, second], true) = (&mut *states, weights.iter().all(|&w| w > 0.0)) {
        // Two filters at a time keep the arithmetic units busy despite the dependencies within
        // each.
        let (mut one, mut two) = (*first, *second);
        for (frame, energy) in frames.zip(out) {
            let left = coefficients.step(frame[0].into(), &mut one);
            let right = coefficients.step(frame[1].into(), &mut two);
            *energy += weights[0] * (left * left) + weights[1] * (right * right);
        }
        (*first, *second) = (one, two);
        return;
    }
    for (channel, (state, &weight)) in states.iter_mut().zip(weights).enumerate() {
        if weight > 0.0 {
            let mut one = *state;
            for (frame, energy) in frames.clone().zip(out.iter_mut()) {
                let y = coefficients.step(frame[channel].into(), &mut one);
                *energy += weight * (y * y);
            }
            *state = one;
        } else if tell {
            for (frame, energy) in frames.clone().zip(out.iter_mut()) {
                *energy += 0.0 * frame[channel].into();
            }
        }
    }
}

/// An inaudible filter state whose square is still a normal number.
const VANISHED: f64 = 1e-150;
