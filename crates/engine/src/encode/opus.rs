//! Lossy compression (RFC 6716).
//!
//! What makes the packets is an [`OpusBlockEncoder`]: `opus-rs` here, libopus in `aulos-io`, which
//! may load libraries. The choice: docs/decisions/opus-codec.md.

use core::fmt;

use aulos_core::{Block, Codec, Frames, SampleRate, SampleSpec};
use opus_rs::{Application, OpusEncoder};

use super::config;
use super::{
    EncodeError, Encoder, OpusConfig, OpusLibrary, RateControl, UnsupportedFormat, check_block,
};
use crate::codec_guard::{CodecLibrary, GuardedCodec};

/// Makes Opus packets without look-ahead for speech (libopus' "restricted low delay").
pub trait OpusBlockEncoder: Send {
    /// Encodes `frames` interleaved frames of finite samples to the front of `packet`, and returns
    /// the packet's length; `None` when the library refuses.
    ///
    /// # Real-time
    /// Does not allocate, lock or call the system.
    fn encode(&mut self, samples: &[f32], frames: usize, packet: &mut [u8]) -> Option<usize>;

    /// See [`Encoder::panics`].
    fn panics(&self) -> u64 {
        0
    }
}

/// Opus encoder: one packet per block.
///
/// Runs without look-ahead for speech, as Snapcast does: music at these bit rates gains nothing by
/// it. A decoder's output is [`OpusPacketEncoder::DELAY`] late.
pub struct OpusPacketEncoder {
    spec: SampleSpec,
    block: Frames,
    library: Box<dyn OpusBlockEncoder>,
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
    /// As [`OpusPacketEncoder::new`]; [`UnsupportedFormat::Library`] for another library.
    pub fn with_config(
        spec: SampleSpec,
        block: Frames,
        config: OpusConfig,
    ) -> Result<Self, UnsupportedFormat> {
        check(spec, block)?;
        if config.library != OpusLibrary::Builtin {
            return Err(UnsupportedFormat::Library(Codec::Opus));
        }
        let library = BuiltinLibrary::new(spec.layout.channels(), config.clamped())
            .ok_or(UnsupportedFormat::Channels(Codec::Opus))?;
        Self::with_library(spec, block, Box::new(library))
    }

    /// The same by another library, which encodes blocks of the channels of `spec` at 48 kHz.
    ///
    /// # Errors
    /// As [`OpusPacketEncoder::new`].
    pub fn with_library(
        spec: SampleSpec,
        block: Frames,
        library: Box<dyn OpusBlockEncoder>,
    ) -> Result<Self, UnsupportedFormat> {
        check(spec, block)?;
        let samples = vec![0.0; block.as_usize() * spec.layout.channels()];
        Ok(Self { spec, block, library, samples, packet: vec![0; MAX_PACKET] })
    }
}

/// `opus-rs`.
struct BuiltinLibrary(GuardedCodec<Box<OpusEncoder>>);

impl BuiltinLibrary {
    fn new(channels: usize, config: OpusConfig) -> Option<Self> {
        let library = GuardedCodec::new(CodecLibrary::OpusRs, move || {
            let application = Application::RestrictedLowDelay;
            let mut encoder = OpusEncoder::new(48_000, channels, application).ok()?;
            encoder.bitrate_bps = config.bitrate.cast_signed();
            encoder.complexity = i32::from(config.complexity);
            encoder.use_cbr = config.rate_control == RateControl::Cbr;
            Some(Box::new(encoder))
        });
        library.map(Self)
    }
}

impl OpusBlockEncoder for BuiltinLibrary {
    fn encode(&mut self, samples: &[f32], frames: usize, packet: &mut [u8]) -> Option<usize> {
        self.0.call_again(|encoder| encoder.encode(samples, frames, packet)).ok()?.ok()
    }

    fn panics(&self) -> u64 {
        self.0.panics()
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
