//! Decodes an endless stream that is pushed in pieces.

use aulos_core::{Block, ChannelLayout, Frames, Instant, MediaTime, SampleRate, Span};
use aulos_engine::source::BLOCK_SAMPLES;
use aulos_io::feed::{FrameWriter, RadioStreamInfo, StreamCounts, StreamError};
use aulos_proto::packets::{
    FormatHint, PacketFormat, PacketPlacement, PacketSplitter, SplitterEvent, StreamStart,
};
use aulos_proto::titles::TrackMetadata;

use super::codec::{DecodedPacket, StreamCodec};
use super::file::RateAndLayout;

/// Decodes the bytes that are pushed into it: MP3, AAC, Ogg (Opus, Vorbis, FLAC), FLAC or WAVE,
/// detected by content.
///
/// It never blocks, so one thread can serve many streams. Damage is skipped, concealed and counted,
/// and memory is bounded for any input. Not for a real-time thread: codecs allocate.
///
/// # Examples
/// ```
/// use aulos_core::{Block, ChannelLayout, SampleRate};
/// use aulos_engine::source::BLOCK_SAMPLES;
/// use aulos_files::decode::{StreamDecodeStatus, StreamDecoder};
/// use aulos_proto::packets::FormatHint;
///
/// let wave = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0\x80\xbb\0\0\0\x77\x01\0\x02\0\x10\0\
///              data\xff\xff\xff\xff\0\x40";
/// let mut decoder = StreamDecoder::new(FormatHint::None);
/// let (rate, layout) = (SampleRate::HZ_48000, ChannelLayout::STEREO);
/// let mut block = Block::with_capacity(rate, layout, BLOCK_SAMPLES);
/// for byte in wave.chunks(1) {
///     assert_eq!(decoder.push(byte), 1);
///     while decoder.next(&mut block).unwrap() == StreamDecodeStatus::Block {
///         assert_eq!(block.samples(), [0.5]);
///     }
/// }
/// ```
#[derive(Debug)]
pub struct StreamDecoder {
    splitter: PacketSplitter,
    finished: bool,
    codec: Option<StreamCodec>,
    /// Decoded samples; those before `taken` have been returned.
    pending: Vec<f32>,
    taken: usize,
    shape: RateAndLayout,
    trim: StreamTrim,
    concealer: GapConcealer,
    line: SenderLine,
    /// The packet behind a hole, which waits until the hole is filled.
    held: Option<PacketPlacement>,
    position: MediaTime,
    title: Option<TrackMetadata>,
    damaged: u64,
    /// Panics of the libraries of earlier codecs.
    earlier_panics: u64,
    fruitless: u32,
    error: Option<StreamError>,
    /// Packets are parsed and counted but not decoded.
    parse_only: bool,
    /// Gets every packet that is decoded.
    frames: Option<FrameWriter>,
}

/// The result of [`StreamDecoder::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamDecodeStatus {
    /// The block holds the next frames, at least one.
    Block,
    /// More input is needed.
    NeedsInput,
    /// Everything pushed before [`StreamDecoder::finish`] has been returned.
    End,
}

impl StreamDecoder {
    /// A decoder for a stream that begins or is joined now.
    #[must_use]
    pub fn new(hint: FormatHint) -> Self {
        Self {
            splitter: PacketSplitter::new(hint),
            finished: false,
            codec: None,
            pending: Vec::new(),
            taken: 0,
            shape: (SampleRate::HZ_48000, ChannelLayout::STEREO),
            trim: StreamTrim::default(),
            concealer: GapConcealer::default(),
            line: SenderLine::default(),
            held: None,
            position: MediaTime::ZERO,
            title: None,
            damaged: 0,
            earlier_panics: 0,
            fruitless: 0,
            error: None,
            parse_only: false,
            frames: None,
        }
    }

    /// The same, passing every packet on, with the media time of its first frame. Media time counts
    /// from `position`. Nothing is trimmed then but what the receiver of the packets trims too.
    #[must_use]
    pub fn with_frames(mut self, frames: Option<FrameWriter>, position: MediaTime) -> Self {
        (self.frames, self.position) = (frames, position);
        self
    }

    /// Ends it; returns where packets went, and the media time after the last frame.
    #[must_use]
    pub fn into_frames(self) -> (Option<FrameWriter>, MediaTime) {
        (self.frames, self.position)
    }

    /// A decoder for the next stream after this one broke off: the last frame fades out and the
    /// first frames fade in, which avoids a click.
    #[must_use]
    pub fn restart(mut self, hint: FormatHint) -> Self {
        let (position, shape) = (self.position, self.shape);
        self.pending.drain(..self.taken);
        if !self.concealer.last.is_empty() {
            let channels = shape.1.channels();
            self.concealer.fade_out(&mut self.pending, RAMP_FRAMES, channels);
        }
        let Self { pending, concealer: joint, frames, .. } = self;
        Self { position, shape, pending, concealer: joint, frames, ..Self::new(hint) }
    }

