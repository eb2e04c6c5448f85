//! A decoder of symphonia, whose panics cost one packet.

use core::fmt;

use aulos_core::{ChannelLayout, SampleRate};
use aulos_engine::codec_guard::{CodecLibrary, GuardedCodec};
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::packet::PacketRef;
use symphonia::default::get_codecs;

pub(super) struct LibraryDecoder {
    decoder: GuardedCodec<Box<dyn AudioDecoder>>,
    name: &'static str,
}

impl LibraryDecoder {
    /// `None` when the library does not support the codec.
    pub(super) fn new(parameters: AudioCodecParameters) -> Option<Self> {
        let mut decoder = GuardedCodec::new(CodecLibrary::Symphonia, move || {
            get_codecs().make_audio_decoder(&parameters, &AudioDecoderOptions::default()).ok()
        })?;
        let name = decoder.call(|decoder| decoder.codec_info().short_name).ok()?;
        Some(Self { decoder, name })
    }

    /// Replaces `out` with the frames of a packet, and returns their rate and layout; `None` for a
    /// damaged packet.
    pub(super) fn decode(
        &mut self,
        packet: &PacketRef<'_>,
        out: &mut Vec<f32>,
    ) -> Option<(SampleRate, ChannelLayout)> {
        let decoded = self.decoder.call(|decoder| {
            let buffer = decoder.decode_ref(packet).ok()?;
            let spec = buffer.spec();
            let rate = SampleRate::new(spec.rate()).ok()?;
            let layout = ChannelLayout::new(spec.channels().count()).ok()?;
            buffer.copy_to_vec_interleaved(out);
            Some((rate, layout))
        });
        let shape = decoded.ok().flatten();
        if shape.is_none() {
            out.clear();
        }
        shape
    }

    /// The next packet does not continue the previous one.
    pub(super) fn reset(&mut self) {
        // After a panic the decoder is a new one.
        self.decoder.call(|decoder| decoder.reset()).ok();
    }

    /// The next packet begins another stream, maybe of another rate or layout.
    pub(super) fn restart(&mut self) {
        self.decoder.restart();
    }

    /// The short name of the codec.
    pub(super) const fn name(&self) -> &'static str {
        self.name
    }

    /// Panics of the library.
    pub(super) const fn panics(&self) -> u64 {
        self.decoder.panics()
    }
}

impl fmt::Debug for LibraryDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LibraryDecoder").field("name", &self.name).finish_non_exhaustive()
    }
}
