//! The `AudioSpecificConfig` of AAC (ISO/IEC 14496-3, 1.6.2.1).

use aulos_core::{ChannelLayout, SampleRate};

use super::adts::RATES;
use super::{PacketFormat, StreamStart};

/// The part of an `AudioSpecificConfig` that the decoder gets: that of the core of HE-AAC, as in
/// ADTS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AudioConfig {
    object: u8,
    rate: u8,
    channels: u8,
    /// Frames of 960 samples.
    is_short: bool,
}

impl AudioConfig {
    pub(super) fn read(bits: &mut BitReader<'_>) -> Option<Self> {
        let mut object = bits.number(5)?;
        let rate = bits.number(4)?;
        let channels = bits.number(4)?;
        if matches!(object, SBR | PARAMETRIC_STEREO) {
            // The rate behind SBR, and the core.
            if bits.number(4)? == ESCAPE {
                bits.number(24)?;
            }
            object = bits.number(5)?;
        }
        let is_short = bits.flag()?;
        if bits.flag()? {
            bits.number(14)?;
        }
        bits.flag()?;
        let [object, rate, channels] = [object, rate, channels].map(u8::try_from);
        let (object, rate, channels) = (object.ok()?, rate.ok()?, channels.ok()?);
        Some(Self { object, rate, channels, is_short })
    }

    /// The format of its packets; `None` for a rate that only an escape expresses.
    pub(super) fn format(self) -> Option<PacketFormat> {
        let Self { object, rate, channels, is_short } = self;
        let hz = *RATES.get(usize::from(rate))?;
        Some(PacketFormat::Aac {
            config: [object << 3 | rate >> 1, rate << 7 | channels << 3 | u8::from(is_short) << 2],
            rate: SampleRate::new(hz).ok()?,
            layout: ChannelLayout::new(usize::from(channels)).ok(),
            low_complexity: object == LOW_COMPLEXITY && !is_short,
        })
    }

    /// The start of a stream of it.
    pub(super) fn start(self) -> Option<StreamStart> {
        self.format().map(|format| StreamStart { format, skip: 0, padding: None })
    }
}

/// Reads fields of any number of bits.
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    /// Bits that were read.
    at: usize,
}

impl<'a> BitReader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        let bit = self.bytes.get(self.at / 8)? >> (7 - self.at % 8) & 1;
        self.at += 1;
        Some(bit == 1)
    }

    /// A number of up to 32 bits.
    pub(super) fn number(&mut self, bits: usize) -> Option<u32> {
        let mut number = 0;
        for _ in 0..bits {
            number = number << 1 | u32::from(self.flag()?);
        }
        Some(number)
    }

    /// Bits that were read so far.
    pub(super) const fn position(&self) -> usize {
        self.at
    }

    /// Continues at this bit.
    pub(super) const fn seek(&mut self, at: usize) {
        self.at = at;
    }
}

/// Object types (ISO/IEC 14496-3, 1.5.1.1), and the index of a rate that is not in the table.
const LOW_COMPLEXITY: u8 = 2;
const SBR: u32 = 5;
const PARAMETRIC_STEREO: u32 = 29;
const ESCAPE: u32 = 15;
