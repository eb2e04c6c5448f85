//! The greatest magnitude at and after every sample, for the limiter.
//!
//! The meter's search finds one maximum and skips everything that cannot be it. The limiter needs a
//! value for each frame, and one that no reference meter exceeds by much, so the interpolator is
//! longer: 32 taps per phase instead of 12, under a Kaiser window.

#![allow(unsafe_code, reason = "a kernel is entered where its registers were detected")]

use super::SimdLevel;

/// Taps of a sinc that interpolates between samples.
#[derive(Clone, Debug)]
pub(crate) struct IntersampleInterpolator {
    phases: PhaseTaps,
    /// No value between samples exceeds the greatest of the neighbouring ones by more than this
    /// factor.
    gain: f32,
}

#[derive(Clone, Debug)]
enum PhaseTaps {
    /// At a half: for two times oversampling.
    One(Box<[[f32; 1]]>),
    /// At a quarter, a half and three quarters.
    Three(Box<[[f32; 3]]>),
    /// At all eighths.
    Seven(Box<[[f32; 7]]>),
}

impl IntersampleInterpolator {
    /// Number of frames before and after an interpolated point that are used (the one before may be
    /// at the point).
    pub(crate) const HALF: usize = 16;

    /// Interpolates for an oversampling factor `points`: 8, 4 or, for any other number, 2.
    #[allow(clippy::cast_precision_loss, reason = "up to seven")]
    pub(crate) fn new(points: usize) -> Self {
        let points = if matches!(points, 8 | 4) { points } else { 2 };
        let phases: Vec<Vec<f64>> =
            (1..points).map(|part| phase(part as f64 / points as f64)).collect();
        let norm = |taps: &Vec<f64>| taps.iter().map(|tap| tap.abs()).sum::<f64>();
        #[allow(clippy::cast_possible_truncation, reason = "rounded up")]
        let gain = (phases.iter().map(norm).fold(1.0, f64::max) * (1.0 + ROUNDING)) as f32;
        let phases = match points {
            8 => PhaseTaps::Seven(table(&phases)),
            4 => PhaseTaps::Three(table(&phases)),
            _ => PhaseTaps::One(table(&phases)),
        };
        Self { phases, gain }
    }

    /// No value between samples exceeds the greatest of the neighbouring ones by more than this
    /// factor.
    pub(crate) const fn gain(&self) -> f32 {
        self.gain
    }