    /// A decoder for the stream that follows this one, which has been returned to its end, without
    /// a pause.
    #[must_use]
    pub fn follow(self, hint: FormatHint) -> Self {
        let Self { position, shape, frames, .. } = self;
        Self { position, shape, frames, ..Self::new(hint) }
    }

    /// Takes as many bytes as there is room for, and returns their number. There is always room
    /// after [`StreamDecodeStatus::NeedsInput`].
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        self.splitter.push(bytes)
    }

    /// Enables or disables decoding. Without it packets are only parsed and counted: format and
    /// titles stay known, and playback can resume at once.
    pub fn set_parse_only(&mut self, parse_only: bool) {
        if self.parse_only && !parse_only {
            // The state of the codec and the last frame are outdated.
            self.concealer.resume();
        }
        self.parse_only = parse_only;
    }

    /// Marks the end of the input.
    pub const fn finish(&mut self) {
        self.finished = true;
        self.splitter.finish();
    }

    /// Fills `into` with the next frames: as many as are available and fit, at most
    /// [`BLOCK_SAMPLES`] samples. A block has one rate and layout; when the stream changes them, a
    /// new block begins.
    ///
    /// Media time counts the returned frames, from 0.
    ///
    /// # Errors
    /// [`StreamError`], after everything that could be decoded has been returned; from then on
    /// always.
    pub fn next(&mut self, into: &mut Block) -> Result<StreamDecodeStatus, StreamError> {
        into.pts = self.position;
        into.received = Instant::ZERO;
        into.reset(self.shape.0, self.shape.1);
        let (mut filled, mut dry) = (0, None);
        loop {
            if self.taken == self.pending.len() {
                dry = self.refill();
                if dry.is_some() {
                    break;
                }
                if (into.rate(), into.layout()) != self.shape {
                    if filled > 0 {
                        break;
                    }
                    into.reset(self.shape.0, self.shape.1);
                }
            }
            let channels = self.shape.1.channels();
            let room = into.capacity().as_usize().min(BLOCK_SAMPLES / channels) * channels - filled;
            let count = room.min(self.pending.len() - self.taken);
            if count == 0 {
                break;
            }
            into.resize(Frames::from((filled + count) / channels));
            let fresh = &self.pending[self.taken..self.taken + count];
            for (to, from) in into.samples_mut()[filled..].iter_mut().zip(fresh) {
                *to = if from.is_finite() { *from } else { 0.0 };
            }
            self.taken += count;
            filled += count;
            self.position += Frames::from(count / channels);
        }
        match dry {
            Some(dry) if filled == 0 => dry,
            _ => Ok(StreamDecodeStatus::Block),
        }
    }

    /// The current title, if it has changed since the last call.
    pub const fn take_title(&mut self) -> Option<TrackMetadata> {
        self.title.take()
    }

    /// The format of the stream, once it is known.
    #[must_use]
    pub fn info(&self) -> Option<RadioStreamInfo> {
        let codec = self.codec.as_ref()?.name();
        let (rate, layout) = self.shape;
        Some(RadioStreamInfo { codec, rate, layout })
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> StreamCounts {
        let counts = self.splitter.stats();
        StreamCounts {
            packets: counts.packets,
            damaged: self.damaged,
            codec_panics: self.earlier_panics + self.codec.as_ref().map_or(0, StreamCodec::panics),
            resyncs: counts.resyncs,
            skipped: counts.skipped,
        }
    }

    /// Decodes up to the next frames. Otherwise returns why there are none.
    fn refill(&mut self) -> Option<Result<StreamDecodeStatus, StreamError>> {
        self.taken = 0;
        self.pending.clear();
        while self.pending.is_empty() {
            if let Some(error) = self.error {
                return Some(Err(error));
            }
            if self.line.hole > 0 {
                self.fill_hole();
                continue;
            }
            if let Some(place) = self.held.take() {
                self.decode_packet(place);
                continue;
            }
            match self.splitter.next() {
                Ok(Some(event)) => self.handle_event(event),
                Ok(None) if self.finished => return Some(Ok(StreamDecodeStatus::End)),
                Ok(None) => return Some(Ok(StreamDecodeStatus::NeedsInput)),
                Err(why) => self.error = Some(StreamError::Refused(why)),
            }
        }
        None
    }

    fn handle_event(&mut self, event: SplitterEvent) {
        match event {
            SplitterEvent::Begin(start) => self.begin(&start),
            SplitterEvent::Packet(place) => {
                self.line.find_hole(place, self.shape.0);
                self.held = Some(place);
            }
            SplitterEvent::Lost(bytes) => {
                self.frames.iter_mut().for_each(FrameWriter::skip);
                self.conceal(self.concealer.packets_in(bytes));
            }
            SplitterEvent::Title(title) => {
                self.frames.iter_mut().for_each(|frames| frames.set_title(&title));
                self.title = Some(title);
            }
            _ => {}
        }
    }

    fn begin(&mut self, start: &StreamStart) {
        let (name, codec) = StreamCodec::new(&start.format);
        self.frames.iter_mut().for_each(|frames| frames.begin(&start.format));
        if codec.is_none() {
            self.error = Some(StreamError::Unsupported(name));
        }
        self.trim = match self.frames {
            None => {
                StreamTrim { skip: start.skip, padding: start.padding, ..StreamTrim::default() }
            }
            // The header of Opus has the first frames to skip; the tag of an MP3 file, which has
            // them too, is not passed.
            Some(_) => {
                let is_opus = matches!(start.format, PacketFormat::Opus { .. });
                let skip = if is_opus { start.skip } else { 0 };
                StreamTrim { skip, keeps_end: true, ..StreamTrim::default() }
            }
        };
        self.concealer.begin();
        self.line = SenderLine::default();
        self.earlier_panics += self.codec.as_ref().map_or(0, StreamCodec::panics);
        self.codec = codec;
    }

    fn decode_packet(&mut self, place: PacketPlacement) {
        // At least one packet is decoded to learn the format.
        if self.parse_only && self.concealer.frames > 0 {
            self.frames.iter_mut().for_each(FrameWriter::skip);
            self.line = SenderLine::default();
            return;
        }
        let Some(codec) = &mut self.codec else { return };
        let packet = self.splitter.packet();
        let decoded = codec.decode(packet, &mut self.pending);
        if decoded == DecodedPacket::Unsupported {
            self.error = Some(StreamError::Unsupported(codec.name()));
            return;
        }
        if decoded == DecodedPacket::Damaged {
            self.damaged += 1;
            self.fruitless += 1;
            self.frames.iter_mut().for_each(FrameWriter::skip);
            if self.fruitless >= MAX_PACKETS_WITHOUT_FRAMES {
                self.error = Some(StreamError::Damaged);
            }
            self.conceal(1);
            return;
        }
        self.fruitless = 0;
        self.shape = codec.shape();
        let channels = self.shape.1.channels();
        let duration = Frames::from(self.pending.len() / channels);
        self.line.advance(place.time, self.shape.0.span(duration));
        self.concealer.end_packet(packet.len(), &mut self.pending, channels);
        self.trim.apply(place, &mut self.pending, channels);
        if let Some(frames) = &mut self.frames {
            // Everything decoded before has been returned.
            frames.push(self.shape, (self.position, duration), packet);
        }
    }

    /// Conceals `packets` missing packets.
    fn conceal(&mut self, packets: usize) {
        let frames = self.concealer.frames;
        let is_heard = frames > 0 && packets > 0 && !self.parse_only;
        let (Some(codec), true) = (&mut self.codec, is_heard) else { return };
        let channels = self.shape.1.channels();
        if codec.conceal(frames, &mut self.pending) {
            self.concealer.last.clear();
            self.concealer.last.extend_from_slice(last_frame(&self.pending, channels));
        } else {
            self.pending.clear();
            self.concealer.fade_out(&mut self.pending, frames, channels);
        }
        let most = self.shape.0.frames(MAX_CONCEALED).as_usize();
        let rest = ((packets - 1) * frames).min(most) * channels;
        if rest > 0 {
            self.concealer.fade_out(&mut self.pending, rest / channels, channels);
        }
        let concealed = Frames::from(self.pending.len() / channels);
        self.trim.decoded += concealed.0;
        self.line.advance(None, self.shape.0.span(concealed));
    }

    /// Returns the next part of a hole as silence, which the last frame fades into.
    fn fill_hole(&mut self) {
        let frames = self.line.hole.min(HOLE_FRAMES);
        self.line.hole -= frames;
        self.frames.iter_mut().for_each(FrameWriter::skip);
        self.concealer.fade_out(&mut self.pending, frames, self.shape.1.channels());
    }
}

