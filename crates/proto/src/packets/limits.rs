//! Limits that the splitter, its buffer and the readers share.

/// Maximum number of buffered bytes. A FLAC frame is complete only when the next one begins.
pub const MAX_BUFFER: usize = 1024 * 1024;

/// Maximum size of a packet in bytes; 16,384 frames of eight channels with 24 bits are less.
pub const MAX_PACKET: usize = 512 * 1024;

/// Maximum number of consecutive bytes without a recognized format: two pages of Ogg, or eight
/// seconds of MP3 at 128 kb/s.
pub const MAX_GARBAGE: u64 = 128 * 1024;

/// Maximum size of a skipped tag in bytes (`ID3v2`, pictures in FLAC).
pub const MAX_TAG: u64 = 16 * 1024 * 1024;
