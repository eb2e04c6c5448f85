//! Opus (RFC 6716), by `opus-rs`, with its own concealment and in-band error correction.
//!
//! Concealment is left to the codec: its state continues with the replacement, and the next packet
//! is decoded on top of that. The pitch repetition of the other codecs has less information.

use core::fmt;

use aulos_core::SampleRate;
use opus_rs::OpusDecoder;

use super::{DecodeError, Decoder, output_slice};

/// Decoder of Opus with one or two channels.
pub struct OpusPacketDecoder {
    library: Box<OpusDecoder>,
    rate: SampleRate,
    channels: usize,
}

impl OpusPacketDecoder {
    /// A decoder with `channels` (one or two) at `rate`, which is 8, 12, 16, 24 or 48 kHz: a lower
    /// rate is cheaper than resampling later. `None` for other values.
    #[must_use]
    pub fn new(rate: SampleRate, channels: usize) -> Option<Self> {
        let library = new_library(rate, channels)?;
        Some(Self { library, rate, channels })
    }

    /// A quarter of 10 ms: the library conceals multiples of it.
    fn unit(&self) -> usize {
        self.rate.hz() as usize / 400
    }
}

fn new_library(rate: SampleRate, channels: usize) -> Option<Box<OpusDecoder>> {
    if !RATES.contains(&rate.hz()) || !matches!(channels, 1 | 2) {
        return None;
    }
    OpusDecoder::new(rate.hz().cast_signed(), channels).ok().map(Box::new)
}

impl Decoder for OpusPacketDecoder {
    fn rate(&self) -> SampleRate {
        self.rate
    }

    fn channels(&self) -> usize {
        self.channels
    }

    fn delay(&self) -> usize {
        0
    }

    /// Read from the first two bytes (RFC 6716 section 3).
    fn frames(&self, payload: &[u8]) -> Result<usize, DecodeError> {
        let &toc = payload.first().ok_or(DecodeError::Damaged)?;
        let config = toc >> 3;
        let units = match config {
            0..12 => [4, 8, 16, 24][usize::from(config & 3)],
            12..16 => [4, 8][usize::from(config & 1)],
            _ => [1, 2, 4, 8][usize::from(config & 3)],
        };
        let count = match toc & 3 {
            0 => 1,
            1 | 2 => 2,
            _ => usize::from(payload.get(1).ok_or(DecodeError::Damaged)? & 0x3f),
        };
        if count == 0 || count * units > MAX_UNITS {
            return Err(DecodeError::Damaged);
        }
        Ok(count * units * self.unit())
    }

    fn decode(&mut self, payload: &[u8], out: &mut [f32]) -> Result<usize, DecodeError> {
        let frames = self.frames(payload)?;
        let out = output_slice(out, frames, self.channels)?;
        self.library.decode(payload, frames, out).map_err(|_| DecodeError::Damaged)
    }

    fn conceal(&mut self, out: &mut [f32]) {
        let unit = self.unit();
        for out in out.chunks_mut(MAX_UNITS * unit * self.channels) {
            let frames = out.len() / self.channels / unit * unit;
            let (whole, rest) = out.split_at_mut(frames * self.channels);
            rest.fill(0.0);
            if frames > 0 && self.library.decode(&[], frames, whole).is_err() {
                whole.fill(0.0);
            }
        }
    }

    fn recover(&mut self, following: &[u8], out: &mut [f32]) {
        let frames = out.len() / self.channels;
        let fits = frames.is_multiple_of(self.unit()) && frames <= MAX_UNITS * self.unit();
        if !fits || self.library.decode_fec(following, frames, out).is_err() {
            self.conceal(out);
        }
    }

    fn reset(&mut self) {
        if let Some(library) = new_library(self.rate, self.channels) {
            self.library = library;
        }
    }
}

impl fmt::Debug for OpusPacketDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opus").field("rate", &self.rate).field("channels", &self.channels).finish()
    }
}

const RATES: [u32; 5] = [8_000, 12_000, 16_000, 24_000, 48_000];

/// 120 ms in units of 2.5 ms.
const MAX_UNITS: usize = 48;
