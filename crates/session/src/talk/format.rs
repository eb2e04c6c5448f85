//! The formats in which a microphone may send.

use aulos_core::{ChannelLayout, SampleFormat, SampleRate, SampleSpec};

/// The format of the frames of a talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "each is decoded by its own rule")]
pub enum TalkFormat {
    /// Interleaved samples of 16 bits, the lower byte first.
    Pcm {
        /// Between [`MIN_RATE`] and [`MAX_RATE`].
        rate: SampleRate,
        /// One or two.
        channels: u8,
    },
    /// Packets of Opus (RFC 6716), each a frame, decoded at 48 kHz.
    Opus {
        /// One or two.
        channels: u8,
    },
}

impl TalkFormat {
    /// The rate of the decoded sound.
    #[must_use]
    pub const fn rate(self) -> SampleRate {
        match self {
            Self::Pcm { rate, .. } => rate,
            Self::Opus { .. } => SampleRate::HZ_48000,
        }
    }

    /// The number of channels.
    #[must_use]
    pub fn channels(self) -> usize {
        self.spec().layout.channels()
    }

    /// The decoded sound.
    pub(super) const fn spec(self) -> SampleSpec {
        let layout = match self {
            Self::Pcm { channels: 2, .. } | Self::Opus { channels: 2 } => ChannelLayout::STEREO,
            _ => ChannelLayout::MONO,
        };
        SampleSpec { rate: self.rate(), format: SampleFormat::F32, layout }
    }
}

/// The lowest rate in Hz: that of a telephone.
pub const MIN_RATE: u32 = 8_000;

/// The highest rate in Hz: sound cards that cannot be told otherwise.
pub const MAX_RATE: u32 = 96_000;
