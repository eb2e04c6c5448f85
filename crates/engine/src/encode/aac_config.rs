//! Settings of AAC, in the notation of the configuration file: `128k`.

use core::fmt;
use core::ops::RangeInclusive;

use aulos_core::SampleSpec;

use super::settings::CodecConfigError;

/// Settings of the AAC encoder. Prints as `128k` or `64500`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a plain record of settings")]
pub struct AacConfig {
    /// Average bits per second, one of [`AAC_BITRATES`].
    pub bitrate: u32,
}

impl Default for AacConfig {
    fn default() -> Self {
        Self { bitrate: DEFAULT_BITRATE }
    }
}

impl AacConfig {
    /// The bit rate with this spec: a frame has at most 6,144 bits of a channel, which are 288,000
    /// bit/s of each at 48 kHz.
    #[must_use]
    pub fn bitrate_at(self, spec: SampleSpec) -> u32 {
        let channels = u64::try_from(spec.layout.channels()).unwrap_or(u64::MAX);
        let most =
            u64::from(spec.rate.hz()).saturating_mul(channels).saturating_mul(BITS_OF_SAMPLE);
        u32::try_from(most).map_or(self.bitrate, |most| self.bitrate.min(most))
    }

    /// Parses settings; what `options` leaves out is as in `self`.
    ///
    /// # Errors
    /// [`CodecConfigError`].
    pub fn with_options(self, options: &str) -> Result<Self, CodecConfigError> {
        let text = options.trim().to_ascii_lowercase();
        if !text.starts_with(|c: char| c.is_ascii_digit()) || text.contains(',') {
            return Err(UNKNOWN_OPTION);
        }
        let (number, unit) = text.strip_suffix('k').map_or((&*text, 1), |number| (number, 1_000));
        let rate = number.parse::<u32>().ok().and_then(|number| number.checked_mul(unit));
        let bitrate = rate.filter(|rate| AAC_BITRATES.contains(rate)).ok_or(BITRATE)?;
        Ok(Self { bitrate })
    }
}

impl fmt::Display for AacConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bitrate {
            bitrate if bitrate.is_multiple_of(1_000) => write!(f, "{}k", bitrate / 1_000),
            bitrate => write!(f, "{bitrate}"),
        }
    }
}

pub(super) const BITRATE: CodecConfigError =
    CodecConfigError::setting("aac does not have this bit rate", "use 32k to 512k, as in 128k");
pub(super) const UNKNOWN_OPTION: CodecConfigError =
    CodecConfigError::setting("unknown setting of aac", "aac takes a bit rate, as in 128k");

/// Bit rates in bit/s. Below them AAC LC is no choice; nothing is gained above.
pub const AAC_BITRATES: RangeInclusive<u32> = 32_000..=512_000;

/// What most stations send.
const DEFAULT_BITRATE: u32 = 128_000;

/// 6,144 bits of a channel in a frame of 1,024 samples (ISO/IEC 14496-3, 4.5.3.1).
const BITS_OF_SAMPLE: u64 = 6_144 / 1_024;
