//! L16 and L24: linear PCM in network byte order (RFC 3551 section 4.5.11, RFC 3190 section 4).
//!
//! The same loops as those of [`crate::convert`], with the opposite byte order. They are not in
//! [`aulos_core::SampleFormat`], because only RTP uses them.

#![allow(clippy::cast_possible_truncation, reason = "rounded into the width of the format")]

use crate::convert::{SCALE_16, SCALE_24, counted, each, round_long, round_short};

/// Converts 16 bit samples to f32; returns the number converted.
///
/// # Real-time
/// Does not allocate; a few instructions per sample.
pub fn decode_l16(bytes: &[u8], out: &mut [f32]) -> usize {
    each(bytes, out, |b| f32::from(i16::from_be_bytes(b)) / SCALE_16)
}

/// Converts 24 bit samples to f32; returns the number converted.
///
/// # Real-time
/// Does not allocate; a few instructions per sample.
#[allow(clippy::cast_precision_loss, reason = "24 bits fit")]
pub fn decode_l24(bytes: &[u8], out: &mut [f32]) -> usize {
    each(bytes, out, |[a, b, c]| (i32::from_be_bytes([a, b, c, 0]) >> 8) as f32 / SCALE_24)
}

/// Converts f32 to 16 bits; returns the number of clipped samples, by the rules of
/// [`crate::convert::encode`].
///
/// # Real-time
/// Does not allocate; a few instructions per sample.
pub fn encode_l16(samples: &[f32], out: &mut [u8]) -> usize {
    counted(samples, out, |sample| {
        let (value, clipped) = round_short(sample, SCALE_16);
        ((value as i16).to_be_bytes(), clipped)
    })
}

/// Converts f32 to 24 bits; returns the number of clipped samples.
///
/// # Real-time
/// Does not allocate; a few instructions per sample.
pub fn encode_l24(samples: &[f32], out: &mut [u8]) -> usize {
    counted(samples, out, |sample| {
        let (value, clipped) = round_long(sample, SCALE_24);
        let [_, a, b, c] = value.to_be_bytes();
        ([a, b, c], clipped)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_16_bits_survives_and_so_do_some_of_24() {
        let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_be_bytes).collect();
        let (mut samples, mut back) = (vec![0.0; 65_536], vec![0; all.len()]);
        assert_eq!(decode_l16(&all, &mut samples), 65_536);
        assert_eq!((encode_l16(&samples, &mut back), back), (0, all));

        let some: Vec<u8> = (0..1_u32 << 24)
            .step_by(251)
            .flat_map(|value| <[u8; 3]>::try_from(&value.to_be_bytes()[1..]).unwrap())
            .collect();
        let (mut samples, mut back) = (vec![0.0; some.len() / 3], vec![0; some.len()]);
        assert_eq!(decode_l24(&some, &mut samples), samples.len());
        assert_eq!((encode_l24(&samples, &mut back), back), (0, some));
    }

    #[test]
    fn the_first_byte_is_the_highest() {
        let mut samples = [0.0; 2];
        decode_l16(&[0x40, 0, 0xc0, 0], &mut samples);
        assert_eq!(samples.map(|sample| (sample * 8.0).to_string()), ["4", "-4"]);
        decode_l24(&[0x40, 0, 0, 0xc0, 0, 0], &mut samples);
        assert_eq!(samples.map(|sample| (sample * 8.0).to_string()), ["4", "-4"]);
        let mut bytes = [0; 3];
        assert_eq!(encode_l24(&[2.0], &mut bytes), 1);
        assert_eq!(bytes, [0x7f, 0xff, 0xff]);
    }
}
