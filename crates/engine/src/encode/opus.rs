//! Lossy compression (RFC 6716).
//!
//! The choice of the library: docs/decisions/opus-codec.md.

use core::fmt;

use aulos_core::{Block, Codec, Frames, SampleRate, SampleSpec};
use aulos_opus::{Application, EncoderConfig, OpusEncoder};

use super::encoder::{Effort, EncodeError, Encoder, UnsupportedFormat, check_block};
use super::opus_config::{self, OpusConfig, RateControl};
use super::settings::{CodecConfigError, CodecSettings};
use crate::codec_guard::{CodecLibrary, GuardedCodec};

/// Opus encoder: one packet per block.
///
/// At low rates an analysis of the sound decides whether a packet is encoded as speech. Snapcast's
/// encoder never does that, and is 4 ms earlier.
pub struct OpusPacketEncoder {
    spec: SampleSpec,
    block: Frames,
    library: GuardedCodec<OpusEncoder>,
    samples: Vec<f32>,
    packet: Vec<u8>,
    complexity: u8,
    effort: Effort,
}

impl OpusPacketEncoder {
    /// The default bit rate, in bits per second.
    pub const DEFAULT_BITRATE: u32 = opus_config::DEFAULT_BITRATE;

    /// Delay of a decoder's output relative to the encoder's input: the overlap of the transform,
    /// and the look-ahead for speech.
    pub const DELAY: Frames = Frames(312);

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
        let config = library_config(channels, config.clamped());
        let complexity = config.complexity;
        let make = move || OpusEncoder::new(config);
        let library = GuardedCodec::new(CodecLibrary::UnsafeLibopus, make)
            .ok_or(UnsupportedFormat::Channels(Codec::Opus))?;
        let samples = vec![0.0; block.as_usize() * channels];
        let packet = vec![0; MAX_PACKET];
        Ok(Self { spec, block, library, samples, packet, complexity, effort: Effort::Full })
    }
}

fn library_config(channels: usize, config: OpusConfig) -> EncoderConfig {
    EncoderConfig {
        bitrate: config.bitrate,
        is_constant: config.rate_control == RateControl::Cbr,
        complexity: config.complexity,
        ..EncoderConfig::new(SampleRate::HZ_48000.hz(), channels, Application::Audio)
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

impl CodecSettings for OpusConfig {
    const CODEC: Codec = Codec::Opus;

    fn with_options(self, options: &str) -> Result<Self, CodecConfigError> {
        self.with_options(options)
    }

    fn bitrate(self, _: SampleSpec) -> Option<u32> {
        Some(self.bitrate)
    }

    fn make_encoder(
        self,
        spec: SampleSpec,
        block: Frames,
    ) -> Result<Box<dyn Encoder>, UnsupportedFormat> {
        Ok(Box::new(OpusPacketEncoder::with_config(spec, block, self)?))
    }
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
        let (samples, packet) = (&self.samples, &mut self.packet);
        let encoded = self.library.call_again(|encoder| encoder.encode(samples, frames, packet));
        let length = encoded.ok().flatten().ok_or(EncodeError::Codec)?;
        out.extend_from_slice(self.packet.get(..length).ok_or(EncodeError::Codec)?);
        Ok(())
    }

    fn set_effort(&mut self, effort: Effort) {
        if std::mem::replace(&mut self.effort, effort) == effort {
            return;
        }
        let complexity = match effort {
            Effort::Full => self.complexity,
            Effort::Least => 0,
        };
        // A library that panicked here is replaced by one as configured.
        let _ = self.library.call_again(|encoder| encoder.set_complexity(complexity));
    }

    fn panics(&self) -> u64 {
        self.library.panics()
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
