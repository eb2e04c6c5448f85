//! The recording formats: a variant and a row each, their text form and their encoders.

use core::fmt;
use core::str::FromStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use aulos_engine::encode::{
    AAC_BITRATES, AacConfig, CodecConfig, MP3_KBPS, Mp3Config, OpusPacketEncoder, UnsupportedFormat,
};

use super::repair::{self, RepairError, RepairReport};
use super::{FileEncoder, FileMetadata, WavEncoding, flac, m4a, mp3, opus, wave};

/// Format of a recording. Parses and prints as `wav:16`, `wav:24`, `wav:f32`, `flac:16`, `flac:24`,
/// `opus:128k`, `mp3:192k`, `m4a:128k`; `wav` and `flac` alone mean 16 bits, `opus` and `mp3` 192
/// kb/s, `m4a` 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileFormat {
    /// Broadcast Wave; RF64 beyond 4 GiB.
    Wav(WavEncoding),
    /// FLAC; lossless at its bit depth.
    Flac {
        /// 16 or 24.
        bits: u16,
    },
    /// Opus in Ogg.
    Opus {
        /// Approximate bit rate, 6,000 to 510,000.
        bits_per_second: u32,
    },
    /// MP3 with an ID3 tag and an Info frame.
    Mp3(Mp3Config),
    /// AAC in MP4.
    M4a(AacConfig),
}

impl FileFormat {
    /// Extension of file names, without the dot.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Wav(_) => "wav",
            Self::Flac { .. } => "flac",
            Self::Opus { .. } => "opus",
            Self::Mp3(_) => "mp3",
            Self::M4a(_) => "m4a",
        }
    }
}

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
            Self::M4a(config) => write!(f, "m4a:{config}"),
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
    /// What its files begin with.
    begins: &'static [&'static [u8; 4]],
    /// See [`repair`].
    repair: fn(&File) -> Result<RepairReport, RepairError>,
    /// The format of the text behind the colon, as in `wav:24`.
    parse: fn(Option<&str>) -> Option<FileFormat>,
    /// The format with these settings; the error says what to write.
    with: fn(FormatSettings<'_>) -> Result<FileFormat, &'static str>,
}

/// Settings of a recording format, in the notation of configuration and command line.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a plain record of settings")]
pub struct FormatSettings<'a> {
    /// Bits per sample; by default as close as possible to `usual_bits`.
    pub bits: Option<u32>,
    /// Bits per sample of the sound.
    pub usual_bits: u32,
    /// Bit rate in kbit/s of formats with a loss.
    pub kbps: Option<u32>,
    /// Settings of codecs: encoders and usual bit rates.
    pub codecs: &'a [CodecConfig],
}

