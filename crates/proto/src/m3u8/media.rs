//! Media playlists (RFC 8216, 4.3.2 and 4.3.3).

use std::sync::Arc;

use aulos_core::Span;

use super::attributes::Attributes;
use super::error::M3u8Error;
use super::limits::{MAX_SEGMENTS, uri};
use crate::titles::{TrackMetadata, clean_text};

/// A list of segments.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "what a playlist says")]
pub struct MediaPlaylist {
    /// `EXT-X-TARGETDURATION`: the longest segment, rounded to seconds; above 0.
    pub target: Span,
    /// Number of the first segment.
    pub sequence: u64,
    /// Whether nothing will be added any more.
    pub is_ended: bool,
    /// The segments, at least one and at most [`MAX_SEGMENTS`], with consecutive numbers.
    pub segments: Vec<MediaSegment>,
}

/// A segment.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "what a playlist says")]
pub struct MediaSegment {
    /// Its address, which may be relative.
    pub uri: String,
    /// `EXTINF`, from 0 to two minutes.
    pub duration: Span,
    /// The part of the resource that it is, if not the whole.
    pub range: Option<ByteRange>,
    /// It does not continue the segment before.
    pub is_discontinuous: bool,
    /// The server does not have it.
    pub is_gap: bool,
    /// How it is encrypted.
    pub key: Option<Arc<SegmentKey>>,
    /// What precedes the samples of MP4.
    pub map: Option<Arc<SegmentMap>>,
    /// The title that begins with it.
    pub title: Option<TrackMetadata>,
}

/// A part of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "a range has these")]
pub struct ByteRange {
    /// Its first byte.
    pub offset: u64,
    /// Number of bytes, above 0; `offset` plus `length` is a number of 64 bits.
    pub length: u64,
}

/// `EXT-X-KEY`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what a playlist says")]
pub struct SegmentKey {
    /// The method.
    pub method: Encryption,
    /// Address of the key.
    pub uri: String,
    /// The initialization vector; without one it is the number of the segment.
    pub iv: Option<[u8; 16]>,
}

/// A method of encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "one can be decrypted")]
pub enum Encryption {
    /// AES-128 in CBC over the whole segment.
    Aes128,
    /// One that needs a licence, such as `SAMPLE-AES`.
    Other,
}

/// `EXT-X-MAP`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what a playlist says")]
pub struct SegmentMap {
    /// Its address.
    pub uri: String,
    /// The part of the resource that it is, if not the whole.
    pub range: Option<ByteRange>,
    /// How it is encrypted.
    pub key: Option<Arc<SegmentKey>>,
}

/// The longest segment; a longer one is taken to last so long.
pub(super) const MAX_DURATION: Span = Span::from_secs(120);

/// What the tags so far say about the next segment.
#[derive(Default)]
struct Pending {
    duration: Option<Span>,
    range: Option<(u64, Option<u64>)>,
    is_discontinuous: bool,
    is_gap: bool,
    title: Option<TrackMetadata>,
}

/// A playlist that is being read.
#[derive(Default)]
struct MediaPlaylistParser {
    target: Option<Span>,
    sequence: u64,
    is_ended: bool,
    segments: Vec<MediaSegment>,
    next: Pending,
    key: Option<Arc<SegmentKey>>,
    map: Option<Arc<SegmentMap>>,
    /// Where a range of this resource without an offset begins.
    range_end: Option<(String, u64)>,
}

pub(super) fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Result<MediaPlaylist, M3u8Error> {
    let mut reader = MediaPlaylistParser::default();
    for line in lines {
        match line.strip_prefix('#') {
            Some(tag) => reader.read_tag(tag)?,
            None => reader.read_address(line)?,
        }
    }
    let MediaPlaylistParser { target, sequence, is_ended, segments, .. } = reader;
    let target = target.ok_or(M3u8Error::NoTargetDuration)?;
    let count = u64::try_from(segments.len()).unwrap_or(u64::MAX);
    if segments.is_empty() {
        return Err(M3u8Error::Empty);
    }
    match sequence.checked_add(count) {
        Some(_) => Ok(MediaPlaylist { target, sequence, is_ended, segments }),
        None => Err(M3u8Error::InvalidTag("EXT-X-MEDIA-SEQUENCE")),
    }
}

impl MediaPlaylistParser {
    fn read_tag(&mut self, tag: &str) -> Result<(), M3u8Error> {
        let next = &mut self.next;
        let (name, value) = tag.split_once(':').unwrap_or((tag, ""));
        match name {
            "EXT-X-TARGETDURATION" => {
                self.target = seconds(value).filter(|span| *span > Span::ZERO);
            }
            "EXT-X-MEDIA-SEQUENCE" => {
                let number = value.trim().parse();
                self.sequence =
                    number.map_err(|_| M3u8Error::InvalidTag("EXT-X-MEDIA-SEQUENCE"))?;
            }
            "EXT-X-ENDLIST" => self.is_ended = true,
            "EXTINF" => {
                let (number, text) = value.split_once(',').unwrap_or((value, ""));
                next.duration = Some(seconds(number).ok_or(M3u8Error::InvalidTag("EXTINF"))?);
                next.title = title(text, "title", "artist").or_else(|| next.title.take());
            }
            "EXT-X-DATERANGE" => {
                next.title = title(value, "X-TITLE", "X-ARTIST").or_else(|| next.title.take());
            }
            "EXT-X-BYTERANGE" => {
                let range = byte_range(value);
                next.range = Some(range.ok_or(M3u8Error::InvalidTag("EXT-X-BYTERANGE"))?);
            }
            "EXT-X-DISCONTINUITY" => next.is_discontinuous = true,
            "EXT-X-GAP" => next.is_gap = true,
            "EXT-X-KEY" => self.key = read_key(value)?.map(Arc::new),
            "EXT-X-MAP" => self.map = Some(Arc::new(read_map(value, self.key.as_ref())?)),
            _ => {}
        }
        Ok(())
    }

