//! Uncompressed samples.

use core::fmt;

use aulos_core::{Block, Codec, Frames, SampleSpec, Span};
use aulos_dsp::Dither;

use super::encoder::{EncodeError, Encoder, UnsupportedFormat, check_block};
use super::settings::{CodecConfigError, CodecSettings};

/// Interleaved little-endian samples in the spec's own format.
///
/// Snapcast calls this `pcm` (its 24 bit is [`aulos_core::SampleFormat::S24In32Le`]), and WAVE
/// files hold it. Any block length is valid. Samples that are not integers of the format are
/// dithered ([`Dither`]).
#[derive(Clone, Debug)]
pub struct PcmEncoder {
    spec: SampleSpec,
    dither: Dither,
    clipped: u64,
}

impl PcmEncoder {
    /// An encoder to `spec`.
    #[must_use]
    pub fn new(spec: SampleSpec) -> Self {
        Self { spec, dither: Dither::default(), clipped: 0 }
    }
}

/// Settings of PCM: there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "it has no fields")]
pub struct PcmConfig;

impl CodecSettings for PcmConfig {
    const CODEC: Codec = Codec::Pcm;

    fn with_options(self, _: &str) -> Result<Self, CodecConfigError> {
        Err(CodecConfigError::NoSettings)
    }

    fn bitrate(self, spec: SampleSpec) -> Option<u32> {
        u32::try_from(spec.bytes(spec.rate.frames(Span::from_secs(1))) * 8).ok()
    }

    fn make_encoder(
        self,
        spec: SampleSpec,
        _: Frames,
    ) -> Result<Box<dyn Encoder>, UnsupportedFormat> {
        Ok(Box::new(PcmEncoder::new(spec)))
    }
}

impl fmt::Display for PcmConfig {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl Encoder for PcmEncoder {
    fn codec(&self) -> Codec {
        Codec::Pcm
    }

    fn spec(&self) -> SampleSpec {
        self.spec
    }

    fn clipped(&self) -> u64 {
        self.clipped
    }

    /// # Real-time
    /// Does not allocate while `out` has room.
    fn encode(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        check_block(block, self.spec, block.frames())?;
        let start = out.len();
        out.resize(start + self.spec.bytes(block.frames()), 0);
        self.clipped +=
            self.dither.encode(self.spec.format, block.samples(), &mut out[start..]) as u64;
        Ok(())
    }
}