/// The sender's time line, where its container has one: what is missing between two packets shows
/// there, whatever was lost, and is filled with silence of the same length.
#[derive(Debug, Default)]
struct SenderLine {
    /// The time after the last frame.
    end: Option<Span>,
    /// Frames of silence still to return.
    hole: usize,
}

impl SenderLine {
    fn find_hole(&mut self, place: PacketPlacement, rate: SampleRate) {
        let missing = place.time.zip(self.end).map_or(Span::ZERO, |(time, end)| time - end);
        if (MIN_HOLE..=MAX_HOLE).contains(&missing) {
            self.hole = rate.frames(missing).as_usize();
        }
    }

    /// `duration` was decoded, which begins at this time, if it is known.
    fn advance(&mut self, time: Option<Span>, duration: Span) {
        self.end = time.or(self.end).map(|begin| begin + duration);
    }
}

/// Selects the frames to play.
#[derive(Debug, Default)]
struct StreamTrim {
    /// Frames to skip at the beginning.
    skip: u64,
    /// The position and the number of padding frames near the end, counted from the beginning.
    padding: Option<(u64, u64)>,
    /// Frames decoded since the beginning.
    decoded: u64,
    /// The last position in the container, and the number of frames decoded by then.
    known: Option<(u64, u64)>,
    /// Whether frames behind the last position are played.
    keeps_end: bool,
}

