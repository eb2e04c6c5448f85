//! Channel counts and their default loudspeaker layouts.

use core::fmt;

/// Maximum number of channels of a block.
pub const MAX_CHANNELS: usize = 64;

/// A channel count of 1 to [`MAX_CHANNELS`] in the order of WAVE: L R C LFE Ls Rs ...
///
/// Up to eight channels, the count determines the loudspeaker of each channel; with more, channels
/// have no position.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChannelLayout(u8);

impl ChannelLayout {
    /// One channel.
    pub const MONO: Self = Self(1);
    /// Left, right.
    pub const STEREO: Self = Self(2);
    /// Left, right, center, low frequency, left surround, right surround.
    pub const SURROUND_5_1: Self = Self(6);

    /// The default layout for `channels` channels.
    ///
    /// # Errors
    /// [`InvalidChannelLayout`] for none or more than [`MAX_CHANNELS`].
    pub const fn new(channels: usize) -> Result<Self, InvalidChannelLayout> {
        if channels == 0 || channels > MAX_CHANNELS {
            return Err(InvalidChannelLayout(channels));
        }
        #[allow(clippy::cast_possible_truncation, reason = "at most 64")]
        Ok(Self(channels as u8))
    }

    /// The number of channels, never 0.
    #[must_use]
    pub const fn channels(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for ChannelLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ChannelLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("mono"),
            2 => f.write_str("stereo"),
            6 => f.write_str("5.1"),
            8 => f.write_str("7.1"),
            n => write!(f, "{n} channels"),
        }
    }
}

/// Error: invalid channel count; holds the offending number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidChannelLayout(pub usize);

impl fmt::Display for InvalidChannelLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} channels: expected 1 to {MAX_CHANNELS}", self.0)
    }
}

impl core::error::Error for InvalidChannelLayout {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_to_sixty_four_channels() {
        assert_eq!(ChannelLayout::new(0), Err(InvalidChannelLayout(0)));
        assert_eq!(ChannelLayout::new(2), Ok(ChannelLayout::STEREO));
        assert_eq!(ChannelLayout::new(64).map(ChannelLayout::channels), Ok(64));
        assert_eq!(ChannelLayout::new(65), Err(InvalidChannelLayout(65)));
    }
}
