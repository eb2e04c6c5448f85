//! G.722 at 64 kbit/s: wideband speech at 16 kHz.
//!
//! Two sub-bands, each with an adaptive predictor and an adaptive quantizer; six bits for the lower
//! band and two for the upper. Written from the algorithm and the tables of ITU-T G.722, whose
//! block names are in the comments: all arithmetic is in integers, and both ends must compute
//! exactly the same, or they diverge.
//!
//! In RTP its clock rate is 8,000 by a historical error (RFC 3551 section 4.5.2): a byte is one
//! clock unit, and two samples.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "fixed point arithmetic: every narrowing follows a clamp"
)]

use crate::convert::round_short;

/// Encodes two samples to a byte.
#[derive(Clone, Debug)]
pub struct G722Encoder {
    low: SubBand,
    high: SubBand,
    history: [i32; TAPS],
}

impl G722Encoder {
    /// An encoder in its initial state.
    #[must_use]
    pub const fn new() -> Self {
        Self { low: SubBand::low(), high: SubBand::high(), history: [0; TAPS] }
    }

    /// Encodes pairs of samples, as many as fit into `out`; returns the number of bytes. Samples
    /// beyond full scale are clipped, and NaN becomes silence.
    ///
    /// # Real-time
    /// Does not allocate; some 300 instructions per byte.
    pub fn encode(&mut self, samples: &[f32], out: &mut [u8]) -> usize {
        let pairs = samples.as_chunks::<2>().0;
        for (out, pair) in out.iter_mut().zip(pairs) {
            *out = self.encode_pair(pair.map(|sample| round_short(sample, 32_768.0).0));
        }
        pairs.len().min(out.len())
    }

    fn encode_pair(&mut self, pair: [i32; 2]) -> u8 {
        // TRANSMIT QMF.
        push(&mut self.history, pair);
        let (mut odd, mut even) = (0, 0);
        for (index, pair) in self.history.as_chunks::<2>().0.iter().enumerate() {
            odd += pair[0] * QMF[index];
            even += pair[1] * QMF[TAPS / 2 - 1 - index];
        }
        let (low, high) = ((even + odd) >> 14, (even - odd) >> 14);

        // SUBTRA, QUANTL: the prediction error, in steps.
        let error = saturate(low - self.low.predicted);
        let magnitude = if error < 0 { -(error + 1) } else { error };
        let steps = DECISIONS[1..30]
            .iter()
            .position(|&level| magnitude < (level * self.low.step) >> 12)
            .unwrap_or(29);
        let code = match (error < 0, steps) {
            // The two outermost negative ones have the remaining codes.
            (true, 0 | 1) => 63 - steps,
            (true, _) => 33 - steps,
            (false, _) => 61 - steps,
        };
        self.low.adapt_low(code);

        // SUBTRA, QUANTH.
        let error = saturate(high - self.high.predicted);
        let magnitude = if error < 0 { -(error + 1) } else { error };
        let is_large = magnitude >= (HIGH_DECISION * self.high.step) >> 12;
        let upper = match (error < 0, is_large) {
            (true, true) => 0,
            (true, false) => 1,
            (false, true) => 2,
            (false, false) => 3,
        };
        self.high.adapt_high(upper);
        (upper << 6 | code) as u8
    }
}

impl Default for G722Encoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Decodes a byte to two samples.
#[derive(Clone, Debug)]
pub struct G722Decoder {
    low: SubBand,
    high: SubBand,
    history: [i32; TAPS],
}

impl G722Decoder {
    /// A decoder in its initial state.
    #[must_use]
    pub const fn new() -> Self {
        Self { low: SubBand::low(), high: SubBand::high(), history: [0; TAPS] }
    }

    /// Decodes bytes to pairs of samples, as many as fit into `out`; returns the number of samples.
    ///
    /// # Real-time
    /// Does not allocate; some 200 instructions per byte.
    pub fn decode(&mut self, bytes: &[u8], out: &mut [f32]) -> usize {
        let pairs = out.as_chunks_mut::<2>().0;
        let length = 2 * bytes.len().min(pairs.len());
        for (pair, &byte) in pairs.iter_mut().zip(bytes) {
            *pair = self.decode_byte(byte).map(|sample| f32::from(sample) / 32_768.0);
        }
        length
    }

    fn decode_byte(&mut self, byte: u8) -> [i16; 2] {
        let (code, upper) = (usize::from(byte & 0x3f), usize::from(byte >> 6));
        // INVQBL, LIMIT: the lower band with all of its six bits.
        let difference = (self.low.step * LEVELS_6[code]) >> 15;
        let low = (self.low.predicted + difference).clamp(-16_384, 16_383);
        self.low.adapt_low(code);
        let difference = (self.high.step * LEVELS_2[upper]) >> 15;
        let high = (self.high.predicted + difference).clamp(-16_384, 16_383);
        self.high.adapt_high(upper);

        // RECEIVE QMF.
        push(&mut self.history, [low + high, low - high]);
        let (mut first, mut second) = (0, 0);
        for (index, pair) in self.history.as_chunks::<2>().0.iter().enumerate() {
            second += pair[0] * QMF[index];
            first += pair[1] * QMF[TAPS / 2 - 1 - index];
        }
        [saturate(first >> 11) as i16, saturate(second >> 11) as i16]
    }
}

