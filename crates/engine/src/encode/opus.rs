//! Lossy compression (RFC 6716), by `opus-rs`.
//!
//! The choice of this library over libopus: docs/decisions/opus-codec.md.

use core::fmt;

use aulos_core::{Block, Codec, Frames, SampleRate, SampleSpec};
use opus_rs::{Application, OpusEncoder};

use super::config::{self, BITRATES, MAX_COMPLEXITY};
use super::{EncodeError, Encoder, OpusConfig, RateControl, UnsupportedFormat, check_block};
use crate::codec_guard::{CodecLibrary, GuardedCodec};

/// Opus encoder: one packet per block.
///
/// Runs without look-ahead for speech (libopus' "restricted low delay", as Snapcast does): music at
/// these bit rates gains nothing by it. A decoder's output is [`OpusPacketEncoder::DELAY`] late.
pub struct OpusPacketEncoder {
    spec: SampleSpec,
    block: Frames,
    library: EncoderLibrary,
    samples: Vec<f32>,
    packet: Vec<u8>,
}

impl OpusPacketEncoder {
    /// The default bit rate, in bits per second.
    pub const DEFAULT_BITRATE: u32 = config::DEFAULT_BITRATE;

    /// Delay of a decoder's output relative to the encoder's input: the overlap of the transform.
    pub const DELAY: Frames = Frames(120);

    /// An encoder of blocks of exactly `block` frames, at about `bitrate` bits per second
    /// (variable; clamped to 6,000 to 510,000). The format of `spec` is that of the decoder's
    /// output and does not matter here.
    ///
    /// # Errors
    /// [`UnsupportedFormat`] for another rate than 48 kHz, more than two channels, or a block that
    /// does not last 10, 20, 40 or 60 ms.
    pub fn new(spec: SampleSpec, block: Frames, bitrate: u32) -> Result<Self, UnsupportedFormat> {
        Self::with_config(spec, block, OpusConfig { bitrate, ..OpusConfig::default() })
    }

    /// The same with every setting; values out of range are clamped.
    ///
    /// # Errors
    /// As [`OpusPacketEncoder::new`].
    pub fn with_config(
        spec: SampleSpec,
        block: Frames,
        config: OpusConfig,
    ) -> Result<Self, UnsupportedFormat> {
        check(spec, block)?;
        let channels = spec.layout.channels();
        let library = GuardedCodec::new(CodecLibrary::OpusRs, move || {
            let application = Application::RestrictedLowDelay;
            let mut encoder = OpusEncoder::new(48_000, channels, application).ok()?;
            let bitrate = config.bitrate.clamp(*BITRATES.start(), *BITRATES.end());
            encoder.bitrate_bps = bitrate.cast_signed();
            encoder.complexity = i32::from(config.complexity.min(MAX_COMPLEXITY));
            encoder.use_cbr = config.rate_control == RateControl::Cbr;
            Some(Box::new(encoder))
        });
        let library = library.ok_or(UnsupportedFormat::Channels(Codec::Opus))?;
        Ok(Self::assemble(spec, block, EncoderLibrary::Rust(library)))
    }

    /// The same with libopus, which is better below 96 kb/s and takes more CPU.
    ///
    /// # Errors
    /// As [`OpusPacketEncoder::new`].
    #[cfg(feature = "libopus")]
    pub fn with_libopus(
        spec: SampleSpec,
        block: Frames,
        bitrate: u32,
    ) -> Result<Self, UnsupportedFormat> {
        check(spec, block)?;
        let channels =
            if spec.layout.channels() == 1 { opus::Channels::Mono } else { opus::Channels::Stereo };
        let bitrate = bitrate.clamp(*BITRATES.start(), *BITRATES.end()).cast_signed();
        opus::Encoder::new(48_000, channels, opus::Application::LowDelay)
            .and_then(|mut encoder| {
                encoder.set_bitrate(opus::Bitrate::Bits(bitrate))?;
                encoder.set_complexity(i32::from(MAX_COMPLEXITY))?;
                Ok(Self::assemble(spec, block, EncoderLibrary::C(encoder)))
            })
            .map_err(|_| UnsupportedFormat::Channels(Codec::Opus))
    }

    fn assemble(spec: SampleSpec, block: Frames, library: EncoderLibrary) -> Self {
        let samples = vec![0.0; block.as_usize() * spec.layout.channels()];
        Self { spec, block, library, samples, packet: vec![0; MAX_PACKET] }
    }
}

enum EncoderLibrary {
    Rust(GuardedCodec<Box<OpusEncoder>>),
    #[cfg(feature = "libopus")]
    C(opus::Encoder),
}

impl EncoderLibrary {
    /// Encodes `frames` frames to the front of `packet`; returns the packet's length.
    fn encode(&mut self, samples: &[f32], frames: usize, packet: &mut [u8]) -> Option<usize> {
        match self {
            Self::Rust(library) => {
                library.call_again(|encoder| encoder.encode(samples, frames, packet)).ok()?.ok()
            }
            #[cfg(feature = "libopus")]
            Self::C(encoder) => encoder.encode_float(samples, packet).ok(),
        }
    }
}

fn check(spec: SampleSpec, block: Frames) -> Result<(), UnsupportedFormat> {
    if spec.rate != SampleRate::HZ_48000 {
        return Err(UnsupportedFormat::Rate(Codec::Opus));
    }
    if spec.layout.channels() > 2 {
        return Err(UnsupportedFormat::Channels(Codec::Opus));
    }
    if !BLOCKS.contains(&block) {
        return Err(UnsupportedFormat::BlockLength(Codec::Opus));
    }
    Ok(())
}

impl Encoder for OpusPacketEncoder {
    fn codec(&self) -> Codec {
        Codec::Opus
    }

    fn spec(&self) -> SampleSpec {
        self.spec
    }

    fn header(&self) -> &[u8] {
        &[]
    }

    fn encode(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        check_block(block, self.spec, self.block)?;
        for (to, &from) in self.samples.iter_mut().zip(block.samples()) {
            *to = if from.is_nan() { 0.0 } else { from.clamp(-MAX_SAMPLE, MAX_SAMPLE) };
        }
        let frames = self.block.as_usize();
        let packet = self
            .library
            .encode(&self.samples, frames, &mut self.packet)
            .and_then(|length| self.packet.get(..length))
            .ok_or(EncodeError::Codec)?;
        out.extend_from_slice(packet);
        Ok(())
    }

    fn panics(&self) -> u64 {
        match &self.library {
            EncoderLibrary::Rust(library) => library.panics(),
            #[cfg(feature = "libopus")]
            EncoderLibrary::C(_) => 0,
        }
    }
}

impl fmt::Debug for OpusPacketEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opus").field("spec", &self.spec).field("block", &self.block).finish()
    }
}

/// 10, 20, 40 and 60 ms. Shorter packets would waste more than they save on this path.
const BLOCKS: [Frames; 4] = [Frames(480), Frames(960), Frames(1_920), Frames(2_880)];

/// Three frames of 20 ms (RFC 6716, section 3.4), each of 1,275 bytes at most, and their lengths.
const MAX_PACKET: usize = 3 * 1_275 + 7;

/// Samples beyond full scale are left for the decoder to clip, but within this bound.
const MAX_SAMPLE: f32 = 8.0;
