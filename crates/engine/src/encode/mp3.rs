//! Lossy compression (ISO/IEC 11172-3 and 13818-3, layer III) at a constant bit rate.
//!
//! A frame has a length of its own, so that blocks are gathered until one is full, and a payload
//! has none, one or several frames. Each frame stands alone (no bit reservoir), so that a listener
//! can join at any of them.
//!
//! What makes the frames is an [`Mp3FrameEncoder`]: `rusty_mp3` here, LAME in `aulos-io`, which may
//! load libraries. The choice: docs/decisions/mp3-encoder.md.

#[cfg(feature = "mp3")]
mod builtin;
mod frame;

use core::fmt;

use aulos_core::{Block, Codec, Frames, SampleSpec};

pub use frame::{Mp3FrameEncoder, Mp3FrameShape};

use super::encoder::{EncodeError, Encoder, UnsupportedFormat, check_block, push_clipped};
use super::mp3_config::{Mp3Config, Mp3Library};
use super::settings::{CodecConfigError, CodecSettings};

/// MP3 encoder: the frames that are complete with a block.
///
/// Its libraries allocate or are in C: it is not for a real-time thread.
pub struct Mp3Encoder {
    spec: SampleSpec,
    block: Frames,
    shape: Mp3FrameShape,
    library: Box<dyn Mp3FrameEncoder>,
    /// The samples of each channel that wait for their frame.
    channels: Vec<Vec<f32>>,
    /// What the library has put out of a frame that is not complete.
    encoded: Vec<u8>,
    clipped: u64,
    frame_count: u64,
}

impl Mp3Encoder {
    /// An encoder of blocks of exactly `block` frames by `rusty_mp3`. The format of `spec` is that
    /// of the decoder's output and does not matter here.
    ///
    /// # Errors
    /// As [`Mp3FrameShape::new`]; [`UnsupportedFormat::Library`] where LAME is asked for, and
    /// without the feature `mp3`.
    pub fn new(
        spec: SampleSpec,
        block: Frames,
        config: Mp3Config,
    ) -> Result<Self, UnsupportedFormat> {
        let shape = Mp3FrameShape::new(spec, config)?;
        if config.library == Mp3Library::Lame {
            return Err(UnsupportedFormat::Library(Codec::Mp3));
        }
        Ok(Self::with_library(spec, block, shape, builtin_library(shape)?))
    }

    /// The same by another library, which encodes frames of `shape`.
    #[must_use]
    pub fn with_library(
        spec: SampleSpec,
        block: Frames,
        shape: Mp3FrameShape,
        library: Box<dyn Mp3FrameEncoder>,
    ) -> Self {
        let channels = vec![Vec::with_capacity(shape.frames().as_usize()); shape.channels];
        let encoded = Vec::with_capacity(MAX_PENDING_BYTES);
        Self { spec, block, shape, library, channels, encoded, clipped: 0, frame_count: 0 }
    }

    /// Encodes interleaved frames, any number of them, and appends the MP3 frames that are
    /// complete.
    ///
    /// # Errors
    /// [`EncodeError::Codec`] when the library refuses or puts out something else than frames of
    /// this stream; the samples of that frame are lost.
    pub fn encode_samples(
        &mut self,
        samples: &[f32],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let length = self.shape.frames().as_usize();
        for frame in samples.chunks_exact(self.shape.channels) {
            self.clipped += push_clipped(frame, &mut self.channels);
            if self.channels.first().is_some_and(|channel| channel.len() >= length) {
                let encoded = self.library.encode(&self.channels, &mut self.encoded);
                self.channels.iter_mut().for_each(Vec::clear);
                encoded
                    .and_then(|()| self.take_frames(out))
                    .inspect_err(|_| self.encoded.clear())?;
            }
        }
        Ok(())
    }

    /// What the frames have in common.
    #[must_use]
    pub const fn shape(&self) -> Mp3FrameShape {
        self.shape
    }

    /// Number of MP3 frames so far.
    #[must_use]
    pub const fn frame_count(&self) -> u64 {
        self.frame_count
    }

    /// Delay of the encoder, without the 529 frames of a decoder.
    #[must_use]
    pub fn delay(&self) -> Frames {
        self.library.delay()
    }

    /// Moves complete frames to `out`, and checks that they are frames of this stream.
    fn take_frames(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut taken = 0;
        while let Some(begin) = self.encoded.get(taken..).and_then(<[u8]>::first_chunk) {
            let length = self.shape.frame_bytes(*begin).ok_or(EncodeError::Codec)?;
            let Some(frame) = self.encoded.get(taken..taken + length) else { break };
            out.extend_from_slice(frame);
            taken += length;
            self.frame_count += 1;
        }
        self.encoded.drain(..taken);
        if self.encoded.len() > MAX_PENDING_BYTES { Err(EncodeError::Codec) } else { Ok(()) }
    }
}

impl CodecSettings for Mp3Config {
    const CODEC: Codec = Codec::Mp3;

    fn with_options(self, options: &str) -> Result<Self, CodecConfigError> {
        self.with_options(options)
    }

    fn bitrate(self, spec: SampleSpec) -> Option<u32> {
        Some(self.bitrate_at(spec.rate))
    }

    fn make_encoder(
        self,
        spec: SampleSpec,
        block: Frames,
    ) -> Result<Box<dyn Encoder>, UnsupportedFormat> {
        Ok(Box::new(Mp3Encoder::new(spec, block, self)?))
    }
}

impl Encoder for Mp3Encoder {
    fn codec(&self) -> Codec {
        Codec::Mp3
    }

    fn spec(&self) -> SampleSpec {
        self.spec
    }

    fn encode(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        check_block(block, self.spec, self.block)?;
        self.encode_samples(block.samples(), out)
    }

    fn clipped(&self) -> u64 {
        self.clipped
    }

    fn panics(&self) -> u64 {
        self.library.panics()
    }
}

impl fmt::Debug for Mp3Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mp3").field("shape", &self.shape).field("block", &self.block).finish()
    }
}

#[cfg(feature = "mp3")]
fn builtin_library(shape: Mp3FrameShape) -> Result<Box<dyn Mp3FrameEncoder>, UnsupportedFormat> {
    Ok(Box::new(builtin::BuiltinLibrary::new(shape)?))
}

#[cfg(not(feature = "mp3"))]
fn builtin_library(_: Mp3FrameShape) -> Result<Box<dyn Mp3FrameEncoder>, UnsupportedFormat> {
    Err(UnsupportedFormat::Library(Codec::Mp3))
}

/// More than a library may hold back: the longest frame, of 320 kbit/s at 32 kHz, has 1,441 bytes.
const MAX_PENDING_BYTES: usize = 4 * 1_441;

#[cfg(test)]
mod tests;
