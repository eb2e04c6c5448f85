//! Transcodes payloads.
//!
//! Between the two laws of G.711 a table suffices; everything else goes through samples. Opus is
//! decoded at the rate of the output and encoded at the rate of the input where it supports that
//! rate: at 8 kHz this takes half the time of 48 kHz, and no resampler.

mod opus;

use core::fmt;

use aulos_core::SampleRate;
use aulos_dsp::{ComfortNoise, Resampler, g711, g722, linear_pcm, remix};
use aulos_proto::rtp::payload::opus_fec_ticks;
use aulos_proto::rtp::{Encoding, RtpCodec};

use super::RelayStreamConfig;
use opus::{LazyOpusDecoder, LazyOpusEncoder};

/// Why an encoding cannot be converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TranscodeError {
    /// There is no decoder for the input.
    UnsupportedInput(Encoding),
    /// There is no encoder for the output.
    UnsupportedOutput(Encoding),
}

impl fmt::Display for TranscodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::UnsupportedInput(encoding) | Self::UnsupportedOutput(encoding)) = self;
        let Encoding { codec, clock_rate, channels } = encoding;
        let verb = if matches!(self, Self::UnsupportedInput(_)) { "decoded" } else { "encoded" };
        write!(f, "{codec} at {clock_rate} Hz with {channels} channel(s) cannot be {verb}")
    }
}

impl core::error::Error for TranscodeError {}

/// Converts payloads from one encoding to another. Clones share the constant parts.
#[derive(Clone, Debug)]
pub(super) enum Transcoder {
    /// Both encodings are the same.
    Passthrough,
    /// From one law of G.711 to the other.
    G711(g711::G711Law, g711::G711Law),
    /// Through samples.
    Samples(Box<SampleTranscoder>),
}

impl Transcoder {
    pub(super) fn new(config: &RelayStreamConfig) -> Result<Self, TranscodeError> {
        let (from, to) = (config.receive.media.encoding, config.to.encoding);
        if from == to {
            return Ok(Self::Passthrough);
        }
        let is_telephony = |encoding: Encoding| encoding.clock_rate == 8_000;
        match (law(from.codec), law(to.codec)) {
            (Some(a), Some(b)) if is_telephony(from) && is_telephony(to) => Ok(Self::G711(a, b)),
            _ => SampleTranscoder::new(config).map(|samples| Self::Samples(Box::new(samples))),
        }
    }

    /// The greatest size of the output for a payload of this size.
    pub(super) fn max_bytes(&self, payload: usize) -> usize {
        match self {
            Self::Passthrough | Self::G711(..) => payload,
            Self::Samples(samples) => samples.max_bytes(payload),
        }
    }

    /// Converts `payload` into the front of `out`, and returns the length; `None` when it cannot be
    /// converted. `timestamp` is that of the payload, extended to 64 bits.
    ///
    /// # Real-time
    /// Allocates only for a payload that is longer than all before it.
    pub(super) fn transcode(
        &mut self,
        timestamp: u64,
        payload: &[u8],
        out: &mut [u8],
    ) -> Option<usize> {
        match self {
            Self::Passthrough => {
                out.get_mut(..payload.len())?.copy_from_slice(payload);
                Some(payload.len())
            }
            Self::G711(from, to) => {
                let out = out.get_mut(..payload.len())?;
                out.copy_from_slice(payload);
                g711::transcode(*from, *to, out);
                Some(payload.len())
            }
            Self::Samples(samples) => samples.transcode(timestamp, payload, out),
        }
    }

    /// The greatest size of a comfort noise payload.
    pub(super) fn max_noise_bytes(&self) -> usize {
        match self {
            Self::Passthrough | Self::G711(..) => 0,
            Self::Samples(samples) => samples.max_bytes_of_frames(samples.frames),
        }
    }

    /// Writes the noise that a comfort noise packet describes, with the duration of the last audio
    /// packet.
    ///
    /// # Real-time
    /// As with [`Self::transcode`].
    pub(super) fn noise(
        &mut self,
        timestamp: u64,
        payload: &[u8],
        out: &mut [u8],
    ) -> Option<usize> {
        match self {
            Self::Passthrough | Self::G711(..) => None,
            Self::Samples(samples) => samples.noise(timestamp, payload, out),
        }
    }

    /// How much of the preceding audio, in ticks of the clock, a payload repeats in a form that
    /// only its decoder can read (Opus FEC).
    pub(super) fn redundant_ticks(&self, payload: &[u8]) -> Option<u64> {
        match self {
            Self::Samples(samples) if samples.from.codec == RtpCodec::Opus => {
                opus_fec_ticks(payload).map(u64::from)
            }
            _ => None,
        }
    }

