//! ID3 tags for timed metadata ("Timed Metadata for HTTP Live Streaming"; ID3v2.4).

/// A tag with a title (`TIT2`, UTF-8), cut to `MAX_TITLE` bytes.
#[must_use]
pub fn title_tag(title: &str) -> Vec<u8> {
    // A zero would end the text.
    let mut text = title.replace('\0', " ");
    let end = (0..=MAX_TITLE.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or(0));
    let body = text.len() + 1;
    let mut tag = Vec::with_capacity(HEADER + HEADER + body);
    tag.extend_from_slice(b"ID3\x04\0\0");
    tag.extend_from_slice(&syncsafe(HEADER + body));
    tag.extend_from_slice(b"TIT2");
    tag.extend_from_slice(&syncsafe(body));
    tag.extend_from_slice(&[0, 0, UTF_8]);
    tag.extend_from_slice(text.as_bytes());
    tag
}

/// Seven bits in each byte.
fn syncsafe(size: usize) -> [u8; 4] {
    [21, 14, 7, 0].map(|shift| u8::try_from(size >> shift & 0x7f).unwrap_or(0))
}

/// Bytes of the header of a tag, and of that of a text frame.
const HEADER: usize = 10;

/// The text encoding byte.
const UTF_8: u8 = 3;

/// The longest title, in bytes.
const MAX_TITLE: usize = 1_000;