/// All recording formats.
pub static FILE_FORMATS: [FileFormatInfo; 5] = [
    FileFormatInfo {
        name: "wav",
        title: "WAVE",
        media_type: "audio/wav",
        begins: &[b"RIFF", b"RF64", b"BW64"],
        repair: repair::repair_wave,
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
        begins: &[b"fLaC"],
        repair: repair::repair_flac,
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
        begins: &[b"OggS"],
        repair: repair::repair_opus,
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
        begins: &[b"ID3\x04"],
        repair: repair::repair_mp3,
        parse: |detail| match detail {
            None => Some(FileFormat::Mp3(Mp3Config::default())),
            Some(detail) => Mp3Config::default().with_options(detail).ok().map(FileFormat::Mp3),
        },
        with: |settings| {
            let mut mp3 = settings.codecs.iter().filter_map(|codec| match codec {
                CodecConfig::Mp3(mp3) => Some(*mp3),
                _ => None,
            });
            let mp3 = mp3.next().unwrap_or_default();
            let bitrate = match settings.kbps {
                None => mp3.bitrate,
                Some(kbps) if MP3_KBPS.contains(&kbps) => kbps * 1_000,
                Some(_) => return Err(MP3_RATES),
            };
            match settings.bits {
                None => Ok(FileFormat::Mp3(Mp3Config { bitrate, ..mp3 })),
                Some(_) => Err("kbps = 192 sets the bit rate of MP3"),
            }
        },
    },
    FileFormatInfo {
        name: "m4a",
        title: "M4A",
        media_type: "audio/mp4",
        begins: &[b"\0\0\0\x20"],
        repair: m4a::repair_m4a,
        parse: |detail| match detail {
            None => Some(FileFormat::M4a(AacConfig::default())),
            Some(detail) => AacConfig::default().with_options(detail).ok().map(FileFormat::M4a),
        },
        with: |settings| {
            let mut aac = settings.codecs.iter().filter_map(|codec| match codec {
                CodecConfig::Aac(aac) => Some(*aac),
                _ => None,
            });
            let aac = aac.next().unwrap_or_default();
            let bitrate = match settings.kbps {
                None => aac.bitrate,
                Some(kbps) if AAC_BITRATES.contains(&kbps.saturating_mul(1_000)) => kbps * 1_000,
                Some(_) => return Err("kbps = 32 to 510 with m4a"),
            };
            match settings.bits {
                None => Ok(FileFormat::M4a(AacConfig { bitrate })),
                Some(_) => Err("kbps = 128 sets the bit rate of M4A"),
            }
        },
    },
];

/// The names of all formats, for usage lines.
pub const FILE_FORMAT_NAMES: &str = "wav|flac|opus|mp3|m4a";

impl FileFormatInfo {
    /// What `text` gives for each format, as a list of alternatives: `a, b or c`.
    pub fn alternatives(text: impl Fn(&Self) -> String) -> String {
        let texts: Vec<_> = FILE_FORMATS.iter().map(text).collect();
        let [head @ .., last] = &*texts else { return String::new() };
        format!("{} or {last}", head.join(", "))
    }

    /// The row of a name, which is also the extension of files.
    #[must_use]
    pub fn of_name(name: &str) -> Option<&'static Self> {
        FILE_FORMATS.iter().find(|row| row.name == name)
    }

    /// The format with these settings.
    ///
    /// # Errors
    /// What to write instead, when the format does not have this number of bits or this bit rate.
    pub fn with(&self, settings: FormatSettings<'_>) -> Result<FileFormat, &'static str> {
        (self.with)(settings)
    }
}

/// Begins a file: appends its header to `out`.
///
/// # Errors
/// [`UnsupportedFileFormat`] when the format cannot store the sound.
///
/// # Examples
/// ```
/// use aulos_core::{ChannelLayout, Frames, SampleRate};
/// use aulos_files::record::format::{FileFormat, FileMetadata, make_file_encoder};
///
/// let format: FileFormat = "flac:24".parse()?;
/// let start = std::time::UNIX_EPOCH;
/// let metadata = FileMetadata::new(SampleRate::HZ_48000, ChannelLayout::STEREO, "Hall", start);
/// let (mut file, mut out, mut patches) = (Vec::new(), Vec::new(), Vec::new());
/// let mut encoder = make_file_encoder(format, &metadata, &mut out)?;
/// for round in 0..50 {
///     encoder.write(&[0.25; 2 * 960], &mut out)?;
///     if round % 10 == 9 {
///         encoder.flush(&mut out, &mut patches);
///     }
///     file.append(&mut out);
///     for patch in patches.drain(..) {
///         let at = patch.at() as usize;
///         file[at..at + patch.bytes().len()].copy_from_slice(patch.bytes());
///     }
/// }
/// assert_eq!(encoder.frames(), Frames(48_000));
/// encoder.finish(&mut out, &mut patches)?;
/// let next = metadata.after(Frames(48_000));
/// assert_eq!(next.time_reference, Frames(48_000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn make_file_encoder(
    format: FileFormat,
    metadata: &FileMetadata,
    out: &mut Vec<u8>,
) -> Result<Box<dyn FileEncoder>, UnsupportedFileFormat> {
    let unsupported = |reason| UnsupportedFileFormat { format, reason };
    Ok(match format {
        FileFormat::Wav(samples) => Box::new(wave::make_encoder(samples, metadata, out)),
        FileFormat::Flac { bits } => {
            Box::new(flac::FlacFileEncoder::new(bits, metadata, out).map_err(unsupported)?)
        }
        FileFormat::Opus { bits_per_second } => {
            Box::new(opus::make_encoder(bits_per_second, metadata, out).map_err(unsupported)?)
        }
        FileFormat::Mp3(config) => {
            Box::new(mp3::Mp3FileEncoder::new(config, metadata, out).map_err(unsupported)?)
        }
        FileFormat::M4a(config) => {
            Box::new(m4a::M4aFileEncoder::new(config, metadata, out).map_err(unsupported)?)
        }
    })
}

