//! Settings of MP3, in the notation of the configuration file: `128k`, `lame`, `128k,lame`.

use core::fmt;

use aulos_core::SampleRate;

use super::settings::CodecConfigError;

/// Settings of the MP3 encoder. Prints as `192k`, `128k,lame` or `128k,builtin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a plain record of settings")]
pub struct Mp3Config {
    /// Constant bit rate in bits per second, one of [`MP3_KBPS`] times 1,000.
    pub bitrate: u32,
    /// The library that encodes.
    pub library: Mp3Library,
}

/// An MP3 encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[allow(clippy::exhaustive_enums, reason = "what can encode")]
pub enum Mp3Library {
    /// LAME when the system has it, otherwise the built-in one.
    #[default]
    Auto,
    /// The built-in one, `rusty_mp3`.
    Builtin,
    /// LAME, a library that the system has or has not; that it is missing is reported.
    Lame,
}

impl Default for Mp3Config {
    fn default() -> Self {
        Self { bitrate: DEFAULT_BITRATE, library: Mp3Library::default() }
    }
}

impl Mp3Config {
    /// The lowest sample rate of MPEG 1, in Hz; lower ones are MPEG 2.
    pub const MPEG_1_HZ: u32 = 32_000;

    /// The bit rate at this sample rate: MPEG 2 has at most 160 kbit/s.
    #[must_use]
    pub fn bitrate_at(self, rate: SampleRate) -> u32 {
        let most = if rate.hz() < Self::MPEG_1_HZ { MPEG_2_MAX_BITRATE } else { u32::MAX };
        self.bitrate.min(most)
    }
}

impl Mp3Config {
    /// Parses settings; what `options` leaves out is as in `self`.
    ///
    /// # Errors
    /// [`CodecConfigError`].
    pub fn with_options(self, options: &str) -> Result<Self, CodecConfigError> {
        let (mut bitrate, mut library) = (None, None);
        for option in options.split(',') {
            let option = option.trim().to_ascii_lowercase();
            let repeated = match &*option {
                "builtin" => library.replace(Mp3Library::Builtin).is_some(),
                "lame" => library.replace(Mp3Library::Lame).is_some(),
                text if text.starts_with(|c: char| c.is_ascii_digit()) => {
                    bitrate.replace(parse_bitrate(text)?).is_some()
                }
                _ => return Err(UNKNOWN_OPTION),
            };
            if repeated {
                return Err(REPEATED);
            }
        }
        Ok(Self {
            bitrate: bitrate.unwrap_or(self.bitrate),
            library: library.unwrap_or(self.library),
        })
    }
}

impl fmt::Display for Mp3Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}k", self.bitrate / 1_000)?;
        f.write_str(match self.library {
            Mp3Library::Auto => "",
            Mp3Library::Builtin => ",builtin",
            Mp3Library::Lame => ",lame",
        })
    }
}

fn parse_bitrate(text: &str) -> Result<u32, CodecConfigError> {
    let (number, unit) = text.strip_suffix('k').map_or((text, 1), |number| (number, 1_000));
    let rate = number.parse::<u32>().ok().and_then(|number| number.checked_mul(unit));
    rate.filter(|rate| rate.is_multiple_of(1_000) && MP3_KBPS.contains(&(rate / 1_000)))
        .ok_or(BITRATE)
}

pub(super) const BITRATE: CodecConfigError = CodecConfigError::setting(
    "mp3 does not have this bit rate",
    "use 32k, 40k, 48k, 56k, 64k, 80k, 96k, 112k, 128k, 160k, 192k, 224k, 256k or 320k",
);
pub(super) const UNKNOWN_OPTION: CodecConfigError = CodecConfigError::setting(
    "unknown setting of mp3",
    "mp3 takes a bit rate and an encoder, `builtin` or `lame`, as in 128k,lame",
);
pub(super) const REPEATED: CodecConfigError = CodecConfigError::setting(
    "a setting is given twice",
    "give the bit rate and the encoder at most once each",
);

/// The bit rates of MPEG 1, layer III, in kbit/s (ISO/IEC 11172-3, 2.4.2.3).
pub const MP3_KBPS: [u32; 14] = [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320];

/// As good as LAME's there, while LAME is better below.
const DEFAULT_BITRATE: u32 = 192_000;

/// ISO/IEC 13818-3, 2.4.2.3.
const MPEG_2_MAX_BITRATE: u32 = 160_000;
