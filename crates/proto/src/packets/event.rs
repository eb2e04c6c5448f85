//! What the readers of all formats return.

use core::fmt;

use aulos_core::{ChannelLayout, SampleRate, Span};

use crate::mpegts::UnsupportedTsCodec;
use crate::titles::TrackMetadata;
use crate::wav::WavSampleFormat;

/// Event in the byte stream.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SplitterEvent {
    /// A stream of this format begins: create a new decoder.
    Begin(Box<StreamStart>),
    /// A packet; [`PacketSplitter::packet`](super::PacketSplitter::packet) returns its bytes.
    Packet(PacketPlacement),
    /// Number of bytes that were skipped before the next packet; 0 when only packets are missing.
    Lost(u64),
    /// Metadata of the audio that follows.
    Title(TrackMetadata),
}

/// Start of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamStart {
    /// Format of the packets.
    pub format: PacketFormat,
    /// Frames at the beginning to discard after decoding.
    pub skip: u64,
    /// Padding at the end to discard: the first frame of it, counted including `skip`, and the
    /// number of frames.
    pub padding: Option<(u64, u64)>,
}

/// Position of a packet in its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketPlacement {
    /// The codec's position after the packet in frames, where the container has it.
    pub position: Option<u64>,
    /// Last packet: frames beyond `position` are padding.
    pub last: bool,
    /// Time of its first frame on the sender's time line, where the container has it. What is
    /// missing between two packets shows in their times.
    pub time: Option<Span>,
}

/// Format of packets.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PacketFormat {
    /// MPEG audio with its frame headers.
    Mpeg {
        /// Layer 1, 2 or 3.
        layer: u8,
        /// Sample rate.
        rate: SampleRate,
        /// Mono or stereo.
        layout: ChannelLayout,
    },
    /// AAC without headers.
    Aac {
        /// The `AudioSpecificConfig` for the decoder.
        config: [u8; 2],
        /// Sample rate of the core; that of HE-AAC is twice as high.
        rate: SampleRate,
        /// Channels; `None` when only the packets contain them.
        layout: Option<ChannelLayout>,
        /// Low complexity, the usual profile.
        low_complexity: bool,
    },
    /// FLAC frames.
    Flac {
        /// The STREAMINFO block; generated when the stream was joined after it.
        info: [u8; 34],
        /// Sample rate.
        rate: SampleRate,
        /// Channels.
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
    /// PCM samples.
    Pcm {
        /// Sample format.
        samples: WavSampleFormat,
        /// Sample rate.
        rate: SampleRate,
        /// Channels.
        layout: ChannelLayout,
    },
}

/// Reason why a stream cannot be played. The error is permanent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamFormatError {
    /// A web page.
    WebPage,
    /// A playlist instead of a stream.
    Playlist,
    /// MP4, which is a file format.
    Mp4,
    /// Matroska or `WebM`.
    Matroska,
    /// An MPEG transport stream without sound that can be decoded; the codec of the first sound in
    /// it.
    TransportStream(Option<UnsupportedTsCodec>),
    /// An MPEG transport stream or MP4 whose sound is encrypted.
    Scrambled,
    /// MP4 in fragments without AAC, FLAC or Opus.
    MovieFragments,
    /// MP3 of free format, whose frames do not contain their length.
    FreeFormat,
    /// Ogg without a supported codec, or joined after its headers.
    NoOggHeaders,
    /// WAVE that is compressed or damaged.
    Wave,
    /// No format was recognized within [`MAX_GARBAGE`](super::MAX_GARBAGE) bytes.
    NotAudio,
}

impl fmt::Display for StreamFormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WebPage => "a web page, not audio; use the URL of the stream",
            Self::Playlist => "a playlist, not audio",
            Self::Mp4 => "MP4 cannot be streamed",
            Self::Matroska => "Matroska and WebM cannot be streamed",
            Self::TransportStream(Some(codec)) => {
                return write!(
                    f,
                    "the transport stream has {codec}; AAC, MP1, MP2, MP3 and Opus are supported"
                );
            }
            Self::TransportStream(None) => "the transport stream has no sound",
            Self::Scrambled => "the sound is encrypted",
            Self::MovieFragments => "the MP4 fragments have no AAC, FLAC or Opus",
            Self::FreeFormat => "MP3 in free format is not supported",
            Self::NoOggHeaders => "Ogg without headers of Opus, Vorbis or FLAC",
            Self::Wave => "the WAVE data is compressed or damaged",
            Self::NotAudio => "not MP3, AAC, Ogg, FLAC or WAVE",
        })
    }
}

impl core::error::Error for StreamFormatError {}

/// Result of reading at the front of the buffer.
pub(super) enum ReaderStep {
    /// More bytes are needed.
    NeedMore,
    /// Bytes were consumed, and there is an event.
    Found(SplitterEvent),
    /// Bytes were consumed.
    Consumed,
    /// The bytes do not match the format; this many need not be searched again.
    Lost(u64),
    /// The stream has ended, and any format may follow.
    EndOfStream,
    /// The stream cannot be played.
    Refused(StreamFormatError),
}
