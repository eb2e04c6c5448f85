//! From the bytes of an encoded stream that never ends to its packets.
//!
//! Web radio and whoever pushes to us send MP3, AAC, Ogg, FLAC or WAVE, from any point on, with
//! whatever got in between: a tag, an advertisement, half a frame, another format. A [`Splitter`]
//! takes the bytes as they come, in pieces of any size, and gives packets for a decoder.
//!
//! ```text
//!  bytes -> Input -> sniff -> mpeg | adts | flac | ogg | wave -> Begin, Packet, Title, Lost
//!                      ^----------- out of step ------------'
//! ```
//!
//! What a stream is, its bytes say. `Content-Type` was rejected as a judge: servers lie. It is asked
//! only where bytes leave it open ([`Hint`]). The readers of a container library were rejected
//! because they pull: they would block a thread for each stream.
//!
//! Sources: ISO/IEC 11172-3 and 13818-3 (MPEG audio), 13818-7 (ADTS), RFC 9639 (FLAC), RFC 3533
//! (Ogg), RFC 7845 (Opus), the Vorbis I specification, id3.org (ID3v2.4), Xing's and LAME's tag.

mod adts;
mod flac;
pub(crate) mod input_buffer;
mod mpeg;
mod ogg;
mod sniff;
#[cfg(test)]
mod tests;
mod vorbis_comment;
mod wave;

use core::fmt;

use aulos_core::{ChannelLayout, SampleRate};

use crate::titles::TrackMetadata;
use crate::wav::Samples;
use input_buffer::InputBuffer;

/// Splits one stream of bytes into packets.
///
/// Push bytes, then ask until there is nothing more; memory is bounded by [`MAX_BUFFER`] and
/// [`MAX_PACKET`] whatever comes.
#[derive(Debug)]
pub struct PacketSplitter {
    input: InputBuffer,
    packet: Vec<u8>,
    state: State,
    hint: FormatHint,
    counts: SplitterStats,
    /// An event that comes before anything else is looked at.
    pending: Option<SplitterEvent>,
}

/// What the server says that it sends, where the bytes alone leave it open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormatHint {
    /// Nothing that helps.
    #[default]
    None,
    /// `audio/flac`: a stream that was joined in the middle has nothing but frames, which look like
    /// much else.
    Flac,
}

impl FormatHint {
    /// What a `Content-Type` is good for.
    #[must_use]
    pub fn from_content_type(text: &str) -> Self {
        let kind = text.split(';').next().unwrap_or_default().trim();
        let flac = ["audio/flac", "audio/x-flac"].iter().any(|it| kind.eq_ignore_ascii_case(it));
        if flac { Self::Flac } else { Self::None }
    }
}

/// What was found in the bytes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SplitterEvent {
    /// Packets of this kind follow: make a new decoder.
    Begin(Box<StreamStart>),
    /// A packet; its bytes are [`Splitter::packet`].
    Packet(PacketPlacement),
    /// So many bytes were thrown away before the next packet; 0 where only packets are missing.
    Lost(u64),
    /// What is played from here on.
    Title(TrackMetadata),
}

/// How packets begin.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamStart {
    /// What the packets are.
    pub format: PacketFormat,
    /// Frames at the beginning that only the decoder needs.
    pub skip: u64,
    /// Frames that only filled the last packet: the first of them, counted with those of `skip`,
    /// and how many.
    pub padding: Option<(u64, u64)>,
}

/// Where a packet stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketPlacement {
    /// The codec's position after the packet in frames, where the container says it.
    pub position: Option<u64>,
    /// It is the last one: frames beyond `position` only fill it.
    pub last: bool,
}

