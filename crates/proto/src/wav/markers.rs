//! Markers behind the samples of a WAVE file: `cue ` with the labels of a `LIST`, which editors and
//! players read, and iXML, whose positions have 64 bits.

use core::fmt::Write as _;

use crate::FileMarker;

/// Appends the chunks that list `markers`, each of an even length; nothing for an empty list.
///
/// A `cue ` chunk has 32-bit positions; a marker beyond that is in iXML only.
///
/// # Panics
/// Never: a list that is longer than 32 bits can count is truncated.
pub fn marker_chunks(markers: &[FileMarker<'_>], out: &mut Vec<u8>) {
    if markers.is_empty() {
        return;
    }
    let points: Vec<(u32, u32, &str)> = (1..)
        .zip(markers)
        .filter_map(|(id, marker)| Some((id, u32::try_from(marker.position).ok()?, marker.label)))
        .collect();
    if !points.is_empty() {
        chunk(b"cue ", out, |out| cue_points(&points, out));
        chunk(b"LIST", out, |out| labels(&points, out));
    }
    chunk(b"iXML", out, |out| out.extend_from_slice(ixml(markers).as_bytes()));
}

/// One entry for each point: identifier, frame in play order, chunk that contains it, start of that
/// chunk and of its block, frame in the block (RIFF 1.0, cue-points chunk).
fn cue_points(points: &[(u32, u32, &str)], out: &mut Vec<u8>) {
    out.extend_from_slice(&u32::try_from(points.len()).unwrap_or(u32::MAX).to_le_bytes());
    for (id, position, _) in points {
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&position.to_le_bytes());
        out.extend_from_slice(b"data");
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&position.to_le_bytes());
    }
}

/// The associated data list: for each point a label that is terminated by a zero.
fn labels(points: &[(u32, u32, &str)], out: &mut Vec<u8>) {
    out.extend_from_slice(b"adtl");
    for (id, _, label) in points {
        chunk(b"labl", out, |out| {
            out.extend_from_slice(&id.to_le_bytes());
            out.extend_from_slice(label.as_bytes());
            out.push(0);
        });
    }
}

/// iXML 2.10, `SYNC_POINT_LIST`: positions relative to the start of the file, in two halves.
fn ixml(markers: &[FileMarker<'_>]) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<BWFXML>\n");
    text.push_str("<IXML_VERSION>2.10</IXML_VERSION>\n<SYNC_POINT_LIST>\n");
    // Writing to a string does not fail.
    let _ = writeln!(text, "<SYNC_POINT_COUNT>{}</SYNC_POINT_COUNT>", markers.len());
    for FileMarker { position, label } in markers {
        text.push_str("<SYNC_POINT>\n<SYNC_POINT_TYPE>RELATIVE</SYNC_POINT_TYPE>\n");
        text.push_str("<SYNC_POINT_FUNCTION>MARKER_GENERIC</SYNC_POINT_FUNCTION>\n");
        text.push_str("<SYNC_POINT_COMMENT>");
        escape(label, &mut text);
        text.push_str("</SYNC_POINT_COMMENT>\n");
        let (low, high) = (position & u64::from(u32::MAX), position >> 32);
        let _ = writeln!(text, "<SYNC_POINT_LOW>{low}</SYNC_POINT_LOW>");
        let _ = writeln!(text, "<SYNC_POINT_HIGH>{high}</SYNC_POINT_HIGH>");
        text.push_str("<SYNC_POINT_EVENT_DURATION>0</SYNC_POINT_EVENT_DURATION>\n</SYNC_POINT>\n");
    }
    text.push_str("</SYNC_POINT_LIST>\n</BWFXML>\n");
    text
}

/// Escapes a label. XML 1.0 cannot represent control characters except these three.
fn escape(label: &str, text: &mut String) {
    for char in label.chars() {
        match char {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '\t' | '\n' | '\r' => text.push(' '),
            '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => text.push('?'),
            char => text.push(char),
        }
    }
}

/// Appends a chunk with its size, and a padding byte if it is odd, which the size does not count.
fn chunk(name: &[u8; 4], out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(name);
    let size_at = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let size = u32::try_from(out.len() - size_at - 4).unwrap_or(u32::MAX);
    if let Some(place) = out.get_mut(size_at..size_at + 4) {
        place.copy_from_slice(&size.to_le_bytes());
    }
    if size % 2 == 1 {
        out.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(mut bytes: &[u8]) -> Vec<(&[u8], &[u8])> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let size = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
            all.push((&bytes[..4], &bytes[8..8 + size]));
            bytes = &bytes[8 + size.next_multiple_of(2)..];
        }
        all
    }

    #[test]
    fn chunks_are_even_and_positions_beyond_32_bits_are_in_ixml_only() {
        for label in ["", "a", "ab", "J\u{fc}rg & <Eva>"] {
            let far = (7 << 32) + 5;
            let markers = [
                FileMarker { position: 48_000, label },
                FileMarker { position: far, label: "far" },
            ];
            let mut out = Vec::new();
            marker_chunks(&markers, &mut out);
            assert_eq!(out.len() % 2, 0);
            let all = chunks(&out);
            let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, [b"cue ", b"LIST", b"iXML"]);
            let cue: Vec<u32> = all[0]
                .1
                .chunks(4)
                .map(|four| u32::from_le_bytes(four.try_into().unwrap()))
                .collect();
            let data = u32::from_le_bytes(*b"data");
            assert_eq!(cue, [1, 1, 48_000, data, 0, 0, 48_000]);
            assert_eq!(&all[1].1[..4], b"adtl");
            let labels = chunks(&all[1].1[4..]);
            assert_eq!(labels.len(), 1);
            assert_eq!(labels[0].1, [&[1, 0, 0, 0], label.as_bytes(), &[0]].concat());
            let text = core::str::from_utf8(all[2].1).unwrap();
            assert!(text.contains("<SYNC_POINT_COUNT>2</SYNC_POINT_COUNT>"));
            assert!(text.contains("<SYNC_POINT_LOW>5</SYNC_POINT_LOW>"));
            assert!(text.contains("<SYNC_POINT_HIGH>7</SYNC_POINT_HIGH>"));
            assert!(!text.contains("<Eva>"));
            assert_eq!(text.contains("J\u{fc}rg &amp; &lt;Eva&gt;"), label.len() > 2);
        }
    }

    #[test]
    fn an_empty_list_appends_no_chunks() {
        let mut out = Vec::new();
        marker_chunks(&[], &mut out);
        assert!(out.is_empty());
        marker_chunks(&[FileMarker { position: u64::MAX, label: "far" }], &mut out);
        assert!(out.starts_with(b"iXML"));
    }
}
