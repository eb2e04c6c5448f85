//! Vorbis comments (Vorbis I specification, 5.2), which FLAC and Opus use as well.

use crate::bytes::Reader;
use crate::titles::{TrackMetadata, clean_text};

/// Parses the metadata of a comment header without its magic; `None` when there is none. A
/// truncated header is parsed as far as possible.
pub(super) fn parse_title(bytes: &[u8]) -> Option<TrackMetadata> {
    let mut reader = Reader::new(bytes);
    reader.blob()?;
    let count = reader.u32()?.min(MAX_COMMENTS);
    let mut title = TrackMetadata::default();
    for _ in 0..count {
        let Some(comment) = reader.blob() else { break };
        let Some(at) = comment.iter().position(|byte| *byte == b'=') else { continue };
        let (key, value) = comment.split_at(at);
        let place = match &key.to_ascii_uppercase()[..] {
            b"TITLE" => &mut title.title,
            b"ARTIST" => &mut title.artist,
            b"ALBUM" => &mut title.album,
            b"GENRE" => &mut title.genre,
            b"COMPOSER" => &mut title.composer,
            _ => continue,
        };
        if place.is_none() {
            *place = clean_text(value.get(1..).unwrap_or_default());
        }
    }
    (title != TrackMetadata::default()).then_some(title)
}

/// Maximum number of comments that are parsed.
const MAX_COMMENTS: u32 = 256;
