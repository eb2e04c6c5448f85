//! Reading of `ID3v2` tags (id3.org, versions 2.3 and 2.4): titles, and the time of HLS segments
//! ("HTTP Live Streaming", 3.4).

use crate::mpegts::TsTime;
use crate::titles::{TitleCharset, TrackMetadata, clean_text};

/// Collects a tag that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct TagCollector {
    bytes: Vec<u8>,
}

impl TagCollector {
    /// Takes the next bytes of a tag, or the first; returns the tag once it is complete. A tag of
    /// more than `MAX_BYTES` is ignored.
    pub(crate) fn push(&mut self, bytes: &[u8], begins: bool) -> Option<Id3Tag> {
        if begins {
            self.bytes.clear();
        } else if self.bytes.is_empty() {
            return None;
        }
        self.bytes.extend_from_slice(bytes);
        let header = self.bytes.first_chunk::<HEADER>()?;
        let length = tag_length(header).filter(|length| *length <= MAX_BYTES);
        let Some(length) = length else {
            self.bytes.clear();
            return None;
        };
        let tag = Id3Tag::parse(self.bytes.get(..length)?);
        self.bytes.clear();
        Some(tag)
    }
}

/// What a tag says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Id3Tag {
    metadata: TrackMetadata,
    time: Option<TsTime>,
}

/// Length of the tag with this header, without its footer.
pub(crate) fn tag_length(header: &[u8; HEADER]) -> Option<usize> {
    let [b'I', b'D', b'3', _, _, _, size @ ..] = header else { return None };
    Some(HEADER + syncsafe(*size)?)
}

impl Id3Tag {
    /// A tag with its header. Frames that are compressed, encrypted or unknown are skipped.
    pub(crate) fn parse(tag: &[u8]) -> Self {
        let mut parsed = Self::default();
        let (Some([.., version, _, flags, _, _, _, _]), Some(mut rest)) =
            (tag.first_chunk::<HEADER>(), tag.get(HEADER..))
        else {
            return parsed;
        };
        if flags & (UNSYNCHRONIZED | EXTENDED) != 0 {
            return parsed;
        }
        while let Some([a, b, c, d, size @ .., _, format]) = rest.first_chunk::<HEADER>() {
            let size = match version {
                4 => syncsafe(*size),
                _ => usize::try_from(u32::from_be_bytes(*size)).ok(),
            };
            let Some((body, behind)) =
                rest.get(HEADER..).and_then(|rest| rest.split_at_checked(size?))
            else {
                break;
            };
            rest = behind;
            if *format == 0 {
                parsed.set(&[*a, *b, *c, *d], body);
            }
        }
        parsed
    }

    /// The title and its performer, if the tag has any.
    pub(crate) fn title(self) -> Option<TrackMetadata> {
        (self.metadata != TrackMetadata::default()).then_some(self.metadata)
    }

    /// The time of the first frame behind the tag.
    pub(crate) const fn time(&self) -> Option<TsTime> {
        self.time
    }

    fn set(&mut self, name: &[u8; 4], body: &[u8]) {
        let Self { metadata, time } = self;
        match name {
            b"TIT2" => metadata.title = text(body),
            b"TPE1" => metadata.artist = text(body),
            b"TALB" => metadata.album = text(body),
            b"PRIV" => {
                let ticks = body.strip_prefix(TIME_OWNER).and_then(|it| it.try_into().ok());
                *time = ticks.map(|ticks| TsTime::from_ticks(u64::from_be_bytes(ticks))).or(*time);
            }
            _ => {}
        }
    }
}

/// A text frame: its encoding, and text up to a zero.
fn text(body: &[u8]) -> Option<String> {
    let (encoding, bytes) = body.split_first()?;
    let wide = |read: fn([u8; 2]) -> u16, bytes: &[u8]| {
        let (units, _) = bytes.as_chunks();
        let units = units.iter().map(|unit| read(*unit)).take_while(|unit| *unit != 0);
        let letters = char::decode_utf16(units).map(|it| it.unwrap_or(char::REPLACEMENT_CHARACTER));
        letters.collect::<String>()
    };
    let narrow = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = match (encoding, bytes) {
        (0, _) => TitleCharset::default().decode(narrow),
        (1, [0xff, 0xfe, bytes @ ..]) => wide(u16::from_le_bytes, bytes),
        (1, [0xfe, 0xff, bytes @ ..]) => wide(u16::from_be_bytes, bytes),
        (1 | 2, bytes) => wide(u16::from_be_bytes, bytes),
        _ => String::from_utf8_lossy(narrow).into_owned(),
    };
    clean_text(text.as_bytes())
}

/// A number in four bytes of seven bits.
fn syncsafe(bytes: [u8; 4]) -> Option<usize> {
    bytes.iter().all(|byte| *byte < 0x80).then_some(())?;
    Some(bytes.iter().fold(0, |sum, byte| sum << 7 | usize::from(*byte)))
}

/// Bytes of the header of a tag, and of that of a frame.
pub(crate) const HEADER: usize = 10;

/// The largest tag that is read; titles have some hundred bytes.
pub(crate) const MAX_BYTES: usize = 64 * 1_024;

/// Flags of a tag: zeros inserted, and more headers; neither is in use with streams.
const UNSYNCHRONIZED: u8 = 0x80;
const EXTENDED: u8 = 0x40;

/// Owner of the frame with the time.
pub(crate) const TIME_OWNER: &[u8] = b"com.apple.streaming.transportStreamTimestamp\0";
