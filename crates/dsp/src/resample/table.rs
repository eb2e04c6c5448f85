//! The filter of a [`Resampler`](super::Resampler): designed once, evaluated once per frame.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "filter design: sizes are small, coefficients are rounded to f32 on purpose, and what is \
              compared is exact by construction"
)]

use core::f64::consts::PI;

/// A windowed sinc, sampled at `phases` positions between two input frames.
#[derive(Clone)]
pub(super) struct FilterTable {
    /// `phases + 2` rows of `taps`. Row `phases` is row 0 one frame later; the row after it is only
    /// multiplied by zero.
    rows: Vec<f32>,
    taps: usize,
    phases: usize,
    /// Converts a position in units to rows.
    scale: f64,
}

/// The filter at one position, between two rows.
pub(super) struct FilterPhase<'a> {
    row: &'a [f32],
    next: &'a [f32],
    weight: f32,
}

impl FilterTable {
    /// The filter for `ratio` input frames per output frame, where positions are counted in `unit`
    /// parts of an input frame and, without drift, are multiples of `1 / places`.
    pub(super) fn new(ratio: f64, places: usize, unit: u64) -> Self {
        let shape = SincDesign::new(ratio);
        // A filter with a lower cutoff is smoother, and needs fewer rows.
        let coarse = (MIN_PHASES / ratio.max(1.0)).ceil() as usize;
        let phases = if places.saturating_mul(shape.taps) <= MAX_COEFFICIENTS {
            // The positions of the plain ratio coincide with rows, so nothing has to be
            // interpolated.
            places * coarse.div_ceil(places)
        } else {
            coarse
        };
        let mut rows = vec![0.0; (phases + 2) * shape.taps];
        for (index, row) in rows.chunks_exact_mut(shape.taps).take(phases + 1).enumerate() {
            shape.write_row(index as f64 / phases as f64, row);
        }
        Self { rows, taps: shape.taps, phases, scale: phases as f64 / unit as f64 }
    }

    /// The filter's length in input frames, a multiple of [`LANES`].
    pub(super) const fn taps(&self) -> usize {
        self.taps
    }

    /// The tap of an undelayed copy.
    pub(super) const fn center(&self) -> usize {
        self.taps / 2 - 1
    }

    /// The filter `fraction` units after a whole frame.
    #[inline]
    pub(super) fn phase(&self, fraction: u64) -> FilterPhase<'_> {
        let position = fraction as f64 * self.scale;
        let index = (position as usize).min(self.phases);
        let (row, next) = self.rows[index * self.taps..][..2 * self.taps].split_at(self.taps);
        FilterPhase { row, next, weight: (position - index as f64) as f32 }
    }
}

impl FilterPhase<'_> {
    /// Filters one frame: `runs` holds a channel every `stride` samples, each starting with the
    /// samples under the filter.
    #[inline]
    pub(super) fn filter(&self, runs: &[f32], stride: usize, frame: &mut [f32]) {
        let taps = self.row.len();
        let run = |channel: usize| &runs[channel * stride..][..taps];
        match frame {
            [sample] => [*sample] = self.dot([run(0)]),
            [left, right] => [*left, *right] = self.dot([run(0), run(1)]),
            _ => {
                for (channel, sample) in frame.iter_mut().enumerate() {
                    [*sample] = self.dot([run(channel)]);
                }
            }
        }
    }

    /// The dot product of the filter with `N` channels.
    #[inline(always)]
    fn dot<const N: usize>(&self, runs: [&[f32]; N]) -> [f32; N] {
        let runs = runs.map(|run| run.as_chunks::<LANES>().0);
        let rows = self.row.as_chunks::<LANES>().0;
        let mut sums = [[0.0; LANES]; N];
        if self.weight == 0.0 {
            for (index, row) in rows.iter().enumerate() {
                accumulate(&mut sums, row, &runs, index);
            }
        } else {
            let next = self.next.as_chunks::<LANES>().0;
            for (index, (row, next)) in rows.iter().zip(next).enumerate() {
                let mut between = *row;
                for (lane, next) in between.iter_mut().zip(next) {
                    *lane += (next - *lane) * self.weight;
                }
                accumulate(&mut sums, &between, &runs, index);
            }
        }
        sums.map(|lanes| lanes.iter().sum())
    }
}

