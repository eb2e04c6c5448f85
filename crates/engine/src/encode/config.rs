//! A codec with its encoder settings, in the notation of the configuration file.
//!
//! ```text
//!  pcm    flac    flac:8    opus    opus:128k    opus:96k,cbr    opus:128k,complexity=5
//!  mp3    mp3:128k    mp3:192k,lame
//!  opus:BITRATE:128000,COMPLEXITY:10                              as snapserver writes it
//! ```

use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;

use aulos_core::{Codec, SampleSpec, Span};

use super::{Mp3Config, Mp3ConfigError};

/// A codec and its encoder settings. Parses and prints as `flac:5` or `opus:128k,cbr`; default
/// settings are not printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "one variant for each codec")]
pub enum CodecConfig {
    /// Uncompressed samples.
    Pcm,
    /// Lossless compression.
    Flac {
        /// Compression level, 0 (least work) to 8 (smallest).
        level: u8,
    },
    /// Lossy compression.
    Opus(OpusConfig),
    /// Lossy compression that every player knows; not for a station's clients.
    Mp3(Mp3Config),
}

/// Settings of the Opus encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a plain record of settings")]
pub struct OpusConfig {
    /// Average bits per second, 6,000 to 510,000.
    pub bitrate: u32,
    /// Rate control of the encoder.
    pub rate_control: RateControl,
    /// 0 (least work) to 10 (best).
    pub complexity: u8,
}

/// Rate control of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[allow(clippy::exhaustive_enums, reason = "what the encoder has")]
pub enum RateControl {
    /// Constrained variable bit rate: silent packets are small, demanding ones have up to twice
    /// their share, and the average is the bit rate.
    #[default]
    Vbr,
    /// Constant bit rate: every packet has the same size.
    Cbr,
}

impl Default for OpusConfig {
    fn default() -> Self {
        Self {
            bitrate: DEFAULT_BITRATE,
            rate_control: RateControl::default(),
            complexity: MAX_COMPLEXITY,
        }
    }
}

impl OpusConfig {
    /// The same with every value in its range.
    #[must_use]
    pub fn clamped(self) -> Self {
        let bitrate = self.bitrate.clamp(*BITRATES.start(), *BITRATES.end());
        Self { bitrate, complexity: self.complexity.min(MAX_COMPLEXITY), ..self }
    }
}

impl CodecConfig {
    /// The codec without its settings.
    #[must_use]
    pub const fn codec(self) -> Codec {
        match self {
            Self::Pcm => Codec::Pcm,
            Self::Flac { .. } => Codec::Flac,
            Self::Opus(_) => Codec::Opus,
            Self::Mp3(_) => Codec::Mp3,
        }
    }

    /// Bits per second of sound of this spec, where they do not depend on the content.
    #[must_use]
    pub fn bitrate(self, spec: SampleSpec) -> Option<u32> {
        match self {
            Self::Opus(opus) => Some(opus.bitrate),
            Self::Mp3(mp3) => Some(mp3.bitrate_at(spec.rate)),
            Self::Flac { .. } => None,
            Self::Pcm => u32::try_from(spec.bytes(spec.rate.frames(Span::from_secs(1))) * 8).ok(),
        }
    }

    /// `self` if it configures `codec`, otherwise that codec with default settings.
    #[must_use]
    pub fn or_default_of(self, codec: Codec) -> Self {
        if self.codec() == codec { self } else { codec.into() }
    }
}

impl From<Codec> for CodecConfig {
    /// The codec with its default settings.
    fn from(codec: Codec) -> Self {
        match codec {
            Codec::Pcm => Self::Pcm,
            Codec::Flac => Self::Flac { level: DEFAULT_LEVEL },
            Codec::Opus => Self::Opus(OpusConfig::default()),
            Codec::Mp3 => Self::Mp3(Mp3Config::default()),
        }
    }
}

impl fmt::Display for CodecConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.codec().name())?;
        match *self {
            Self::Flac { level } if level != DEFAULT_LEVEL => write!(f, ":{level}"),
            Self::Opus(opus) if opus != OpusConfig::default() => write!(f, ":{opus}"),
            Self::Mp3(mp3) if mp3 != Mp3Config::default() => write!(f, ":{mp3}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for OpusConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bitrate {
            bitrate if bitrate.is_multiple_of(1_000) => write!(f, "{}k", bitrate / 1_000)?,
            bitrate => write!(f, "{bitrate}")?,
        }
        if self.rate_control == RateControl::Cbr {
            f.write_str(",cbr")?;
        }
        if self.complexity != MAX_COMPLEXITY {
            write!(f, ",complexity={}", self.complexity)?;
        }
        Ok(())
    }
}

impl FromStr for CodecConfig {
    type Err = CodecConfigError;