impl Default for G722Decoder {
    fn default() -> Self {
        Self::new()
    }
}

/// State of a sub-band in encoder and decoder: the predictor of two poles and six zeros, and the
/// step size.
#[derive(Clone, Debug)]
struct SubBand {
    /// The predicted sample, and the zeros' share of it.
    predicted: i32,
    by_zeros: i32,
    /// The step size and its logarithm.
    step: i32,
    log_step: i32,
    poles: [i32; 2],
    zeros: [i32; 6],
    /// The last two reconstructed samples, the signs of the last two differences plus the zeros'
    /// share, and the last six differences.
    past: [i32; 2],
    partial: [i32; 2],
    differences: [i32; 6],
}

impl SubBand {
    const fn new(step: i32) -> Self {
        Self {
            predicted: 0,
            by_zeros: 0,
            step,
            log_step: 0,
            poles: [0; 2],
            zeros: [0; 6],
            past: [0; 2],
            partial: [0; 2],
            differences: [0; 6],
        }
    }

    const fn low() -> Self {
        Self::new(step_of(0, 8))
    }

    const fn high() -> Self {
        Self::new(step_of(0, 10))
    }

    /// The lower band adapts to the upper four of its six bits: the other two may be replaced by
    /// data on the way.
    fn adapt_low(&mut self, code: usize) {
        let difference = (self.step * LEVELS_4[code >> 2]) >> 15;
        // LOGSCL, SCALEL.
        let grown = ((self.log_step * 127) >> 7) + LOW_GROWTH[code >> 2];
        self.log_step = grown.clamp(0, 18_432);
        self.step = step_of(self.log_step, 8);
        self.predict(difference);
    }

    fn adapt_high(&mut self, code: usize) {
        let difference = (self.step * LEVELS_2[code]) >> 15;
        // LOGSCH, SCALEH.
        let grown = ((self.log_step * 127) >> 7) + HIGH_GROWTH[code];
        self.log_step = grown.clamp(0, 22_528);
        self.step = step_of(self.log_step, 10);
        self.predict(difference);
    }

    fn predict(&mut self, difference: i32) {
        // RECONS, PARREC.
        let sample = saturate(self.predicted + difference);
        let partial = saturate(self.by_zeros + difference);
        let same = |other: i32| (partial < 0) == (other < 0);
        let [same_1, same_2] = self.partial.map(same);

        // UPPOL2.
        let lean = saturate(self.poles[0] * 4);
        let lean = if same_1 { -lean } else { lean }.min(32_767) >> 7;
        let towards = if same_2 { 128 } else { -128 };
        let second = (lean + towards + ((self.poles[1] * 32_512) >> 15)).clamp(-12_288, 12_288);
        // UPPOL1.
        let towards = if same_1 { 192 } else { -192 };
        let bound = saturate(15_360 - second);
        let first = saturate(towards + ((self.poles[0] * 32_640) >> 15)).clamp(-bound, bound);
        self.poles = [first, second];
        // UPZERO.
        let towards = if difference == 0 { 0 } else { 128 };
        for (zero, &past) in self.zeros.iter_mut().zip(&self.differences) {
            let sign = (past < 0) == (difference < 0);
            *zero = saturate(if sign { towards } else { -towards } + ((*zero * 32_640) >> 15));
        }
        // DELAYA.
        self.differences.rotate_right(1);
        self.differences[0] = difference;
        self.past = [sample, self.past[0]];
        self.partial = [partial, self.partial[0]];
        // FILTEP, FILTEZ, PREDIC.
        let twice = |value: i32| saturate(2 * value);
        let by_poles = saturate(
            ((first * twice(self.past[0])) >> 15) + ((second * twice(self.past[1])) >> 15),
        );
        let products = self.zeros.iter().zip(&self.differences);
        self.by_zeros = saturate(products.map(|(zero, past)| (zero * twice(*past)) >> 15).sum());
        self.predicted = saturate(by_poles + self.by_zeros);
    }
}

/// The inverse of a base-2 logarithm in steps of 1/2,048.
const fn step_of(log: i32, offset: i32) -> i32 {
    let mantissa = POWERS[((log >> 6) & 31) as usize];
    let shift = offset - (log >> 11);
    (if shift < 0 { mantissa << -shift } else { mantissa >> shift }) << 2
}

fn push(history: &mut [i32; TAPS], pair: [i32; 2]) {
    history.copy_within(2.., 0);
    history[TAPS - 2..].copy_from_slice(&pair);
}

const fn saturate(value: i32) -> i32 {
    if value > 32_767 {
        32_767
    } else if value < -32_768 {
        -32_768
    } else {
        value
    }
}

