//! Ogg pages (RFC 3533, section 6).

use core::fmt;

use crate::Patch;
use crate::crc::crc32;

/// Writes the packets of a logical stream as pages.
#[derive(Clone, Debug)]
pub struct PageWriter {
    serial: u32,
    sequence: u32,
}

/// Whether a packet is the first or the last of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a stream has two ends and a middle")]
pub enum StreamBoundary {
    /// First packet.
    First,
    /// Neither first nor last packet.
    Middle,
    /// Last packet.
    Last,
}

impl PageWriter {
    /// A logical stream; `serial` identifies it within the physical stream.
    #[must_use]
    pub const fn new(serial: u32) -> Self {
        Self { serial, sequence: 0 }
    }

    /// Appends `packet` as a page, or as several pages if necessary.
    ///
    /// `granule` is the codec's position after the packet. A page per packet costs about 28 bytes
    /// and avoids waiting for more packets.
    ///
    /// # Real-time
    /// Does not allocate when `out` has room for the packet, 1/255 of it, and 27 bytes per page.
    pub fn write_packet(
        &mut self,
        packet: &[u8],
        granule: u64,
        ends: StreamBoundary,
        out: &mut Vec<u8>,
    ) {
        let (mut rest, mut continued) = (packet, false);
        loop {
            let here = rest.len().min(MAX_BODY);
            let (body, behind) = rest.split_at_checked(here).unwrap_or((rest, &[]));
            // A packet ends with a segment shorter than 255, possibly an empty one, for which a
            // full page has no room.
            let complete = here < MAX_BODY;
            let mut flags = 0;
            flags |= if continued { CONTINUED } else { 0 };
            flags |= if ends == StreamBoundary::First && !continued { FIRST } else { 0 };
            flags |= if ends == StreamBoundary::Last && complete { LAST } else { 0 };
            let granule = if complete { granule } else { NO_GRANULE };
            self.write_page(segments(body.len(), complete), body, granule, flags, out);
            if complete {
                return;
            }
            (rest, continued) = (behind, true);
        }
    }

    /// Appends the packets of `bundle` as one page and clears it.
    ///
    /// `granule` is the codec's position after the last packet.
    pub fn write_packets(
        &mut self,
        bundle: &mut PageBuilder,
        granule: u64,
        ends: StreamBoundary,
        out: &mut Vec<u8>,
    ) {
        let flags = match ends {
            StreamBoundary::First => FIRST,
            StreamBoundary::Middle => 0,
            StreamBoundary::Last => LAST,
        };
        self.write_page(bundle.segments.iter().copied(), &bundle.body, granule, flags, out);
        bundle.segments.clear();
        bundle.body.clear();
    }

    fn write_page(
        &mut self,
        segments: impl Iterator<Item = u8>,
        body: &[u8],
        granule: u64,
        flags: u8,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[0, flags]);
        out.extend_from_slice(&granule.to_le_bytes());
        out.extend_from_slice(&self.serial.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&[0; 5]);
        let table = out.len();
        out.extend(segments);
        let count = u8::try_from(out.len() - table).unwrap_or(u8::MAX);
        if let Some(place) = out.get_mut(table - 1) {
            *place = count;
        }
        out.extend_from_slice(body);
        let crc = checksum(out.get(start..).unwrap_or_default());
        if let Some(place) = out.get_mut(start..).and_then(|page| page.get_mut(field::CRC)) {
            place.copy_from_slice(&crc.to_le_bytes());
        }
        self.sequence = self.sequence.wrapping_add(1);
    }
}

/// Complete packets that will share a page; a page per packet would add an eighth.
#[derive(Clone, Debug, Default)]
pub struct PageBuilder {
    segments: Vec<u8>,
    body: Vec<u8>,
}

impl PageBuilder {
    /// Adds a packet; returns `false` and does nothing when the page has no room.
    #[must_use]
    pub fn push(&mut self, packet: &[u8]) -> bool {
        if self.segments.len() + packet.len() / 255 + 1 > MAX_SEGMENTS {
            return false;
        }
        self.segments.extend(segments(packet.len(), true));
        self.body.extend_from_slice(packet);
        true
    }

    /// Whether there is no packet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}

/// Segment lengths of a packet; when it is `complete`, the last one is less than 255.
fn segments(length: usize, complete: bool) -> impl Iterator<Item = u8> {
    let last = complete.then(|| u8::try_from(length % 255).unwrap_or(0));
    core::iter::repeat_n(255, length / 255).chain(last)
}

/// View of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page<'a> {
    /// The first segment continues a packet of an earlier page.
    pub continued: bool,
    /// First page of the stream.
    pub first: bool,
    /// Last page of the stream.
    pub last: bool,
    /// Granule position after the last packet that ends here; all ones when none does.
    pub granule: u64,
    /// Serial number of the stream.
    pub serial: u32,
    /// Sequence number of the page.
    pub sequence: u32,
    /// Segment lengths. One less than 255 ends a packet.
    pub segments: &'a [u8],
    /// Content of the segments.
    pub body: &'a [u8],
}

