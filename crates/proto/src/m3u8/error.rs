//! Why playlists cannot be used.

use core::fmt;

/// Why a playlist cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum M3u8Error {
    /// It does not begin with `#EXTM3U`, or is not UTF-8.
    NotPlaylist,
    /// It has more than [`MAX_M3U8_BYTES`](super::MAX_M3U8_BYTES) or
    /// [`MAX_SEGMENTS`](super::MAX_SEGMENTS).
    TooLarge,
    /// A media playlist without `EXT-X-TARGETDURATION`, or with one that is not a number above 0.
    NoTargetDuration,
    /// A number or an attribute of this tag is invalid.
    InvalidTag(&'static str),
    /// It contains no segment or variant.
    Empty,
    /// Its addresses contain variables (`EXT-X-DEFINE`).
    Variables,
}

impl fmt::Display for M3u8Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPlaylist => f.write_str("the answer is not an HLS playlist"),
            Self::TooLarge => f.write_str("the HLS playlist is too large"),
            Self::NoTargetDuration => {
                f.write_str("the HLS playlist has no valid EXT-X-TARGETDURATION")
            }
            Self::InvalidTag(tag) => write!(f, "the HLS playlist has an invalid {tag}"),
            Self::Empty => f.write_str("the HLS playlist is empty"),
            Self::Variables => f.write_str("HLS playlists with EXT-X-DEFINE are not supported"),
        }
    }
}

impl core::error::Error for M3u8Error {}
