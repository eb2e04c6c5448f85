//! Conversion between sample formats and `f32`.
//!
//! A loop per format, written so that the compiler vectorizes it for any build target. A function
//! pointer or a trait object per sample would have been shorter but prevents that; intrinsics would
//! be worth their `unsafe` only for packed 24 bit.
//!
//! Integers of up to 24 bits fit into an `f32` exactly, so bytes -> f32 -> bytes gives the same
//! bytes. Of 32 bits the lowest eight are rounded.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "numeric conversions are what this module is for; each says how it rounds"
)]

use aulos_core::SampleFormat;

/// Converts the samples in `bytes` to f32; returns the number converted.
///
/// That is the smaller of the whole samples in `bytes` and the length of `out`; the rest of either
/// is not touched. In `F32` input, values that are not finite become 0, so that no NaN enters the
/// signal path; other values are unchanged, also above full scale.
///
/// # Real-time
/// Does not allocate; a few instructions per sample.
///
/// # Examples
/// ```
/// use aulos_core::SampleFormat;
/// let mut samples = [0.0; 2];
/// let count = aulos_dsp::convert::decode(SampleFormat::S16Le, &[0, 0x80, 0, 0x40], &mut samples);
/// assert_eq!((count, samples), (2, [-1.0, 0.5]));
/// ```
pub fn decode(format: SampleFormat, bytes: &[u8], out: &mut [f32]) -> usize {
    match format {
        SampleFormat::U8 => each(bytes, out, |[b]| (i32::from(b) - 128) as f32 / SCALE_8),
        SampleFormat::S8 => each(bytes, out, |[b]| f32::from(b.cast_signed()) / SCALE_8),
        SampleFormat::S16Le => each(bytes, out, |b| f32::from(i16::from_le_bytes(b)) / SCALE_16),
        SampleFormat::S24Le => {
            each(bytes, out, |[a, b, c]| (i32::from_le_bytes([0, a, b, c]) >> 8) as f32 / SCALE_24)
        }
        SampleFormat::S24In32Le => {
            // The top byte is padding: some senders leave it zero instead of extending the sign.
            each(bytes, out, |b| (i32::from_le_bytes(b) << 8 >> 8) as f32 / SCALE_24)
        }
        SampleFormat::S32Le => each(bytes, out, |b| i32::from_le_bytes(b) as f32 / SCALE_32),
        SampleFormat::F32 => each(bytes, out, |b| {
            let sample = f32::from_le_bytes(b);
            if sample.abs() < f32::INFINITY { sample } else { 0.0 }
        }),
    }
}

/// Converts `samples` to bytes; returns the number of **clipped** samples: those that exceeded the
/// format's range, or were NaN.
///
/// Rounds to the nearest value, ties to even. Values beyond full scale are clipped to it; since the
/// most positive integer is one step below +1.0, a sample of exactly +1.0 is clipped. NaN becomes
/// 0. In `F32` only values that are not finite are clipped, to 0: a float has headroom.
///
/// Converts as many samples as fit into `out`; the rest of `out` is not touched.
///
/// # Real-time
/// Does not allocate; a few instructions per sample.
pub fn encode(format: SampleFormat, samples: &[f32], out: &mut [u8]) -> usize {
    match format {
        SampleFormat::U8 => counted(samples, out, |sample| {
            let (value, clipped) = round_short(sample, SCALE_8);
            ([(value + 128) as u8], clipped)
        }),
        SampleFormat::S8 => counted(samples, out, |sample| {
            let (value, clipped) = round_short(sample, SCALE_8);
            ([value as u8], clipped)
        }),
        SampleFormat::S16Le => counted(samples, out, |sample| {
            let (value, clipped) = round_short(sample, SCALE_16);
            ((value as i16).to_le_bytes(), clipped)
        }),
        SampleFormat::S24Le => counted(samples, out, |sample| {
            let (value, clipped) = round_long(sample, SCALE_24);
            let [a, b, c, _] = value.to_le_bytes();
            ([a, b, c], clipped)
        }),
        SampleFormat::S24In32Le => counted(samples, out, |sample| {
            let (value, clipped) = round_long(sample, SCALE_24);
            (value.to_le_bytes(), clipped)
        }),
        SampleFormat::S32Le => counted(samples, out, |sample| {
            let (value, clipped) = round_long(sample, SCALE_32);
            (value.to_le_bytes(), clipped)
        }),
        SampleFormat::F32 => counted(samples, out, |sample| {
            let fits = sample.abs() < f32::INFINITY;
            let kept = if fits { sample } else { 0.0 };
            (kept.to_le_bytes(), u32::from(!fits))
        }),
    }
}

/// Converts `samples` to integers of `bits` bits (1 to 24), as lossless codecs take them; returns
/// the number of clipped samples, by the rules of [`encode`].
///
/// # Real-time
/// Does not allocate.
pub fn to_integers(bits: u16, samples: &[f32], out: &mut [i32]) -> usize {
    let scale = (1u32 << (bits.clamp(1, 24) - 1)) as f32;
    let mut total = 0;
    for (out, samples) in out.chunks_mut(RUN).zip(samples.chunks(RUN)) {
        let mut clipped = 0;
        for (out, &sample) in out.iter_mut().zip(samples) {
            let (value, excess) = round_long(sample, scale);
            *out = value;
            clipped += excess;
        }
        total += clipped as usize;
    }
    total
}