    fn read_address(&mut self, line: &str) -> Result<(), M3u8Error> {
        let Pending { duration, range, is_discontinuous, is_gap, title } =
            core::mem::take(&mut self.next);
        if self.segments.len() == MAX_SEGMENTS {
            return Err(M3u8Error::TooLarge);
        }
        if line.contains("{$") {
            return Err(M3u8Error::Variables);
        }
        let uri = uri(line).ok_or(M3u8Error::InvalidTag("address"))?;
        // ffmpeg writes a length of 0 for the last segment of fragmented MP4 in one file.
        let is_gap = is_gap || matches!(range, Some((0, _)));
        let range = range.filter(|(length, _)| *length > 0);
        let before = self.range_end.take().filter(|(before, _)| *before == uri);
        let range = range.map(|(length, offset)| {
            let offset = offset.or_else(|| before.map(|(_, end)| end));
            range_of(length, offset).ok_or(M3u8Error::InvalidTag("EXT-X-BYTERANGE"))
        });
        let range = range.transpose()?;
        self.range_end = range.map(|range| (uri.clone(), range.offset + range.length));
        self.segments.push(MediaSegment {
            uri,
            duration: duration.ok_or(M3u8Error::InvalidTag("EXTINF"))?,
            range,
            is_discontinuous,
            is_gap,
            key: self.key.clone(),
            map: self.map.clone(),
            title,
        });
        Ok(())
    }
}

/// `None` for what is no number from 0 on.
fn seconds(text: &str) -> Option<Span> {
    let seconds: f64 = text.trim().parse().ok()?;
    let seconds = Some(seconds).filter(|seconds| seconds.is_finite() && *seconds >= 0.0)?;
    let limited = seconds.min(MAX_DURATION.as_secs_f64());
    #[allow(clippy::cast_possible_truncation, reason = "at most 120 seconds")]
    Some(Span::from_nanos((limited * 1e9).round() as i64))
}

/// A title in attributes, as some encoders write them into `EXTINF` too. Free text there is often
/// the name of a file, and so not a title.
fn title(text: &str, title: &str, artist: &str) -> Option<TrackMetadata> {
    let get = |name| Attributes(text).get(name).and_then(|text| clean_text(text.as_bytes()));
    let (title, artist) = (get(title), get(artist));
    let is_there = title.is_some() || artist.is_some();
    is_there.then(|| TrackMetadata { title, artist, ..TrackMetadata::default() })
}

/// The length and the offset in `n[@o]`.
fn byte_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (length, offset) = match text.split_once('@') {
        Some((length, offset)) => (length, Some(offset.trim().parse().ok()?)),
        None => (text, None),
    };
    Some((length.trim().parse().ok()?, offset))
}

fn range_of(length: u64, offset: Option<u64>) -> Option<ByteRange> {
    let offset = offset.unwrap_or(0);
    offset.checked_add(length)?;
    (length > 0).then_some(ByteRange { offset, length })
}

/// `None` for `METHOD=NONE`.
fn read_key(value: &str) -> Result<Option<SegmentKey>, M3u8Error> {
    let invalid = M3u8Error::InvalidTag("EXT-X-KEY");
    let tag = Attributes(value);
    let method = match tag.get("METHOD").ok_or(invalid)? {
        "NONE" => return Ok(None),
        "AES-128" => Encryption::Aes128,
        _ => Encryption::Other,
    };
    let address = tag.get("URI").and_then(uri).ok_or(invalid)?;
    let iv = tag.get("IV").map(|iv| read_iv(iv).ok_or(invalid)).transpose()?;
    Ok(Some(SegmentKey { method, uri: address, iv }))
}

fn read_iv(text: &str) -> Option<[u8; 16]> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    let is_short = (1..=32).contains(&digits.len());
    let number = is_short.then(|| u128::from_str_radix(digits, 16).ok())?;
    number.map(u128::to_be_bytes)
}

fn read_map(value: &str, key: Option<&Arc<SegmentKey>>) -> Result<SegmentMap, M3u8Error> {
    let invalid = M3u8Error::InvalidTag("EXT-X-MAP");
    let tag = Attributes(value);
    let address = tag.get("URI").and_then(uri).ok_or(invalid)?;
    let range = tag.get("BYTERANGE").map(|text| {
        let (length, offset) = byte_range(text).ok_or(invalid)?;
        range_of(length, offset).ok_or(invalid)
    });
    Ok(SegmentMap { uri: address, range: range.transpose()?, key: key.cloned() })
}
