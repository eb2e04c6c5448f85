//! Splits endless encoded streams into packets.
//!
//! Web radio and source clients send MP3, AAC, Ogg, FLAC or WAVE, beginning at any point and with
//! anything in between: tags, advertisements, partial frames, another format. A [`PacketSplitter`]
//! accepts the bytes in pieces of any size and returns packets for a decoder.
//!
//! ```text
//!  bytes -> InputBuffer -> sniff -> mpeg | adts | flac | ogg | wave | transport | fragments
//!                            ^         |  `-> Begin, Packet, Title, Lost
//!                            `---------' out of sync
//! ```
//!
//! The format is detected from the bytes. `Content-Type` is not trusted, because servers send wrong
//! values; it is used only where the bytes are ambiguous ([`FormatHint`]). A container library
//! would block a thread per stream (`docs/decisions/packet-splitter.md`).
//!
//! Sources: ISO/IEC 11172-3 and 13818-3 (MPEG audio), 13818-7 (ADTS), RFC 9639 (FLAC), RFC 3533
//! (Ogg), RFC 7845 (Opus), the Vorbis I specification, id3.org (ID3v2.4), Xing's and LAME's tag.

mod adts;
mod audio_config;
mod encoded;
mod event;
mod flac;
mod fragments;
pub(crate) mod input_buffer;
mod limits;
pub(crate) mod mpeg;
mod ogg;
mod sniff;
#[cfg(test)]
mod tests;
mod transport;
mod vorbis_comment;
mod wave;

pub use adts::adts_payloads;
pub use encoded::{EncodedFormat, MAX_RAW_OPENING, RawOpening, classify_raw_opening};
pub use event::{PacketFormat, PacketPlacement, SplitterEvent, StreamFormatError, StreamStart};
pub use limits::{MAX_BUFFER, MAX_GARBAGE, MAX_PACKET, MAX_TAG};

use aulos_core::Span;

use crate::id3::{self, Id3Tag};
use crate::mpegts::TsTimeline;
use event::ReaderStep;
use input_buffer::InputBuffer;

/// Splits one byte stream into packets.
///
/// Push bytes, then call [`PacketSplitter::next`] until it returns `None`; memory is bounded by
/// [`MAX_BUFFER`] and [`MAX_PACKET`].
#[derive(Debug)]
pub struct PacketSplitter {
    input: InputBuffer,
    packet: Vec<u8>,
    state: State,
    hint: FormatHint,
    stats: SplitterStats,
    /// Event to return before parsing continues.
    pending: Option<SplitterEvent>,
    /// Time of the next packet, from a tag in front of it.
    tag_time: Option<Span>,
    tag_line: TsTimeline,
}

/// Format according to the server, where the bytes are ambiguous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormatHint {
    /// No usable information.
    #[default]
    None,
    /// `audio/flac`: a stream joined in the middle has only FLAC frames, which are hard to
    /// recognize.
    Flac,
    /// Segments of HLS, one after the other: MP4 in fragments can be streamed.
    Segments,
}

impl FormatHint {
    /// The hint in a `Content-Type`.
    #[must_use]
    pub fn from_content_type(text: &str) -> Self {
        let kind = text.split(';').next().unwrap_or_default().trim();
        let flac = ["audio/flac", "audio/x-flac"].iter().any(|it| kind.eq_ignore_ascii_case(it));
        if flac { Self::Flac } else { Self::None }
    }
}

/// Counters of a splitter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitterStats {
    /// Packets returned.
    pub packets: u64,
    /// Bytes skipped.
    pub skipped: u64,
    /// Number of times that synchronization was lost.
    pub resyncs: u64,
}

#[derive(Debug)]
enum State {
    /// Searching for the start of a stream or frame.
    Sniffing(SniffState),
    Reading(FormatReader),
    Refused(StreamFormatError),
}

#[derive(Debug, Default)]
struct SniffState {
    /// The last reader, which may continue.
    previous: Option<FormatReader>,
    garbage: u64,
    /// A header of free format was found.
    free_format: bool,
}

#[derive(Debug)]
enum FormatReader {
    Mpeg(mpeg::Reader),
    Adts(adts::Reader),
    Flac(flac::Reader),
    Ogg(Box<ogg::Reader>),
    Wave(wave::Reader),
    Transport(Box<transport::TransportReader>),
    Fragments(Box<fragments::FragmentReader>),
}