/// A format that cannot store the sound of a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnsupportedFileFormat {
    /// The format.
    pub format: FileFormat,
    /// Reason.
    pub reason: UnsupportedFormat,
}

impl fmt::Display for UnsupportedFileFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instead = match (self.format, self.reason) {
            (FileFormat::Opus { .. }, UnsupportedFormat::Rate(_)) => {
                "record flac or wav, or run the station at 48000 Hz"
            }
            (FileFormat::Opus { .. } | FileFormat::Mp3(_) | FileFormat::M4a(_), _) => {
                "record flac or wav"
            }
            _ => "record wav",
        };
        write!(f, "{}: {instead}", self.reason)
    }
}

impl core::error::Error for UnsupportedFileFormat {}

/// Repairs the recording in `file`: WAVE, FLAC, Ogg Opus, MP3 or M4A, identified by its first
/// bytes. The file must be open for reading and writing.
///
/// Reads FLAC, Opus and MP3 completely, in pieces; of WAVE only the header, of M4A
/// the heads of its fragments. If the process is
/// killed meanwhile, it can be called again. Does not sync.
///
/// # Errors
/// [`RepairError`]; the file is unchanged, unless the disk failed during the repair.
pub fn repair(file: &File) -> Result<RepairReport, RepairError> {
    let mut magic = [0; 4];
    match file.read_exact_at(&mut magic, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(RepairError::Empty);
        }
        Err(error) => return Err(error.into()),
    }
    let row = FILE_FORMATS.iter().find(|row| row.begins.contains(&&magic));
    row.map_or(Err(RepairError::UnknownFormat), |row| (row.repair)(file))
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
            "unknown file format; expected wav:16, wav:24, wav:f32, flac:16, flac:24, or opus, mp3 \
             or m4a with bits per second, as in opus:128k (6k to 510k), mp3:192k or m4a:128k",
        )
    }
}

impl core::error::Error for UnknownFileFormat {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_lines_name_every_format() {
        assert_eq!(FILE_FORMATS.each_ref().map(|row| row.name).join("|"), FILE_FORMAT_NAMES);
        let titles = FileFormatInfo::alternatives(|row| row.title.to_owned());
        assert_eq!(titles, "WAVE, FLAC, Ogg Opus, MP3 or M4A");
    }

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
            "m4a:64k",
        ];
        for text in texts {
            let format: FileFormat = text.parse().unwrap();
            assert_eq!(format.to_string(), text);
            assert!(text.starts_with(format.extension()));
        }
        for (short, long) in [
            ("wav", "wav:16"),
            ("flac", "flac:16"),
            ("opus", "opus:192k"),
            ("mp3", "mp3:192k"),
            ("m4a", "m4a:128k"),
        ] {
            assert_eq!(short.parse::<FileFormat>().unwrap().to_string(), long);
        }
        for wrong in
            ["", "aac", "mp3:97k", "wav:32", "flac:20", "opus:5k", "opus:511k", "opus:", "wav:16:2"]
        {
            assert_eq!(wrong.parse::<FileFormat>(), Err(UnknownFileFormat), "{wrong}");
        }
    }
}