    /// Writes the audio that `following` repeats. `following` has to be transcoded after it.
    pub(super) fn recover(
        &mut self,
        ticks: u64,
        timestamp: u64,
        following: &[u8],
        out: &mut [u8],
    ) -> Option<usize> {
        match self {
            Self::Passthrough | Self::G711(..) => None,
            Self::Samples(samples) => samples.recover(ticks, timestamp, following, out),
        }
    }

    /// This many ticks of the clock are missing, and nothing is sent for them.
    pub(super) fn skip(&mut self, ticks: u64) {
        if let Self::Samples(samples) = self {
            samples.skip(ticks);
        }
    }

    /// The next payload does not continue the previous ones.
    pub(super) fn reset(&mut self) {
        if let Self::Samples(samples) = self {
            samples.reset();
        }
    }

    /// Panics of codec libraries. Each time a new decoder or encoder went on.
    pub(super) fn codec_panics(&self) -> u64 {
        match self {
            Self::Passthrough | Self::G711(..) => 0,
            Self::Samples(samples) => samples.codec_panics(),
        }
    }

    /// Whether decoding a packet depends on the one before it.
    pub(super) fn is_stateful(&self) -> bool {
        match self {
            Self::Passthrough | Self::G711(..) => false,
            Self::Samples(samples) => {
                let keeps = |codec| matches!(codec, RtpCodec::Opus | RtpCodec::G722);
                keeps(samples.from.codec) || keeps(samples.to.codec) || samples.resampler.is_some()
            }
        }
    }
}

/// A decoder, a converter for rate and channels, and an encoder.
#[derive(Clone, Debug)]
pub(super) struct SampleTranscoder {
    from: Encoding,
    to: Encoding,
    decoder: Decoder,
    encoder: Encoder,
    /// Sample rate and channel count of the decoded audio and of the audio to encode.
    source: (u32, usize),
    sink: (u32, usize),
    resampler: Option<Resampler>,
    decoded: Vec<f32>,
    /// In the channels of the sink at the rate of the source; the resampler may leave a rest for
    /// the next call.
    mixed: Vec<f32>,
    encoded: Vec<f32>,
    /// Of the last packet.
    frames: usize,
    noise: ComfortNoise,
}

#[derive(Clone, Debug)]
enum Decoder {
    Law(g711::G711Law),
    L16,
    L24,
    G722(Box<g722::G722Decoder>),
    Opus(LazyOpusDecoder),
}

#[derive(Clone, Debug)]
enum Encoder {
    Law(g711::G711Law),
    L16,
    L24,
    G722(Box<g722::G722Encoder>),
    Opus(LazyOpusEncoder),
}

impl SampleTranscoder {
    fn new(config: &RelayStreamConfig) -> Result<Self, TranscodeError> {
        let (from, to) = (config.receive.media.encoding, config.to.encoding);
        let (cannot_decode, cannot_encode) =
            (TranscodeError::UnsupportedInput(from), TranscodeError::UnsupportedOutput(to));
        let source_rate =
            if from.codec == RtpCodec::Opus { opus::opus_rate(to) } else { from.sample_rate() };
        let sink_rate =
            if to.codec == RtpCodec::Opus { opus::opus_rate(from) } else { to.sample_rate() };
        // The channel count of Opus in RTP is always two; it decodes to any channel count.
        let theirs = |encoding: Encoding| usize::from(encoding.channels);
        let source_channels =
            if from.codec == RtpCodec::Opus { theirs(to).min(2) } else { theirs(from) };
        let sink_channels =
            if to.codec == RtpCodec::Opus { theirs(from).min(2) } else { theirs(to) };
        let decoder = match from.codec {
            RtpCodec::Pcmu => Decoder::Law(g711::G711Law::Mu),
            RtpCodec::Pcma => Decoder::Law(g711::G711Law::A),
            RtpCodec::L16 => Decoder::L16,
            RtpCodec::L24 => Decoder::L24,
            RtpCodec::G722 => Decoder::G722(Box::new(g722::G722Decoder::new())),
            RtpCodec::Opus => Decoder::Opus(
                LazyOpusDecoder::new(source_rate, source_channels).ok_or(cannot_decode)?,
            ),
            _ => return Err(cannot_decode),
        };
        let encoder = match to.codec {
            RtpCodec::Pcmu => Encoder::Law(g711::G711Law::Mu),
            RtpCodec::Pcma => Encoder::Law(g711::G711Law::A),
            RtpCodec::L16 => Encoder::L16,
            RtpCodec::L24 => Encoder::L24,
            RtpCodec::G722 => Encoder::G722(Box::new(g722::G722Encoder::new())),
            RtpCodec::Opus => {
                let packer = LazyOpusEncoder::new(sink_rate, sink_channels, config);
                Encoder::Opus(packer.ok_or(cannot_encode)?)
            }
            _ => return Err(cannot_encode),
        };
        let rate = |hz, why| SampleRate::new(hz).map_err(|_| why);
        let resampler = (source_rate != sink_rate)
            .then(|| {
                let rates = (rate(source_rate, cannot_decode)?, rate(sink_rate, cannot_encode)?);
                Ok(Resampler::new(sink_channels, rates.0, rates.1))
            })
            .transpose()?;
        Ok(Self {
            from,
            to,
            decoder,
            encoder,
            source: (source_rate, source_channels),
            sink: (sink_rate, sink_channels),
            resampler,
            decoded: Vec::new(),
            mixed: Vec::new(),
            encoded: Vec::new(),
            frames: source_rate as usize / 50,
            noise: ComfortNoise::new(NOISE_SEED),
        })
    }