/// What packets are.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PacketFormat {
    /// MPEG audio, with its frame headers.
    Mpeg {
        /// 1, 2 or 3.
        layer: u8,
        /// Frames per second.
        rate: SampleRate,
        /// One channel or two.
        layout: ChannelLayout,
    },
    /// AAC without headers.
    Aac {
        /// What a decoder is configured with: the `AudioSpecificConfig`.
        config: [u8; 2],
        /// Frames per second.
        rate: SampleRate,
        /// The channels; `None` where only the packets say it.
        layout: Option<ChannelLayout>,
        /// Low complexity, the profile that everybody sends.
        low_complexity: bool,
    },
    /// FLAC frames.
    Flac {
        /// The STREAMINFO block, ours where the stream was joined behind it.
        info: [u8; 34],
        /// Frames per second.
        rate: SampleRate,
        /// The channels.
        layout: ChannelLayout,
    },
    /// Opus.
    Opus {
        /// The identification header (`OpusHead`).
        head: Vec<u8>,
    },
    /// Vorbis.
    Vorbis {
        /// The identification header.
        identification: Vec<u8>,
        /// The setup header.
        setup: Vec<u8>,
    },
    /// Samples as they are.
    Pcm {
        /// How one is written.
        samples: Samples,
        /// Frames per second.
        rate: SampleRate,
        /// The channels.
        layout: ChannelLayout,
    },
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitterStats {
    /// Packets given.
    pub packets: u64,
    /// Bytes that belonged to nothing.
    pub skipped: u64,
    /// Times that the next packet was not where it should have been.
    pub resyncs: u64,
}

/// Why a stream cannot be played. It stays so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamFormatError {
    /// A web page.
    WebPage,
    /// A list of streams and not a stream.
    Playlist,
    /// MP4, which is for files.
    Mp4,
    /// Matroska or `WebM`.
    Matroska,
    /// An MPEG transport stream.
    TransportStream,
    /// MP3 whose frames do not say how long they are.
    FreeFormat,
    /// Ogg without one of the codecs known here, or joined behind its headers.
    NoOggHeaders,
    /// WAVE with compressed sound, or damaged.
    Wave,
    /// Nothing that was recognised within [`MAX_GARBAGE`] bytes.
    NotAudio,
}

impl fmt::Display for StreamFormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WebPage => "it is a web page and not sound",
            Self::Playlist => "it is a playlist and not sound",
            Self::Mp4 => "it is MP4, which cannot be streamed here",
            Self::Matroska => "it is Matroska or WebM, which cannot be streamed here",
            Self::TransportStream => "it is an MPEG transport stream (HLS), which is not supported",
            Self::FreeFormat => "it is MP3 of free format, which is not supported",
            Self::NoOggHeaders => "it is Ogg without headers of Opus, Vorbis or FLAC",
            Self::Wave => "it is WAVE that is compressed or damaged",
            Self::NotAudio => "it is not MP3, AAC, Ogg, FLAC or WAVE",
        })
    }
}

impl core::error::Error for StreamFormatError {}

#[derive(Debug)]
enum State {
    /// Looking for the beginning of anything.
    Sniffing(SniffState),
    Reading(FormatReader),
    Refused(StreamFormatError),
}

#[derive(Debug, Default)]
struct SniffState {
    /// What was read before, and may be read on.
    before: Option<FormatReader>,
    garbage: u64,
    /// A header of free format was seen.
    free_format: bool,
}

#[derive(Debug)]
enum FormatReader {
    Mpeg(mpeg::Reader),
    Adts(adts::Reader),
    Flac(flac::Reader),
    Ogg(Box<ogg::Reader>),
    Wave(wave::Reader),
}

