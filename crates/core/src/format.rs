//! Sample formats.

use core::fmt;
use core::str::FromStr;

/// The encoding of one sample of one channel; everything is little endian.
///
/// Integers are full scale at their most negative value: -32,768 is -1.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SampleFormat {
    /// 8 bit unsigned, silence at 0x80 (WAVE).
    U8,
    /// 8 bit signed (Snapcast's `8`).
    S8,
    /// 16 bit signed.
    S16Le,
    /// 24 bit signed, packed into 3 bytes (WAVE, FLAC).
    S24Le,
    /// 24 bit signed in the low bits of 4 bytes, sign extended (ALSA's `S24_LE`, Snapcast's `24`).
    S24In32Le,
    /// 32 bit signed.
    S32Le,
    /// 32 bit IEEE float, full scale at 1.0.
    F32,
}

impl SampleFormat {
    /// Every format, in ascending size.
    pub const ALL: [Self; 7] =
        [Self::U8, Self::S8, Self::S16Le, Self::S24Le, Self::S24In32Le, Self::S32Le, Self::F32];

    /// Bytes that one sample takes in memory.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::S8 => 1,
            Self::S16Le => 2,
            Self::S24Le => 3,
            Self::S24In32Le | Self::S32Le | Self::F32 => 4,
        }
    }

    /// Bits that carry the value.
    #[must_use]
    pub const fn bits(self) -> u16 {
        match self {
            Self::U8 | Self::S8 => 8,
            Self::S16Le => 16,
            Self::S24Le | Self::S24In32Le => 24,
            Self::S32Le | Self::F32 => 32,
        }
    }

    /// The byte that encodes silence when repeated.
    #[must_use]
    pub const fn silence(self) -> u8 {
        match self {
            Self::U8 => 0x80,
            _ => 0,
        }
    }

    /// The name that [`FromStr`] parses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::S8 => "8",
            Self::S16Le => "16",
            Self::S24Le => "s24",
            Self::S24In32Le => "24",
            Self::S32Le => "32",
            Self::F32 => "f32",
        }
    }
}

impl fmt::Display for SampleFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SampleFormat {
    type Err = UnknownSampleFormat;

    /// Parses Snapcast's bit depths (`8`, `16`, `24` = 24 in 32, `32`) and the names that ffmpeg
    /// and ALSA use: `u8`, `s8`, `s16`, `s24` (packed), `s32`, `f32`, each with or without `le`.
    fn from_str(text: &str) -> Result<Self, UnknownSampleFormat> {
        let lower = text.to_ascii_lowercase();
        Ok(match lower.strip_suffix("le").unwrap_or(&lower) {
            "u8" => Self::U8,
            "8" | "s8" => Self::S8,
            "16" | "s16" | "s16_" => Self::S16Le,
            "s24" | "s24_3" => Self::S24Le,
            "24" | "s24_32" | "s24_" => Self::S24In32Le,
            "32" | "s32" | "s32_" => Self::S32Le,
            "f" | "f32" | "float" | "float_" => Self::F32,
            _ => return Err(UnknownSampleFormat),
        })
    }
}

/// Error: the text names no known sample format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownSampleFormat;

impl fmt::Display for UnknownSampleFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown sample format: use 8, 16, 24 (in 32), 32, u8, s24 (packed) or f32")
    }
}

impl core::error::Error for UnknownSampleFormat {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back() {
        for format in SampleFormat::ALL {
            assert_eq!(format.name().parse(), Ok(format));
        }
    }

    #[test]
    fn the_names_of_ffmpeg_and_alsa_are_understood() {
        assert_eq!("s16le".parse(), Ok(SampleFormat::S16Le));
        assert_eq!("S24_3LE".parse(), Ok(SampleFormat::S24Le));
        assert_eq!("S24_LE".parse(), Ok(SampleFormat::S24In32Le));
        assert_eq!("f32le".parse(), Ok(SampleFormat::F32));
        assert_eq!("12".parse::<SampleFormat>(), Err(UnknownSampleFormat));
    }
}