    /// For each sample of `out` the greatest magnitude at it and up to the next sample of its
    /// channel. `samples` begin [`IntersampleInterpolator::HALF`] - 1 frames earlier and end as
    /// many and one later.
    pub(crate) fn greatest(
        &self,
        level: SimdLevel,
        samples: &[f32],
        channels: usize,
        out: &mut [f32],
    ) {
        match level {
            SimdLevel::Scalar => self.run::<false>(samples, channels, out),
            #[cfg(target_arch = "x86_64")]
            _ => {
                // SAFETY: `SimdLevel::available` found AVX2 and FMA.
                unsafe { self.run_avx2(samples, channels, out) }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn run_avx2(&self, samples: &[f32], channels: usize, out: &mut [f32]) {
        self.run::<true>(samples, channels, out);
    }

    #[inline(always)]
    fn run<const FUSED: bool>(&self, samples: &[f32], channels: usize, out: &mut [f32]) {
        match &self.phases {
            PhaseTaps::One(taps) => run::<FUSED, 1>(taps, samples, channels, out),
            PhaseTaps::Three(taps) => run::<FUSED, 3>(taps, samples, channels, out),
            PhaseTaps::Seven(taps) => run::<FUSED, 7>(taps, samples, channels, out),
        }
    }
}

#[inline(always)]
fn run<const FUSED: bool, const PHASES: usize>(
    taps: &[[f32; PHASES]],
    samples: &[f32],
    channels: usize,
    out: &mut [f32],
) {
    let (rows, rest) = out.as_chunks_mut::<LANES>();
    let mut at = 0;
    for row in rows {
        row_of::<FUSED, PHASES, LANES>(taps, &samples[at..], channels, row);
        at += LANES;
    }
    for value in rest {
        row_of::<FUSED, PHASES, 1>(taps, &samples[at..], channels, core::array::from_mut(value));
        at += 1;
    }
}

#[inline(always)]
fn row_of<const FUSED: bool, const PHASES: usize, const WIDTH: usize>(
    taps: &[[f32; PHASES]],
    samples: &[f32],
    channels: usize,
    out: &mut [f32; WIDTH],
) {
    let mut sums = [[0.0_f32; WIDTH]; PHASES];
    for (index, taps) in taps.iter().enumerate() {
        let start = index * channels;
        let x: &[f32] = &samples[start..start + WIDTH];
        for (sums, tap) in sums.iter_mut().zip(taps) {
            for (sum, x) in sums.iter_mut().zip(x) {
                // Without the instruction, a fused multiplication is a function call.
                *sum = if FUSED { x.mul_add(*tap, *sum) } else { x * tap + *sum };
            }
        }
    }
    let start = (IntersampleInterpolator::HALF - 1) * channels;
    let here = &samples[start..start + WIDTH];
    for (lane, (out, x)) in out.iter_mut().zip(here).enumerate() {
        *out = sums.iter().fold(x.abs(), |top, sums| {
            let magnitude = sums[lane].abs();
            if magnitude > top { magnitude } else { top }
        });
    }
}

/// For each neighbouring sample, its coefficients in all phases.
#[allow(clippy::cast_possible_truncation, reason = "taps are applied in f32")]
fn table<const PHASES: usize>(phases: &[Vec<f64>]) -> Box<[[f32; PHASES]]> {
    (0..2 * IntersampleInterpolator::HALF)
        .map(|index| core::array::from_fn(|part| phases[part][index] as f32))
        .collect()
}

/// The taps that interpolate at `part` of the distance between two samples; they add up to one.
#[allow(clippy::cast_precision_loss, reason = "32 taps")]
fn phase(part: f64) -> Vec<f64> {
    let half = IntersampleInterpolator::HALF as f64;
    let tap = |index: usize| {
        let distance = index as f64 - (half - 1.0) - part;
        let angle = core::f64::consts::PI * distance;
        angle.sin() / angle * kaiser(distance / half)
    };
    let taps: Vec<f64> = (0..2 * IntersampleInterpolator::HALF).map(tap).collect();
    let sum: f64 = taps.iter().sum();
    taps.iter().map(|tap| tap / sum).collect()
}

/// The Kaiser window at `place` from -1 to 1.
fn kaiser(place: f64) -> f64 {
    bessel(KAISER_BETA * (1.0 - place * place).max(0.0).sqrt()) / bessel(KAISER_BETA)
}

/// The modified Bessel function of the first kind and order zero, by its series.
fn bessel(x: f64) -> f64 {
    let (mut sum, mut term) = (1.0, 1.0);
    for k in 1..50 {
        term *= (x / (2.0 * f64::from(k))).powi(2);
        sum += term;
    }
    sum
}

/// Samples that are computed together: two registers of AVX2.
const LANES: usize = 16;
/// Flat to 0.01 dB up to 20 kHz at 48 kHz.
const KAISER_BETA: f64 = 6.0;
/// The maximum error of sums of 32 products in f32.
const ROUNDING: f64 = 1e-5;

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, in f64.
    fn plain(samples: &[f32], channels: usize, points: u32, index: usize) -> f64 {
        let here = f64::from(samples[index + (IntersampleInterpolator::HALF - 1) * channels]).abs();
        (1..points).fold(here, |top: f64, part| {
            let taps = phase(f64::from(part) / f64::from(points));
            let sum: f64 = taps
                .iter()
                .enumerate()
                .map(|(tap, value)| f64::from(samples[index + tap * channels]) * value)
                .sum();
            top.max(sum.abs())
        })
    }

    #[test]
    fn every_simd_level_agrees_with_the_definition() {
        let mut seed = 1_u64;
        let mut draw = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888);
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_precision_loss,
                reason = "noise"
            )]
            let value = ((seed >> 40) as f64 / f64::from(1 << 23) - 1.0) as f32;
            value
        };
        for (channels, points) in [(1, 4), (2, 4), (6, 4), (2, 2), (1, 8)] {
            let between = IntersampleInterpolator::new(points as usize);
            let frames = 41;
            let samples: Vec<f32> = (0..(frames + 2 * IntersampleInterpolator::HALF) * channels)
                .map(|_| draw())
                .collect();
            for &level in SimdLevel::available() {
                let mut out = vec![0.0; frames * channels];
                between.greatest(level, &samples, channels, &mut out);
                for (index, value) in out.iter().enumerate() {
                    let wanted = plain(&samples, channels, points, index);
                    assert!((f64::from(*value) - wanted).abs() < 1e-5, "{level:?} {index}");
                    assert!(*value <= between.gain());
                }
            }
        }
    }

    #[test]
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a tone")]
    fn a_tone_reads_its_amplitude_up_to_twenty_kilohertz() {
        let between = IntersampleInterpolator::new(4);
        for hz in [20.0, 997.0, 11_025.0, 17_000.0, 20_000.0] {
            let tone: Vec<f32> = (0..4_000)
                .map(|n| (core::f64::consts::TAU * hz / 48_000.0 * f64::from(n)).sin() as f32)
                .collect();
            let mut out = vec![0.0; 4_000 - 2 * IntersampleInterpolator::HALF];
            between.greatest(SimdLevel::Scalar, &tone, 1, &mut out);
            let top = out.iter().copied().fold(0.0_f32, f32::max);
            assert!((20.0 * f64::from(top).log10()).abs() < 0.02, "{hz} Hz: {top}");
        }
    }
}