    fn from_str(text: &str) -> Result<Self, CodecConfigError> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let codec: Codec = name.parse().map_err(|_| CodecConfigError::UnknownCodec)?;
        match codec {
            _ if options.is_empty() => Ok(codec.into()),
            Codec::Pcm => Err(CodecConfigError::NoSettings),
            Codec::Flac => options
                .parse()
                .ok()
                .filter(|level| LEVELS.contains(level))
                .map(|level| Self::Flac { level })
                .ok_or(CodecConfigError::Level),
            Codec::Opus => opus(options).map(Self::Opus),
            Codec::Mp3 => {
                let config = Mp3Config::default().with_options(options);
                config.map(Self::Mp3).map_err(CodecConfigError::Mp3)
            }
        }
    }
}

fn opus(options: &str) -> Result<OpusConfig, CodecConfigError> {
    let (mut bitrate, mut rate_control, mut complexity) = (None, None, None);
    for option in options.split(',') {
        let option = option.trim().to_ascii_lowercase();
        let (key, value) = match option.split_once(['=', ':']) {
            Some((key, value)) => (key, value),
            None if option.starts_with(|c: char| c.is_ascii_digit()) => ("", option.as_str()),
            None => (option.as_str(), ""),
        };
        let repeated = match (key, value) {
            ("", "") => return Err(CodecConfigError::UnknownOption),
            ("" | "bitrate", value) => bitrate.replace(parse_bitrate(value)?).is_some(),
            ("complexity", value) => complexity.replace(parse_complexity(value)?).is_some(),
            ("vbr", "") => rate_control.replace(RateControl::Vbr).is_some(),
            ("cbr", "") => rate_control.replace(RateControl::Cbr).is_some(),
            _ => return Err(CodecConfigError::UnknownOption),
        };
        if repeated {
            return Err(CodecConfigError::Repeated);
        }
    }
    let default = OpusConfig::default();
    Ok(OpusConfig {
        bitrate: bitrate.unwrap_or(default.bitrate),
        rate_control: rate_control.unwrap_or(default.rate_control),
        complexity: complexity.unwrap_or(default.complexity),
    })
}

/// Parses bits per second: `128000`, `128k`, or snapserver's `max` and `auto`.
fn parse_bitrate(text: &str) -> Result<u32, CodecConfigError> {
    match text {
        "max" => return Ok(*BITRATES.end()),
        "auto" => return Ok(DEFAULT_BITRATE),
        _ => {}
    }
    let (number, unit) = text.strip_suffix('k').map_or((text, 1), |number| (number, 1_000));
    let rate = number.parse::<u32>().ok().and_then(|number| number.checked_mul(unit));
    match rate {
        // snapserver accepts this value; no packet can carry it.
        Some(SNAPSERVER_MAX_BITRATE) => Ok(*BITRATES.end()),
        Some(rate) if BITRATES.contains(&rate) => Ok(rate),
        _ => Err(CodecConfigError::Bitrate),
    }
}

fn parse_complexity(text: &str) -> Result<u8, CodecConfigError> {
    let complexity = text.parse().map_err(|_| CodecConfigError::Complexity)?;
    if complexity <= MAX_COMPLEXITY { Ok(complexity) } else { Err(CodecConfigError::Complexity) }
}

/// Why a text is not a codec with settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodecConfigError {
    /// Unknown codec name.
    UnknownCodec,
    /// PCM with settings.
    NoSettings,
    /// Not a compression level of FLAC.
    Level,
    /// Not a bit rate of Opus.
    Bitrate,
    /// Not a complexity of Opus.
    Complexity,
    /// A setting that Opus does not have.
    UnknownOption,
    /// A setting appears twice.
    Repeated,
    /// Not a setting of MP3.
    Mp3(Mp3ConfigError),
}

impl CodecConfigError {
    /// The correction to suggest.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::UnknownCodec => "use flac, opus, pcm or mp3",
            Self::NoSettings => "write `pcm` alone",
            Self::Level => "use flac:0 (least CPU) to flac:8 (smallest), or `flac` alone",
            Self::Bitrate => "use opus:6k to opus:510k, as in opus:128k",
            Self::Complexity => "use complexity=0 (least CPU) to complexity=10 (best)",
            Self::UnknownOption => {
                "opus takes a bit rate, vbr or cbr, and complexity, as in opus:96k,cbr,complexity=8"
            }
            Self::Repeated => "give the bit rate, vbr or cbr, and complexity at most once each",
            Self::Mp3(error) => error.remedy(),
        }
    }
}

impl fmt::Display for CodecConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownCodec => "unknown codec",
            Self::NoSettings => "pcm has no settings",
            Self::Level => "the compression level of flac is an integer from 0 to 8",
            Self::Bitrate => "the bit rate of opus is 6000 to 510000 bits per second",
            Self::Complexity => "the complexity of opus is an integer from 0 to 10",
            Self::UnknownOption => "unknown setting of opus",
            Self::Repeated => "a setting is given twice",
            Self::Mp3(error) => return error.fmt(f),
        })
    }
}

impl core::error::Error for CodecConfigError {}

/// The levels that FLAC encoders have in common.
const LEVELS: RangeInclusive<u8> = 0..=8;

