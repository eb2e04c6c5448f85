//! MP3 by LAME, or by the built-in encoder.

use core::fmt;
use std::sync::OnceLock;

use aulos_core::{Codec, Frames, SampleSpec};
use aulos_engine::encode::{
    EncodeError, Mp3Config, Mp3Encoder, Mp3FrameEncoder, Mp3FrameShape, Mp3Library,
    UnsupportedFormat,
};

use crate::sys::{Lame, LameConfig};

/// Creates an MP3 encoder of blocks of `block` frames.
///
/// # Errors
/// [`UnsupportedFormat`] names what MP3 does not support.
pub fn make_mp3_encoder(
    config: Mp3Config,
    spec: SampleSpec,
    block: Frames,
) -> Result<Mp3Encoder, UnsupportedFormat> {
    if config.library != Mp3Library::Builtin && lame_version().is_some() {
        let shape = Mp3FrameShape::new(spec, config)?;
        if let Some(library) = LameLibrary::new(shape) {
            return Ok(Mp3Encoder::with_library(spec, block, shape, Box::new(library)));
        }
    }
    Mp3Encoder::new(spec, block, Mp3Config { library: Mp3Library::Builtin, ..config })
}

/// See [`crate::encoder::encoder_name`].
pub(super) fn encoder_name(config: Mp3Config) -> String {
    match lame_version() {
        Some(version) if config.library != Mp3Library::Builtin => format!("lame {version}"),
        _ => "built-in".to_owned(),
    }
}

/// See [`crate::encoder::check_library`].
pub(super) fn check_library(config: Mp3Config) -> Result<(), UnsupportedFormat> {
    let is_there = config.library != Mp3Library::Lame || lame_version().is_some();
    if is_there { Ok(()) } else { Err(UnsupportedFormat::Library(Codec::Mp3)) }
}

/// The version of the system's LAME. It is looked for once in a process, so that all streams have
/// the encoder that the status names.
fn lame_version() -> Option<&'static str> {
    static VERSION: OnceLock<Option<String>> = OnceLock::new();
    VERSION.get_or_init(Lame::version).as_deref()
}

struct LameLibrary {
    lame: Lame,
    packet: Box<[u8]>,
}

impl LameLibrary {
    fn new(shape: Mp3FrameShape) -> Option<Self> {
        let Mp3FrameShape { hz, channels, kbps, .. } = shape;
        let lame = Lame::new(LameConfig { hz, channels, kbps, scale: 1.0 / lame_scale(kbps) })?;
        Some(Self { lame, packet: vec![0; MAX_OUTPUT].into() })
    }
}

impl Mp3FrameEncoder for LameLibrary {
    fn encode(&mut self, channels: &[Vec<f32>], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (Some(left), Some(right)) = (channels.first(), channels.last()) else {
            return Err(EncodeError::Shape);
        };
        let written = self.lame.encode(left, right, &mut self.packet).ok_or(EncodeError::Codec)?;
        out.extend_from_slice(self.packet.get(..written).unwrap_or_default());
        Ok(())
    }

    fn delay(&self) -> Frames {
        Frames(self.lame.delay())
    }
}

impl fmt::Debug for LameLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LameLibrary").field("delay", &self.lame.delay()).finish_non_exhaustive()
    }
}

/// The factor by which LAME turns the programme down, by bit rate, so that decoders clip less. A
/// station has a limiter, and its loudness must not depend on the codec.
const fn lame_scale(kbps: u32) -> f32 {
    match kbps {
        ..=160 => 0.95,
        161..=192 => 0.97,
        193..=224 => 0.98,
        _ => 1.0,
    }
}

/// What the library may put out for one frame: 1.25 times its 1,152 samples, and 7,200 (`lame.h`).
const MAX_OUTPUT: usize = 1_152 * 5 / 4 + 7_200;

#[cfg(test)]
mod tests;
