//! The codecs whose frame count follows from the payload length: G.711, G.722, L16 and L24.

use aulos_core::{ChannelLayout, SampleRate};
use aulos_dsp::g711::G711Law;
use aulos_dsp::{g711, g722, linear_pcm};

use super::{Concealer, DecodeError, Decoder, output_slice};

/// Decoder of PCMU and PCMA: 8 kHz, one channel.
#[derive(Clone, Debug)]
pub struct G711PacketDecoder {
    law: G711Law,
    concealer: Concealer,
}

impl G711PacketDecoder {
    /// A decoder of `law`.
    #[must_use]
    pub fn new(law: G711Law) -> Self {
        Self { law, concealer: Concealer::new(NARROWBAND.hz(), 1) }
    }
}

impl Decoder for G711PacketDecoder {
    fn rate(&self) -> SampleRate {
        NARROWBAND
    }

    fn channels(&self) -> usize {
        1
    }

    fn delay(&self) -> usize {
        self.concealer.delay()
    }

    fn frames(&self, payload: &[u8]) -> Result<usize, DecodeError> {
        Ok(payload.len())
    }

    fn decode(&mut self, payload: &[u8], out: &mut [f32]) -> Result<usize, DecodeError> {
        let out = output_slice(out, payload.len(), 1)?;
        let frames = g711::decode(self.law, payload, out);
        self.concealer.push_decoded(out);
        Ok(frames)
    }

    fn conceal(&mut self, out: &mut [f32]) {
        self.concealer.conceal(out);
    }

    fn reset(&mut self) {
        self.concealer.reset();
    }
}

/// Decoder of G.722 at 64 kbit/s: 16 kHz, one channel, two samples in a byte.
#[derive(Clone, Debug)]
pub struct G722PacketDecoder {
    decoder: g722::G722Decoder,
    concealer: Concealer,
}

impl G722PacketDecoder {
    /// A decoder without history.
    #[must_use]
    pub fn new() -> Self {
        Self { decoder: g722::G722Decoder::new(), concealer: Concealer::new(WIDEBAND.hz(), 1) }
    }
}

impl Default for G722PacketDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder for G722PacketDecoder {
    fn rate(&self) -> SampleRate {
        WIDEBAND
    }

    fn channels(&self) -> usize {
        1
    }

    fn delay(&self) -> usize {
        self.concealer.delay()
    }

    fn frames(&self, payload: &[u8]) -> Result<usize, DecodeError> {
        Ok(2 * payload.len())
    }

    fn decode(&mut self, payload: &[u8], out: &mut [f32]) -> Result<usize, DecodeError> {
        let out = output_slice(out, 2 * payload.len(), 1)?;
        let frames = self.decoder.decode(payload, out);
        self.concealer.push_decoded(out);
        Ok(frames)
    }

    /// The predictors keep their state: adapting them to a guess is worse.
    fn conceal(&mut self, out: &mut [f32]) {
        self.concealer.conceal(out);
    }

    fn reset(&mut self) {
        self.decoder = g722::G722Decoder::new();
        self.concealer.reset();
    }
}

/// Decoder of 16 bits, big endian, any rate and number of channels.
#[derive(Clone, Debug)]
pub struct L16PacketDecoder(LinearPcm);

/// Decoder of 24 bits, big endian, any rate and number of channels.
#[derive(Clone, Debug)]
pub struct L24PacketDecoder(LinearPcm);

/// The common part of L16 and L24.
#[derive(Clone, Debug)]
struct LinearPcm {
    rate: SampleRate,
    channels: usize,
    concealer: Concealer,
}

impl LinearPcm {
    fn new(rate: SampleRate, layout: ChannelLayout) -> Self {
        let channels = layout.channels();
        Self { rate, channels, concealer: Concealer::new(rate.hz(), channels) }
    }

    fn frames(&self, payload: &[u8], bytes: usize) -> Result<usize, DecodeError> {
        let frame = bytes * self.channels;
        if payload.len().is_multiple_of(frame) {
            Ok(payload.len() / frame)
        } else {
            Err(DecodeError::Damaged)
        }
    }

    fn decode(
        &mut self,
        frames: usize,
        out: &mut [f32],
        convert: impl FnOnce(&mut [f32]) -> usize,
    ) -> Result<usize, DecodeError> {
        let out = output_slice(out, frames, self.channels)?;
        convert(out);
        self.concealer.push_decoded(out);
        Ok(frames)
    }
}

macro_rules! plain {
    ($name:ident, $bytes:literal, $convert:path) => {
        impl $name {
            /// A decoder of frames of `layout` at `rate`.
            #[must_use]
            pub fn new(rate: SampleRate, layout: ChannelLayout) -> Self {
                Self(LinearPcm::new(rate, layout))
            }
        }

        impl Decoder for $name {
            fn rate(&self) -> SampleRate {
                self.0.rate
            }

            fn channels(&self) -> usize {
                self.0.channels
            }

            fn delay(&self) -> usize {
                self.0.concealer.delay()
            }

            fn frames(&self, payload: &[u8]) -> Result<usize, DecodeError> {
                self.0.frames(payload, $bytes)
            }

            fn decode(&mut self, payload: &[u8], out: &mut [f32]) -> Result<usize, DecodeError> {
                let frames = self.frames(payload)?;
                self.0.decode(frames, out, |out| $convert(payload, out))
            }

            fn conceal(&mut self, out: &mut [f32]) {
                self.0.concealer.conceal(out);
            }

            fn reset(&mut self) {
                self.0.concealer.reset();
            }
        }
    };
}

plain!(L16PacketDecoder, 2, linear_pcm::decode_l16);
plain!(L24PacketDecoder, 3, linear_pcm::decode_l24);

const NARROWBAND: SampleRate = hz(8_000);
const WIDEBAND: SampleRate = hz(16_000);

const fn hz(hz: u32) -> SampleRate {
    match SampleRate::new(hz) {
        Ok(rate) => rate,
        Err(_) => unreachable!(),
    }
}