impl Page<'_> {
    /// Length of the page in bytes.
    #[must_use]
    pub const fn total_len(&self) -> usize {
        HEADER_LEN + self.segments.len() + self.body.len()
    }
}

/// The patch that marks `page`, at offset `at` of its file, as the last of its stream; `None` when
/// it is not a valid page.
#[must_use]
pub fn mark_last_page(page: &[u8], at: u64) -> Option<Patch> {
    let Ok(ParsedPage::Page(_)) = parse_page(page) else { return None };
    let mut page = page.to_vec();
    *page.get_mut(field::FLAGS)? |= LAST;
    let crc = checksum(&page);
    page.get_mut(field::CRC)?.copy_from_slice(&crc.to_le_bytes());
    Some(Patch::new(at, page.get(..HEADER_LEN)?))
}

/// Result of parsing the front of a byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "there is no third answer")]
pub enum ParsedPage<'a> {
    /// The page is incomplete.
    Incomplete {
        /// Bytes needed from the start of the page, at most 65,307.
        needed: usize,
    },
    /// A complete page with a correct checksum.
    Page(Page<'a>),
}

/// Parses the page at the front of `bytes`.
///
/// # Errors
/// [`PageError`]; the search for the next `OggS` may continue one byte further on.
pub fn parse_page(bytes: &[u8]) -> Result<ParsedPage<'_>, PageError> {
    if !MAGIC.iter().zip(bytes).all(|(wanted, here)| wanted == here) {
        return Err(PageError::NotOgg);
    }
    let Some(header) = bytes.first_chunk::<HEADER_LEN>() else {
        return Ok(ParsedPage::Incomplete { needed: HEADER_LEN });
    };
    let [_, _, _, _, version, flags, .., count] = *header;
    if version != 0 {
        return Err(PageError::Version(version));
    }
    let segments_end = HEADER_LEN + usize::from(count);
    let Some(segments) = bytes.get(HEADER_LEN..segments_end) else {
        return Ok(ParsedPage::Incomplete { needed: segments_end });
    };
    let needed = segments_end + segments.iter().map(|length| usize::from(*length)).sum::<usize>();
    let Some(page) = bytes.get(..needed) else { return Ok(ParsedPage::Incomplete { needed }) };
    let crc = u32::from_le_bytes(read(header, field::CRC));
    if checksum(page) != crc {
        return Err(PageError::Checksum);
    }
    Ok(ParsedPage::Page(Page {
        continued: flags & CONTINUED != 0,
        first: flags & FIRST != 0,
        last: flags & LAST != 0,
        granule: u64::from_le_bytes(read(header, field::GRANULE)),
        serial: u32::from_le_bytes(read(header, field::SERIAL)),
        sequence: u32::from_le_bytes(read(header, field::SEQUENCE)),
        segments,
        body: page.get(segments_end..).unwrap_or_default(),
    }))
}

/// Reason why bytes are not a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageError {
    /// It does not begin with `OggS`.
    NotOgg,
    /// Unknown version; only 0 exists.
    Version(u8),
    /// Wrong checksum.
    Checksum,
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOgg => f.write_str("not an Ogg page"),
            Self::Version(version) => write!(f, "unsupported Ogg version {version}"),
            Self::Checksum => f.write_str("the checksum of an Ogg page does not match"),
        }
    }
}

impl core::error::Error for PageError {}

fn read<const N: usize>(header: &[u8; HEADER_LEN], range: core::ops::Range<usize>) -> [u8; N] {
    header.get(range).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
}

/// Checksum of a page with its own field as zero; it begins with zero.
fn checksum(page: &[u8]) -> u32 {
    let bytes = page.iter().enumerate();
    crc32(0, bytes.map(|(at, byte)| if field::CRC.contains(&at) { 0 } else { *byte }))
}

mod field {
    use core::ops::Range;

    pub(super) const FLAGS: usize = 5;
    pub(super) const GRANULE: Range<usize> = 6..14;
    pub(super) const SERIAL: Range<usize> = 14..18;
    pub(super) const SEQUENCE: Range<usize> = 18..22;
    pub(super) const CRC: Range<usize> = 22..26;
}

