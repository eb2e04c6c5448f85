//! Access units by the crate `syom`, which the feature `aac` adds: a player has no use for it.

use aulos_core::Codec;
use syom::{EncodeOptions, EncodedFrame};

use super::super::encoder::{EncodeError, UnsupportedFormat};
use super::format::AacFormat;
use crate::codec_guard::{CodecLibrary, GuardedCodec};

/// `syom` with its default settings: the others cost time and gain nothing
/// (docs/decisions/aac-encoder.md). It has no delay besides the overlap of frames.
pub(super) struct BuiltinLibrary {
    encoder: GuardedCodec<Box<syom::Encoder>>,
}

impl BuiltinLibrary {
    pub(super) fn new(format: AacFormat, bitrate: u32) -> Result<Self, UnsupportedFormat> {
        let options = EncodeOptions::raw().with_bitrate_bps(bitrate);
        let (hz, channels) = (format.rate().hz(), format.channels());
        let make = move || syom::Encoder::new(hz, channels, &options).ok().map(Box::new);
        let encoder = GuardedCodec::new(CodecLibrary::Syom, make)
            .ok_or(UnsupportedFormat::Rate(Codec::Aac))?;
        Ok(Self { encoder })
    }

    /// Encodes one frame: the samples of each channel, all within -1 to 1.
    pub(super) fn encode(
        &mut self,
        channels: &[Vec<f32>],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let mut planes: [&[f32]; 2] = [&[]; 2];
        for (plane, channel) in planes.iter_mut().zip(channels) {
            *plane = channel;
        }
        let planes = planes.get(..channels.len()).ok_or(EncodeError::Shape)?;
        let before = out.len();
        let encoded = self.encoder.call_again(|encoder| {
            out.truncate(before);
            let append = |frame: EncodedFrame<'_>| {
                out.extend_from_slice(frame.payload);
                Ok(())
            };
            encoder.feed(planes, append)
        });
        if !matches!(encoded, Ok(Ok(_))) {
            out.truncate(before);
            // It takes nothing after an error.
            self.encoder.restart();
            return Err(EncodeError::Codec);
        }
        Ok(())
    }

    pub(super) const fn panics(&self) -> u64 {
        self.encoder.panics()
    }
}
