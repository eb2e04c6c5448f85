//! Opus by libopus, or by the built-in encoder.

use aulos_core::{Codec, Frames, SampleSpec};
use aulos_engine::encode::{
    OpusBlockEncoder, OpusConfig, OpusLibrary, OpusPacketEncoder, RateControl, UnsupportedFormat,
};

use crate::sys::{LibopusConfig, LibopusEncoder};

/// Creates an Opus encoder of blocks of `block` frames.
///
/// # Errors
/// [`UnsupportedFormat`] names what Opus does not support.
pub(crate) fn make_opus_encoder(
    config: OpusConfig,
    spec: SampleSpec,
    block: Frames,
) -> Result<OpusPacketEncoder, UnsupportedFormat> {
    if config.library == OpusLibrary::Libopus
        && let Some(library) = open_library(config, spec.layout.channels())
    {
        return OpusPacketEncoder::with_library(spec, block, Box::new(library));
    }
    let config = OpusConfig { library: OpusLibrary::Builtin, ..config };
    OpusPacketEncoder::with_config(spec, block, config)
}

/// See [`crate::encoder::check_library`].
pub(crate) fn check_library(config: OpusConfig) -> Result<(), UnsupportedFormat> {
    let is_there = config.library == OpusLibrary::Builtin || open_library(config, STEREO).is_some();
    if is_there { Ok(()) } else { Err(UnsupportedFormat::Library(Codec::Opus)) }
}

/// `None` if the library is missing, or does not have so many channels.
fn open_library(config: OpusConfig, channels: usize) -> Option<LibopusEncoder> {
    let OpusConfig { bitrate, rate_control, complexity, .. } = config.clamped();
    let is_constant = rate_control == RateControl::Cbr;
    LibopusEncoder::new(LibopusConfig { channels, bitrate, is_constant, complexity })
}

impl OpusBlockEncoder for LibopusEncoder {
    fn encode(&mut self, samples: &[f32], frames: usize, packet: &mut [u8]) -> Option<usize> {
        Self::encode(self, samples, frames, packet)
    }
}

const STEREO: usize = 2;

#[cfg(test)]
mod tests;