#[inline(always)]
pub(crate) fn each<const N: usize>(
    bytes: &[u8],
    out: &mut [f32],
    convert: impl Fn([u8; N]) -> f32,
) -> usize {
    let (samples, _) = bytes.as_chunks::<N>();
    for (out, &bytes) in out.iter_mut().zip(samples) {
        *out = convert(bytes);
    }
    samples.len().min(out.len())
}

#[inline(always)]
pub(crate) fn counted<const N: usize>(
    samples: &[f32],
    out: &mut [u8],
    convert: impl Fn(f32) -> ([u8; N], u32),
) -> usize {
    let (out, _) = out.as_chunks_mut::<N>();
    let mut total = 0;
    // A counter as wide as a sample keeps the inner loop in vector registers.
    for (out, samples) in out.chunks_mut(RUN).zip(samples.chunks(RUN)) {
        let mut clipped = 0;
        for (out, &sample) in out.iter_mut().zip(samples) {
            let (bytes, excess) = convert(sample);
            *out = bytes;
            clipped += excess;
        }
        total += clipped as usize;
    }
    total
}

/// The nearest integer to `sample` times `scale` (a power of two, at most 2^15), and 1 if it was
/// clipped.
///
/// A number added to 1.5 * 2^23 has no bits left for a fraction, so the addition rounds, and the
/// integer is in the low bits. `round_ties_even` is a function call before SSE 4.1, and `as i32` is
/// not vectorized because of its saturation.
#[inline(always)]
pub(crate) fn round_short(sample: f32, scale: f32) -> (i32, u32) {
    const MAGIC: f32 = 12_582_912.0;
    let exact = sample * scale;
    let top = scale - 1.0;
    let fits = exact >= -scale - 0.5 && exact < top + 0.5;
    let number = if exact.is_nan() { 0.0 } else { exact };
    let number = if number > top { top } else { number };
    let number = if number < -scale { -scale } else { number };
    let value = (number + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits()).cast_signed();
    (value, u32::from(!fits))
}

/// The same for scales of up to 2^31, in f64 and with 1.5 * 2^52.
#[inline(always)]
pub(crate) fn round_long(sample: f32, scale: f32) -> (i32, u32) {
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    let scale = f64::from(scale);
    let exact = f64::from(sample) * scale;
    let top = scale - 1.0;
    let fits = exact >= -scale - 0.5 && exact < top + 0.5;
    let number = if exact.is_nan() { 0.0 } else { exact };
    let number = if number > top { top } else { number };
    let number = if number < -scale { -scale } else { number };
    ((number + MAGIC).to_bits() as i32, u32::from(!fits))
}

const SCALE_8: f32 = 128.0;
pub(crate) const SCALE_16: f32 = 32_768.0;
pub(crate) const SCALE_24: f32 = 8_388_608.0;
const SCALE_32: f32 = 2_147_483_648.0;

/// Samples whose clips are counted in 32 bits.
const RUN: usize = 1 << 16;

#[cfg(test)]
mod tests {
    #![allow(clippy::float_cmp, reason = "exact is what is promised")]

    use super::*;
    use proptest::prelude::*;

    fn round_trip(format: SampleFormat, bytes: &[u8]) -> Vec<u8> {
        let mut samples = vec![0.0; bytes.len() / format.bytes()];
        assert_eq!(decode(format, bytes, &mut samples), samples.len());
        let mut back = vec![0xEE; bytes.len()];
        assert_eq!(encode(format, &samples, &mut back), 0, "{format}: nothing may clip");
        back
    }

    #[test]
    fn every_value_of_8_16_and_24_bits_survives() {
        let all8: Vec<u8> = (0..=255).collect();
        assert_eq!(round_trip(SampleFormat::U8, &all8), all8);
        assert_eq!(round_trip(SampleFormat::S8, &all8), all8);
        let all16: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        assert_eq!(round_trip(SampleFormat::S16Le, &all16), all16);
        for part in 0..16 {
            let values = (part << 20)..((part + 1) << 20);
            let packed: Vec<u8> = values
                .clone()
                .flat_map(|v: u32| <[u8; 3]>::try_from(&v.to_le_bytes()[..3]).unwrap())
                .collect();
            assert!(round_trip(SampleFormat::S24Le, &packed) == packed);
            let padded: Vec<u8> =
                values.flat_map(|v| (v.cast_signed() << 8 >> 8).to_le_bytes()).collect();
            assert!(round_trip(SampleFormat::S24In32Le, &padded) == padded);
        }
    }

