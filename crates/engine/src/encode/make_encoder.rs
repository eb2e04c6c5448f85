//! The encoder of each codec.

use aulos_core::{Frames, SampleSpec};

use super::{
    CodecConfig, Encoder, FlacEncoder, Mp3Encoder, OpusPacketEncoder, PcmEncoder, UnsupportedFormat,
};

/// Creates the encoder of a codec, with the settings of a [`CodecConfig`] or the defaults of a
/// [`Codec`](aulos_core::Codec).
///
/// # Errors
/// [`UnsupportedFormat`] names what the codec does not support. This crate loads no library: the
/// encoder of MP3 by LAME is made by `aulos_io::encoder`.
pub fn make_encoder(
    config: impl Into<CodecConfig>,
    spec: SampleSpec,
    block: Frames,
) -> Result<Box<dyn Encoder>, UnsupportedFormat> {
    Ok(match config.into() {
        CodecConfig::Pcm => Box::new(PcmEncoder::new(spec)),
        CodecConfig::Flac { level } => Box::new(FlacEncoder::new(spec, block, level)?),
        CodecConfig::Opus(config) => Box::new(OpusPacketEncoder::with_config(spec, block, config)?),
        CodecConfig::Mp3(config) => Box::new(Mp3Encoder::new(spec, block, config)?),
    })
}
