//! Header packets of the codecs in Ogg: RFC 7845 (Opus), Vorbis I (4.2), RFC 9639, section 10.1
//! (FLAC).

use crate::bytes::put_comments;
use crate::packets::PacketFormat;
use crate::titles::TrackMetadata;

/// The packets before the audio of a stream of this format: identification, comments with the
/// title, and what else its decoder needs. `None` for a format that has no mapping to Ogg.
#[must_use]
pub fn header_packets(
    format: &PacketFormat,
    title: Option<&TrackMetadata>,
) -> Option<Vec<Vec<u8>>> {
    let none = TrackMetadata::default();
    let TrackMetadata { title, artist, album, .. } = title.unwrap_or(&none);
    let comments: Vec<_> = [("ARTIST", artist), ("TITLE", title), ("ALBUM", album)]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_deref()?)))
        .collect();
    let mut list = Vec::new();
    put_comments(&mut list, comments.into_iter());
    match format {
        PacketFormat::Opus { head } => Some(vec![head.clone(), [b"OpusTags", &*list].concat()]),
        PacketFormat::Vorbis { identification, setup } => Some(vec![
            identification.clone(),
            // The framing bit.
            [b"\x03vorbis", &*list, &[1]].concat(),
            setup.clone(),
        ]),
        PacketFormat::Flac { info, .. } => {
            // RFC 9639, 10.1: version 1.0, one more header packet, then the blocks.
            let first = [b"\x7fFLAC\x01\0\0\x01fLaC\0\0\0\x22", &info[..]].concat();
            let [_, length @ ..] = u32::try_from(list.len()).ok()?.to_be_bytes();
            Some(vec![first, [&[LAST_BLOCK | COMMENT_BLOCK][..], &length, &list].concat()])
        }
        _ => None,
    }
}

/// The first byte of a metadata block of FLAC (RFC 9639, section 8.1).
const LAST_BLOCK: u8 = 0x80;
const COMMENT_BLOCK: u8 = 4;
