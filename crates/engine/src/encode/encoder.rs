//! What all encoders have in common.

use core::fmt;

use aulos_core::{Block, Codec, Frames, SampleSpec};

/// Turns blocks into payloads, one payload per block; that of MP3 and AAC may be
/// empty.
///
/// An encoder is made for one sample spec and one block length; it has no clock and knows no wire
/// format.
pub trait Encoder: Send {
    /// The codec of the payloads.
    fn codec(&self) -> Codec;

    /// The output of a decoder of the payloads: rate, format and layout.
    fn spec(&self) -> SampleSpec;

    /// The codec's own stream header, empty where it has none: `fLaC` and STREAMINFO for FLAC.
    fn header(&self) -> &[u8] {
        &[]
    }

    /// Appends the payload for `block` to `out`, whose spare capacity suffices after warm-up.
    ///
    /// The block must have the rate and layout of [`Encoder::spec`] and the length that the encoder
    /// was made for.
    ///
    /// # Errors
    /// [`EncodeError`] when the codec refuses the block; `out` may then hold a partial payload.
    fn encode(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// How much work the next blocks are worth. What a decoder plays is the same in every codec
    /// without loss.
    fn set_effort(&mut self, _effort: Effort) {}

    /// Number of samples clipped so far because they exceeded the format.
    fn clipped(&self) -> u64 {
        0
    }

    /// How often the codec's library has panicked. Each time it was replaced by a new one, which
    /// encoded the block again.
    fn panics(&self) -> u64 {
        0
    }
}

/// How much work an encoder does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "two degrees are enough")]
pub enum Effort {
    /// As configured.
    #[default]
    Full,
    /// As little as gives a valid stream: nobody listens at the moment.
    Least,
}

/// Why a block was not encoded. Both are internal faults, not faults of the audio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The block has another rate, layout or length than the encoder was made for.
    Shape,
    /// The codec library refused, or panicked twice.
    Codec,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shape => "the format of the block is not that of the encoder",
            Self::Codec => "the codec rejected the block",
        })
    }
}

impl core::error::Error for EncodeError {}

/// Why an encoder was not created: the property that the codec does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnsupportedFormat {
    /// FLAC: another format than 16 or 24 bit integers.
    Format(Codec),
    /// Opus: another rate than 48,000 Hz. FLAC: a rate that a frame header cannot hold. MP3 and
    /// AAC: a rate that is not in their standards.
    Rate(Codec),
    /// Opus, MP3 and AAC: more than two channels. FLAC: more than eight.
    Channels(Codec),
    /// Opus: not 10, 20, 40 or 60 ms. FLAC: not 16 to 65,535 frames.
    BlockLength(Codec),
    /// MP3: LAME is wanted and cannot be loaded. AAC: this build has no encoder.
    Library(Codec),
}

impl fmt::Display for UnsupportedFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Format(codec)
        | Self::Rate(codec)
        | Self::Channels(codec)
        | Self::BlockLength(codec)
        | Self::Library(codec)) = self;
        let info = codec.info();
        let (low, high) = (info.rate_range.start(), info.rate_range.end());
        match self {
            Self::Format(_) => write!(f, "{codec} requires {}", info.requires),
            Self::Rate(_) if low == high => write!(f, "{codec} supports {low} Hz only"),
            Self::Rate(_) if info.only_rates.is_some() => {
                write!(f, "{codec} requires {}", info.requires)
            }
            Self::Rate(_) => write!(f, "{codec} does not support this sample rate"),
            Self::Channels(_) => {
                write!(f, "{codec} supports at most {} channels", info.max_channels)
            }
            Self::BlockLength(_) => write!(f, "{codec} supports {}", info.chunks),
            Self::Library(Codec::Mp3) => f.write_str(LAME_MISSING),
            Self::Library(_) => write!(f, "this build has no encoder of {codec}"),
        }
    }
}

impl core::error::Error for UnsupportedFormat {}

/// The remedy names the packages of Debian and Ubuntu, of Fedora and Alpine, and of Arch.
const LAME_MISSING: &str = "the library libmp3lame.so.0 cannot be loaded: install LAME (package \
     libmp3lame0, lame-libs or lame)";

/// Appends the samples of a frame to their channels, for a library that takes no others than -1 to
/// 1: what is beyond is clipped, and what is not a number is silence. Returns how many were clipped.
pub(super) fn push_clipped(frame: &[f32], channels: &mut [Vec<f32>]) -> u64 {
    let mut clipped = 0;
    for (channel, &sample) in channels.iter_mut().zip(frame) {
        // The comparison is false for what is not a number.
        clipped += u64::from(sample.abs() > 1.0);
        let finite = if sample.is_nan() { 0.0 } else { sample };
        channel.push(finite.clamp(-1.0, 1.0));
    }
    clipped
}

/// Checks that `block` is valid for an encoder of `spec` and `frames`.
pub(super) fn check_block(
    block: &Block,
    spec: SampleSpec,
    frames: Frames,
) -> Result<(), EncodeError> {
    let same =
        block.rate() == spec.rate && block.layout() == spec.layout && block.frames() == frames;
    if same { Ok(()) } else { Err(EncodeError::Shape) }
}