#[inline(always)]
fn accumulate<const N: usize>(
    sums: &mut [[f32; LANES]; N],
    row: &[f32; LANES],
    runs: &[&[[f32; LANES]]; N],
    index: usize,
) {
    for (sum, run) in sums.iter_mut().zip(runs) {
        for ((sum, sample), weight) in sum.iter_mut().zip(&run[index]).zip(row) {
            *sum += sample * weight;
        }
    }
}

/// The continuous filter that the table samples.
struct SincDesign {
    taps: usize,
    /// In cycles per input frame.
    cutoff: f64,
}

impl SincDesign {
    fn new(ratio: f64) -> Self {
        if ratio == 1.0 {
            // Zero at every other whole frame, so that no drift means an exact copy.
            return Self { taps: EQUAL_TAPS, cutoff: 0.5 };
        }
        let ratio = ratio.max(1.0);
        let taps = (CONVERT_TAPS * ratio).min(MAX_TAPS as f64) as usize;
        let taps = taps.next_multiple_of(LANES);
        Self { taps, cutoff: (1.0 - TRANSITION / 2.0) / (2.0 * ratio) }
    }

    /// The filter for a position `phase` (0 to 1) frames after the center tap.
    fn write_row(&self, phase: f64, row: &mut [f32]) {
        let half = self.taps as f64 / 2.0;
        let value = |tap: usize| {
            let distance = tap as f64 + 1.0 - half - phase;
            sinc(2.0 * self.cutoff * distance) * kaiser(distance / half)
        };
        // Each row passes a constant unchanged; the sum of the samples of a windowed sinc is not
        // quite one.
        let sum: f64 = (0..self.taps).map(value).sum();
        for (tap, coefficient) in row.iter_mut().enumerate() {
            *coefficient = (value(tap) / sum) as f32;
        }
    }
}

fn sinc(x: f64) -> f64 {
    // Exactly zero at integers, where sin(PI * x) is only nearly so.
    if x == 0.0 {
        1.0
    } else if x == x.trunc() {
        0.0
    } else {
        (PI * x).sin() / (PI * x)
    }
}

/// Kaiser's window at `x` from -1 to 1, not normalized.
fn kaiser(x: f64) -> f64 {
    let y = (1.0 - x * x).max(0.0) * (KAISER_BETA * KAISER_BETA / 4.0);
    // The modified Bessel function I0: the sum of (y^k / k!^2).
    BESSEL.iter().rev().fold(0.0, |sum, factor| sum * y + factor)
}

/// 1 / k!^2; the last term is below 1e-20 of the sum.
const BESSEL: [f64; 32] = {
    let mut factors = [1.0; 32];
    let mut k = 1;
    while k < factors.len() {
        factors[k] = factors[k - 1] / (k * k) as f64;
        k += 1;
    }
    factors
};

/// 0.1102 * (A - 8.7) for a stop band A = 112 dB down (Kaiser 1974).
const KAISER_BETA: f64 = 11.4;

/// The transition band, relative to half of the lower rate: 20 kHz to 22.05 kHz.
const TRANSITION: f64 = 1.0 - 20.0 / 22.05;

/// (A - 8) / (2.285 * 2 * PI * TRANSITION / 2), Kaiser's estimate, rounded up.
const CONVERT_TAPS: f64 = 160.0;

/// Between equal rates the transition lies around half of the rate, where hardly anything is
/// audible: twice as wide.
const EQUAL_TAPS: usize = 80;

/// From a ratio of 64 on (DSD rates to telephony) the length is limited and the filter less steep,
/// so that a file header cannot cause unbounded allocation.
const MAX_TAPS: usize = 64 * 160;

/// Rows that linear interpolation needs for errors 110 dB down at 20 kHz of 44.1 kHz.
const MIN_PHASES: f64 = 512.0;

/// 1 MiB: up to this size a table has a row for each position of the plain ratio.
const MAX_COEFFICIENTS: usize = 1 << 18;

/// Partial sums, so that the compiler can use vector registers.
const LANES: usize = 8;

#[cfg(test)]
impl FilterTable {
    pub(super) const fn memory(&self) -> usize {
        self.rows.len() * size_of::<f32>()
    }
}