/// What a reader made of the bytes at the front.
enum ReaderStep {
    /// It needs more of them.
    NeedMore,
    /// It took some, and there is something to tell.
    Found(SplitterEvent),
    /// It took some.
    Consumed,
    /// They do not belong to it; so many of them need not be looked at again.
    Lost(u64),
    /// What it read has come to its end, and anything may follow.
    EndOfStream,
    /// It cannot be played.
    Refused(StreamFormatError),
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
            counts: SplitterStats::default(),
            pending: None,
        }
    }

    /// Takes bytes, as many as there is room for, and returns how many that were. There is always
    /// room after [`Splitter::next`] gave nothing.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        self.input.push(bytes)
    }

    /// No more bytes will come: what is there is all.
    pub const fn finish(&mut self) {
        self.input.end();
    }

    /// The next thing in the bytes; `None` when there must be more of them first.
    ///
    /// # Errors
    /// [`Refusal`], from then on always.
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
                ReaderStep::Found(event) => {
                    self.counts.packets += u64::from(matches!(event, SplitterEvent::Packet(_)));
                    return Ok(Some(event));
                }
            }
        }
    }

    /// The bytes of the packet that [`Splitter::next`] gave last.
    #[must_use]
    pub fn packet(&self) -> &[u8] {
        &self.packet
    }

    /// What happened so far.
    #[must_use]
    pub const fn stats(&self) -> SplitterStats {
        self.counts
    }

    /// Looks for the beginning of something. `false`: there are not enough bytes to tell.
    fn sniff(&mut self) -> bool {
        let State::Sniffing(sniffing) = &mut self.state else { return true };
        let is_flac =
            matches!(sniffing.before, Some(FormatReader::Flac(_))) || self.hint == FormatHint::Flac;
        let look = sniff::Sniffer { ended: self.input.is_ended(), is_flac };
        let fresh = sniffing.before.is_none() && sniffing.garbage == 0;
        let bytes = self.input.bytes();
        if fresh && let Some(why) = sniff::known_unsupported(bytes) {
            self.state = State::Refused(why);
            return true;
        }
        // A web page is known by its first words, a transport stream by its third packet.
        if fresh && !look.ended && bytes.len() < MIN_SNIFF_BYTES && !sniff::may_begin(bytes) {
            return false;
        }
        let (at, found) = look.find_start(bytes, fresh);
        sniffing.free_format |= sniff::is_free_format(bytes) && fresh;
        let at = at as u64;
        sniffing.garbage += at;
        self.counts.skipped += at;
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
            sniff::SniffResult::Tag(length) => self.input.skip(at + length),
            sniff::SniffResult::Start(kind) => {
                let before = sniffing.before.take();
                let was_reading = before.is_some();
                self.state = State::Reading(FormatReader::resume(before, kind));
                self.input.skip(at);
                if was_reading && garbage > 0 {
                    self.counts.resyncs += 1;
                    self.pending = Some(SplitterEvent::Lost(garbage));
                }
            }
        }
        true
    }

    /// Nothing was found in what is there. At the end that is final, if there never was anything.
    fn finish_sniffing(&mut self) -> Result<Option<SplitterEvent>, StreamFormatError> {
        let State::Sniffing(sniffing) = &self.state else { return Ok(None) };
        if self.input.is_ended() && self.counts.packets == 0 && self.counts.skipped > 0 {
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

    /// The front is not what it should be: begins to look for what is.
    fn resynchronize(&mut self, skip: u64) {
        let before = core::mem::replace(&mut self.state, State::Sniffing(SniffState::default()));
        if let (State::Reading(reader), State::Sniffing(sniffing)) = (before, &mut self.state) {
            *sniffing = SniffState { before: Some(reader), garbage: skip, free_format: false };
            self.counts.skipped += skip;
            self.input.skip(skip);
        }
    }
}

impl FormatReader {
    /// A reader of `kind`: the one from before, if it is of that kind.
    fn resume(before: Option<Self>, kind: sniff::StreamKind) -> Self {
        match (kind, before) {
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
        }
    }

    fn next(&mut self, input: &mut InputBuffer, packet: &mut Vec<u8>) -> ReaderStep {
        match self {
            Self::Mpeg(reader) => reader.next(input, packet),
            Self::Adts(reader) => reader.next(input, packet),
            Self::Flac(reader) => reader.next(input, packet),
            Self::Ogg(reader) => reader.next(input, packet),
            Self::Wave(reader) => reader.next(input, packet),
        }
    }
}

/// Bytes that are held at most. A FLAC frame is known to be whole only when the next one begins.
pub const MAX_BUFFER: usize = 1024 * 1024;

/// Bytes of one packet: 16,384 frames of eight channels with 24 bits are less.
pub const MAX_PACKET: usize = 512 * 1024;

/// Bytes in a row that may belong to nothing: two pages of Ogg, or eight seconds of MP3 at 128 kb/s.
pub const MAX_GARBAGE: u64 = 128 * 1024;

/// Bytes that show what something is that is not to be played.
const MIN_SNIFF_BYTES: usize = 512;

/// Bytes of a tag (`ID3v2`, pictures in FLAC) that are passed over.
pub const MAX_TAG: u64 = 16 * 1024 * 1024;
