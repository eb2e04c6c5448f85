//! HTTP Live Streaming (RFC 8216, and `EXT-X-GAP` and `AVERAGE-BANDWIDTH` of its successor): the
//! playlists, and segments of fragmented MP4 (ISO/IEC 14496-12, CMAF) with one track of sound, or of
//! packed audio.
//!
//! ```text
//!  multivariant playlist -> media playlist of each rendition -> init segment, media segments
//! ```
//!
//! The boxes are written by the crate `mp4-atom`; the playlists are a few lines of text each. What
//! is written is a function of the arguments alone, so that two servers with the same sound have
//! the same bytes: `docs/decisions/hls.md`. Which rule is kept where: `docs/standards/hls.md`.

mod date;
mod fragment;
mod id3;
mod init;
mod playlist;
#[cfg(test)]
mod tests;

pub use date::HlsDate;
pub use fragment::{EventMessage, Fragment};
pub use id3::{packed_audio_tag, title_tag};
pub use init::{Track, TrackCodec};
pub use playlist::{
    DateRange, MediaPlaylist, PACKED_AUDIO_MEDIA_TYPE, PLAYLIST_MEDIA_TYPE, PlaylistSegment,
    SEGMENT_MEDIA_TYPE, Variant, multivariant_playlist,
};