    fn max_bytes(&self, payload: usize) -> usize {
        let frames = match self.from.codec {
            RtpCodec::Opus => (self.source.0 as usize) * opus::LONGEST_MS / 1_000,
            RtpCodec::G722 => payload * 2,
            RtpCodec::L16 => payload / 2 / self.source.1.max(1),
            RtpCodec::L24 => payload / 3 / self.source.1.max(1),
            _ => payload / self.source.1.max(1),
        };
        self.max_bytes_of_frames(frames)
    }

    /// The same for frames of the source.
    fn max_bytes_of_frames(&self, frames: usize) -> usize {
        let frames = self.sink_frames(frames as u64) + 1;
        match self.to.codec {
            RtpCodec::Opus => opus::LONGEST_PACKET,
            RtpCodec::G722 => frames / 2 + 1,
            RtpCodec::L16 => frames * 2 * self.sink.1,
            RtpCodec::L24 => frames * 3 * self.sink.1,
            _ => frames * self.sink.1,
        }
    }

    fn transcode(&mut self, timestamp: u64, payload: &[u8], out: &mut [u8]) -> Option<usize> {
        let frames = self.decode(payload)?;
        self.frames = frames;
        self.encode_decoded(timestamp, frames, out)
    }

    fn noise(&mut self, timestamp: u64, payload: &[u8], out: &mut [u8]) -> Option<usize> {
        // Its spectrum is that of 8 kHz audio.
        self.noise
            .set_parameters(payload, self.source.0 == crate::rtp::receive::payload::COMFORT_HZ);
        let (frames, channels) = (self.frames, self.source.1);
        self.decoded.resize(frames * channels, 0.0);
        let (mono, _) = self.decoded.split_at_mut(frames);
        self.noise.fill(mono);
        for frame in (0..frames).rev() {
            let sample = self.decoded[frame];
            self.decoded[frame * channels..(frame + 1) * channels].fill(sample);
        }
        self.encode_decoded(timestamp, frames, out)
    }

    fn recover(
        &mut self,
        ticks: u64,
        timestamp: u64,
        following: &[u8],
        out: &mut [u8],
    ) -> Option<usize> {
        let frames = ticks * u64::from(self.source.0) / u64::from(self.from.clock_rate.max(1));
        let frames = usize::try_from(frames).ok()?;
        let Decoder::Opus(opener) = &mut self.decoder else { return None };
        self.decoded.resize(frames * self.source.1, 0.0);
        opener.recover(following, frames, &mut self.decoded)?;
        self.encode_decoded(timestamp, frames, out)
    }

    /// Converts and encodes the decoded frames.
    fn encode_decoded(&mut self, timestamp: u64, frames: usize, out: &mut [u8]) -> Option<usize> {
        let (from, to) = (self.source.1, self.sink.1);
        let kept = self.mixed.len();
        self.mixed.resize(kept + frames * to, 0.0);
        if from == to {
            self.mixed[kept..].copy_from_slice(&self.decoded[..frames * from]);
        } else {
            remix(&self.decoded[..frames * from], from, &mut self.mixed[kept..], to);
        }
        let Some(resampler) = &mut self.resampler else {
            let length = encode(&mut self.encoder, &self.mixed, out);
            self.mixed.clear();
            return length;
        };
        // As many frames as lie between the timestamps of this packet and the next one.
        let begin = timestamp_frames(timestamp, self.from);
        let (source, sink) = (u64::from(self.source.0), u64::from(self.sink.0));
        let at = |frame: u64| frame.wrapping_mul(sink) / source;
        let wanted = at(begin + frames as u64).saturating_sub(at(begin));
        self.encoded.resize(usize::try_from(wanted).ok()? * to, 0.0);
        let progress = resampler.process(&self.mixed, &mut self.encoded);
        self.encoded.truncate(progress.produced.as_usize() * to);
        self.mixed.drain(..progress.consumed.as_usize() * to);
        // Rounding leaves one or two frames; more remain only after an error of the library.
        let surplus = self.mixed.len().saturating_sub(MAX_RESAMPLER_DELAY * to);
        self.mixed.drain(..surplus);
        encode(&mut self.encoder, &self.encoded, out)
    }