impl StreamTrim {
    fn apply(&mut self, place: PacketPlacement, out: &mut Vec<f32>, channels: usize) {
        let frames = (out.len() / channels) as u64;
        let start = self.decoded;
        self.decoded += frames;
        let mut end = frames;
        if let Some(position) = place.position {
            if place.last && !self.keeps_end {
                let (known, then) = self.known.unwrap_or((0, 0));
                let surplus = (known + (self.decoded - then)).saturating_sub(position);
                end = frames.saturating_sub(surplus);
            }
            self.known = Some((position, self.decoded));
        }
        let begin = self.skip.saturating_sub(start).min(end);
        let at = |frames: u64| usize::try_from(frames).unwrap_or(0) * channels;
        out.truncate(at(end));
        if let Some((first, count)) = self.padding {
            let inside = |frame: u64| at(frame.saturating_sub(start).clamp(begin, end));
            out.drain(inside(first)..inside(first.saturating_add(count)));
        }
        out.drain(..at(begin));
    }
}

/// Conceals missing packets with data of the previous ones.
#[derive(Debug, Default)]
struct GapConcealer {
    /// The last frame played.
    last: Vec<f32>,
    /// Frames per packet.
    frames: usize,
    /// Mean bytes per packet.
    bytes: usize,
    /// The next packet comes after a gap.
    is_after_gap: bool,
}

impl GapConcealer {
    /// A new stream begins: packet sizes are unknown again, but playback continues.
    const fn begin(&mut self) {
        (self.frames, self.bytes) = (0, 0);
    }

    /// Playback resumes after a pause: fade in.
    fn resume(&mut self) {
        self.last.fill(0.0);
        self.is_after_gap = true;
    }

    fn end_packet(&mut self, bytes: usize, out: &mut [f32], channels: usize) {
        if out.is_empty() {
            return;
        }
        self.frames = out.len() / channels;
        self.bytes = if self.bytes == 0 { bytes } else { (self.bytes * 7 + bytes) / 8 };
        if core::mem::take(&mut self.is_after_gap) {
            for (index, frame) in out.chunks_mut(channels).take(RAMP_FRAMES).enumerate() {
                frame.iter_mut().for_each(|sample| *sample *= ramp_gain(index));
            }
        }
        self.last.clear();
        self.last.extend_from_slice(last_frame(out, channels));
    }

    /// How many packets a number of bytes may have held.
    fn packets_in(&self, bytes: u64) -> usize {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        bytes.checked_div(self.bytes).unwrap_or(0).max(1)
    }

    /// Appends `frames` of silence that begin with a fade of the last frame.
    fn fade_out(&mut self, out: &mut Vec<f32>, frames: usize, channels: usize) {
        self.last.resize(channels, 0.0);
        for index in 0..frames {
            let gain = if index < RAMP_FRAMES { 1.0 - ramp_gain(index) } else { 0.0 };
            out.extend(self.last.iter().map(|sample| sample * gain));
        }
        self.last.fill(0.0);
        self.is_after_gap = true;
    }
}

fn last_frame(samples: &[f32], channels: usize) -> &[f32] {
    &samples[samples.len().saturating_sub(channels)..]
}

#[allow(clippy::cast_precision_loss, reason = "a handful of frames")]
fn ramp_gain(index: usize) -> f32 {
    (index as f32 + 0.5) / RAMP_FRAMES as f32
}

/// Frames of a fade: 2.7 ms at 48 kHz.
const RAMP_FRAMES: usize = 128;

/// The longest gap that is concealed; a longer one is left to the switch.
const MAX_CONCEALED: Span = Span::from_millis(200);

/// Missing time on a sender's time line that is filled. Less may be the rounding of a container or
/// the jitter of an encoder; more is another line.
const MIN_HOLE: Span = Span::from_millis(60);
const MAX_HOLE: Span = Span::from_secs(60);

/// Frames of a hole that are returned at once.
const HOLE_FRAMES: usize = 4_096;

/// Consecutive packets that may return no frame.
const MAX_PACKETS_WITHOUT_FRAMES: u32 = 1_000;
