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

use crate::simd::F32x8;

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
    table: &'a FilterTable,
    /// The row before the position, and how far behind it the position is.
    pub(super) index: usize,
    pub(super) weight: f32,
}

/// The filters of consecutive frames between the same two rows, one per lane.
pub(super) struct FilterBlock<'a> {
    row: &'a [f32],
    next: &'a [f32],
    weights: &'a [f32; LANES],
}

impl FilterTable {
    /// The filter of a design, where positions are counted in `unit` parts of an input frame and,
    /// without drift, are multiples of `1 / places`.
    pub(super) fn new(shape: &SincDesign, places: usize, unit: u64) -> Self {
        // A filter with a lower cutoff is smoother, and needs fewer rows.
        let coarse = (MIN_PHASES / shape.ratio.max(1.0)).ceil() as usize;
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
        // A fraction has 62 bits at most, and signed numbers are converted in one instruction.
        let position = fraction.cast_signed() as f64 * self.scale;
        let index = (position as u32 as usize).min(self.phases);
        FilterPhase { table: self, index, weight: (position - index as f64) as f32 }
    }

    /// The filters behind a row by `weights`.
    #[inline]
    pub(super) fn block<'a>(&'a self, row: usize, weights: &'a [f32; LANES]) -> FilterBlock<'a> {
        let (row, next) = self.rows_at(row);
        FilterBlock { row, next, weights }
    }

    /// A row and the next one.
    #[inline(always)]
    fn rows_at(&self, index: usize) -> (&[f32], &[f32]) {
        self.rows[index * self.taps..][..2 * self.taps].split_at(self.taps)
    }
}

impl FilterBlock<'_> {
    /// Filters up to [`LANES`] frames: `runs` holds a channel every `stride` samples, each starting
    /// with the samples under the filter of the first frame, and [`LANES`] - 1 more than that
    /// filter has.
    #[inline]
    pub(super) fn filter(&self, runs: &[f32], stride: usize, channels: usize, frames: &mut [f32]) {
        for first in (0..channels).step_by(2) {
            if first + 1 < channels {
                let [left, right] = self.dot([first, first + 1].map(|at| &runs[at * stride..]));
                for ((frame, left), right) in frames.chunks_exact_mut(channels).zip(left).zip(right)
                {
                    (frame[first], frame[first + 1]) = (left, right);
                }
            } else {
                let [samples] = self.dot([&runs[first * stride..]]);
                for (frame, sample) in frames.chunks_exact_mut(channels).zip(samples) {
                    frame[first] = sample;
                }
            }
        }
    }

    /// The dot products of the filters with `N` channels. Each lane is summed in the same order,
    /// whatever the others hold; from both ends to the center, so that the sums are small for as
    /// long as possible and lose the least by rounding.
    #[inline(always)]
    fn dot<const N: usize>(&self, runs: [&[f32]; N]) -> [[f32; LANES]; N] {
        let taps = self.row.len();
        let mut windows = runs.map(|run| run[..taps + LANES - 1].windows(LANES));
        let weights = F32x8::read(self.weights);
        let mut sums = [[F32x8::splat(0.0); 2]; N];
        let rows = self.row.iter().zip(self.next);
        for both in rows.clone().zip(rows.rev()).take(taps / 2) {
            let filters = [both.0, both.1].map(|(&coefficient, &next)| {
                let rise = F32x8::splat(next - coefficient);
                rise.times_plus(weights, F32x8::splat(coefficient))
            });
            for ([low, high], windows) in sums.iter_mut().zip(&mut windows) {
                let first = windows.next().and_then(<[f32]>::first_chunk);
                let last = windows.next_back().and_then(<[f32]>::first_chunk);
                // There are samples for each tap.
                let Some((first, last)) = first.zip(last) else { continue };
                *low = F32x8::read(first).times_plus(filters[0], *low);
                *high = F32x8::read(last).times_plus(filters[1], *high);
            }
        }
        sums.map(|[low, high]| low.plus(high).write())
    }
}

impl FilterPhase<'_> {
    /// Filters one frame: `runs` holds a channel every `stride` samples, each starting with the
    /// samples under the filter.
    #[inline]
    pub(super) fn filter(&self, runs: &[f32], stride: usize, frame: &mut [f32]) {
        let taps = self.table.taps;
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
        let (row, next) = self.table.rows_at(self.index);
        let rows = row.as_chunks::<LANES>().0;
        let mut sums = [[0.0; LANES]; N];
        if self.weight == 0.0 {
            for (index, row) in rows.iter().enumerate() {
                accumulate(&mut sums, row, &runs, index);
            }
        } else {
            let next = next.as_chunks::<LANES>().0;
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
pub(super) struct SincDesign {
    /// Input frames per output frame.
    ratio: f64,
    taps: usize,
    /// In cycles per input frame.
    cutoff: f64,
}

impl SincDesign {
    /// Between equal rates, for as little work as possible.
    pub(super) const SHORT: Self = Self { ratio: 1.0, taps: SHORT_TAPS, cutoff: 0.5 };

    pub(super) fn new(ratio: f64) -> Self {
        if ratio == 1.0 {
            // Zero at every other whole frame, so that no drift means an exact copy.
            return Self { ratio, taps: EQUAL_TAPS, cutoff: 0.5 };
        }
        let longer = ratio.max(1.0);
        let taps = (CONVERT_TAPS * longer).min(MAX_TAPS as f64) as usize;
        let taps = taps.next_multiple_of(LANES);
        Self { ratio, taps, cutoff: (1.0 - TRANSITION / 2.0) / (2.0 * longer) }
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

/// The transition of Kaiser's estimate begins at 18.5 kHz of 48 kHz.
const SHORT_TAPS: usize = 32;

/// From a ratio of 64 on (DSD rates to telephony) the length is limited and the filter less steep,
/// so that a file header cannot cause unbounded allocation.
const MAX_TAPS: usize = 64 * 160;

/// Rows that linear interpolation needs for errors 110 dB down at 20 kHz of 44.1 kHz.
const MIN_PHASES: f64 = 512.0;

/// 1 MiB: up to this size a table has a row for each position of the plain ratio.
const MAX_COEFFICIENTS: usize = 1 << 18;

/// Partial sums, or frames of a block, so that the compiler can use vector registers.
pub(super) const LANES: usize = 8;

#[cfg(test)]
impl FilterTable {
    pub(super) const fn memory(&self) -> usize {
        self.rows.len() * size_of::<f32>()
    }
}
