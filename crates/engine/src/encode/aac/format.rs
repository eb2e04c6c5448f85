//! What the access units of a stream have in common, and how ADTS and MP4 say it.

use aulos_core::{Codec, SampleRate, SampleSpec};

use super::super::encoder::UnsupportedFormat;

/// The sample rate and the channels of access units of AAC LC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AacFormat {
    rate: SampleRate,
    /// Its number in a header.
    rate_index: u8,
    channels: u8,
}

impl AacFormat {
    /// The units of this spec.
    ///
    /// # Errors
    /// [`UnsupportedFormat`] for a sample rate that AAC does not have, or more than two channels.
    pub fn new(spec: SampleSpec) -> Result<Self, UnsupportedFormat> {
        let (rate, channels) = (spec.rate, spec.layout.channels());
        let index = RATES.iter().position(|hz| *hz == rate.hz());
        let rate_index = index
            .filter(|_| Codec::Aac.info().supports_rate(rate.hz()))
            .and_then(|index| u8::try_from(index).ok())
            .ok_or(UnsupportedFormat::Rate(Codec::Aac))?;
        let channels = u8::try_from(channels)
            .ok()
            .filter(|_| channels <= Codec::Aac.info().max_channels)
            .ok_or(UnsupportedFormat::Channels(Codec::Aac))?;
        Ok(Self { rate, rate_index, channels })
    }

    /// The sample rate.
    #[must_use]
    pub const fn rate(self) -> SampleRate {
        self.rate
    }

    /// Number of channels, 1 or 2.
    #[must_use]
    pub const fn channels(self) -> usize {
        self.channels as usize
    }

    /// The `AudioSpecificConfig` of MP4 (ISO/IEC 14496-3, 1.6.2.1): object type 2, rate, channels,
    /// and a `GASpecificConfig` of 1,024 samples.
    #[must_use]
    pub const fn audio_specific_config(self) -> [u8; 2] {
        [AAC_LC << 3 | self.rate_index >> 1, (self.rate_index & 1) << 7 | self.channels << 3]
    }

    /// The header of ADTS before an access unit of `unit_bytes` bytes, without a checksum
    /// (ISO/IEC 14496-3, 1.A.2.2). Longer units than [`Self::max_unit_bytes`] do not fit.
    #[must_use]
    pub fn adts_header(self, unit_bytes: usize) -> [u8; ADTS_HEADER_BYTES] {
        // 13 bits; a unit has 1,536 bytes at most.
        let length = u32::try_from((unit_bytes + ADTS_HEADER_BYTES) & 0x1fff).unwrap_or(0);
        let [_, top, high, low] = (length << 5 | VARIABLE_RATE >> 6).to_be_bytes();
        let profile = (AAC_LC - 1) << 6;
        [
            0xff,
            0xf1,
            profile | self.rate_index << 2 | self.channels >> 2,
            (self.channels & 3) << 6 | top,
            high,
            low,
            ((VARIABLE_RATE & 0x3f) as u8) << 2,
        ]
    }

    /// Length of the longest access unit: 6,144 bits of each channel.
    #[must_use]
    pub const fn max_unit_bytes(self) -> usize {
        6_144 / 8 * self.channels()
    }
}

/// Length of a header of ADTS in bytes.
pub const ADTS_HEADER_BYTES: usize = 7;

/// The object type.
const AAC_LC: u8 = 2;

/// What the fullness of the decoder's buffer is where the bit rate varies.
const VARIABLE_RATE: u32 = 0x7ff;

/// The sample rates in Hz by their numbers in a header (ISO/IEC 14496-3, table 1.18).
const RATES: [u32; 12] =
    [96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000];

/// Takes the place of the library in a build without it; there is none.
#[cfg(not(feature = "aac"))]
pub(super) enum BuiltinLibrary {}

#[cfg(not(feature = "aac"))]
impl BuiltinLibrary {
    pub(super) const fn new(_: AacFormat, _: u32) -> Result<Self, UnsupportedFormat> {
        Err(UnsupportedFormat::Library(Codec::Aac))
    }

    #[allow(clippy::needless_pass_by_ref_mut, reason = "as that of the library")]
    pub(super) fn encode(
        &mut self,
        _: &[Vec<f32>],
        _: &mut Vec<u8>,
    ) -> Result<(), super::EncodeError> {
        match *self {}
    }

    pub(super) const fn panics(&self) -> u64 {
        match *self {}
    }
}