/// Linear prediction without the search of level 5: 13 to 21 % smaller than fixed predictors
/// (level 2) on music, for a fifth more work; see docs/decisions/flac-level.md.
pub(super) const DEFAULT_LEVEL: u8 = 4;

/// Snapcast's default, in bits per second.
pub(super) const DEFAULT_BITRATE: u32 = 192_000;

/// The range of Opus (RFC 6716, section 2.1.1).
pub(super) const BITRATES: RangeInclusive<u32> = 6_000..=510_000;

/// The highest `BITRATE` that snapserver accepts.
const SNAPSERVER_MAX_BITRATE: u32 = 512_000;

/// The encoder's best; it costs less than a hundredth of a core.
pub(super) const MAX_COMPLEXITY: u8 = 10;

#[cfg(test)]
mod tests {
    use super::super::Mp3Library;
    use super::*;

    fn opus(bitrate: u32, rate_control: RateControl, complexity: u8) -> CodecConfig {
        CodecConfig::Opus(OpusConfig { bitrate, rate_control, complexity })
    }

    #[test]
    fn a_codec_prints_as_it_is_read() {
        let texts = [
            "pcm",
            "flac",
            "flac:0",
            "flac:8",
            "opus",
            "opus:6k",
            "opus:64500",
            "opus:192k,cbr",
            "opus:96k,complexity=3",
            "opus:510k,cbr,complexity=0",
            "mp3",
            "mp3:128k",
            "mp3:192k,lame",
            "mp3:192k,builtin",
        ];
        for text in texts {
            let config: CodecConfig = text.parse().unwrap();
            assert_eq!(config.to_string(), text);
            assert!(text.starts_with(config.codec().name()));
        }
        let default = CodecConfig::from(Codec::Flac);
        assert_eq!(format!("flac:{}", DEFAULT_LEVEL).parse(), Ok(default));
        assert_eq!("opus:192k,vbr,complexity=10".parse(), Ok(CodecConfig::from(Codec::Opus)));
    }

    #[test]
    fn settings_are_taken_as_snapserver_writes_them() {
        let vbr = RateControl::Vbr;
        let builtin = Mp3Config { library: Mp3Library::Builtin, ..Mp3Config::default() };
        let builtin = CodecConfig::Mp3(builtin);
        for (text, config) in [
            ("opus:BITRATE:128000,COMPLEXITY:5", opus(128_000, vbr, 5)),
            ("opus:COMPLEXITY:9, BITRATE:64000", opus(64_000, vbr, 9)),
            ("opus:BITRATE:MAX", opus(510_000, vbr, 10)),
            ("opus:BITRATE:512000", opus(510_000, vbr, 10)),
            ("opus:BITRATE:AUTO", opus(192_000, vbr, 10)),
            ("opus:bitrate=96k,cbr", opus(96_000, RateControl::Cbr, 10)),
            ("opus:", CodecConfig::from(Codec::Opus)),
            ("flac:", CodecConfig::from(Codec::Flac)),
            ("mp3:192000", CodecConfig::from(Codec::Mp3)),
            ("mp3:192000, BUILTIN", builtin),
        ] {
            assert_eq!(text.parse(), Ok(config), "{text}");
        }
    }

    #[test]
    fn a_setting_out_of_range_is_named() {
        use CodecConfigError::{
            Bitrate, Complexity, Level, Mp3, NoSettings, Repeated, UnknownCodec, UnknownOption,
        };
        for (text, error) in [
            ("", UnknownCodec),
            ("FLAC", UnknownCodec),
            ("aac:128k", UnknownCodec),
            ("mp3:100k", Mp3(Mp3ConfigError::Bitrate)),
            ("mp3:128", Mp3(Mp3ConfigError::Bitrate)),
            ("mp3:192500", Mp3(Mp3ConfigError::Bitrate)),
            ("mp3:99999999k", Mp3(Mp3ConfigError::Bitrate)),
            ("mp3:fast", Mp3(Mp3ConfigError::UnknownOption)),
            ("mp3:128k,", Mp3(Mp3ConfigError::UnknownOption)),
            ("mp3:128k,96k", Mp3(Mp3ConfigError::Repeated)),
            ("mp3:lame,builtin", Mp3(Mp3ConfigError::Repeated)),
            ("pcm:16", NoSettings),
            ("flac:9", Level),
            ("flac:-1", Level),
            ("flac:5k", Level),
            ("opus:5999", Bitrate),
            ("opus:128", Bitrate),
            ("opus:511k", Bitrate),
            ("opus:99999999999", Bitrate),
            ("opus:5000000k", Bitrate),
            ("opus:BITRATE:", Bitrate),
            ("opus:complexity=11", Complexity),
            ("opus:complexity", Complexity),
            ("opus:128k,fast", UnknownOption),
            ("opus:128k,", UnknownOption),
            ("opus:cbr=1", UnknownOption),
            ("opus:128k,96k", Repeated),
            ("opus:vbr,cbr", Repeated),
            ("opus:encoder=lame", UnknownOption),
        ] {
            assert_eq!(text.parse::<CodecConfig>(), Err(error), "{text}");
        }
    }
}
