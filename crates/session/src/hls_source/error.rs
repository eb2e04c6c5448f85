//! Why an HLS stream does not play.

use core::fmt;

use aulos_core::Span;
use aulos_proto::m3u8::M3u8Error;

/// Why an HLS stream does not play, beside the errors of single requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HlsError {
    /// A playlist cannot be used.
    Playlist(M3u8Error),
    /// No variant has sound that can be decoded.
    NoVariant,
    /// A multivariant playlist leads to another one.
    Nested,
    /// An address in a playlist is invalid.
    Address,
    /// The segments are encrypted by a method that needs a licence.
    Encrypted,
    /// A key does not have 16 bytes.
    Key,
    /// A segment cannot be decrypted: its padding is wrong.
    Decryption,
    /// A segment is a web page.
    WebPage,
    /// A segment has no bytes, or fewer than its range.
    Short,
    /// An answer is larger than its kind may be.
    TooLarge,
    /// The playlist has not changed for so long.
    Stale(Span),
    /// Every one of the last segments has failed.
    Segments,
}

impl HlsError {
    /// Whether an early retry is pointless.
    #[must_use]
    pub const fn is_permanent(self) -> bool {
        matches!(
            self,
            Self::Playlist(_) | Self::NoVariant | Self::Nested | Self::Address | Self::Encrypted
        )
    }
}

impl fmt::Display for HlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Playlist(why) => why.fmt(f),
            Self::NoVariant => f.write_str(
                "no variant of the HLS stream has AAC, MP3, FLAC or Opus, which can be decoded",
            ),
            Self::Nested => f.write_str("the HLS playlists are nested too deeply"),
            Self::Address => f.write_str("the HLS playlist contains an invalid URL"),
            Self::Encrypted => {
                f.write_str("the HLS segments are protected by DRM; only AES-128 can be decrypted")
            }
            Self::Key => f.write_str("the key of the HLS segments does not have 16 bytes"),
            Self::Decryption => f.write_str("an HLS segment cannot be decrypted with its key"),
            Self::WebPage => f.write_str("an HLS segment is a web page"),
            Self::Short => f.write_str("an HLS segment is empty or incomplete"),
            Self::TooLarge => f.write_str("an HLS segment, key or playlist is too large"),
            Self::Stale(span) => {
                let seconds = span.as_millis() / 1_000;
                write!(f, "the HLS playlist has not changed for {seconds} s")
            }
            Self::Segments => f.write_str("the last HLS segments could not be fetched"),
        }
    }
}

impl core::error::Error for HlsError {}
