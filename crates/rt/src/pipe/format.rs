//! Sample encodings: size of a sample, its silence, and its attenuation. A pipe needs no other
//! knowledge of audio, so it serves any format.

/// Encoding of one sample, little-endian where that matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SampleEncoding {
    /// Not audio, or unknown: single bytes, silence is 0.
    #[default]
    Bytes,
    /// Unsigned 8 bit, silence is 0x80.
    U8,
    /// G.711 mu-law, silence is 0xFF.
    MuLaw,
    /// G.711 A-law, silence is 0xD5.
    ALaw,
    /// Signed 16 bit.
    S16Le,
    /// Signed 24 bit in three bytes.
    S24Le,
    /// Signed 32 bit, and 24 bit sign-extended to 32.
    S32Le,
    /// 32-bit float.
    F32Le,
}

impl SampleEncoding {
    /// Size of one sample in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bytes | Self::U8 | Self::MuLaw | Self::ALaw => 1,
            Self::S16Le => 2,
            Self::S24Le => 3,
            Self::S32Le | Self::F32Le => 4,
        }
    }

    /// The byte that encodes silence (ITU-T G.711 clauses 3.3 and 4: the smallest positive code of
    /// either law, with the inversions that the law prescribes).
    #[must_use]
    pub const fn silence(self) -> u8 {
        match self {
            Self::U8 => 0x80,
            Self::MuLaw => 0xff,
            Self::ALaw => 0xd5,
            Self::Bytes | Self::S16Le | Self::S24Le | Self::S32Le | Self::F32Le => 0,
        }
    }

    /// Whether [`SampleEncoding::scale`] supports this encoding.
    pub(super) const fn can_fade(self) -> bool {
        matches!(self, Self::U8 | Self::S16Le | Self::S24Le | Self::S32Le | Self::F32Le)
    }

    /// Multiplies every sample of `bytes` by `gain / 2^16`, for a gain from 0 to 2^16.
    pub(super) fn scale(self, bytes: &mut [u8], gain: u32) {
        match self {
            Self::Bytes | Self::MuLaw | Self::ALaw => {}
            Self::U8 => {
                for byte in bytes {
                    let signed = i32::from(*byte) - 0x80;
                    *byte = low_byte(scaled(signed, gain) + 0x80);
                }
            }
            Self::S16Le => each(bytes, |b: [u8; 2]| {
                let [low, high, ..] = scaled(i16::from_le_bytes(b).into(), gain).to_le_bytes();
                [low, high]
            }),
            Self::S24Le => each(bytes, |[a, b, c]: [u8; 3]| {
                // In the upper three bytes the sign bit is in the right place.
                let [_, a, b, c] = scaled(i32::from_le_bytes([0, a, b, c]), gain).to_le_bytes();
                [a, b, c]
            }),
            Self::S32Le => {
                each(bytes, |b: [u8; 4]| scaled(i32::from_le_bytes(b), gain).to_le_bytes());
            }
            Self::F32Le => {
                #[allow(clippy::cast_precision_loss, reason = "at most 2^16, exact in f32")]
                let factor = gain as f32 / 65_536.0;
                each(bytes, |b: [u8; 4]| (f32::from_le_bytes(b) * factor).to_le_bytes());
            }
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "smaller than the sample, which fits")]
fn scaled(sample: i32, gain: u32) -> i32 {
    (i64::from(sample) * i64::from(gain) / 65_536) as i32
}

fn low_byte(value: i32) -> u8 {
    let [low, ..] = value.to_le_bytes();
    low
}

fn each<const N: usize>(bytes: &mut [u8], change: impl Fn([u8; N]) -> [u8; N]) {
    let (samples, _) = bytes.as_chunks_mut::<N>();
    for sample in samples {
        *sample = change(*sample);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_as_loud_in_every_format() {
        let half = |sample: SampleEncoding, bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            sample.scale(&mut bytes, 1 << 15);
            bytes
        };
        assert_eq!(half(SampleEncoding::U8, &[0x80, 0xc0, 0x00]), [0x80, 0xa0, 0x40]);
        assert_eq!(
            half(SampleEncoding::S16Le, &(-3000_i16).to_le_bytes()),
            (-1500_i16).to_le_bytes()
        );
        assert_eq!(half(SampleEncoding::S24Le, &[0, 0, 0x80]), [0, 0, 0xc0]);
        assert_eq!(
            half(SampleEncoding::S32Le, &i32::MIN.to_le_bytes()),
            (i32::MIN / 2).to_le_bytes()
        );
        assert_eq!(half(SampleEncoding::F32Le, &0.5_f32.to_le_bytes()), 0.25_f32.to_le_bytes());
    }

    #[test]
    fn silence_and_full_gain_do_not_change() {
        for sample in [
            SampleEncoding::U8,
            SampleEncoding::S16Le,
            SampleEncoding::S24Le,
            SampleEncoding::S32Le,
            SampleEncoding::F32Le,
        ] {
            let mut bytes = vec![sample.silence(); 12];
            sample.scale(&mut bytes, 1234);
            assert_eq!(bytes, [sample.silence(); 12], "{sample:?}");
            let loud: Vec<u8> = (0..12).map(|i| i * 9).collect();
            let mut bytes = loud.clone();
            sample.scale(&mut bytes, 1 << 16);
            assert_eq!(bytes, loud, "{sample:?}");
        }
    }
}
