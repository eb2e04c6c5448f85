//! Opus in RTP (RFC 7587): one Opus packet per RTP packet, at the rate that suits the other
//! encoding.

use core::fmt;

use aulos_engine::codec_guard::{CodecLibrary, GuardedCodec};
use aulos_opus::{Application, EncoderConfig, OpusDecoder, OpusEncoder};
use aulos_proto::rtp::Encoding;

use crate::relay::RelayStreamConfig;

/// The longest duration of a packet (RFC 6716, 2.1.4).
pub(super) const LONGEST_MS: usize = 120;

/// The longest packet that is produced: 510 kbit/s for 60 ms.
pub(super) const LONGEST_PACKET: usize = 4_000;

/// The Opus rate for conversion from or to another encoding: that encoding's rate if Opus supports
/// it.
pub(super) fn opus_rate(other: Encoding) -> u32 {
    let own = other.sample_rate();
    if RATES.contains(&own) { own } else { 48_000 }
}

/// A decoder. A clone creates its library state anew; if that fails, it decodes nothing. The
/// failure is detected when the first decoder of its kind is created.
pub(super) struct LazyOpusDecoder {
    rate: u32,
    channels: usize,
    decoder: Option<GuardedCodec<OpusDecoder>>,
}

impl LazyOpusDecoder {
    /// `None` when the library fails.
    pub(super) fn new(rate: u32, channels: usize) -> Option<Self> {
        let opener = Self::without_decoder(rate, channels);
        opener.decoder.is_some().then_some(opener)
    }

    fn without_decoder(rate: u32, channels: usize) -> Self {
        let make = move || OpusDecoder::new(rate, channels);
        let decoder = GuardedCodec::new(CodecLibrary::UnsafeLibopus, make);
        Self { rate, channels, decoder }
    }

    /// Calls the library; `None` when it refuses or panics.
    fn call(&mut self, work: impl FnOnce(&mut OpusDecoder) -> Option<usize>) -> Option<usize> {
        self.decoder.as_mut()?.call(work).ok()?
    }

    /// Decodes into the front of `out`, and returns the number of frames.
    pub(super) fn decode(&mut self, packet: &[u8], out: &mut [f32]) -> Option<usize> {
        self.call(|decoder| decoder.decode(packet, out)).filter(|frames| *frames > 0)
    }

    /// Recovers the frames of a lost packet from the one after it, which has to be decoded next.
    pub(super) fn recover(
        &mut self,
        following: &[u8],
        frames: usize,
        out: &mut [f32],
    ) -> Option<usize> {
        let out = out.get_mut(..frames * self.channels)?;
        self.call(|decoder| decoder.recover(following, out))
    }

    /// Conceals missing frames, so that the next packet continues without a click.
    pub(super) fn skip(&mut self, frames: usize, scratch: &mut Vec<f32>) {
        let frame = self.rate as usize / 50;
        for _ in 0..(frames / frame.max(1)).min(MAX_SKIPPED) {
            scratch.resize(frame * self.channels, 0.0);
            if self.call(|decoder| decoder.conceal(scratch)).is_none() {
                return;
            }
        }
    }

    pub(super) fn reset(&mut self) {
        match &mut self.decoder {
            Some(decoder) => decoder.restart(),
            None => *self = self.clone(),
        }
    }

    /// Panics of the library.
    pub(super) fn panics(&self) -> u64 {
        self.decoder.as_ref().map_or(0, GuardedCodec::panics)
    }
}

impl Clone for LazyOpusDecoder {
    fn clone(&self) -> Self {
        Self::without_decoder(self.rate, self.channels)
    }
}

impl fmt::Debug for LazyOpusDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").field("rate", &self.rate).finish_non_exhaustive()
    }
}

/// An encoder; a clone behaves as with [`LazyOpusDecoder`].
pub(super) struct LazyOpusEncoder {
    rate: u32,
    channels: usize,
    bitrate: u32,
    complexity: u8,
    fec: bool,
    encoder: Option<GuardedCodec<OpusEncoder>>,
}

impl LazyOpusEncoder {
    /// `None` when the library fails.
    pub(super) fn new(rate: u32, channels: usize, config: &RelayStreamConfig) -> Option<Self> {
        let RelayStreamConfig { opus_bitrate, opus_complexity, opus_fec, .. } = *config;
        let packer = Self::without_encoder(rate, channels, opus_bitrate, opus_complexity, opus_fec);
        packer.encoder.is_some().then_some(packer)
    }

    fn without_encoder(
        rate: u32,
        channels: usize,
        bitrate: u32,
        complexity: u8,
        fec: bool,
    ) -> Self {
        let config = EncoderConfig {
            bitrate: bitrate.clamp(6_000, 510_000),
            complexity: complexity.min(10),
            expected_loss: if fec { EXPECTED_LOSS } else { 0 },
            ..EncoderConfig::new(rate, channels, Application::Voice)
        };
        let make = move || OpusEncoder::new(config);
        let encoder = GuardedCodec::new(CodecLibrary::UnsafeLibopus, make);
        Self { rate, channels, bitrate, complexity, fec, encoder }
    }

    /// Encodes into the front of `out`, and returns the number of bytes; `None` when Opus has no
    /// packets of that duration.
    pub(super) fn encode(&mut self, samples: &[f32], out: &mut [u8]) -> Option<usize> {
        let frames = samples.len() / self.channels;
        let eighths = frames * 400 / self.rate as usize;
        // 2.5, 5, 10, 20, 40 and 60 ms (RFC 6716, 2.1.4), in ticks of 2.5 ms.
        let is_whole = (eighths * self.rate as usize).is_multiple_of(400)
            && eighths * self.rate as usize / 400 == frames;
        if !is_whole || ![1, 2, 4, 8, 16, 24].contains(&eighths) {
            return None;
        }
        let encoded =
            self.encoder.as_mut()?.call_again(|encoder| encoder.encode(samples, frames, out));
        encoded.ok()?
    }

    /// Panics of the library.
    pub(super) fn panics(&self) -> u64 {
        self.encoder.as_ref().map_or(0, GuardedCodec::panics)
    }
}

impl Clone for LazyOpusEncoder {
    fn clone(&self) -> Self {
        Self::without_encoder(self.rate, self.channels, self.bitrate, self.complexity, self.fec)
    }
}

impl fmt::Debug for LazyOpusEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer").field("rate", &self.rate).finish_non_exhaustive()
    }
}

/// In percent: this expected loss makes the encoder spend bits on FEC.
const EXPECTED_LOSS: u8 = 10;

/// The rates that Opus supports (RFC 6716, 2.1.3).
const RATES: [u32; 5] = [8_000, 12_000, 16_000, 24_000, 48_000];

/// Packets of 20 ms that are concealed; after that there is silence anyway.
const MAX_SKIPPED: usize = 10;
