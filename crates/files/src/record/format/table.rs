//! Text form of a format in configurations.

use core::fmt;
use core::str::FromStr;

use aulos_engine::encode::OpusPacketEncoder;

use super::{FileFormat, WavEncoding};

impl fmt::Display for FileFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wav(WavEncoding::S16) => f.write_str("wav:16"),
            Self::Wav(WavEncoding::S24) => f.write_str("wav:24"),
            Self::Wav(WavEncoding::F32) => f.write_str("wav:f32"),
            Self::Flac { bits } => write!(f, "flac:{bits}"),
            Self::Opus { bits_per_second } if bits_per_second.is_multiple_of(1_000) => {
                write!(f, "opus:{}k", bits_per_second / 1_000)
            }
            Self::Opus { bits_per_second } => write!(f, "opus:{bits_per_second}"),
        }
    }
}

impl FromStr for FileFormat {
    type Err = UnknownFileFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFileFormat> {
        let (kind, detail) =
            text.split_once(':').map_or((text, None), |(kind, detail)| (kind, Some(detail)));
        Ok(match (kind, detail) {
            ("wav", None | Some("16")) => Self::Wav(WavEncoding::S16),
            ("wav", Some("24")) => Self::Wav(WavEncoding::S24),
            ("wav", Some("f32")) => Self::Wav(WavEncoding::F32),
            ("flac", None | Some("16")) => Self::Flac { bits: 16 },
            ("flac", Some("24")) => Self::Flac { bits: 24 },
            ("opus", None) => Self::Opus { bits_per_second: OpusPacketEncoder::DEFAULT_BITRATE },
            ("opus", Some(rate)) => {
                Self::Opus { bits_per_second: bits_per_second(rate).ok_or(UnknownFileFormat)? }
            }
            _ => return Err(UnknownFileFormat),
        })
    }
}

fn bits_per_second(text: &str) -> Option<u32> {
    let (number, unit) = text.strip_suffix('k').map_or((text, 1), |number| (number, 1_000));
    let rate = number.parse::<u32>().ok()?.checked_mul(unit)?;
    BITRATES.contains(&rate).then_some(rate)
}

/// Range of Opus (RFC 6716, section 2.1.1).
const BITRATES: core::ops::RangeInclusive<u32> = 6_000..=510_000;

/// The text is not a file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownFileFormat;

impl fmt::Display for UnknownFileFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "unknown file format; expected wav:16, wav:24, wav:f32, flac:16, flac:24 or opus with \
             bits per second, as in opus:128k (6k to 510k)",
        )
    }
}

impl core::error::Error for UnknownFileFormat {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_format_parses_to_itself() {
        let texts = ["wav:16", "wav:24", "wav:f32", "flac:16", "flac:24", "opus:6k", "opus:64500"];
        for text in texts {
            let format: FileFormat = text.parse().unwrap();
            assert_eq!(format.to_string(), text);
            assert!(text.starts_with(format.extension()));
        }
        for (short, long) in [("wav", "wav:16"), ("flac", "flac:16"), ("opus", "opus:192k")] {
            assert_eq!(short.parse::<FileFormat>().unwrap().to_string(), long);
        }
        for wrong in ["", "mp3", "wav:32", "flac:20", "opus:5k", "opus:511k", "opus:", "wav:16:2"] {
            assert_eq!(wrong.parse::<FileFormat>(), Err(UnknownFileFormat), "{wrong}");
        }
    }
}
