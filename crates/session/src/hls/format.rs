//! The format of a rendition: its frames, its delay, and what a player is told.

use core::fmt;

use aulos_core::{Codec, Frames, SampleFormat, SampleRate, SampleSpec};
use aulos_engine::encode::{AacFormat, AacFrameEncoder, CodecConfig, OpusPacketEncoder};
use aulos_proto::hls::{PACKED_AUDIO_MEDIA_TYPE, SEGMENT_MEDIA_TYPE, Track, TrackCodec};

/// A rendition of a station.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what follows from a codec")]
pub struct HlsFormat {
    /// The encoder.
    pub codec: CodecConfig,
    /// What the encoder gets.
    pub spec: SampleSpec,
    /// Samples in a frame.
    pub frame: Frames,
    /// By how much a decoder's output is late. The encoder is fed that much ahead, so that a frame
    /// decodes to the samples of its place.
    pub delay: Frames,
    /// Whether its bytes depend on earlier frames.
    pub has_memory: bool,
    /// The init segment's contents.
    pub track: Track,
    /// What is around the frames.
    pub container: HlsContainer,
    /// The greatest bit rate to be expected, with the boxes.
    pub peak: u64,
}

/// What is around the frames of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(clippy::exhaustive_enums, reason = "what HLS has for sound alone")]
pub enum HlsContainer {
    /// Fragmented MP4.
    Fragments,
    /// Packed audio: the frames behind each other, with a tag at the head.
    Packed,
}

impl HlsContainer {
    /// Every container.
    pub(super) const ALL: [Self; 2] = [Self::Fragments, Self::Packed];

    /// The end of the name of a segment.
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            Self::Fragments => ".m4s",
            Self::Packed => ".aac",
        }
    }

    pub(super) const fn media_type(self) -> &'static str {
        match self {
            Self::Fragments => SEGMENT_MEDIA_TYPE,
            Self::Packed => PACKED_AUDIO_MEDIA_TYPE,
        }
    }
}

/// Why a rendition is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnsupportedHls {
    /// The codec has no rendition here.
    Codec(Codec),
    /// The station has another rate than 48,000 Hz: segments of other rates have no whole duration.
    Rate(SampleRate),
    /// The codec does not support the channels.
    Channels(Codec),
    /// The codec has no packed audio here.
    Packed(Codec),
    /// A segment is no whole number of frames.
    Segment(Codec, Frames),
}

impl fmt::Display for UnsupportedHls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Codec(codec) => {
                write!(f, "{codec} has no rendition in HLS: use aac, flac or opus")
            }
            Self::Rate(rate) => write!(f, "HLS requires 48000 Hz: the station has {}", rate.hz()),
            Self::Channels(codec) => {
                write!(f, "{codec} supports at most {} channels", codec.info().max_channels)
            }
            Self::Packed(codec) => {
                write!(f, "{codec} cannot be packed audio: use aac for every rendition")
            }
            Self::Segment(codec, frame) => {
                write!(f, "a segment must be a multiple of {} samples for {codec}", frame.0)
            }
        }
    }
}

impl core::error::Error for UnsupportedHls {}

impl HlsFormat {
    /// The rendition by `codec` of a station of this spec, in segments of so many samples.
    ///
    /// # Errors
    /// [`UnsupportedHls`].
    pub fn new(
        codec: CodecConfig,
        spec: SampleSpec,
        segment: Frames,
    ) -> Result<Self, UnsupportedHls> {
        let name = codec.codec();
        if spec.rate != SampleRate::HZ_48000 {
            return Err(UnsupportedHls::Rate(spec.rate));
        }
        let spec = SampleSpec { format: name.info().nearest_format(spec.format), ..spec };
        let channels = u8::try_from(spec.layout.channels()).unwrap_or(u8::MAX);
        if spec.layout.channels() > name.info().max_channels {
            return Err(UnsupportedHls::Channels(name));
        }
        let rate = u64::from(spec.rate.hz());
        let (frame, delay, track, bitrate) = match codec {
            CodecConfig::Flac(_) => {
                let bits = if spec.format == SampleFormat::S16Le { 16 } else { 24 };
                let block = u16::try_from(FRAME.0).unwrap_or(u16::MAX);
                let pcm = rate * u64::from(bits) * u64::from(channels);
                (FRAME, Frames::ZERO, TrackCodec::Flac { bits, block }, pcm)
            }
            CodecConfig::Opus(opus) => {
                (FRAME, OpusPacketEncoder::DELAY, TrackCodec::Opus, u64::from(opus.bitrate))
            }
            CodecConfig::Aac(aac) => {
                let format = AacFormat::new(spec).map_err(|_| UnsupportedHls::Channels(name))?;
                let config = format.audio_specific_config().to_vec();
                let bitrate = aac.bitrate_at(spec);
                let track = TrackCodec::Aac { config, bitrate };
                (AacFrameEncoder::FRAMES, AacFrameEncoder::DELAY, track, bitrate.into())
            }
            _ => return Err(UnsupportedHls::Codec(name)),
        };
        if segment == Frames::ZERO || !segment.0.is_multiple_of(frame.0) {
            return Err(UnsupportedHls::Segment(name, frame));
        }
        // Four bytes of a box for each frame, and what a variable bit rate may exceed its average.
        let boxes = rate.div_ceil(frame.0) * 4 * 8;
        let peak = (bitrate * 11 / 10 + boxes).next_multiple_of(1_000);
        let track = Track { codec: track, rate: spec.rate, channels };
        let has_memory = !matches!(codec, CodecConfig::Flac(_));
        let container = HlsContainer::Fragments;
        Ok(Self { codec, spec, frame, delay, has_memory, track, container, peak })
    }

    /// The same as packed audio.
    ///
    /// # Errors
    /// [`UnsupportedHls::Packed`] for any codec but AAC.
    pub fn packed(self) -> Result<Self, UnsupportedHls> {
        // Seven bytes of a header for each frame in place of four.
        let headers = u64::from(self.spec.rate.hz()).div_ceil(self.frame.0) * 3 * 8;
        let peak = (self.peak + headers).next_multiple_of(1_000);
        match self.codec {
            CodecConfig::Aac(_) => Ok(Self { container: HlsContainer::Packed, peak, ..self }),
            codec => Err(UnsupportedHls::Packed(codec.codec())),
        }
    }

    /// Its name in addresses: `flac`, `opus-96k`.
    #[must_use]
    pub fn name(&self) -> String {
        self.codec.to_string().replace([':', ',', '='], "-")
    }
}

/// 20 ms: a packet of Opus, and a block of FLAC of which any segment of whole packets is a
/// multiple.
const FRAME: Frames = Frames(960);
