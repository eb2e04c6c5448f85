//! MP3 frames by the crate `rusty_mp3`, which the feature `mp3` adds: it wants 64-bit atomics, and a
//! player has no use for it.

use aulos_core::{Codec, Frames};
use rusty_mp3::Mp3Encode;
use rusty_mp3::header::FrameHeader;

use super::super::encoder::{EncodeError, UnsupportedFormat};
use super::frame::{Mp3FrameEncoder, Mp3FrameShape};
use crate::codec_guard::{CodecLibrary, GuardedCodec};

/// `rusty_mp3`, frame by frame: its stream-level encoder keeps every frame until the end.
pub(super) struct BuiltinLibrary {
    encoder: GuardedCodec<Box<Mp3Encode>>,
    header: FrameHeader,
    /// Length without padding and the remainder of each frame, in `hz`ths of a byte.
    step: (usize, u32),
    /// What frames without padding are short of.
    owed: u32,
}

impl BuiltinLibrary {
    pub(super) fn new(shape: Mp3FrameShape) -> Result<Self, UnsupportedFormat> {
        let channels = if shape.channels == 1 { 1 } else { 2 };
        let header = rusty_mp3::encoder_header(shape.hz, channels, shape.kbps)
            .map_err(|_| UnsupportedFormat::Rate(Codec::Mp3))?;
        let make = || Some(Box::new(Mp3Encode::new()));
        let encoder = GuardedCodec::new(CodecLibrary::RustyMp3, make)
            .ok_or(UnsupportedFormat::Rate(Codec::Mp3))?;
        Ok(Self { encoder, header, step: shape.bytes(), owed: 0 })
    }
}

impl Mp3FrameEncoder for BuiltinLibrary {
    fn encode(&mut self, channels: &[Vec<f32>], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (bytes, remainder) = self.step;
        self.owed += remainder;
        self.header.padding = self.owed >= self.header.sample_rate;
        if self.header.padding {
            self.owed -= self.header.sample_rate;
        }
        let header = &self.header;
        let frame = self.encoder.call_again(|encoder| encoder.encode_frame(header, channels, None));
        let frame = frame.ok().and_then(Result::ok).ok_or(EncodeError::Codec)?;
        if frame.len() != bytes + usize::from(self.header.padding) {
            return Err(EncodeError::Codec);
        }
        out.extend_from_slice(&frame);
        Ok(())
    }

    fn delay(&self) -> Frames {
        BUILTIN_DELAY
    }

    fn panics(&self) -> u64 {
        self.encoder.panics()
    }
}

/// Overlap of the filters; measured by correlation, and what the library states in its own files.
const BUILTIN_DELAY: Frames = Frames(528);
