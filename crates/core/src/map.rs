//! Channel selection of a client.

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
}

impl ChannelMap {
    /// All channel maps.
    pub const ALL: [Self; 4] = [Self::Stereo, Self::Left, Self::Right, Self::Mono];

    /// Name in configuration files and in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stereo => "stereo",
            Self::Left => "left",
            Self::Right => "right",
            Self::Mono => "mono",
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
        f.write_str("unknown channel map: use stereo, left, right or mono")
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