const MAGIC: &[u8; 4] = b"OggS";
const HEADER_LEN: usize = 27;
/// The segment count is one byte.
const MAX_SEGMENTS: usize = 255;
/// Maximum length of the content: 255 segments of 255 bytes.
const MAX_BODY: usize = MAX_SEGMENTS * 255;
/// Granule position of a page on which no packet ends.
const NO_GRANULE: u64 = u64::MAX;
const CONTINUED: u8 = 1;
const FIRST: u8 = 2;
const LAST: u8 = 4;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The packets in a sequence of pages, with the granule position after each.
    fn packets(mut bytes: &[u8]) -> Vec<(Vec<u8>, u64)> {
        let (mut packets, mut open, mut sequence) = (Vec::new(), Vec::new(), 0);
        while !bytes.is_empty() {
            let Ok(ParsedPage::Page(page)) = parse_page(bytes) else {
                panic!("{:?}", parse_page(bytes))
            };
            assert_eq!((page.sequence, page.serial), (sequence, 7));
            assert_eq!(page.continued, !open.is_empty());
            let mut body = page.body;
            for length in page.segments {
                let (segment, rest) = body.split_at(usize::from(*length));
                body = rest;
                open.extend_from_slice(segment);
                if *length < 255 {
                    packets.push((core::mem::take(&mut open), page.granule));
                }
            }
            sequence += 1;
            bytes = &bytes[page.total_len()..];
        }
        assert!(open.is_empty());
        packets
    }

    #[test]
    fn a_page_of_ffmpegs_has_the_checksum_that_we_compute() {
        // The first page of `ffmpeg -f lavfi -i sine -c:a libopus -serial_offset 5 x.ogg`.
        let page = include_bytes!("../../tests/vectors/ogg_opus_head.ogg");
        let Ok(ParsedPage::Page(parsed)) = parse_page(page) else {
            panic!("{:?}", parse_page(page))
        };
        assert!(parsed.first && !parsed.continued && !parsed.last);
        assert_eq!(&parsed.body[..8], b"OpusHead");
        assert_eq!(parsed.total_len(), page.len());
    }

    #[test]
    fn the_ends_of_a_stream_are_marked_on_the_right_pages() {
        let (mut writer, mut out) = (PageWriter::new(7), Vec::new());
        writer.write_packet(&[1; 70_000], 5, StreamBoundary::First, &mut out);
        writer.write_packet(&[2; 70_000], 9, StreamBoundary::Last, &mut out);
        let (mut marks, mut rest) = (Vec::new(), &out[..]);
        while let Ok(ParsedPage::Page(page)) = parse_page(rest) {
            marks.push((page.first, page.continued, page.last, page.granule));
            rest = &rest[page.total_len()..];
        }
        let wanted = [
            (true, false, false, u64::MAX),
            (false, true, false, 5),
            (false, false, false, u64::MAX),
            (false, true, true, 9),
        ];
        assert_eq!(marks, wanted);
    }

    #[test]
    fn packets_of_boundary_lengths_round_trip() {
        let (mut writer, mut out) = (PageWriter::new(7), Vec::new());
        let lengths = [0, 1, 254, 255, 256, 510, 65_024, 65_025, 65_026, 130_050, 200_000];
        for (length, granule) in lengths.into_iter().zip(1..) {
            writer.write_packet(&vec![3; length], granule, StreamBoundary::Middle, &mut out);
        }
        let found: Vec<_> =
            packets(&out).into_iter().map(|(packet, at)| (packet.len(), at)).collect();
        assert_eq!(found, lengths.into_iter().zip(1..).collect::<Vec<_>>());
    }

    #[test]
    fn a_page_takes_as_many_packets_as_it_can_hold() {
        let (mut writer, mut out, mut bundle) =
            (PageWriter::new(7), Vec::new(), PageBuilder::default());
        let lengths = [0, 1, 255, 510, 254, 60_000];
        assert!(lengths.iter().all(|length| bundle.push(&vec![3; *length])));
        assert!(!bundle.push(&[3; 4_000]), "255 segments are a page");
        assert!(bundle.push(&[3; 300]));
        writer.write_packets(&mut bundle, 9, StreamBoundary::Middle, &mut out);
        assert!(bundle.is_empty());
        let found: Vec<_> =
            packets(&out).into_iter().map(|(packet, at)| (packet.len(), at)).collect();
        assert_eq!(found, [0, 1, 255, 510, 254, 60_000, 300].map(|length| (length, 9)));
    }

    proptest! {
        #[test]
        fn any_packet_round_trips(all in prop::collection::vec(
            prop::collection::vec(any::<u8>(), 0..700), 1..6,
        )) {
            let (mut writer, mut out) = (PageWriter::new(7), Vec::new());
            for packet in &all {
                writer.write_packet(packet, 1, StreamBoundary::Middle, &mut out);
            }
            let found: Vec<_> = packets(&out).into_iter().map(|(packet, _)| packet).collect();
            prop_assert_eq!(found, all);
        }

        #[test]
        fn one_wrong_bit_is_noticed(at in 0..60_usize, bit in 0..8) {
            let mut out = Vec::new();
            PageWriter::new(7).write_packet(&[5; 40], 1, StreamBoundary::Middle, &mut out);
            let at = at % out.len();
            out[at] ^= 1_u8 << bit;
            prop_assert!(!matches!(parse_page(&out), Ok(ParsedPage::Page(_))));
        }

        #[test]
        fn any_bytes_give_an_answer(tail: Vec<u8>) {
            let bytes = [b"OggS\0", &tail[..]].concat();
            if let Ok(ParsedPage::Incomplete { needed }) = parse_page(&bytes) {
                prop_assert!(needed > bytes.len() && needed <= 65_307);
            }
        }
    }
}
