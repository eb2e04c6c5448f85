//! Settings of Opus, in the notation of the configuration file: `128k`, `96k,cbr`,
//! `complexity=5`, and snapserver's `BITRATE:128000,COMPLEXITY:10`.

use core::fmt;
use core::ops::RangeInclusive;

use super::settings::CodecConfigError;

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

impl OpusConfig {
    /// Parses settings; what `options` leaves out is as in `self`.
    ///
    /// # Errors
    /// [`CodecConfigError`].
    pub fn with_options(self, options: &str) -> Result<Self, CodecConfigError> {
        let (mut bitrate, mut rate_control, mut complexity) = (None, None, None);
        for option in options.split(',') {
            let option = option.trim().to_ascii_lowercase();
            let (key, value) = match option.split_once(['=', ':']) {
                Some((key, value)) => (key, value),
                None if option.starts_with(|c: char| c.is_ascii_digit()) => ("", option.as_str()),
                None => (option.as_str(), ""),
            };
            let repeated = match (key, value) {
                ("", "") => return Err(UNKNOWN_OPTION),
                ("" | "bitrate", value) => bitrate.replace(parse_bitrate(value)?).is_some(),
                ("complexity", value) => complexity.replace(parse_complexity(value)?).is_some(),
                ("vbr", "") => rate_control.replace(RateControl::Vbr).is_some(),
                ("cbr", "") => rate_control.replace(RateControl::Cbr).is_some(),
                _ => return Err(UNKNOWN_OPTION),
            };
            if repeated {
                return Err(REPEATED);
            }
        }
        Ok(Self {
            bitrate: bitrate.unwrap_or(self.bitrate),
            rate_control: rate_control.unwrap_or(self.rate_control),
            complexity: complexity.unwrap_or(self.complexity),
        })
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
        _ => Err(BITRATE),
    }
}

fn parse_complexity(text: &str) -> Result<u8, CodecConfigError> {
    let complexity = text.parse().map_err(|_| COMPLEXITY)?;
    if complexity <= MAX_COMPLEXITY { Ok(complexity) } else { Err(COMPLEXITY) }
}

pub(super) const BITRATE: CodecConfigError = CodecConfigError::setting(
    "the bit rate of opus is 6000 to 510000 bits per second",
    "use opus:6k to opus:510k, as in opus:128k",
);
pub(super) const COMPLEXITY: CodecConfigError = CodecConfigError::setting(
    "the complexity of opus is an integer from 0 to 10",
    "use complexity=0 (least CPU) to complexity=10 (best)",
);
pub(super) const UNKNOWN_OPTION: CodecConfigError = CodecConfigError::setting(
    "unknown setting of opus",
    "opus takes a bit rate, vbr or cbr, and complexity, as in opus:96k,cbr,complexity=8",
);
pub(super) const REPEATED: CodecConfigError = CodecConfigError::setting(
    "a setting is given twice",
    "give the bit rate, vbr or cbr, and complexity at most once each",
);

/// Snapcast's default, in bits per second.
pub(super) const DEFAULT_BITRATE: u32 = 192_000;

/// The range of Opus (RFC 6716, section 2.1.1).
pub(super) const BITRATES: RangeInclusive<u32> = 6_000..=510_000;

/// The highest `BITRATE` that snapserver accepts.
const SNAPSERVER_MAX_BITRATE: u32 = 512_000;

/// The encoder's best; it costs less than a hundredth of a core.
pub(super) const MAX_COMPLEXITY: u8 = 10;
