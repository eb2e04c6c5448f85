//! Lossy compression (AAC LC, ISO/IEC 14496-3) at an average bit rate.
//!
//! ```text
//!  1,024 samples of each channel -> AacFrameEncoder -> access unit    for MP4
//!  the same, counted from an epoch -> AacGridEncoder -> access unit   for HLS
//!  blocks of any length -> AacEncoder -> ADTS frames                  for streams
//! ```
//!
//! A frame has a length of its own, so that blocks are gathered until one is full, and a payload
//! has none, one or several frames. A decoder may begin at any of them; it fades in, because each
//! overlaps its neighbours.
//!
//! The choice of the library: docs/decisions/aac-encoder.md.

#[cfg(feature = "aac")]
mod builtin;
mod format;
mod grid;

use core::fmt;

use aulos_core::{Block, Codec, Frames, SampleSpec};

pub use format::{ADTS_HEADER_BYTES, AacFormat};
pub use grid::AacGridEncoder;

use super::aac_config::AacConfig;
use super::encoder::{EncodeError, Encoder, UnsupportedFormat, check_block, push_clipped};
use super::settings::{CodecConfigError, CodecSettings};

#[cfg(feature = "aac")]
use builtin::BuiltinLibrary;
#[cfg(not(feature = "aac"))]
use format::BuiltinLibrary;

/// Makes the access units of one stream, one of each frame.
///
/// The library allocates: it is not for a real-time thread.
pub struct AacFrameEncoder {
    format: AacFormat,
    library: BuiltinLibrary,
    /// The samples of each channel of a frame.
    channels: Vec<Vec<f32>>,
    /// Interleaved samples that wait for their frame.
    pending: Vec<f32>,
    clipped: u64,
}

impl AacFrameEncoder {
    /// Number of samples of each channel in a frame.
    pub const FRAMES: Frames = Frames(1_024);
    /// Delay of the encoder: a decoder puts out this many frames before the first one.
    pub const DELAY: Frames = Frames(1_024);

    /// An encoder of this spec; its format does not matter.
    ///
    /// # Errors
    /// [`UnsupportedFormat`] for a sample rate that AAC does not have, more than two channels, and
    /// without the feature `aac`.
    pub fn new(spec: SampleSpec, config: AacConfig) -> Result<Self, UnsupportedFormat> {
        let format = AacFormat::new(spec)?;
        let library = BuiltinLibrary::new(format, config.bitrate_at(spec))?;
        let frame = Vec::with_capacity(Self::FRAMES.as_usize());
        let channels = vec![frame; format.channels()];
        Ok(Self { format, library, channels, pending: Vec::new(), clipped: 0 })
    }

    /// Encodes interleaved samples, any number of them: appends the access units of the frames that
    /// are complete to `out`, and calls `emit` behind each with where it begins.
    ///
    /// # Errors
    /// [`EncodeError::Codec`] as [`Self::encode`].
    pub fn push(
        &mut self,
        mut samples: &[f32],
        out: &mut Vec<u8>,
        mut emit: impl FnMut(&mut Vec<u8>, usize),
    ) -> Result<(), EncodeError> {
        while !samples.is_empty() {
            let (now, later) = samples.split_at(self.missing_samples().min(samples.len()));
            self.pending.extend_from_slice(now);
            samples = later;
            if self.missing_samples() == 0 {
                let (pending, before) = (core::mem::take(&mut self.pending), out.len());
                let encoded = self.encode(&pending, out);
                self.pending = pending;
                self.pending.clear();
                encoded?;
                emit(out, before);
            }
        }
        Ok(())
    }

    /// Interleaved samples that complete the present frame.
    #[must_use]
    pub fn missing_samples(&self) -> usize {
        let length = Self::FRAMES.as_usize() * self.channels.len();
        length.saturating_sub(self.pending.len())
    }