impl PacketSplitter {
    /// A splitter for a stream that begins, or is joined, now.
    #[must_use]
    pub fn new(hint: FormatHint) -> Self {
        Self {
            input: InputBuffer::default(),
            packet: Vec::new(),
            state: State::Sniffing(SniffState::default()),
            hint,
            stats: SplitterStats::default(),
            pending: None,
            tag_time: None,
            tag_line: TsTimeline::default(),
        }
    }

    /// Appends bytes as far as there is room, and returns their number. There is always room after
    /// [`PacketSplitter::next`] has returned `None`.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        self.input.push(bytes)
    }

    /// Marks the end of the input.
    pub const fn finish(&mut self) {
        self.input.end();
    }

    /// The next event; `None` until more bytes are pushed.
    ///
    /// # Errors
    /// [`StreamFormatError`], which is returned by all later calls too.
    #[allow(clippy::should_implement_trait, reason = "more may come after None")]
    pub fn next(&mut self) -> Result<Option<SplitterEvent>, StreamFormatError> {
        if let Some(event) = self.pending.take() {
            return Ok(Some(event));
        }
        loop {
            let step = match &mut self.state {
                State::Refused(why) => return Err(*why),
                State::Sniffing(_) => {
                    if !self.sniff() {
                        return self.finish_sniffing();
                    }
                    match self.pending.take() {
                        Some(event) => return Ok(Some(event)),
                        None => continue,
                    }
                }
                State::Reading(reader) => reader.next(&mut self.input, &mut self.packet),
            };
            match step {
                ReaderStep::NeedMore if self.input.is_full() => self.resynchronize(1),
                ReaderStep::NeedMore if self.input.is_ended() && !self.input.bytes().is_empty() => {
                    self.resynchronize(1);
                }
                ReaderStep::NeedMore => return Ok(None),
                ReaderStep::Consumed => {}
                ReaderStep::Lost(skip) => self.resynchronize(skip),
                ReaderStep::EndOfStream => self.state = State::Sniffing(SniffState::default()),
                ReaderStep::Refused(why) => self.state = State::Refused(why),
                ReaderStep::Found(mut event) => {
                    if let SplitterEvent::Packet(placement) = &mut event {
                        self.stats.packets += 1;
                        placement.time = placement.time.or_else(|| self.tag_time.take());
                    }
                    return Ok(Some(event));
                }
            }
        }
    }

    /// Bytes of the packet that [`PacketSplitter::next`] returned last.
    #[must_use]
    pub fn packet(&self) -> &[u8] {
        &self.packet
    }

    /// The counters.
    #[must_use]
    pub const fn stats(&self) -> SplitterStats {
        self.stats
    }

    /// Searches for a start; `false` when more bytes are needed.
    fn sniff(&mut self) -> bool {
        let State::Sniffing(sniffing) = &self.state else { return true };
        let fresh = sniffing.previous.is_none() && sniffing.garbage == 0;
        if fresh
            && self.hint == FormatHint::Segments
            && let Some(is_begun) = self.begin_fragments()
        {
            return is_begun;
        }
        let State::Sniffing(sniffing) = &mut self.state else { return true };
        let is_flac = matches!(sniffing.previous, Some(FormatReader::Flac(_)))
            || self.hint == FormatHint::Flac;
        let look = sniff::Sniffer { ended: self.input.is_ended(), is_flac, is_elementary: false };
        let bytes = self.input.bytes();
        if fresh && let Some(why) = sniff::detect_unsupported_format(bytes) {
            self.state = State::Refused(why);
            return true;
        }
        // The first words identify a web page, the third packet a transport stream.
        if fresh && !look.ended && bytes.len() < MIN_SNIFF_BYTES && !sniff::may_begin(bytes) {
            return false;
        }
        let (at, found) = look.find_start(bytes, fresh);
        sniffing.free_format |= sniff::is_free_format(bytes) && fresh;
        let at = at as u64;
        sniffing.garbage += at;
        self.stats.skipped += at;
        let garbage = sniffing.garbage;
        match found {
            sniff::SniffResult::Nothing if garbage > MAX_GARBAGE => {
                let why = if sniffing.free_format {
                    StreamFormatError::FreeFormat
                } else {
                    StreamFormatError::NotAudio
                };
                self.state = State::Refused(why);
            }
            sniff::SniffResult::Nothing => {
                self.input.skip(at);
                return false;
            }
            sniff::SniffResult::Tag(length) => {
                self.input.skip(at);
                return self.take_tag(length);
            }
            sniff::SniffResult::Start(kind) => {
                let previous = sniffing.previous.take();
                let was_reading = previous.is_some();
                self.state = State::Reading(FormatReader::resume(previous, kind));
                self.input.skip(at);
                if was_reading && garbage > 0 {
                    self.stats.resyncs += 1;
                    self.pending = Some(SplitterEvent::Lost(garbage));
                }
            }
        }
        true
    }

    /// Begins to read fragmented MP4, if there is any at the front; `Some(false)` when that is not
    /// known yet.
    fn begin_fragments(&mut self) -> Option<bool> {
        match sniff::begins_fragments(self.input.bytes()) {
            Some(true) => {
                self.state = State::Reading(FormatReader::Fragments(Box::default()));
                Some(true)
            }
            None if !self.input.is_ended() => Some(false),
            _ => None,
        }
    }

    /// Takes the tag at the front; `false` when more bytes of it are needed.
    fn take_tag(&mut self, length: u64) -> bool {
        let is_small = length <= id3::MAX_BYTES as u64;
        let whole = usize::try_from(length).ok().filter(|_| is_small);
        if let Some(whole) = whole {
            match self.input.bytes().get(..whole) {
                Some(tag) => {
                    let tag = Id3Tag::parse(tag);
                    let time = tag.time().map(|time| self.tag_line.extend(time));
                    self.tag_time = time.or(self.tag_time);
                    self.pending = tag.title().map(SplitterEvent::Title);
                }
                None if !self.input.is_ended() => return false,
                None => {}
            }
        }
        self.input.skip(length);
        true
    }

    /// Handles a search without a result: at the end of the input it is an error if there never was
    /// a packet.
    fn finish_sniffing(&mut self) -> Result<Option<SplitterEvent>, StreamFormatError> {
        let State::Sniffing(sniffing) = &self.state else { return Ok(None) };
        if self.input.is_ended() && self.stats.packets == 0 && self.stats.skipped > 0 {
            let why = if sniffing.free_format {
                StreamFormatError::FreeFormat
            } else {
                StreamFormatError::NotAudio
            };
            self.state = State::Refused(why);
            return Err(why);
        }
        Ok(None)
    }

    /// Begins a search after a loss of synchronization.
    fn resynchronize(&mut self, skip: u64) {
        let previous = core::mem::replace(&mut self.state, State::Sniffing(SniffState::default()));
        if let (State::Reading(reader), State::Sniffing(sniffing)) = (previous, &mut self.state) {
            *sniffing = SniffState { previous: Some(reader), garbage: skip, free_format: false };
            self.stats.skipped += skip;
            self.input.skip(skip);
        }
    }
}