    /// Decodes a payload into `decoded`, and returns the number of frames.
    fn decode(&mut self, payload: &[u8]) -> Option<usize> {
        let channels = self.source.1;
        let frame_bytes = match self.decoder {
            Decoder::L16 => 2 * channels,
            Decoder::L24 => 3 * channels,
            Decoder::Law(_) => channels,
            Decoder::G722(_) | Decoder::Opus(_) => 1,
        };
        if payload.is_empty() || !payload.len().is_multiple_of(frame_bytes) {
            return None;
        }
        let room = match self.decoder {
            Decoder::G722(_) => payload.len() * 2,
            Decoder::Opus(_) => self.source.0 as usize * opus::LONGEST_MS / 1_000 * channels,
            _ => payload.len() / frame_bytes * channels,
        };
        self.decoded.resize(room, 0.0);
        let samples = match &mut self.decoder {
            Decoder::Law(law) => g711::decode(*law, payload, &mut self.decoded),
            Decoder::L16 => linear_pcm::decode_l16(payload, &mut self.decoded),
            Decoder::L24 => linear_pcm::decode_l24(payload, &mut self.decoded),
            Decoder::G722(decoder) => decoder.decode(payload, &mut self.decoded),
            Decoder::Opus(opener) => opener.decode(payload, &mut self.decoded)? * channels,
        };
        Some(samples / channels)
    }

    fn skip(&mut self, ticks: u64) {
        if let Decoder::Opus(opener) = &mut self.decoder {
            let frames = ticks * u64::from(self.source.0) / u64::from(self.from.clock_rate.max(1));
            opener.skip(usize::try_from(frames).unwrap_or(usize::MAX), &mut self.decoded);
        }
    }

    fn reset(&mut self) {
        match &mut self.decoder {
            Decoder::G722(decoder) => **decoder = g722::G722Decoder::new(),
            Decoder::Opus(opener) => opener.reset(),
            Decoder::Law(_) | Decoder::L16 | Decoder::L24 => {}
        }
        if let Some(resampler) = &mut self.resampler {
            resampler.reset();
        }
        self.mixed.clear();
    }

    fn codec_panics(&self) -> u64 {
        let decoder = match &self.decoder {
            Decoder::Opus(opus) => opus.panics(),
            _ => 0,
        };
        let encoder = match &self.encoder {
            Encoder::Opus(opus) => opus.panics(),
            _ => 0,
        };
        decoder + encoder
    }

    fn sink_frames(&self, frames: u64) -> usize {
        let frames = frames * u64::from(self.sink.0) / u64::from(self.source.0.max(1));
        usize::try_from(frames).unwrap_or(usize::MAX)
    }
}

fn encode(encoder: &mut Encoder, samples: &[f32], out: &mut [u8]) -> Option<usize> {
    let length = match encoder {
        Encoder::Law(_) => samples.len(),
        Encoder::L16 => samples.len() * 2,
        Encoder::L24 => samples.len() * 3,
        Encoder::G722(_) => samples.len() / 2,
        Encoder::Opus(packer) => return packer.encode(samples, out),
    };
    let out = out.get_mut(..length).filter(|out| !out.is_empty())?;
    // The number of clipped samples is not used here.
    match encoder {
        Encoder::Law(law) => g711::encode(*law, samples, out),
        Encoder::L16 => linear_pcm::encode_l16(samples, out),
        Encoder::L24 => linear_pcm::encode_l24(samples, out),
        Encoder::G722(encoder) => encoder.encode(samples, out),
        Encoder::Opus(_) => 0,
    };
    Some(length)
}

/// Timestamps count frames, except for G.722 (pairs of frames) and Opus (48,000 per second).
fn timestamp_frames(timestamp: u64, encoding: Encoding) -> u64 {
    match encoding.codec {
        RtpCodec::G722 => timestamp.wrapping_mul(2),
        _ => timestamp,
    }
}

const fn law(codec: RtpCodec) -> Option<g711::G711Law> {
    match codec {
        RtpCodec::Pcmu => Some(g711::G711Law::Mu),
        RtpCodec::Pcma => Some(g711::G711Law::A),
        _ => None,
    }
}

/// All streams share one seed: no receiver compares two of them.
const NOISE_SEED: u32 = 0x6175_6c6f;

/// Frames that a resampler may leave.
const MAX_RESAMPLER_DELAY: usize = 64;