    /// Encodes one frame, [`Self::FRAMES`] interleaved samples of every channel, and appends its
    /// access unit to `out`. Full scale is -1 to 1; what is beyond is clipped, and what is not a
    /// number is silence.
    ///
    /// # Errors
    /// [`EncodeError::Shape`] for another number of samples; [`EncodeError::Codec`] when the
    /// library refuses or panics again, which leaves `out` as it was and the frame out of the
    /// stream.
    pub fn encode(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let count = self.channels.len();
        if samples.len() != Self::FRAMES.as_usize() * count {
            return Err(EncodeError::Shape);
        }
        self.channels.iter_mut().for_each(Vec::clear);
        for frame in samples.chunks_exact(count) {
            self.clipped += push_clipped(frame, &mut self.channels);
        }
        let before = out.len();
        self.library.encode(&self.channels, out)?;
        let unit = before..out.len();
        if unit.is_empty() || unit.len() > self.format.max_unit_bytes() {
            out.truncate(before);
            return Err(EncodeError::Codec);
        }
        Ok(())
    }

    /// What the access units have in common.
    #[must_use]
    pub const fn format(&self) -> AacFormat {
        self.format
    }

    /// Number of samples clipped so far.
    #[must_use]
    pub const fn clipped(&self) -> u64 {
        self.clipped
    }

    /// See [`Encoder::panics`].
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.library.panics()
    }
}

/// AAC encoder: the ADTS frames that are complete with a block.
///
/// Its library allocates: it is not for a real-time thread.
pub struct AacEncoder {
    spec: SampleSpec,
    block: Frames,
    frames: AacFrameEncoder,
    unit: Vec<u8>,
}

impl AacEncoder {
    /// An encoder of blocks of exactly `block` frames. The format of `spec` is that of the
    /// decoder's output and does not matter here.
    ///
    /// # Errors
    /// As [`AacFrameEncoder::new`].
    pub fn new(
        spec: SampleSpec,
        block: Frames,
        config: AacConfig,
    ) -> Result<Self, UnsupportedFormat> {
        let frames = AacFrameEncoder::new(spec, config)?;
        let unit = Vec::with_capacity(frames.format.max_unit_bytes());
        Ok(Self { spec, block, frames, unit })
    }

    /// Encodes interleaved frames, any number of them, and appends the ADTS frames that are
    /// complete.
    ///
    /// # Errors
    /// [`EncodeError::Codec`] as [`AacFrameEncoder::encode`].
    pub fn encode_samples(
        &mut self,
        samples: &[f32],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let format = self.frames.format;
        self.unit.clear();
        self.frames.push(samples, &mut self.unit, |unit, _| {
            out.extend_from_slice(&format.adts_header(unit.len()));
            out.append(unit);
        })
    }
}

impl CodecSettings for AacConfig {
    const CODEC: Codec = Codec::Aac;

    fn with_options(self, options: &str) -> Result<Self, CodecConfigError> {
        self.with_options(options)
    }

    fn bitrate(self, spec: SampleSpec) -> Option<u32> {
        Some(self.bitrate_at(spec))
    }

    fn make_encoder(
        self,
        spec: SampleSpec,
        block: Frames,
    ) -> Result<Box<dyn Encoder>, UnsupportedFormat> {
        Ok(Box::new(AacEncoder::new(spec, block, self)?))
    }
}

impl Encoder for AacEncoder {
    fn codec(&self) -> Codec {
        Codec::Aac
    }

    fn spec(&self) -> SampleSpec {
        self.spec
    }

    fn encode(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        check_block(block, self.spec, self.block)?;
        self.encode_samples(block.samples(), out)
    }

    fn clipped(&self) -> u64 {
        self.frames.clipped()
    }

    fn panics(&self) -> u64 {
        self.frames.panics()
    }
}

impl fmt::Debug for AacFrameEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AacFrameEncoder").field("format", &self.format).finish_non_exhaustive()
    }
}

impl fmt::Debug for AacEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aac").field("frames", &self.frames).field("block", &self.block).finish()
    }
}

#[cfg(test)]
mod tests;
