//! Opus in packets of RTP (RFC 7587): one packet each, at whatever rate suits the other side.

use core::fmt;

use aulos_proto::rtp::Encoding;
use opus_rs::{Application, OpusDecoder, OpusEncoder};

use crate::relay::RelayStreamConfig;

/// The longest sound of a packet (RFC 6716, 2.1.4).
pub(super) const LONGEST_MS: usize = 120;

/// The longest packet that is made: 510 kbit/s for 60 ms.
pub(super) const LONGEST_PACKET: usize = 4_000;

/// The rate at which Opus meets another encoding: that one's own, where Opus has it.
pub(super) fn opus_rate(other: Encoding) -> u32 {
    let own = other.sample_rate();
    if RATES.contains(&own) { own } else { 48_000 }
}

/// Packets into samples. Without a decoder none can be opened; that is seen when the first one of
/// its kind is made.
pub(super) struct LazyOpusDecoder {
    rate: u32,
    channels: usize,
    decoder: Option<Box<OpusDecoder>>,
}

impl LazyOpusDecoder {
    /// None when the library refuses.
    pub(super) fn new(rate: u32, channels: usize) -> Option<Self> {
        let opener = Self::without_decoder(rate, channels);
        opener.decoder.is_some().then_some(opener)
    }

    fn without_decoder(rate: u32, channels: usize) -> Self {
        let hz = i32::try_from(rate).unwrap_or(0);
        let decoder = OpusDecoder::new(hz, channels).ok().map(Box::new);
        Self { rate, channels, decoder }
    }

    /// Frames that were written to the front of `out`.
    pub(super) fn decode(&mut self, packet: &[u8], out: &mut [f32]) -> Option<usize> {
        let most = out.len() / self.channels;
        self.decoder.as_mut()?.decode(packet, most, out).ok().filter(|frames| *frames > 0)
    }

    /// Takes the frames of a lost packet out of the one behind it, which is to be decoded next.
    pub(super) fn recover(
        &mut self,
        following: &[u8],
        frames: usize,
        out: &mut [f32],
    ) -> Option<usize> {
        self.decoder.as_mut()?.decode_fec(following, frames, out).ok()
    }

    /// Goes on over what is missing, so that the next packet follows without a click.
    pub(super) fn skip(&mut self, frames: usize, scratch: &mut Vec<f32>) {
        let Some(decoder) = &mut self.decoder else { return };
        let frame = self.rate as usize / 50;
        for _ in 0..(frames / frame.max(1)).min(MAX_SKIPPED) {
            scratch.resize(frame * self.channels, 0.0);
            if decoder.decode(&[], frame, scratch).is_err() {
                return;
            }
        }
    }

    pub(super) fn reset(&mut self) {
        *self = self.clone();
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

/// Samples into packets; as with [`Opener`], without an encoder none are made.
pub(super) struct LazyOpusEncoder {
    rate: u32,
    channels: usize,
    bitrate: u32,
    complexity: u8,
    fec: bool,
    encoder: Option<Box<OpusEncoder>>,
}

impl LazyOpusEncoder {
    /// None when the library refuses.
    pub(super) fn new(rate: u32, channels: usize, wishes: &RelayStreamConfig) -> Option<Self> {
        let RelayStreamConfig { opus_bitrate, opus_complexity, opus_fec, .. } = *wishes;
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
        let hz = i32::try_from(rate).unwrap_or(0);
        let mut encoder = OpusEncoder::new(hz, channels, Application::Voip).ok().map(Box::new);
        if let Some(encoder) = &mut encoder {
            encoder.bitrate_bps = bitrate.clamp(6_000, 510_000).cast_signed();
            encoder.complexity = i32::from(complexity.min(10));
            encoder.use_inband_fec = fec;
            encoder.packet_loss_perc = if fec { EXPECTED_LOSS } else { 0 };
        }
        Self { rate, channels, bitrate, complexity, fec, encoder }
    }

    /// Bytes that were written to the front of `out`; none when Opus has no packets of that length.
    pub(super) fn encode(&mut self, samples: &[f32], out: &mut [u8]) -> Option<usize> {
        let frames = samples.len() / self.channels;
        let eighths = frames * 400 / self.rate as usize;
        // 2.5, 5, 10, 20, 40 and 60 ms (RFC 6716, 2.1.4), in 2.5 ms.
        let is_whole = (eighths * self.rate as usize).is_multiple_of(400)
            && eighths * self.rate as usize / 400 == frames;
        if !is_whole || ![1, 2, 4, 8, 16, 24].contains(&eighths) {
            return None;
        }
        self.encoder.as_mut()?.encode(samples, frames, out).ok().filter(|bytes| *bytes > 0)
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

/// Of a hundred packets: so much loss makes the encoder spend bits on what it repeats.
const EXPECTED_LOSS: i32 = 10;

/// What Opus can be asked for (RFC 6716, 2.1.3).
const RATES: [u32; 5] = [8_000, 12_000, 16_000, 24_000, 48_000];

/// Frames of 20 ms that are gone on over; behind them there is silence anyway.
const MAX_SKIPPED: usize = 10;
