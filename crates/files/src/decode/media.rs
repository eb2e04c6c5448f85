//! A container and its codec, decoded by the library and trimmed.

use core::fmt;
use std::fs::File;
use std::io;

use aulos_core::{ChannelLayout, Frames, SampleRate};
use aulos_engine::codec_guard::{CodecLibrary, guard};
use symphonia::core::audio::Channels;
use symphonia::core::codecs::CodecParameters;
use symphonia::core::codecs::audio::AudioCodecParameters;
use symphonia::core::codecs::audio::well_known::{CODEC_ID_AAC, CODEC_ID_ALAC, CODEC_ID_OPUS};
use symphonia::core::common::Limit;
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::well_known::{
    FORMAT_ID_FLAC, FORMAT_ID_ISOMP4, FORMAT_ID_MP1, FORMAT_ID_MP2, FORMAT_ID_MP3,
};
use symphonia::core::formats::{
    FormatId, FormatOptions, FormatReader, SeekMode, SeekTo, Track, TrackType,
};
use symphonia::core::io::{
    MediaSource, MediaSourceStream, MediaSourceStreamOptions, ReadOnlySource,
};
use symphonia::core::meta::{MetadataOptions, MetadataRevision, StandardTag};
use symphonia::core::packet::Packet;
use symphonia::core::units::{Duration, Timestamp};
use symphonia::default::get_probe;

use super::aac::{AacDecoder, AacPacket};
use super::discard_padding::find_discard_padding;
use super::edit_list::{self, EditRange};
use super::error::{FileDecodeError, OpenError};
use super::library::LibraryDecoder;
use super::mpeg::{MpegFormat, PaddingFilter};
use super::opus::{OpusHead, OpusPacketDecoder};
use super::sizes::{CorrectedFile, Corrections, DeclaredBytes, find_corrections};

/// A file that is decoded by the library, one packet at a time.
pub(super) struct MediaReader {
    reader: Box<dyn FormatReader>,
    track: u32,
    codec: MediaCodec,
    rate: SampleRate,
    layout: ChannelLayout,
    trim: EdgeTrim,
    /// The rate in which the container counts frames, until the first frames of AAC have come: with
    /// SBR their rate is twice that of the container, or the same.
    counted_at: Option<u32>,
    /// The expected start of the next packet, if packets are timed in frames.
    expected: Option<Timestamp>,
    /// For MPEG audio in a file of its own.
    mpeg: Option<MpegState>,
    /// A packet that was read ahead.
    ahead: Option<Packet>,
    /// Nanoseconds of padding in the last packet, where only its container knows.
    last_padding_ns: Option<u64>,
    /// Whether the file ends before its header says.
    is_cut: bool,
    /// The length in the header, in frames, if it is exact and not an estimate.
    stated: Option<u64>,
    pub(super) track_info: TrackInfo,
}

#[derive(Debug)]
struct MpegState {
    format: Option<MpegFormat>,
    padding: Option<PaddingFilter>,
}

/// The result of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketOutcome {
    /// Frames, or none while the codec needs more packets.
    Frames,
    /// Data is missing here; there may be frames nevertheless.
    Damaged,
    /// The file has ended.
    End,
    /// The file is truncated.
    TruncatedEnd,
}

/// Properties of the track from its container.
#[derive(Clone, Debug, Default)]
pub(super) struct TrackInfo {
    pub(super) codec: &'static str,
    pub(super) bits: Option<u32>,
    pub(super) frames: Option<u64>,
    pub(super) title: Option<String>,
    pub(super) artist: Option<String>,
}

enum MediaCodec {
    Aac(Box<AacDecoder>),
    Library(LibraryDecoder),
    Opus(OpusPacketDecoder),
}

/// Selects the frames to play, for codecs whose decoder does not trim.
#[derive(Clone, Copy, Debug, Default)]
struct EdgeTrim {
    /// Per packet, in frames of the codec.
    by_packet: bool,
    /// By the time stamp of the first packet.
    by_time: bool,
    skip: u64,
    keep: Option<u64>,
}

