//! Dither: noise that is added before samples are rounded to integers.
//!
//! Without dither, the rounding error depends on the signal: a tone of a few steps gets harmonics
//! 20 dB below it, and the end of a fade is cut off at half a step. With noise of a triangular
//! distribution, two steps wide, mean and power of the error do not depend on the signal (S. P.
//! Lipshitz, R. A. Wannamaker, J. Vanderkooy, "Quantization and Dither: A Theoretical Survey",
//! 1992).
//!
//! Samples that are integers of the format already need no rounding, and get no noise: unprocessed
//! 16-bit audio leaves a 16-bit station bit-exact. This is detected from the samples of each block.
//! A flag that travels with the audio was the alternative; every stage would have to maintain it.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "noise of 16 bits, and steps that are powers of two"
)]

use aulos_core::{Rng, SampleFormat};

use crate::{convert, linear_pcm};

/// Rounds samples to integers, with dither unless they are integers already.
///
/// The conversions are those of [`convert`] and [`linear_pcm`] and count clipped samples like them,
/// before the noise is added. Formats of 32 bits get no dither: an `f32` has 24 significant bits.
/// All instances generate the same noise.
///
/// # Real-time
/// Allocates nothing, not even at construction.
///
/// # Examples
/// ```
/// use aulos_core::SampleFormat;
/// use aulos_dsp::Dither;
///
/// let (mut dither, mut bytes) = (Dither::default(), [0; 2]);
/// dither.encode(SampleFormat::S16Le, &[0.5], &mut bytes);
/// assert_eq!(i16::from_le_bytes(bytes), 1 << 14);
///
/// // A third of a step is 0, 1 or -1, and a third on average.
/// let mut bytes = vec![0; 60_000];
/// dither.encode(SampleFormat::S16Le, &[1.0 / 3.0 / 32_768.0; 30_000], &mut bytes);
/// let sum: i32 = bytes.as_chunks().0.iter().map(|x| i32::from(i16::from_le_bytes(*x))).sum();
/// assert!((9_500..10_500).contains(&sum));
/// ```
#[derive(Clone, Debug)]
pub struct Dither {
    /// State of one generator per vector lane.
    lanes: [u32; LANES],
}

impl Dither {
    /// [`convert::encode`] with dither.
    ///
    /// # Real-time
    /// Does not allocate; some instructions per sample.
    pub fn encode(&mut self, format: SampleFormat, samples: &[f32], out: &mut [u8]) -> usize {
        self.each(format.bits(), format.bytes(), samples, out, |samples, out| {
            convert::encode(format, samples, out)
        })
    }

    /// [`convert::to_integers`] with dither.
    ///
    /// # Real-time
    /// Does not allocate; some instructions per sample.
    pub fn to_integers(&mut self, bits: u16, samples: &[f32], out: &mut [i32]) -> usize {
        self.each(bits, 1, samples, out, |samples, out| convert::to_integers(bits, samples, out))
    }

    /// [`linear_pcm::encode_l16`] with dither.
    ///
    /// # Real-time
    /// Does not allocate; some instructions per sample.
    pub fn encode_l16(&mut self, samples: &[f32], out: &mut [u8]) -> usize {
        self.each(16, 2, samples, out, linear_pcm::encode_l16)
    }

    /// [`linear_pcm::encode_l24`] with dither.
    ///
    /// # Real-time
    /// Does not allocate; some instructions per sample.
    pub fn encode_l24(&mut self, samples: &[f32], out: &mut [u8]) -> usize {
        self.each(24, 3, samples, out, linear_pcm::encode_l24)
    }

    /// Calls `convert` with the samples as they are, or with one run of dithered samples at a time;
    /// `width` is the size of one sample in `out`.
    fn each<T>(
        &mut self,
        bits: u16,
        width: usize,
        samples: &[f32],
        out: &mut [T],
        mut convert: impl FnMut(&[f32], &mut [T]) -> usize,
    ) -> usize {
        if bits > MAX_BITS || are_integers(bits, samples) {
            return convert(samples, out);
        }
        let mut dithered = [0.0; RUN];
        let runs = samples.chunks(RUN).zip(out.chunks_mut(RUN * width));
        runs.map(|(samples, out)| {
            let dithered = &mut dithered[..samples.len()];
            self.add_noise(bits, samples, dithered);
            convert(dithered, out)
        })
        .sum()
    }

    /// Writes the samples with noise of the step size of `bits` to `dithered`.
    fn add_noise(&mut self, bits: u16, samples: &[f32], dithered: &mut [f32]) {
        let step = 1.0 / scale(bits);
        let top = 1.0 - step;
        for (samples, dithered) in samples.chunks(LANES).zip(dithered.chunks_mut(LANES)) {
            for ((state, sample), dithered) in self.lanes.iter_mut().zip(samples).zip(dithered) {
                // Xorshift (G. Marsaglia, "Xorshift RNGs", 2003).
                let mut bits = *state;
                bits ^= bits << 13;
                bits ^= bits >> 17;
                bits ^= bits << 5;
                *state = bits;
                // The sum of two uniform distributions is triangular: here from -1 to 1.
                let sum = (bits & 0xffff).cast_signed() + (bits >> 16).cast_signed() - 0xffff;
                let noise = sum as f32 * (step / 65_536.0);
                // A sample within range stays within range; others are clipped and counted.
                let within = *sample >= -1.0 && *sample <= top;
                let moved = (*sample + noise).max(-1.0).min(top);
                *dithered = if within { moved } else { *sample };
            }
        }
    }
}

impl Default for Dither {
    fn default() -> Self {
        let mut chance = Rng::new(SEED);
        let mut lanes = [0; LANES];
        for lane in &mut lanes {
            // Zero is a fixed point of xorshift.
            *lane = (chance.next_u64() >> 32) as u32 | 1;
        }
        Self { lanes }
    }
}

/// Whether all samples are integers of `bits` bits, with full scale 1.0.
fn are_integers(bits: u16, samples: &[f32]) -> bool {
    // Values around it have no bits left for a fraction; adding it changes every sample below full
    // scale that is not an integer.
    const MAGIC: f32 = 8_388_608.0;
    let scale = scale(bits);
    samples.chunks(RUN).all(|samples| {
        let fraction = samples.iter().fold(0, |fraction, sample| {
            let exact = sample.abs() * scale;
            fraction | ((exact + MAGIC) - MAGIC).to_bits() ^ exact.to_bits()
        });
        fraction == 0
    })
}

fn scale(bits: u16) -> f32 {
    (1_u32 << (bits.clamp(1, MAX_BITS) - 1)) as f32
}

/// Beyond it the noise would be below the resolution of an `f32`.
const MAX_BITS: u16 = 24;
/// As many as the widest vector has; a multiple of two, so that two channels have separate
/// generators.
const LANES: usize = 8;
/// Samples that are dithered at once and stay in the first-level cache.
const RUN: usize = 256;
/// Arbitrary: the noise of two encoders is never added.
const SEED: u64 = 16;

#[cfg(test)]
mod tests;
