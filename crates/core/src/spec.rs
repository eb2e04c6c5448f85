//! Sample specifications: rate, format and layout.

use core::fmt;
use core::str::FromStr;

use crate::{ChannelLayout, Frames, SampleFormat, SampleRate};

/// Sample specification, written `rate:bits:channels` as in Snapcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SampleSpec {
    /// Sample rate.
    pub rate: SampleRate,
    /// Sample format.
    pub format: SampleFormat,
    /// Channel layout of a frame.
    pub layout: ChannelLayout,
}

impl SampleSpec {
    /// 48000:16:2, which every Snapcast client accepts.
    pub const DEFAULT: Self = Self {
        rate: SampleRate::HZ_48000,
        format: SampleFormat::S16Le,
        layout: ChannelLayout::STEREO,
    };

    /// Size of a frame in bytes.
    #[must_use]
    pub const fn frame_bytes(self) -> usize {
        self.format.bytes() * self.layout.channels()
    }

    /// Size of `frames` frames in bytes; saturates.
    #[must_use]
    pub fn bytes(self, frames: Frames) -> usize {
        usize::try_from(frames.0).unwrap_or(usize::MAX).saturating_mul(self.frame_bytes())
    }
}

impl fmt::Display for SampleSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.rate.hz(), self.format, self.layout.channels())
    }
}

impl FromStr for SampleSpec {
    type Err = InvalidSampleSpec;

    fn from_str(text: &str) -> Result<Self, InvalidSampleSpec> {
        let mut fields = text.split(':');
        let (Some(rate), Some(format), Some(channels), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(InvalidSampleSpec::Shape);
        };
        let hz = rate.parse().map_err(|_| InvalidSampleSpec::Rate)?;
        let count = channels.parse().map_err(|_| InvalidSampleSpec::Channels)?;
        Ok(Self {
            rate: SampleRate::new(hz).map_err(|_| InvalidSampleSpec::Rate)?,
            format: format.parse().map_err(|_| InvalidSampleSpec::Format)?,
            layout: ChannelLayout::new(count).map_err(|_| InvalidSampleSpec::Channels)?,
        })
    }
}

/// Error: the part of `rate:format:channels` that is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidSampleSpec {
    /// There are not exactly three fields.
    Shape,
    /// The first field is no valid rate.
    Rate,
    /// The second field is no valid format.
    Format,
    /// The third field is no valid channel count.
    Channels,
}

impl fmt::Display for InvalidSampleSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shape => "a sample spec is rate:format:channels, as in 48000:16:2",
            Self::Rate => "the rate of a sample spec is 16 to 2822400 Hz",
            Self::Format => "the format of a sample spec is 8, 16, 24 (in 32), 32, u8, s24 or f32",
            Self::Channels => "the last field of a sample spec is the number of channels, 1 to 64",
        })
    }
}

impl core::error::Error for InvalidSampleSpec {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_spec_parses_to_itself() {
        for text in ["48000:16:2", "44100:24:1", "192000:f32:6", "8000:u8:1", "96000:s24:2"] {
            assert_eq!(text.parse::<SampleSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn each_field_has_its_own_error() {
        assert_eq!("48000:16".parse::<SampleSpec>(), Err(InvalidSampleSpec::Shape));
        assert_eq!("48000:16:2:1".parse::<SampleSpec>(), Err(InvalidSampleSpec::Shape));
        assert_eq!("fast:16:2".parse::<SampleSpec>(), Err(InvalidSampleSpec::Rate));
        assert_eq!("48000:17:2".parse::<SampleSpec>(), Err(InvalidSampleSpec::Format));
        assert_eq!("48000:16:0".parse::<SampleSpec>(), Err(InvalidSampleSpec::Channels));
    }

    #[test]
    fn twenty_milliseconds_of_the_default_are_3840_bytes() {
        assert_eq!(SampleSpec::DEFAULT.bytes(Frames(960)), 3840);
    }
}