impl FormatReader {
    /// A reader for `kind`: the previous one if it has that kind.
    fn resume(previous: Option<Self>, kind: sniff::StreamKind) -> Self {
        match (kind, previous) {
            (sniff::StreamKind::Mpeg, Some(Self::Mpeg(reader))) => Self::Mpeg(reader),
            (sniff::StreamKind::Mpeg, _) => Self::Mpeg(mpeg::Reader::default()),
            (sniff::StreamKind::Adts, Some(Self::Adts(reader))) => Self::Adts(reader),
            (sniff::StreamKind::Adts, _) => Self::Adts(adts::Reader::default()),
            (sniff::StreamKind::FlacFrames, Some(Self::Flac(reader))) => {
                Self::Flac(reader.resume())
            }
            (sniff::StreamKind::FlacFrames, _) => Self::Flac(flac::Reader::joined_midstream()),
            (sniff::StreamKind::Flac, _) => Self::Flac(flac::Reader::default()),
            (sniff::StreamKind::Ogg, Some(Self::Ogg(reader))) => {
                Self::Ogg(Box::new(reader.resume()))
            }
            (sniff::StreamKind::Ogg, _) => Self::Ogg(Box::default()),
            (sniff::StreamKind::Wave, _) => Self::Wave(wave::Reader::default()),
            (sniff::StreamKind::Transport, _) => Self::Transport(Box::default()),
        }
    }

    fn next(&mut self, input: &mut InputBuffer, packet: &mut Vec<u8>) -> ReaderStep {
        match self {
            Self::Mpeg(reader) => reader.next(input, packet),
            Self::Adts(reader) => reader.next(input, packet),
            Self::Flac(reader) => reader.next(input, packet),
            Self::Ogg(reader) => reader.next(input, packet),
            Self::Wave(reader) => reader.next(input, packet),
            Self::Transport(reader) => reader.next(input, packet),
            Self::Fragments(reader) => reader.next(input, packet),
        }
    }
}

/// Number of bytes that identify an unsupported format, or a transport stream.
const MIN_SNIFF_BYTES: usize = 512;