/// The filter that splits the bands, every second coefficient (table 11/G.722).
const QMF: [i32; TAPS / 2] = [3, -11, 12, 32, -210, 951, 3_876, -805, 362, -156, 53, -11];
const TAPS: usize = 24;

/// The decision levels of the lower band, in steps (table 14/G.722).
const DECISIONS: [i32; 30] = [
    0, 35, 72, 110, 150, 190, 233, 276, 323, 370, 422, 473, 530, 587, 650, 714, 786, 858, 940,
    1_023, 1_121, 1_219, 1_339, 1_458, 1_612, 1_765, 1_980, 2_195, 2_557, 2_919,
];
const HIGH_DECISION: i32 = 564;

/// The values of the codes, in steps: of the lower band with six bits and with four, of the upper
/// with two.
const LEVELS_6: [i32; 64] = [
    -136, -136, -136, -136, -24_808, -21_904, -19_008, -16_704, -14_984, -13_512, -12_280, -11_192,
    -10_232, -9_360, -8_576, -7_856, -7_192, -6_576, -6_000, -5_456, -4_944, -4_464, -4_008,
    -3_576, -3_168, -2_776, -2_400, -2_032, -1_688, -1_360, -1_040, -728, 24_808, 21_904, 19_008,
    16_704, 14_984, 13_512, 12_280, 11_192, 10_232, 9_360, 8_576, 7_856, 7_192, 6_576, 6_000,
    5_456, 4_944, 4_464, 4_008, 3_576, 3_168, 2_776, 2_400, 2_032, 1_688, 1_360, 1_040, 728, 432,
    136, -432, -136,
];
const LEVELS_4: [i32; 16] = [
    0, -20_456, -12_896, -8_968, -6_288, -4_240, -2_584, -1_200, 20_456, 12_896, 8_968, 6_288,
    4_240, 2_584, 1_200, 0,
];
const LEVELS_2: [i32; 4] = [-7_408, -1_616, 7_408, 1_616];

/// Change of the step's logarithm after each code.
const LOW_GROWTH: [i32; 16] =
    [-60, 3_042, 1_198, 538, 334, 172, 58, -30, 3_042, 1_198, 538, 334, 172, 58, -30, -60];
const HIGH_GROWTH: [i32; 4] = [798, -214, 798, -214];

/// 2,048 times two to the power of 0/32 to 31/32.
const POWERS: [i32; 32] = [
    2_048, 2_093, 2_139, 2_186, 2_233, 2_282, 2_332, 2_383, 2_435, 2_489, 2_543, 2_599, 2_656,
    2_714, 2_774, 2_834, 2_896, 2_960, 3_025, 3_091, 3_158, 3_228, 3_298, 3_371, 3_444, 3_520,
    3_597, 3_676, 3_756, 3_838, 3_922, 4_008,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tone_is_decoded_with_a_delay_of_22_samples() {
        let tone = |at: f32| 0.5 * (at * 0.3).sin();
        let samples: Vec<f32> = (0_u16..16_000).map(|at| tone(f32::from(at))).collect();
        let (mut bytes, mut back) = (vec![0; 8_000], vec![0.0; 16_000]);
        assert_eq!(G722Encoder::new().encode(&samples, &mut bytes), 8_000);
        assert_eq!(G722Decoder::new().decode(&bytes, &mut back), 16_000);
        let noise: f32 = samples[..15_978]
            .iter()
            .zip(&back[22..])
            .skip(1_000)
            .map(|(sent, heard)| (sent - heard).powi(2))
            .sum();
        let signal: f32 = samples.iter().map(|sample| sample.powi(2)).sum();
        let snr = 10.0 * (signal / noise).log10();
        assert!(snr > 35.0, "{snr} dB");
    }

    #[test]
    fn encoding_in_pieces_equals_encoding_at_once() {
        let samples: Vec<f32> = (0_u16..640).map(|at| (f32::from(at) * 0.11).sin()).collect();
        let mut whole = [0; 320];
        G722Encoder::new().encode(&samples, &mut whole);
        let (mut encoder, mut pieces) = (G722Encoder::new(), [0; 320]);
        for (samples, out) in samples.chunks(66).zip(pieces.chunks_mut(33)) {
            assert_eq!(encoder.encode(samples, out), out.len());
        }
        assert_eq!(pieces, whole);
    }

    #[test]
    fn any_bytes_are_survived() {
        let mut decoder = G722Decoder::new();
        let mut out = [0.0; 2_000];
        for pattern in [[0_u8; 4], [255; 4], [0, 255, 0, 255], [0x3f, 0xc0, 0x04, 0x84]] {
            let bytes: Vec<u8> = pattern.into_iter().cycle().take(1_000).collect();
            assert_eq!(decoder.decode(&bytes, &mut out), 2_000);
            assert!(out.iter().all(|sample| sample.abs() <= 1.0));
        }
    }
}
