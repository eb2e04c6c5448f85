//! ID3v2.4 tags (id3.org, "ID3 tag version 2.4.0").

/// Appends a tag with these text frames: identifiers as `TIT2`, and for other names `TXXX` with the
/// name as its description. The tag is filled with zeros up to a multiple of `ALIGNMENT` bytes, so
/// that the Info frame behind it is within one sector.
pub fn id3_tag<'a>(frames: impl Iterator<Item = (&'a str, &'a str)>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(b"ID3\x04\0\0");
    out.extend_from_slice(&[0; 4]);
    for (name, text) in frames {
        let is_identifier = name.len() == 4 && name.starts_with('T');
        let (identifier, description) =
            if is_identifier { (name, None) } else { ("TXXX", Some(name)) };
        // A zero would end the text.
        let text = text.replace('\0', " ");
        let mut body = vec![UTF_8];
        if let Some(description) = description {
            body.extend_from_slice(description.as_bytes());
            body.push(0);
        }
        body.extend_from_slice(text.as_bytes());
        body.truncate(MAX_TEXT);
        out.extend_from_slice(identifier.as_bytes());
        out.extend_from_slice(&syncsafe(body.len()));
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&body);
    }
    let length = (out.len() - start).next_multiple_of(ALIGNMENT);
    out.resize(start + length, 0);
    if let Some(size) = out.get_mut(start + 6..start + HEADER) {
        size.copy_from_slice(&syncsafe(length - HEADER));
    }
}

/// Length of the tag that begins with these bytes, with its header; 0 if there is none.
pub(super) fn tag_length(begin: &[u8]) -> u64 {
    match begin {
        // A byte of the size above 127 is none of a tag.
        [b'I', b'D', b'3', 2..=4, _, _, a, b, c, d, ..] if (a | b | c | d) & 0x80 == 0 => {
            let size = [a, b, c, d].iter().fold(0, |size, byte| size << 7 | u64::from(**byte));
            size + HEADER as u64
        }
        _ => 0,
    }
}

/// A number in four bytes of seven bits.
fn syncsafe(number: usize) -> [u8; 4] {
    [21, 14, 7, 0].map(|shift| (number >> shift & 0x7f).to_le_bytes()[0])
}

const HEADER: usize = 10;
const UTF_8: u8 = 3;

/// Longest text in bytes; a title of a recording is a station's name.
const MAX_TEXT: usize = 4_096;

/// A sector.
const ALIGNMENT: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_states_its_length_and_fills_sectors() {
        let mut out = vec![7];
        let long = "é".repeat(300);
        id3_tag(
            [("TIT2", "Hall"), ("TIME_REFERENCE", "4800"), ("TPE1", &long)].into_iter(),
            &mut out,
        );
        let tag = &out[1..];
        assert_eq!((tag.len(), tag_length(tag)), (1_024, 1_024));
        assert_eq!(tag[..10], *b"ID3\x04\0\0\0\0\x07\x76");
        assert_eq!(tag[10..25], *b"TIT2\0\0\0\x05\0\0\x03Hall");
        assert_eq!(tag[25..35], *b"TXXX\0\0\0\x14\0\0");
        assert_eq!(tag[35..55], *b"\x03TIME_REFERENCE\x004800");
        // 601 bytes, in sevens of bits.
        assert_eq!(tag[55..66], *b"TPE1\0\0\x04\x59\0\0\x03");
    }

    #[test]
    fn what_is_no_tag_has_no_length() {
        assert_eq!(tag_length(b"ID3\x04\0\0\0\0\0\x80"), 0);
        assert_eq!(tag_length(b"ID3\x04\0"), 0);
        assert_eq!(tag_length(&[0xff, 0xfb, 0x90, 0, 0, 0, 0, 0, 0, 0]), 0);
        assert_eq!(tag_length(b"ID3\x03\0\0\x7f\x7f\x7f\x7f"), (1 << 28) - 1 + 10);
    }
}
