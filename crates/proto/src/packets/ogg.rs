//! Reader of Ogg streams, one logical stream after the other.
//!
//! A station that changes its title ends one stream and begins the next (chaining, RFC 3533,
//! section 4). Streams in parallel to the first audio stream (pictures, a skeleton) are skipped.

use super::input_buffer::InputBuffer;
use super::{
    MAX_PACKET, PacketFormat, PacketPlacement, ReaderStep, SplitterEvent, StreamFormatError,
    StreamStart, flac, vorbis_comment,
};
use crate::flac::StreamInfo;
use crate::ogg::{Page, PageError, ParsedPage, parse_page};
use crate::titles::TrackMetadata;

/// Reassembles packets from pages.
#[derive(Debug, Default)]
pub(super) struct Reader {
    stream: Option<LogicalStream>,
    page: Option<OpenPage>,
    /// Packet that continues on the next page.
    partial: Vec<u8>,
    /// The beginning of the partial packet is missing.
    lost_beginning: bool,
    /// Bytes in pages of unknown streams.
    foreign: u64,
}

/// State of a logical stream.
#[derive(Debug)]
struct LogicalStream {
    serial: u32,
    codec: Codec,
    /// Sequence number of the next page.
    sequence: Option<u32>,
    /// All headers were read.
    begun: bool,
    headers: Vec<Vec<u8>>,
    /// Metadata to report next.
    title: Option<TrackMetadata>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Codec {
    Opus,
    Vorbis,
    Flac,
}

/// The page that is being read; it is at the front of the buffer.
#[derive(Clone, Copy, Debug)]
struct OpenPage {
    total: usize,
    segments: usize,
    /// Index and offset of the next segment.
    next: usize,
    at: usize,
    /// Index of the segment that ends the last packet of the page.
    last_end: Option<usize>,
    position: Option<u64>,
    ends_stream: bool,
}

impl Codec {
    fn of(packet: &[u8]) -> Option<Self> {
        match packet {
            [b'O', b'p', b'u', b's', b'H', b'e', b'a', b'd', ..] => Some(Self::Opus),
            [1, b'v', b'o', b'r', b'b', b'i', b's', ..] => Some(Self::Vorbis),
            [0x7f, b'F', b'L', b'A', b'C', ..] => Some(Self::Flac),
            _ => None,
        }
    }
}

impl Reader {
    /// Continues at a later page.
    pub(super) fn resume(self) -> Self {
        Self { page: None, ..self }
    }

    pub(super) fn next(&mut self, input: &mut InputBuffer, packet: &mut Vec<u8>) -> ReaderStep {
        if let Some(title) = self.stream.as_mut().and_then(|stream| stream.title.take()) {
            return ReaderStep::Found(SplitterEvent::Title(title));
        }
        match self.page.take() {
            Some(page) => self.segments(page, input, packet),
            None => self.page(input),
        }
    }

    /// Begins to read the page at the front.
    fn page(&mut self, input: &mut InputBuffer) -> ReaderStep {
        let page = match parse_page(input.bytes()) {
            Ok(ParsedPage::Page(page)) => page,
            Ok(ParsedPage::Incomplete { .. }) => return ReaderStep::NeedMore,
            // Skips the magic, which would be found again.
            Err(PageError::Checksum) => return ReaderStep::Lost(4),
            Err(_) => return ReaderStep::Lost(0),
        };
        let total = page.total_len();
        if page.first
            && let Some(codec) = Codec::of(page.body)
            && self
                .stream
                .as_ref()
                .is_none_or(|stream| stream.begun || stream.serial == page.serial)
        {
            let serial = page.serial;
            let (sequence, headers, title) = (None, Vec::new(), None);
            self.stream =
                Some(LogicalStream { serial, codec, sequence, begun: false, headers, title });
            self.partial.clear();
            self.lost_beginning = false;
        }
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.serial == page.serial)
        else {
            self.foreign += total as u64;
            input.skip(total as u64);
            let hopeless = self.stream.is_none() && self.foreign > MAX_FOREIGN;
            return if hopeless {
                ReaderStep::Refused(StreamFormatError::NoOggHeaders)
            } else {
                ReaderStep::Consumed
            };
        };
        let missing = stream.sequence.is_some_and(|sequence| sequence != page.sequence);
        stream.sequence = Some(page.sequence.wrapping_add(1));
        let lost = (missing && stream.begun) || page.continued == self.partial.is_empty();
        if lost {
            self.partial.clear();
            self.lost_beginning = page.continued;
        }
        self.page = Some(OpenPage::new(&page));
        if missing && stream.begun {
            ReaderStep::Found(SplitterEvent::Lost(0))
        } else {
            ReaderStep::Consumed
        }
    }

