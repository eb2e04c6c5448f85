//! Encoders that may be those of a library of the system: MP3 by LAME.
//!
//! The library is loaded at run time and not linked, so that the program needs no package to be
//! built or to run, and its licence does not extend to it: docs/decisions/mp3-encoder.md. Where it
//! is wanted and missing, the built-in encoder encodes, so that no stream is silent; the
//! configuration's check and the start of the server say so.

mod mp3;

use aulos_core::{Frames, SampleSpec};
use aulos_engine::encode::{self, CodecConfig, Encoder, FlacConfig, UnsupportedFormat};
use aulos_session::flac_stream::FlacStreamEncoder;

pub use mp3::make_mp3_encoder;

/// Creates the encoder of a codec, as [`encode::make_encoder`] does, also by LAME.
///
/// # Errors
/// [`UnsupportedFormat`] names what the codec does not support.
pub fn make_encoder(
    config: CodecConfig,
    spec: SampleSpec,
    block: Frames,
) -> Result<Box<dyn Encoder>, UnsupportedFormat> {
    Ok(match config {
        CodecConfig::Mp3(mp3) => Box::new(make_mp3_encoder(mp3, spec, block)?),
        CodecConfig::Flac(FlacConfig { level }) => {
            Box::new(FlacStreamEncoder::new(spec, block, level)?)
        }
        config => encode::make_encoder(config, spec, block)?,
    })
}

/// Checks that the library of these settings can be loaded.
///
/// # Errors
/// [`UnsupportedFormat::Library`], whose text names the packages.
pub fn check_library(config: CodecConfig) -> Result<(), UnsupportedFormat> {
    match config {
        CodecConfig::Mp3(mp3) => mp3::check_library(mp3),
        _ => Ok(()),
    }
}

/// What encodes with these settings: a library of the system with its version, such as
/// `lame 3.100`, or `built-in`.
#[must_use]
pub fn encoder_name(config: CodecConfig) -> String {
    match config {
        CodecConfig::Mp3(mp3) => mp3::encoder_name(mp3),
        _ => "built-in".to_owned(),
    }
}