impl MediaReader {
    /// Reads the headers. `extension` helps where they are ambiguous.
    pub(super) fn open(file: &File, extension: Option<&str>) -> Result<Self, OpenError> {
        Self::open_plain(file, extension).map_err(|why| {
            if why == OpenError::UnsupportedCodec && edit_list::is_protected(file) {
                return OpenError::Protected;
            }
            why
        })
    }

    fn open_plain(file: &File, extension: Option<&str>) -> Result<Self, OpenError> {
        let mut own = file.try_clone()?;
        let corrections = find_corrections(file)?;
        // Some readers refuse a file that is shorter than its header says. Read as a stream of
        // unknown length, it plays up to its end.
        let mut reader = probe(file, &corrections, extension, false)
            .or_else(|why| probe(file, &corrections, extension, true).map_err(|_| why))?;
        let mut about = read_track_info(&mut *reader);
        let track = reader.default_track(TrackType::Audio).ok_or(OpenError::UnsupportedCodec)?;
        let parameters = parameters(track).ok_or(OpenError::UnsupportedCodec)?.clone();
        let codec = MediaCodec::new(&parameters)?;
        let mut trim = EdgeTrim::new(track, &parameters);
        let mut counted_at = parameters.sample_rate.filter(|_| parameters.codec == CODEC_ID_AAC);
        let counts_frames = |edit: &EditRange| {
            matches!(parameters.codec, CODEC_ID_AAC | CODEC_ID_OPUS)
                || Some(edit.rate) == parameters.sample_rate
        };
        if reader.format_info().format == FORMAT_ID_ISOMP4
            && let Some(rate) = parameters.sample_rate
            && let Some(edit) = edit_list::find_edit(&mut own, rate).filter(counts_frames)
        {
            trim = EdgeTrim { skip: edit.skip, keep: Some(edit.keep), ..EdgeTrim::default() };
            counted_at = counted_at.and(Some(edit.rate));
        }
        about.codec = codec.name();
        about.bits = parameters.bits_per_sample;
        // Ogg counts the frames that Opus skips.
        let skipped = if parameters.codec == CODEC_ID_OPUS { trim.skip } else { 0 };
        about.frames = trim.keep.or_else(|| track.num_frames?.checked_sub(skipped));
        let mpeg = MpegState::new(reader.format_info().format, track);
        let stated = stated_frames(reader.format_info().format, track, &about, &corrections);
        let rate = SampleRate::new(parameters.sample_rate.unwrap_or(0));
        let layout = ChannelLayout::new(parameters.channels.as_ref().map_or(0, |c| c.count()));
        Ok(Self {
            track: track.id,
            // The first packet provides what the header leaves open.
            rate: rate.unwrap_or(SampleRate::HZ_48000),
            layout: layout.unwrap_or(ChannelLayout::STEREO),
            reader,
            codec,
            trim,
            counted_at,
            expected: None,
            mpeg,
            ahead: None,
            last_padding_ns: find_discard_padding(file)?.filter(|ns| *ns > 0),
            is_cut: corrections.declared.is_some_and(DeclaredBytes::is_cut),
            stated,
            track_info: about,
        })
    }

