//! Channel selection of a client.
//!
//! The maps are the ones that a loudspeaker needs: a matrix of gains would be as many renditions as
//! there are gains.

use core::fmt;
use core::str::FromStr;

/// Which channels of a stereo station a client plays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChannelMap {
    /// Every channel unchanged.
    #[default]
    Stereo,
    /// The left channel on every output.
    Left,
    /// The right channel on every output.
    Right,
    /// The average of left and right on every output.
    Mono,
    /// Left and right exchanged; further channels unchanged.
    Swap,
    /// One channel of several on every output.
    Single(ChannelNumber),
}

/// The number of a channel, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChannelNumber(u8);

impl ChannelNumber {
    /// The highest one: more channels than 7.1 have no loudspeakers of their own in a home.
    pub const MAX: u8 = 8;

    /// `None` for 0 and above [`Self::MAX`].
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if number == 0 || number > Self::MAX { None } else { Some(Self(number)) }
    }

    /// Its position in a frame, from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize - 1
    }
}

impl ChannelMap {
    /// All channel maps.
    pub const ALL: [Self; 13] = [
        Self::Stereo,
        Self::Left,
        Self::Right,
        Self::Mono,
        Self::Swap,
        Self::Single(ChannelNumber(1)),
        Self::Single(ChannelNumber(2)),
        Self::Single(ChannelNumber(3)),
        Self::Single(ChannelNumber(4)),
        Self::Single(ChannelNumber(5)),
        Self::Single(ChannelNumber(6)),
        Self::Single(ChannelNumber(7)),
        Self::Single(ChannelNumber(8)),
    ];

    /// Whether every channel passes unchanged.
    #[must_use]
    pub const fn is_stereo(self) -> bool {
        matches!(self, Self::Stereo)
    }

    /// Name in configuration files and in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stereo => "stereo",
            Self::Left => "left",
            Self::Right => "right",
            Self::Mono => "mono",
            Self::Swap => "swap",
            Self::Single(number) => match number.0 {
                1 => "1",
                2 => "2",
                3 => "3",
                4 => "4",
                5 => "5",
                6 => "6",
                7 => "7",
                _ => "8",
            },
        }
    }
}

impl fmt::Display for ChannelMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ChannelMap {
    type Err = UnknownChannelMap;

    fn from_str(text: &str) -> Result<Self, UnknownChannelMap> {
        Self::ALL.into_iter().find(|map| map.name() == text).ok_or(UnknownChannelMap)
    }
}

/// Error: the text names no channel map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownChannelMap;

impl fmt::Display for UnknownChannelMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown channel map: use stereo, left, right, mono, swap, or a channel's number from 1 to 8")
    }
}

impl core::error::Error for UnknownChannelMap {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_map_reads_back() {
        for map in ChannelMap::ALL {
            assert_eq!(map.to_string().parse(), Ok(map));
        }
        assert_eq!("Left".parse::<ChannelMap>(), Err(UnknownChannelMap));
    }
}
