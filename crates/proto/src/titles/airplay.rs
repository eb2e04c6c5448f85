//! Parser of shairport-sync's metadata pipe.
//!
//! The pipe carries a sequence of items without an enclosing element, as the README of
//! shairport-sync-metadata-reader describes: a type and a code of four letters, both in
//! hexadecimal, and optional data in base64.
//!
//! ```text
//!  <item><type>636f7265</type><code>6d696e6d</code><length>6</length>
//!  <data encoding="base64">
//!  U3RhYmF0</data></item>
//! ```
//!
//! Items of type `core` come from the phone (DMAP), items of type `ssnc` from shairport-sync
//! itself.

use aulos_core::Span;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{PlaybackEvent, TrackMetadata, clean_text};

/// Parses the metadata pipe.
#[derive(Debug, Default)]
pub struct AirplayMetadataParser {
    item: Vec<u8>,
    /// How much of `item` has already been searched for the end tag.
    searched: usize,
    title: TrackMetadata,
}

impl AirplayMetadataParser {
    /// Consumes bytes and reports the events in them.
    pub fn push(&mut self, bytes: &[u8], mut emit: impl FnMut(PlaybackEvent)) {
        self.item.extend_from_slice(bytes);
        while let Some(at) = find(self.item.get(self.searched..).unwrap_or_default(), END) {
            let end = self.searched + at + END.len();
            let rest = self.item.split_off(end);
            let item = core::mem::replace(&mut self.item, rest);
            self.searched = 0;
            // After an oversized item was discarded, its remainder precedes the next item.
            if let Some(at) = rfind(&item, BEGIN) {
                self.parse_item(item.get(at..).unwrap_or_default(), &mut emit);
            }
        }
        if self.item.len() > MAX_ITEM {
            self.item = Vec::new();
        }
        // A part of the end tag may already be in the buffer.
        self.searched = self.item.len().saturating_sub(END.len());
    }

    fn parse_item(&mut self, item: &[u8], emit: &mut impl FnMut(PlaybackEvent)) {
        let Some((kind, code)) = code(item, b"<type>").zip(code(item, b"<code>")) else { return };
        let data = data(item);
        match (&kind, &code) {
            (b"core", b"minm") => self.title.title = clean_text(&data),
            (b"core", b"asar") => self.title.artist = clean_text(&data),
            (b"core", b"asal") => self.title.album = clean_text(&data),
            (b"core", b"asgn") => self.title.genre = clean_text(&data),
            (b"core", b"ascp") => self.title.composer = clean_text(&data),
            (b"core", b"astm") => {
                let millis = data.as_slice().try_into().map(u32::from_be_bytes).ok();
                self.title.duration =
                    millis.filter(|millis| *millis > 0).map(|ms| Span::from_millis(ms.into()));
            }
            // A new bundle begins: the metadata so far belongs to the previous track.
            (b"ssnc", b"mdst") => self.title = TrackMetadata::default(),
            (b"ssnc", b"mden") => emit(PlaybackEvent::Title(self.title.clone())),
            (b"ssnc", b"PICT") => emit(PlaybackEvent::Picture(data)),
            (b"ssnc", b"prgr") => {
                if let Some((position, duration)) = progress(&data) {
                    emit(PlaybackEvent::Position(position, duration));
                }
            }
            (b"ssnc", b"pbeg" | b"prsm") => emit(PlaybackEvent::Playing),
            (b"ssnc", b"pfls") => emit(PlaybackEvent::Paused),
            (b"ssnc", b"pend") => emit(PlaybackEvent::Stopped),
            _ => {}
        }
    }
}

/// The four-letter code after a tag, decoded from hexadecimal.
fn code(item: &[u8], tag: &[u8]) -> Option<[u8; 4]> {
    let at = find(item, tag)? + tag.len();
    let digits = core::str::from_utf8(item.get(at..at + 8)?).ok()?;
    u32::from_str_radix(digits, 16).ok().map(u32::to_be_bytes)
}

fn data(item: &[u8]) -> Vec<u8> {
    let inside = || {
        let begin = find(item, b"<data")?;
        let begin = begin + find(item.get(begin..)?, b">")? + 1;
        let end = begin + find(item.get(begin..)?, b"</data>")?;
        item.get(begin..end)
    };
    let digits: Vec<u8> =
        inside().unwrap_or_default().iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    // Damaged base64 counts as no data.
    STANDARD.decode(digits).unwrap_or_default()
}

/// Parses `start/now/end` in frames at 44.1 kHz, 32-bit values that wrap, into position and length.
fn progress(data: &[u8]) -> Option<(Span, Span)> {
    let mut parts = core::str::from_utf8(data).ok()?.split('/');
    let mut next = || parts.next()?.trim().parse::<u32>().ok();
    let (start, now, end) = (next()?, next()?, next()?);
    // At most 27 hours, so the product does not overflow.
    let span = |frames: u32| Span::from_millis(i64::from(frames) * 1_000 / 44_100);
    let (position, duration) = (now.wrapping_sub(start), end.wrapping_sub(start));
    // A phone may report a position slightly before the start.
    let position = if position > duration { 0 } else { position };
    Some((span(position), span(duration)))
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

fn rfind(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).rposition(|window| window == wanted)
}

const BEGIN: &[u8] = b"<item>";
const END: &[u8] = b"</item>";

/// Maximum size of an item in bytes: a picture of 4 MB in base64.
const MAX_ITEM: usize = 6 << 20;
