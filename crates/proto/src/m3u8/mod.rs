//! Playlists of HTTP Live Streaming as a client reads them (RFC 8216, and `EXT-X-GAP` of its
//! successor).
//!
//! Tags that do not concern sound are ignored. Nothing is trusted: lengths of lines, lists and
//! numbers have limits, and a playlist that breaks the rules gives a reason.

mod attributes;
mod error;
mod limits;
mod media;
mod multivariant;
#[cfg(test)]
mod tests;

pub use error::M3u8Error;
pub use limits::{MAX_M3U8_BYTES, MAX_SEGMENTS, MAX_VARIANTS};
pub use media::{ByteRange, Encryption, MediaPlaylist, MediaSegment, SegmentKey, SegmentMap};
pub use multivariant::{MultivariantPlaylist, Variant};

/// A playlist.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "there are these two")]
pub enum Playlist {
    /// It leads to others, each of which has the same programme.
    Multivariant(MultivariantPlaylist),
    /// It lists segments.
    Media(MediaPlaylist),
}

impl Playlist {
    /// Parses a playlist of at most [`MAX_M3U8_BYTES`].
    ///
    /// # Errors
    /// [`M3u8Error`].
    pub fn parse(bytes: &[u8]) -> Result<Self, M3u8Error> {
        if bytes.len() > MAX_M3U8_BYTES {
            return Err(M3u8Error::TooLarge);
        }
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let text = core::str::from_utf8(bytes).map_err(|_| M3u8Error::NotPlaylist)?;
        let mut lines = text.lines().map(str::trim_end);
        if !lines.next().is_some_and(|first| first.trim_start().starts_with("#EXTM3U")) {
            return Err(M3u8Error::NotPlaylist);
        }
        let lines = lines.filter(|line| !line.is_empty());
        if text.contains("\n#EXT-X-STREAM-INF") {
            multivariant::parse(lines).map(Self::Multivariant)
        } else {
            media::parse(lines).map(Self::Media)
        }
    }
}
