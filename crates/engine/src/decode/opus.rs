//! Opus (RFC 6716), by `unsafe-libopus`, with its own concealment and in-band error correction.
//!
//! Concealment is left to the codec: its state continues with the replacement, and the next packet
//! is decoded on top of that. The pitch repetition of the other codecs has less information.

use core::fmt;

use aulos_core::SampleRate;
use aulos_opus::OpusDecoder;

use super::{DecodeError, Decoder, output_slice};
use crate::codec_guard::{CodecLibrary, GuardedCodec};

/// Decoder of Opus with one or two channels.
pub struct OpusPacketDecoder {
    library: GuardedCodec<OpusDecoder>,
    rate: SampleRate,
    channels: usize,
    /// The last decoded frame.
    last: [f32; MAX_CHANNELS],
    /// After a panic of the library, whose new state cannot continue the sound.
    is_interrupted: bool,
}

impl OpusPacketDecoder {
    /// A decoder with `channels` (one or two) at `rate`, which is 8, 12, 16, 24 or 48 kHz: a lower
    /// rate is cheaper than resampling later. `None` for other values.
    #[must_use]
    pub fn new(rate: SampleRate, channels: usize) -> Option<Self> {
        if !RATES.contains(&rate.hz()) || !(1..=MAX_CHANNELS).contains(&channels) {
            return None;
        }
        let make = move || OpusDecoder::new(rate.hz(), channels);
        let library = GuardedCodec::new(CodecLibrary::UnsafeLibopus, make)?;
        Some(Self { library, rate, channels, last: [0.0; MAX_CHANNELS], is_interrupted: false })
    }

    /// A quarter of 10 ms: the library conceals multiples of it.
    fn unit(&self) -> usize {
        self.rate.hz() as usize / 400
    }

    /// Calls the library; `None` when it refuses or panics.
    fn call(&mut self, work: impl FnOnce(&mut OpusDecoder) -> Option<usize>) -> Option<usize> {
        let result = self.library.call(work);
        self.is_interrupted |= result.is_err();
        result.ok()?
    }

    /// Notes the end of the sound in `out`.
    fn keep_last(&mut self, out: &[f32]) {
        if let Some(frame) = out.rchunks_exact(self.channels).next() {
            self.last[..self.channels].copy_from_slice(frame);
        }
    }

    /// Fills `out` with silence, into which the last frame fades during 2.5 ms.
    fn fade_out(&mut self, out: &mut [f32]) {
        let length = self.unit();
        out.fill(0.0);
        #[allow(clippy::cast_precision_loss, reason = "at most 120")]
        for (index, frame) in out.chunks_exact_mut(self.channels).take(length).enumerate() {
            let gain = 1.0 - (index + 1) as f32 / length as f32;
            frame.iter_mut().zip(self.last).for_each(|(sample, last)| *sample = gain * last);
        }
        self.last = [0.0; MAX_CHANNELS];
    }
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
        let decoded =
            self.call(|library| library.decode(payload, out)).ok_or(DecodeError::Damaged)?;
        self.is_interrupted = false;
        self.keep_last(out.get(..decoded * self.channels).unwrap_or(out));
        Ok(decoded)
    }

    fn conceal(&mut self, out: &mut [f32]) {
        let unit = self.unit();
        for out in out.chunks_mut(MAX_UNITS * unit * self.channels) {
            let frames = out.len() / self.channels / unit * unit;
            let (whole, rest) = out.split_at_mut(frames * self.channels);
            let concealed = !self.is_interrupted
                && frames > 0
                && self.call(|library| library.conceal(whole)).is_some();
            if concealed {
                self.keep_last(whole);
                rest.fill(0.0);
            } else {
                self.fade_out(out);
            }
        }
    }

    fn recover(&mut self, following: &[u8], out: &mut [f32]) {
        let frames = out.len() / self.channels;
        let fits = frames.is_multiple_of(self.unit()) && frames <= MAX_UNITS * self.unit();
        if fits && self.call(|library| library.recover(following, out)).is_some() {
            self.is_interrupted = false;
            self.keep_last(out);
        } else {
            self.conceal(out);
        }
    }

    fn reset(&mut self) {
        self.library.restart();
        self.last = [0.0; MAX_CHANNELS];
        self.is_interrupted = false;
    }

    fn panics(&self) -> u64 {
        self.library.panics()
    }
}

impl fmt::Debug for OpusPacketDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opus").field("rate", &self.rate).field("channels", &self.channels).finish()
    }
}

const MAX_CHANNELS: usize = 2;

const RATES: [u32; 5] = [8_000, 12_000, 16_000, 24_000, 48_000];

/// 120 ms in units of 2.5 ms.
const MAX_UNITS: usize = 48;