    #[test]
    fn full_scale_is_where_the_formats_have_it() {
        let cases: [(SampleFormat, &[u8], &[u8]); 6] = [
            (SampleFormat::U8, &[0x00], &[0xFF]),
            (SampleFormat::S8, &[0x80], &[0x7F]),
            (SampleFormat::S16Le, &[0x00, 0x80], &[0xFF, 0x7F]),
            (SampleFormat::S24Le, &[0, 0, 0x80], &[0xFF, 0xFF, 0x7F]),
            (SampleFormat::S24In32Le, &[0, 0, 0x80, 0xFF], &[0xFF, 0xFF, 0x7F, 0x00]),
            (SampleFormat::S32Le, &[0, 0, 0, 0x80], &[0xFF, 0xFF, 0xFF, 0x7F]),
        ];
        for (format, bottom, top) in cases {
            let mut out = vec![0; format.bytes()];
            assert_eq!(encode(format, &[-1.0], &mut out), 0, "{format}");
            assert_eq!(out, bottom, "{format}");
            for too_much in [1.0, 1.5, 1e30, f32::INFINITY] {
                assert_eq!(encode(format, &[too_much], &mut out), 1, "{format} {too_much}");
                assert_eq!(out, top, "{format} {too_much}");
                assert_eq!(encode(format, &[-too_much], &mut out), usize::from(too_much > 1.0));
                assert_eq!(out, bottom, "{format} -{too_much}");
            }
            assert_eq!(encode(format, &[f32::NAN], &mut out), 1, "{format}");
            assert!(out.iter().all(|&byte| byte == format.silence()), "{format}: NaN is silence");
        }
    }

    /// The reference is f64 arithmetic with the standard library's rounding.
    #[test]
    fn ties_go_to_the_even_value() {
        for (format, scale) in
            [(SampleFormat::S16Le, 32_768.0), (SampleFormat::S32Le, 2f64.powi(31))]
        {
            for half in -65_538i32..=65_538 {
                let exact = f64::from(half) / 2.0;
                let mut bytes = [0; 4];
                let clipped =
                    encode(format, &[(exact / scale) as f32], &mut bytes[..format.bytes()]);
                let unused = 32 - 8 * format.bytes();
                let value = i32::from_le_bytes(bytes) << unused >> unused;
                let expected = exact.round_ties_even();
                assert_eq!(f64::from(value), expected.clamp(-scale, scale - 1.0), "{exact}");
                assert_eq!(clipped == 1, expected < -scale || expected > scale - 1.0, "{exact}");
            }
        }
    }

    #[test]
    fn a_24_bit_sample_whose_padding_is_zero_keeps_its_sign() {
        let mut out = [0.0];
        decode(SampleFormat::S24In32Le, &[0, 0, 0x80, 0], &mut out);
        assert_eq!(out, [-1.0]);
    }

    #[test]
    fn floats_keep_headroom_and_nan_becomes_silence() {
        let samples = [2.5, -0.1, f32::NAN, f32::NEG_INFINITY];
        let bytes: Vec<u8> = samples.iter().flat_map(|s| s.to_le_bytes()).collect();
        let mut decoded = [9.0; 4];
        decode(SampleFormat::F32, &bytes, &mut decoded);
        assert_eq!(decoded, [2.5, -0.1, 0.0, 0.0]);
        let mut encoded = [0; 16];
        assert_eq!(encode(SampleFormat::F32, &samples, &mut encoded), 2);
        assert_eq!(encoded[..8], bytes[..8]);
        assert_eq!(encoded[8..], [0; 8]);
    }

    #[test]
    fn mismatched_lengths_convert_the_shorter_length() {
        let mut out = [9.0; 3];
        assert_eq!(decode(SampleFormat::S16Le, &[0; 5], &mut out), 2);
        assert_eq!(out, [0.0, 0.0, 9.0]);
        assert_eq!(decode(SampleFormat::S24Le, &[0; 30], &mut out), 3);
        let mut bytes = [7; 5];
        assert_eq!(encode(SampleFormat::S16Le, &[0.0; 9], &mut bytes), 0);
        assert_eq!(bytes, [0, 0, 0, 0, 7]);
        assert_eq!(encode(SampleFormat::S16Le, &[], &mut bytes), 0);
    }

    proptest! {
        /// The reference is f64 arithmetic with the standard library's rounding.
        #[test]
        fn rounding_is_to_the_nearest(sample in -1.1f32..1.1, which in 0usize..5) {
            let format = [SampleFormat::S8, SampleFormat::S16Le, SampleFormat::S24Le,
                SampleFormat::S24In32Le, SampleFormat::S32Le][which];
            let scale = 2f64.powi(i32::from(format.bits()) - 1);
            let exact = (f64::from(sample) * scale).round_ties_even();
            let expected = exact.clamp(-scale, scale - 1.0);
            let mut bytes = [0; 4];
            let clipped = encode(format, &[sample], &mut bytes[..format.bytes()]);
            let unused = 32 - 8 * format.bytes();
            let value = i32::from_le_bytes(bytes) << unused >> unused;
            prop_assert!((f64::from(value) - expected).abs() < 0.5, "{value} {expected}");
            prop_assert_eq!(clipped == 1, exact < -scale || exact > scale - 1.0);
            if format.bits() <= 24 {
                let mut integer = [0];
                prop_assert_eq!(to_integers(format.bits(), &[sample], &mut integer), clipped);
                prop_assert_eq!(integer[0], value);
            }
        }
    }
}