    /// Reads segments up to the end of a packet or of the page.
    fn segments(
        &mut self,
        mut page: OpenPage,
        input: &mut InputBuffer,
        packet: &mut Vec<u8>,
    ) -> ReaderStep {
        let bytes = input.bytes();
        while page.next < page.segments {
            let length = usize::from(bytes.get(HEADER_LEN + page.next).copied().unwrap_or(0));
            let segment = bytes.get(page.at..page.at + length).unwrap_or_default();
            if self.partial.len() + length <= MAX_PACKET {
                self.partial.extend_from_slice(segment);
            }
            let this = page.next;
            page.at += length;
            page.next += 1;
            if length < 255 {
                core::mem::swap(packet, &mut self.partial);
                self.partial.clear();
                self.page = Some(page);
                if core::mem::take(&mut self.lost_beginning) {
                    return ReaderStep::Consumed;
                }
                let ends_page = page.last_end == Some(this);
                let place = PacketPlacement {
                    position: page.position.filter(|_| ends_page),
                    last: ends_page && page.ends_stream,
                    time: None,
                };
                return self.packet_complete(place, packet);
            }
        }
        input.skip(page.total as u64);
        ReaderStep::Consumed
    }

    /// Handles a complete packet: audio or a header.
    fn packet_complete(&mut self, place: PacketPlacement, packet: &[u8]) -> ReaderStep {
        let Some(stream) = &mut self.stream else { return ReaderStep::Consumed };
        if stream.begun {
            // Empty packets and repeated headers are ignored.
            return if packet.is_empty() || stream.is_header(packet) {
                ReaderStep::Consumed
            } else {
                ReaderStep::Found(SplitterEvent::Packet(place))
            };
        }
        stream.header(packet)
    }
}

impl LogicalStream {
    fn is_header(&self, packet: &[u8]) -> bool {
        let first = packet.first().copied().unwrap_or(0);
        match self.codec {
            Codec::Opus => packet.starts_with(b"OpusHead") || packet.starts_with(b"OpusTags"),
            Codec::Vorbis => first & 1 == 1,
            Codec::Flac => first != 0xff,
        }
    }

    /// Handles a header.
    fn header(&mut self, packet: &[u8]) -> ReaderStep {
        match self.codec {
            Codec::Opus if packet.starts_with(b"OpusTags") => {
                let Some(head) = self.headers.pop() else { return ReaderStep::Consumed };
                let skip = head.get(10..12).and_then(|at| at.try_into().ok());
                let skip = u64::from(skip.map_or(0, u16::from_le_bytes));
                self.title = packet.get(8..).and_then(vorbis_comment::parse_title);
                self.begin(PacketFormat::Opus { head }, skip)
            }
            Codec::Vorbis if packet.starts_with(b"\x05vorbis") => {
                let headers = core::mem::take(&mut self.headers);
                let Some(identification) = headers.into_iter().next() else {
                    return ReaderStep::Consumed;
                };
                self.begin(PacketFormat::Vorbis { identification, setup: packet.to_vec() }, 0)
            }
            Codec::Flac if self.headers.is_empty() => {
                // Version, number of headers, `fLaC`, then a metadata block (RFC 9639, 10.1).
                let info = packet.get(17..).and_then(StreamInfo::parse);
                let Some(start) = info.as_ref().and_then(flac::stream_start) else {
                    return ReaderStep::Refused(StreamFormatError::NoOggHeaders);
                };
                self.headers.push(Vec::new());
                ReaderStep::Found(SplitterEvent::Begin(start))
            }
            Codec::Flac => {
                let [kind, ..] = packet else { return ReaderStep::Consumed };
                self.begun = kind & 0x80 != 0;
                let title = packet
                    .get(4..)
                    .filter(|_| kind & 0x7f == 4)
                    .and_then(vorbis_comment::parse_title);
                title.map_or(ReaderStep::Consumed, |title| {
                    ReaderStep::Found(SplitterEvent::Title(title))
                })
            }
            _ if self.headers.len() < MAX_HEADERS => {
                self.headers.push(packet.to_vec());
                let title = packet
                    .strip_prefix(b"\x03vorbis")
                    .filter(|_| self.codec == Codec::Vorbis)
                    .and_then(vorbis_comment::parse_title);
                title.map_or(ReaderStep::Consumed, |title| {
                    ReaderStep::Found(SplitterEvent::Title(title))
                })
            }
            _ => ReaderStep::Refused(StreamFormatError::NoOggHeaders),
        }
    }

    fn begin(&mut self, format: PacketFormat, skip: u64) -> ReaderStep {
        self.begun = true;
        ReaderStep::Found(SplitterEvent::Begin(Box::new(StreamStart {
            format,
            skip,
            padding: None,
        })))
    }
}

impl OpenPage {
    fn new(page: &Page<'_>) -> Self {
        Self {
            total: page.total_len(),
            segments: page.segments.len(),
            next: 0,
            at: HEADER_LEN + page.segments.len(),
            last_end: page.segments.iter().rposition(|length| *length < 255),
            position: Some(page.granule).filter(|granule| *granule < u64::MAX / 2),
            ends_stream: page.last,
        }
    }
}

/// Length of a page header without its segment table.
const HEADER_LEN: usize = 27;

/// Maximum number of headers before the audio: Vorbis has three.
const MAX_HEADERS: usize = 3;

/// Maximum number of bytes in pages of unknown streams before the stream is rejected.
const MAX_FOREIGN: u64 = 1024 * 1024;
