//! The recording formats: one row each, and their text form.

use core::fmt;
use core::str::FromStr;

use aulos_engine::encode::{MP3_KBPS, Mp3Config, OpusPacketEncoder};

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
            Self::Mp3(config) => write!(f, "mp3:{config}"),
        }
    }
}

impl FromStr for FileFormat {
    type Err = UnknownFileFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFileFormat> {
        let (name, detail) =
            text.split_once(':').map_or((text, None), |(name, detail)| (name, Some(detail)));
        let row = FileFormatInfo::of_name(name).ok_or(UnknownFileFormat)?;
        (row.parse)(detail).ok_or(UnknownFileFormat)
    }
}

/// What is known of a recording format besides its encoder.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FileFormatInfo {
    /// Name in settings, and extension of file names without the dot.
    pub name: &'static str,
    /// Name for people.
    pub title: &'static str,
    /// Media type of a file.
    pub media_type: &'static str,
    /// The format of the text behind the colon, as in `wav:24`.
    parse: fn(Option<&str>) -> Option<FileFormat>,
    /// The format with these settings; the error says what to write.
    with: fn(FormatSettings) -> Result<FileFormat, &'static str>,
}

/// Settings of a recording format, in the notation of configuration and command line.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a plain record of settings")]
pub struct FormatSettings {
    /// Bits per sample; by default as close as possible to `usual_bits`.
    pub bits: Option<u32>,
    /// Bits per sample of the sound.
    pub usual_bits: u32,
    /// Bit rate in kbit/s of formats with a loss.
    pub kbps: Option<u32>,
    /// Encoder and usual bit rate of MP3.
    pub mp3: Mp3Config,
}

/// All recording formats.
pub static FILE_FORMATS: [FileFormatInfo; 4] = [
    FileFormatInfo {
        name: "wav",
        title: "WAVE",
        media_type: "audio/wav",
        parse: |detail| match detail {
            None | Some("16") => Some(FileFormat::Wav(WavEncoding::S16)),
            Some("24") => Some(FileFormat::Wav(WavEncoding::S24)),
            Some("f32") => Some(FileFormat::Wav(WavEncoding::F32)),
            _ => None,
        },
        with: |settings| match settings.bits.unwrap_or(settings.usual_bits) {
            16 => Ok(FileFormat::Wav(WavEncoding::S16)),
            24 => Ok(FileFormat::Wav(WavEncoding::S24)),
            32 => Ok(FileFormat::Wav(WavEncoding::F32)),
            _ => Err("bits = 16, 24 or 32, which is floating point"),
        },
    },
    FileFormatInfo {
        name: "flac",
        title: "FLAC",
        media_type: "audio/flac",
        parse: |detail| match detail {
            None | Some("16") => Some(FileFormat::Flac { bits: 16 }),
            Some("24") => Some(FileFormat::Flac { bits: 24 }),
            _ => None,
        },
        with: |settings| match (settings.bits, settings.usual_bits) {
            (Some(16), _) | (None, 16) => Ok(FileFormat::Flac { bits: 16 }),
            (Some(24) | None, _) => Ok(FileFormat::Flac { bits: 24 }),
            _ => Err("bits = 16 or 24"),
        },
    },
    FileFormatInfo {
        name: "opus",
        title: "Ogg Opus",
        media_type: "audio/ogg",
        parse: |detail| {
            let bits_per_second =
                detail.map_or(Some(OpusPacketEncoder::DEFAULT_BITRATE), bits_per_second)?;
            Some(FileFormat::Opus { bits_per_second })
        },
        with: |settings| match settings.bits {
            None => Ok(FileFormat::Opus {
                bits_per_second: settings.kbps.unwrap_or(DEFAULT_KBPS).saturating_mul(1_000),
            }),
            Some(_) => Err("kbps = 96 sets the bit rate of Opus"),
        },
    },
    FileFormatInfo {
        name: "mp3",
        title: "MP3",
        media_type: "audio/mpeg",
        parse: |detail| match detail {
            None => Some(FileFormat::Mp3(Mp3Config::default())),
            Some(detail) => Mp3Config::default().with_options(detail).ok().map(FileFormat::Mp3),
        },
        with: |settings| {
            let bitrate = match settings.kbps {
                None => settings.mp3.bitrate,
                Some(kbps) if MP3_KBPS.contains(&kbps) => kbps * 1_000,
                Some(_) => return Err(MP3_RATES),
            };
            match settings.bits {
                None => Ok(FileFormat::Mp3(Mp3Config { bitrate, ..settings.mp3 })),
                Some(_) => Err("kbps = 192 sets the bit rate of MP3"),
            }
        },
    },
];

impl FileFormatInfo {
    /// The row of a name, which is also the extension of files.
    #[must_use]
    pub fn of_name(name: &str) -> Option<&'static Self> {
        FILE_FORMATS.iter().find(|row| row.name == name)
    }

    /// The format with these settings.
    ///
    /// # Errors
    /// What to write instead, when the format does not have this number of bits or this bit rate.
    pub fn with(&self, settings: FormatSettings) -> Result<FileFormat, &'static str> {
        (self.with)(settings)
    }
}

/// The remedy for a bit rate that MP3 does not have.
const MP3_RATES: &str =
    "kbps = 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256 or 320 with mp3";

fn bits_per_second(text: &str) -> Option<u32> {
    let (number, unit) = text.strip_suffix('k').map_or((text, 1), |number| (number, 1_000));
    let rate = number.parse::<u32>().ok()?.checked_mul(unit)?;
    BITRATES.contains(&rate).then_some(rate)
}

/// Default bit rate of Opus in kbit/s: transparent for two channels.
const DEFAULT_KBPS: u32 = 160;

/// Range of Opus (RFC 6716, section 2.1.1).
const BITRATES: core::ops::RangeInclusive<u32> = 6_000..=510_000;

/// The text is not a file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownFileFormat;

impl fmt::Display for UnknownFileFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "unknown file format; expected wav:16, wav:24, wav:f32, flac:16, flac:24, or opus or mp3 \
             with bits per second, as in opus:128k (6k to 510k) or mp3:192k",
        )
    }
}

impl core::error::Error for UnknownFileFormat {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_format_parses_to_itself() {
        let texts = [
            "wav:16",
            "wav:24",
            "wav:f32",
            "flac:16",
            "flac:24",
            "opus:6k",
            "opus:64500",
            "mp3:96k",
            "mp3:128k,lame",
        ];
        for text in texts {
            let format: FileFormat = text.parse().unwrap();
            assert_eq!(format.to_string(), text);
            assert!(text.starts_with(format.extension()));
        }
        for (short, long) in
            [("wav", "wav:16"), ("flac", "flac:16"), ("opus", "opus:192k"), ("mp3", "mp3:192k")]
        {
            assert_eq!(short.parse::<FileFormat>().unwrap().to_string(), long);
        }
        for wrong in
            ["", "aac", "mp3:97k", "wav:32", "flac:20", "opus:5k", "opus:511k", "opus:", "wav:16:2"]
        {
            assert_eq!(wrong.parse::<FileFormat>(), Err(UnknownFileFormat), "{wrong}");
        }
    }
}
