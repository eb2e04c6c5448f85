//! Limits of what is read.

/// The largest playlist; a day of segments of six seconds has 1.5 MB.
pub const MAX_M3U8_BYTES: usize = 2 * 1_024 * 1_024;

/// Segments in a playlist.
pub const MAX_SEGMENTS: usize = 20_000;

/// Variants and renditions of a multivariant playlist that are looked at.
pub const MAX_VARIANTS: usize = 64;

/// The longest address, in bytes.
const MAX_URI: usize = 8 * 1_024;

/// An address, if it has a usable length.
pub(super) fn uri(text: &str) -> Option<String> {
    (!text.is_empty() && text.len() <= MAX_URI).then(|| text.to_owned())
}
