//! ID3 tags (ID3v2.4): for timed metadata ("Timed Metadata for HTTP Live Streaming"), and at the
//! head of segments of packed audio (RFC 8216, section 3.4).

use crate::id3::TIME_OWNER;

/// A tag with a title (`TIT2`, UTF-8), cut to `MAX_TITLE` bytes.
#[must_use]
pub fn title_tag(title: &str) -> Vec<u8> {
    tag(&title_frame(title))
}

/// The tag at the head of a segment of packed audio: the time of its first sample in units of
/// 1/90,000 s, of which the lowest 33 bits count, and the title that holds there.
#[must_use]
pub fn packed_audio_tag(ticks: u64, title: Option<&str>) -> Vec<u8> {
    let time = (ticks & TIMESTAMP_MASK).to_be_bytes();
    let mut frames = frame(b"PRIV", &[TIME_OWNER, &time].concat());
    frames.extend(title.map(title_frame).unwrap_or_default());
    tag(&frames)
}

fn tag(frames: &[u8]) -> Vec<u8> {
    [b"ID3\x04\0\0".as_slice(), &syncsafe(frames.len()), frames].concat()
}

fn frame(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
    [name.as_slice(), &syncsafe(body.len()), &[0, 0], body].concat()
}

fn title_frame(title: &str) -> Vec<u8> {
    // A zero would end the text.
    let mut text = title.replace('\0', " ");
    let end = (0..=MAX_TITLE.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or(0));
    frame(b"TIT2", &[&[UTF_8], text.as_bytes()].concat())
}

/// Seven bits in each byte.
fn syncsafe(size: usize) -> [u8; 4] {
    [21, 14, 7, 0].map(|shift| u8::try_from(size >> shift & 0x7f).unwrap_or(0))
}

/// The bits of a timestamp of MPEG-2.
const TIMESTAMP_MASK: u64 = (1 << 33) - 1;

/// The text encoding byte.
const UTF_8: u8 = 3;

/// The longest title, in bytes.
const MAX_TITLE: usize = 1_000;
