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
    // Source clients that know a single line only put it into the title.
    if let (None, Some(line)) = (&title.artist, &title.title) {
        let TrackMetadata { artist, title: track, .. } = TrackMetadata::from_stream_title(line);
        if let (Some(artist), Some(track)) = (artist, track) {
            (title.artist, title.title) = (Some(artist), Some(track));
        }
    }
    (title != TrackMetadata::default()).then_some(title)
}

/// Maximum number of comments that are parsed.
const MAX_COMMENTS: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn title(comments: &[(&str, &str)]) -> (Option<String>, Option<String>) {
        let mut bytes = Vec::new();
        crate::bytes::put_comments(&mut bytes, comments.iter().copied());
        let title = parse_title(&bytes).unwrap_or_default();
        (title.artist, title.title)
    }

    #[test]
    fn a_line_of_artist_and_title_is_split_where_there_is_no_artist() {
        let both = |artist: &str, title: &str| (Some(artist.to_owned()), Some(title.to_owned()));
        assert_eq!(title(&[("TITLE", "Björk - Jóga")]), both("Björk", "Jóga"));
        assert_eq!(title(&[("title", "A - B - C")]), both("A", "B - C"));
        assert_eq!(title(&[("TITLE", "A - B"), ("ARTIST", "C")]), both("C", "A - B"));
        assert_eq!(title(&[("TITLE", "Jóga")]), (None, Some("Jóga".to_owned())));
        assert_eq!(title(&[("TITLE", " - B")]), (None, Some("- B".to_owned())));
        assert_eq!(title(&[("ARTIST", "Björk")]), (Some("Björk".to_owned()), None));
    }
}
