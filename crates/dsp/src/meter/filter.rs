//! The K-weighting of ITU-R BS.1770-4 annex 1, as two second-order sections in f64.
//!
//! The recommendation gives coefficients for 48 kHz only. Those of other rates are derived from the
//! corresponding analogue filters, by the bilinear transform. One fourth-order section, as in
//! libebur128, gives the same energies to 1e-12 dB but is worse conditioned. The high-pass stores
//! the difference of its last two values instead of the values themselves, which are ten thousand
//! times as great as its output.

use core::slice::Chunks;

use super::sample::SampleView;
use crate::simd::{self, PairContext, SimdLevel, WeightingTask};

/// State of the two sections: the last two values of the shelf, the newest first, and of the
/// high-pass the last difference of two values and the value before it.
pub(crate) type FilterState = [f64; 4];

/// The coefficients of both sections. The numerator of the shelf is `gain` * (1, `zeros`), that of
/// the high-pass is exactly 1, -2, 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coefficients {
    gain: f64,
    pub(crate) zeros: [f64; 2],
    pub(crate) poles: [f64; 2],
    /// With a denominator of 1, p, q: q - `leak`, and 1 + p + q.
    pub(crate) keep: f64,
    pub(crate) leak: f64,
}

impl Coefficients {
    pub(crate) fn new(hz: f64) -> Self {
        let k = (core::f64::consts::PI * SHELF_HZ.min(HIGHEST * hz) / hz).tan();
        let high = 10f64.powf(SHELF_DB / 20.0);
        let band = high.powf(SHELF_BAND);
        let a0 = 1.0 + k / SHELF_Q + k * k;
        let gain = high + band * k / SHELF_Q + k * k;
        let zeros = [2.0 * (k * k - high) / gain, (high - band * k / SHELF_Q + k * k) / gain];
        let poles = [2.0 * (k * k - 1.0) / a0, (1.0 - k / SHELF_Q + k * k) / a0];
        let k = (core::f64::consts::PI * PASS_HZ.min(HIGHEST * hz) / hz).tan();
        let p0 = 1.0 + k / PASS_Q + k * k;
        let leak = 4.0 * k * k / p0;
        Self { gain: gain / a0, zeros, poles, keep: (1.0 - k / PASS_Q + k * k) / p0 - leak, leak }
    }

    /// Filters one frame; the output lacks the shelf's gain.
    #[inline(always)]
    pub(crate) fn step(&self, x: f64, s: &mut FilterState) -> f64 {
        let [w1, w2, difference, before] = *s;
        let w = (x - self.poles[1] * w2) - self.poles[0] * w1;
        let y = (w + self.zeros[0] * w1) + self.zeros[1] * w2;
        let new = (y - self.leak * before) + self.keep * difference;
        *s = [w, w1, new, before + difference];
        new - difference
    }
}

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

// The analogue filters that the bilinear transform at 48 kHz maps to the coefficients of BS.1770-4,
// tables 1 and 2.
const SHELF_HZ: f64 = 1_681.974_450_955_533;
const SHELF_DB: f64 = 3.999_843_853_973_347;
const SHELF_Q: f64 = 0.707_175_236_955_419_6;
const SHELF_BAND: f64 = 0.499_666_774_154_541_6;
const PASS_HZ: f64 = 38.135_470_876_024_44;
const PASS_Q: f64 = 0.500_327_037_323_877_3;

/// The highest corner frequency, relative to the rate. At rates too low for speech the shelf would
/// lie beyond the Nyquist frequency, and the filter would be unstable (in libebur128 it is).
const HIGHEST: f64 = 0.45;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_48_khz_the_coefficients_are_those_of_the_recommendation() {
        let printed_b = [1.535_124_859_586_97, -2.691_696_189_406_38, 1.198_392_810_852_85];
        let printed_a = [-1.690_659_293_182_41, 0.732_480_774_215_85];
        let printed_r = [-1.990_047_454_833_98, 0.990_072_250_366_21];
        let ours = Coefficients::new(48_000.0);
        let b = [1.0, ours.zeros[0], ours.zeros[1]].map(|b| b * ours.gain);
        let q = ours.keep + ours.leak;
        let r = [ours.leak - 1.0 - q, q];
        let pairs = (b.iter().zip(&printed_b))
            .chain(ours.poles.iter().zip(&printed_a))
            .chain(r.iter().zip(&printed_r));
        for (ours, printed) in pairs {
            assert!((ours - printed).abs() < 1e-13, "{ours} {printed}");
        }
    }
}
