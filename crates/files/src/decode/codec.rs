//! Decodes the packets of a stream into frames.

use core::fmt;

use aulos_core::{ChannelLayout, SampleRate};
use aulos_dsp::convert;
use aulos_proto::packets::PacketFormat;
use aulos_proto::wav::WavSampleFormat;
use symphonia::core::codecs::audio::well_known::{
    CODEC_ID_FLAC, CODEC_ID_MP1, CODEC_ID_MP2, CODEC_ID_MP3, CODEC_ID_VORBIS,
};
use symphonia::core::codecs::audio::{AudioCodecId, AudioCodecParameters};
use symphonia::core::packet::PacketRef;
use symphonia::core::units::{Duration, Timestamp};

use super::aac::{AacDecoder, AacPacket};
use super::file::RateAndLayout;
use super::library::LibraryDecoder;
use super::opus::{OpusHead, OpusPacketDecoder};

/// The decoder of one stream.
pub(super) struct StreamCodec {
    kind: StreamCodecKind,
    name: &'static str,
    shape: RateAndLayout,
}

enum StreamCodecKind {
    Aac(Box<AacDecoder>),
    Library(LibraryDecoder),
    Opus(OpusPacketDecoder),
    Pcm(WavSampleFormat),
}

/// The result of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecodedPacket {
    Whole,
    Damaged,
    /// The stream uses what the decoder does not support.
    Unsupported,
}

impl StreamCodec {
    /// The name of the codec, and a decoder, or `None` when the format is not supported.
    pub(super) fn new(format: &PacketFormat) -> (&'static str, Option<Self>) {
        match format {
            PacketFormat::Mpeg { layer, rate, layout } => {
                let (name, id) = match layer {
                    1 => ("mp1", CODEC_ID_MP1),
                    2 => ("mp2", CODEC_ID_MP2),
                    _ => ("mp3", CODEC_ID_MP3),
                };
                (name, Self::library(name, id, None, (*rate, *layout)))
            }
            PacketFormat::Aac { config, rate, layout, low_complexity } => {
                let layout = layout.filter(|layout| *low_complexity && layout.channels() <= 2);
                let codec = layout.and_then(|layout| {
                    let aac = AacDecoder::for_stream(*config, *rate).ok()?;
                    let kind = StreamCodecKind::Aac(Box::new(aac));
                    Some(Self { kind, name: "aac", shape: (*rate, layout) })
                });
                ("aac", codec)
            }
            PacketFormat::Flac { info, rate, layout } => {
                let mut info = *info;
                // Some encoders leave the block sizes unset; any valid value works.
                if u16::from_be_bytes([info[0], info[1]]) < SMALLEST_FLAC_BLOCK {
                    info[..10].copy_from_slice(&[0, 16, 0xff, 0xff, 0, 0, 0, 0, 0, 0]);
                }
                ("flac", Self::library("flac", CODEC_ID_FLAC, Some(&info), (*rate, *layout)))
            }
            PacketFormat::Vorbis { identification, setup } => {
                let headers = [&identification[..], setup].concat();
                let shape = (SampleRate::HZ_48000, ChannelLayout::STEREO);
                ("vorbis", Self::library("vorbis", CODEC_ID_VORBIS, Some(&headers), shape))
            }
            PacketFormat::Opus { head } => {
                let opus = OpusHead::parse(head).and_then(OpusPacketDecoder::new);
                let codec = opus.map(|opus| {
                    let shape = (opus.rate(), opus.layout());
                    Self { kind: StreamCodecKind::Opus(opus), name: "opus", shape }
                });
                ("opus", codec)
            }
            PacketFormat::Pcm { samples, rate, layout } => {
                let (kind, shape) = (StreamCodecKind::Pcm(*samples), (*rate, *layout));
                ("pcm", Some(Self { kind, name: "pcm", shape }))
            }
            _ => ("unknown", None),
        }
    }

    fn library(
        name: &'static str,
        id: AudioCodecId,
        headers: Option<&[u8]>,
        shape: RateAndLayout,
    ) -> Option<Self> {
        let mut parameters = AudioCodecParameters::new();
        parameters.for_codec(id).with_sample_rate(shape.0.hz());
        if let Some(headers) = headers {
            parameters.with_extra_data(headers.into());
        }
        let decoder = LibraryDecoder::new(parameters)?;
        Some(Self { kind: StreamCodecKind::Library(decoder), name, shape })
    }

    /// Replaces `out` with the frames of a packet, of which there may be none at the beginning.
    pub(super) fn decode(&mut self, packet: &[u8], out: &mut Vec<f32>) -> DecodedPacket {
        out.clear();
        let is_whole = match &mut self.kind {
            StreamCodecKind::Aac(aac) => match aac.decode(packet, out) {
                AacPacket::Frames => {
                    self.shape = aac.shape();
                    true
                }
                AacPacket::Waiting => true,
                AacPacket::Damaged => false,
                AacPacket::Unsupported => return DecodedPacket::Unsupported,
            },
            StreamCodecKind::Opus(opus) => opus.decode(packet, out),
            StreamCodecKind::Pcm(samples) => {
                pcm(*samples, packet, out);
                true
            }
            StreamCodecKind::Library(decoder) => {
                let packet = PacketRef::new(0, Timestamp::new(0), Duration::new(0), packet);
                let shape = decoder.decode(&packet, out);
                self.shape = shape.unwrap_or(self.shape);
                shape.is_some()
            }
        };
        if is_whole { DecodedPacket::Whole } else { DecodedPacket::Damaged }
    }

    /// Replaces `out` with concealment for `frames` missing frames, if the codec supports it.
    pub(super) fn conceal(&mut self, frames: usize, out: &mut Vec<f32>) -> bool {
        out.clear();
        match &mut self.kind {
            StreamCodecKind::Opus(opus) => opus.conceal(frames, out),
            StreamCodecKind::Aac(_) | StreamCodecKind::Library(_) | StreamCodecKind::Pcm(_) => {
                false
            }
        }
    }

    /// Panics of the codec's library.
    pub(super) const fn panics(&self) -> u64 {
        match &self.kind {
            StreamCodecKind::Aac(aac) => aac.panics(),
            StreamCodecKind::Library(decoder) => decoder.panics(),
            StreamCodecKind::Opus(opus) => opus.panics(),
            StreamCodecKind::Pcm(_) => 0,
        }
    }

    pub(super) const fn name(&self) -> &'static str {
        self.name
    }

    pub(super) const fn shape(&self) -> RateAndLayout {
        self.shape
    }
}

impl fmt::Debug for StreamCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Codec").field("name", &self.name).finish_non_exhaustive()
    }
}

fn pcm(samples: WavSampleFormat, bytes: &[u8], out: &mut Vec<f32>) {
    match samples {
        WavSampleFormat::Native(format) => {
            out.resize(bytes.len() / format.bytes(), 0.0);
            convert::decode(format, bytes, out);
        }
        #[allow(clippy::cast_possible_truncation, reason = "the house works in f32")]
        WavSampleFormat::F64 => {
            let (whole, _) = bytes.as_chunks();
            out.extend(whole.iter().map(|bytes| f64::from_le_bytes(*bytes) as f32));
        }
    }
}

/// The smallest block size that the decoder accepts.
const SMALLEST_FLAC_BLOCK: u16 = 16;