    /// Replaces `out` with the frames of the next packet.
    pub(super) fn decode(&mut self, out: &mut Vec<f32>) -> Result<PacketOutcome, FileDecodeError> {
        out.clear();
        let next = match self.ahead.take() {
            Some(packet) => Ok(Some(packet)),
            None => self.read_packet()?,
        };
        let mut packet = match next {
            Ok(Some(packet)) => packet,
            Ok(None) if self.is_cut => return Ok(PacketOutcome::TruncatedEnd),
            Ok(None) => return Ok(PacketOutcome::End),
            Err(Error::ResetRequired) => {
                return self.open_next_link().map(|()| PacketOutcome::Frames);
            }
            Err(Error::IoError(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(if self.is_open_ended() {
                    PacketOutcome::End
                } else {
                    PacketOutcome::TruncatedEnd
                });
            }
            Err(Error::IoError(error)) => return Err(error.into()),
            Err(_) => return Ok(PacketOutcome::Damaged),
        };
        if packet.track_id != self.track {
            return Ok(PacketOutcome::Frames);
        }
        if self.mpeg.is_some() {
            // The length that it was trimmed to may be wrong.
            packet.trim_end = Duration::ZERO;
            if !self.follow_mpeg_format(&packet)? {
                return Ok(PacketOutcome::Damaged);
            }
        }
        let is_after_gap = self.is_after_gap(&packet);
        let whole = self.decode_packet(&packet, out)? && !is_after_gap;
        self.trim(&packet, out);
        self.trim_last_packet(out)?;
        Ok(if whole { PacketOutcome::Frames } else { PacketOutcome::Damaged })
    }

    fn read_packet(&mut self) -> Result<Result<Option<Packet>, Error>, FileDecodeError> {
        let reader = &mut self.reader;
        Ok(guard(CodecLibrary::Symphonia, || reader.next_packet())?)
    }

    /// Prepares the decoder for another rate or number of channels. False for a packet whose
    /// format the next one does not confirm: it is damaged, or no frame at all.
    fn follow_mpeg_format(&mut self, packet: &Packet) -> Result<bool, FileDecodeError> {
        let format = MpegFormat::of_packet(&packet.data);
        let Some(mpeg) = &mut self.mpeg else { return Ok(true) };
        if mpeg.format.is_none() || mpeg.format == format {
            mpeg.format = format;
            return Ok(true);
        }
        self.ahead = self.read_packet()?.unwrap_or(None);
        let follows = self.ahead.as_ref().and_then(|next| MpegFormat::of_packet(&next.data));
        if follows != format {
            return Ok(false);
        }
        let Some(mpeg) = &mut self.mpeg else { return Ok(true) };
        mpeg.format = format;
        mpeg.padding.iter_mut().for_each(PaddingFilter::end_part);
        if let MediaCodec::Library(decoder) = &mut self.codec {
            decoder.restart();
        }
        Ok(true)
    }

    /// Seeks to `frame` exactly.
    pub(super) fn seek(&mut self, frame: Frames) -> Result<(), FileDecodeError> {
        let time = i64::try_from(frame.0).map_err(|_| FileDecodeError::Torn)?;
        let to = SeekTo::Timestamp { ts: Timestamp::new(time), track_id: self.track };
        let reader = &mut self.reader;
        let sought = guard(CodecLibrary::Symphonia, || reader.seek(SeekMode::Accurate, to))?;
        let actual = sought.map_err(|_| FileDecodeError::Torn)?.actual_ts.get();
        let skip = time.checked_sub(actual).and_then(|skip| u64::try_from(skip).ok());
        self.trim = EdgeTrim { skip: skip.ok_or(FileDecodeError::Torn)?, ..EdgeTrim::default() };
        self.expected = None;
        match &mut self.codec {
            MediaCodec::Library(decoder) => decoder.reset(),
            // These resume without it.
            MediaCodec::Aac(_) | MediaCodec::Opus(_) => {}
        }
        Ok(())
    }

    /// The loudspeaker of each channel as a WAVE channel mask, if the file has one.
    pub(super) fn speakers(&self) -> Option<u32> {
        let track = self.reader.tracks().iter().find(|track| track.id == self.track)?;
        match parameters(track)?.channels.as_ref()? {
            // The lower bits are those of WAVE.
            Channels::Positioned(places) => {
                let known = u32::try_from(places.bits()).ok()?;
                // Parametric stereo makes two channels of one.
                let is_all = known.count_ones() as usize == self.layout.channels();
                (known & !WAVE_SPEAKERS == 0 && is_all).then_some(known)
            }
            _ => None,
        }
    }

    pub(super) const fn rate(&self) -> SampleRate {
        self.rate
    }

    /// The length in the header, in frames, if it is exact; and the deviation from it that is
    /// usual, because packets or priming are counted differently.
    pub(super) fn stated_frames(&self) -> Option<(u64, u64)> {
        let tolerance = match self.reader.format_info().format {
            FORMAT_ID_MP1 | FORMAT_ID_MP2 | FORMAT_ID_MP3 | FORMAT_ID_ISOMP4 => PACKET_TOLERANCE,
            _ => 0,
        };
        Some((self.stated?, tolerance))
    }

    pub(super) const fn layout(&self) -> ChannelLayout {
        self.layout
    }

    /// Returns whether the packet was intact.
    fn decode_packet(
        &mut self,
        packet: &Packet,
        out: &mut Vec<f32>,
    ) -> Result<bool, FileDecodeError> {
        match &mut self.codec {
            MediaCodec::Aac(aac) => {
                match aac.decode(&packet.data, out) {
                    AacPacket::Frames => {}
                    AacPacket::Waiting => return Ok(true),
                    AacPacket::Damaged => return Ok(false),
                    AacPacket::Unsupported => return Err(FileDecodeError::Unsupported),
                }
                (self.rate, self.layout) = aac.shape();
                let waited = usize::try_from(aac.waited()).unwrap_or(0);
                if let Some(rate) = self.counted_at.take() {
                    // The packets before keep their time.
                    let silence = waited * out.len();
                    out.splice(0..0, core::iter::repeat_n(0.0, silence));
                    self.count_at(rate);
                }
                Ok(true)
            }
            MediaCodec::Opus(opus) => {
                (self.rate, self.layout) = (opus.rate(), opus.layout());
                Ok(opus.decode(&packet.data, out))
            }
            MediaCodec::Library(decoder) => {
                let shape = decoder.decode(&packet.as_packet_ref(), out);
                (self.rate, self.layout) = shape.unwrap_or((self.rate, self.layout));
                Ok(shape.is_some())
            }
        }
    }

    /// Converts what the container counted at `rate` into frames.
    fn count_at(&mut self, rate: u32) {
        let counts = [
            Some(&mut self.trim.skip),
            self.trim.keep.as_mut(),
            self.track_info.frames.as_mut(),
            self.stated.as_mut(),
        ];
        for count in counts.into_iter().flatten() {
            let frames = u128::from(*count) * u128::from(self.rate.hz()) / u128::from(rate.max(1));
            *count = u64::try_from(frames).unwrap_or(u64::MAX);
        }
    }

    /// Whether the container skipped data before this packet: it resynchronizes by itself, and only
    /// the time stamps show it.
    fn is_after_gap(&mut self, packet: &Packet) -> bool {
        let (expected, end) = (self.expected, packet.pts.checked_add(packet.dur));
        self.expected = end.filter(|_| self.track_info.codec == "flac" && packet.dur.get() > 1);
        expected.is_some_and(|expected| packet.pts > expected)
    }

    /// A WAVE file that was written to a pipe has no length and cannot be truncated.
    fn is_open_ended(&self) -> bool {
        self.track_info.frames.is_none() && self.track_info.codec.starts_with("pcm")
    }

    /// Removes frames that are not to be played.
    fn trim(&mut self, packet: &Packet, out: &mut Vec<f32>) {
        let channels = self.layout.channels();
        if let Some(padding) = self.mpeg.as_mut().and_then(|mpeg| mpeg.padding.as_mut()) {
            padding.apply(out, channels);
        }
        if self.trim.by_time {
            self.trim.by_time = false;
            self.trim.skip = self.frames_before_zero(packet);
        }
        if self.trim.by_packet {
            let end = usize::try_from(packet.trim_end.get()).unwrap_or(usize::MAX);
            out.truncate(out.len().saturating_sub(end.saturating_mul(channels)));
        }
        let skip = self.trim.skip.min((out.len() / channels) as u64);
        self.trim.skip -= skip;
        out.drain(..usize::try_from(skip).unwrap_or(0) * channels);
        if let Some(keep) = &mut self.trim.keep {
            let kept = (*keep).min((out.len() / channels) as u64);
            *keep -= kept;
            out.truncate(usize::try_from(kept).unwrap_or(0) * channels);
        }
    }

    /// Removes the padding if this was the last packet.
    fn trim_last_packet(&mut self, out: &mut Vec<f32>) -> Result<(), FileDecodeError> {
        let Some(padding) = self.last_padding_ns else { return Ok(()) };
        while self.ahead.as_ref().is_none_or(|next| next.track_id != self.track) {
            match self.read_packet()? {
                Ok(Some(next)) => self.ahead = Some(next),
                Ok(None) => {
                    let frames = u128::from(padding) * u128::from(self.rate.hz()) + 500_000_000;
                    let frames = usize::try_from(frames / 1_000_000_000).unwrap_or(usize::MAX);
                    let samples = frames.saturating_mul(self.layout.channels());
                    out.truncate(out.len().saturating_sub(samples));
                    return Ok(());
                }
                // The next call reports it.
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// How many frames of the first packet lie before the beginning, by its time stamp.
    fn frames_before_zero(&self, packet: &Packet) -> u64 {
        let track = self.reader.tracks().iter().find(|track| track.id == self.track);
        let base = track.and_then(|track| track.time_base);
        let Some(base) = base.filter(|_| packet.pts.is_negative()) else { return 0 };
        let ticks = u128::from(packet.pts.get().unsigned_abs()) * u128::from(base.numer.get());
        let denom = u128::from(base.denom.get());
        let frames = (ticks * u128::from(self.rate.hz()) + denom / 2) / denom;
        u64::try_from(frames).unwrap_or(0).min(LONGEST_PRIMING)
    }

    /// Continues with the next link of a chained stream.
    fn open_next_link(&mut self) -> Result<(), FileDecodeError> {
        let track = self.reader.default_track(TrackType::Audio).ok_or(FileDecodeError::Torn)?;
        let parameters = parameters(track).ok_or(FileDecodeError::Torn)?;
        self.codec = MediaCodec::new(parameters).map_err(|_| FileDecodeError::Torn)?;
        self.trim = EdgeTrim::new(track, parameters);
        self.counted_at = parameters.sample_rate.filter(|_| parameters.codec == CODEC_ID_AAC);
        self.track = track.id;
        self.expected = None;
        Ok(())
    }
}

impl fmt::Debug for MediaReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Media").field("about", &self.track_info).finish_non_exhaustive()
    }
}

impl MediaCodec {
    fn new(parameters: &AudioCodecParameters) -> Result<Self, OpenError> {
        if parameters.codec == CODEC_ID_OPUS {
            let head = parameters.extra_data.as_deref().and_then(OpusHead::parse);
            return head
                .and_then(OpusPacketDecoder::new)
                .map(Self::Opus)
                .ok_or(OpenError::UnsupportedCodec);
        }
        if parameters.codec == CODEC_ID_AAC {
            // ADTS has no config.
            let channels = parameters.channels.as_ref().map_or(0, Channels::count);
            let plain = AacDecoder::lc_config(parameters.sample_rate.unwrap_or(0), channels);
            let config = parameters.extra_data.as_deref();
            let config = config.or_else(|| plain.as_ref().map(|it| &it[..]));
            let config = config.ok_or(OpenError::UnsupportedCodec)?;
            let aac = AacDecoder::new(config).map_err(OpenError::UnsupportedAac)?;
            return Ok(Self::Aac(Box::new(aac)));
        }
        let decoder = LibraryDecoder::new(parameters.clone());
        decoder.map(Self::Library).ok_or(OpenError::UnsupportedCodec)
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Aac(_) => "aac",
            Self::Opus(_) => "opus",
            Self::Library(decoder) => decoder.name(),
        }
    }
}

impl MpegState {
    fn new(format: FormatId, track: &Track) -> Option<Self> {
        if !matches!(format, FORMAT_ID_MP1 | FORMAT_ID_MP2 | FORMAT_ID_MP3) {
            return None;
        }
        let padding = track.num_frames.zip(track.padding).filter(|(_, padding)| *padding > 0);
        let padding = padding.map(|(audio, padding)| PaddingFilter::new(audio, padding));
        Some(Self { format: None, padding })
    }
}

impl EdgeTrim {
    fn new(track: &Track, parameters: &AudioCodecParameters) -> Self {
        match parameters.codec {
            CODEC_ID_OPUS => {
                let head = parameters.extra_data.as_deref().and_then(OpusHead::parse);
                let skip = head.map_or(0, |head| u64::from(head.pre_skip));
                Self { by_packet: true, skip, ..Self::default() }
            }
            CODEC_ID_AAC | CODEC_ID_ALAC => {
                let skip = u64::from(track.delay.unwrap_or(0)).min(LONGEST_PRIMING);
                let keep = track.num_frames.filter(|_| track.padding.is_some());
                Self { by_packet: true, by_time: skip == 0, skip, keep }
            }
            _ => Self::default(),
        }
    }
}

/// Lets the format readers probe the headers from the beginning of the file.
fn probe(
    file: &File,
    corrections: &Corrections,
    extension: Option<&str>,
    as_stream: bool,
) -> Result<Box<dyn FormatReader>, OpenError> {
    let file = CorrectedFile::new(file.try_clone()?, corrections.clone());
    let mut hint = Hint::new();
    if let Some(extension) = extension {
        hint.with_extension(extension);
    }
    let source: Box<dyn MediaSource> =
        if as_stream { Box::new(ReadOnlySource::new(file)) } else { Box::new(file) };
    let stream = MediaSourceStream::new(source, MediaSourceStreamOptions::default());
    let limits = MetadataOptions::default()
        .limit_tag_bytes(Limit::Maximum(TAG_BYTES))
        .limit_visual_bytes(Limit::Maximum(PICTURE_BYTES));
    let probed = guard(CodecLibrary::Symphonia, || {
        get_probe().probe(&hint, stream, FormatOptions::default(), limits)
    });
    probed?.map_err(|error| open_error(&error))
}

/// The length in the header, in frames; `None` if it has none, or only an estimate.
fn stated_frames(
    format: FormatId,
    track: &Track,
    about: &TrackInfo,
    corrections: &Corrections,
) -> Option<u64> {
    if let Some(DeclaredBytes { stated, actual }) = corrections.declared {
        let frames = u128::from(track.num_frames?) * u128::from(stated);
        return u64::try_from(frames.checked_div(actual.into())?).ok();
    }
    match format {
        // The library sets the priming when it has read a Xing or Info frame.
        FORMAT_ID_MP1 | FORMAT_ID_MP2 | FORMAT_ID_MP3 => {
            track.num_frames.filter(|_| track.delay.is_some())
        }
        FORMAT_ID_FLAC => track.num_frames.filter(|frames| *frames > 0),
        // A fragmented file has none.
        FORMAT_ID_ISOMP4 => about.frames.filter(|frames| *frames > 0),
        _ => None,
    }
}

fn parameters(track: &Track) -> Option<&AudioCodecParameters> {
    track.codec_params.as_ref().and_then(CodecParameters::audio)
}

fn read_track_info(reader: &mut dyn FormatReader) -> TrackInfo {
    let mut metadata = reader.metadata();
    let Some(newest) = metadata.skip_to_latest() else { return TrackInfo::default() };
    let mut about = TrackInfo::default();
    for tag in tags(newest) {
        match tag {
            StandardTag::TrackTitle(text) => about.title = Some(truncate_tag(text)),
            StandardTag::Artist(text) => about.artist = Some(truncate_tag(text)),
            _ => {}
        }
    }
    about
}

fn tags(revision: &MetadataRevision) -> impl Iterator<Item = &StandardTag> {
    let tracks = revision.per_track.iter().flat_map(|track| &track.metadata.tags);
    tracks.chain(&revision.media.tags).filter_map(|tag| tag.std.as_ref())
}

fn truncate_tag(text: &str) -> String {
    text.chars().take(TAG_CHARS).collect()
}

/// Maps a failure to read the headers to an error for the user.
fn open_error(error: &Error) -> OpenError {
    match error {
        Error::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => OpenError::Torn,
        Error::IoError(error) => OpenError::Io(error.kind()),
        Error::Unsupported(_) => OpenError::NotAudio,
        _ => OpenError::Torn,
    }
}

/// The 18 loudspeaker positions of `WAVEFORMATEXTENSIBLE`.
const WAVE_SPEAKERS: u32 = 0x3_ffff;

/// The limit for a comment.
const TAG_BYTES: usize = 64 * 1024;

/// Pictures are not shown; larger ones are not even read.
const PICTURE_BYTES: usize = 1024;

/// The limit for titles and artists on a status page.
const TAG_CHARS: usize = 200;

/// The longest priming that is accepted, in frames: HE-AAC needs less than 6,000.
const LONGEST_PRIMING: u64 = 48_000;

/// Frames by which a count in a header may differ from the file: two packets of the longest kind.
/// Xing frames count themselves in some programs, and MP4 counts priming in some.
const PACKET_TOLERANCE: u64 = 4_096;
