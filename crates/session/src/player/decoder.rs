//! Decoders of chunks: PCM, FLAC and Opus, as a codec header describes them.

mod flac_frame;

use core::fmt;

use aulos_core::{Codec, Frames, SampleFormat, SampleRate, SampleSpec};
use aulos_dsp::convert;
use aulos_engine::decode::{Decoder as _, OpusPacketDecoder};
use flac_frame::decode_frame;

use super::format::StreamFormat;

/// Decodes the chunks of one stream to interleaved f32.
pub(crate) struct ChunkDecoder {
    spec: SampleSpec,
    kind: Kind,
}

enum Kind {
    Pcm,
    /// Samples of one frame, channel after channel.
    Flac(Vec<i64>),
    Opus(OpusPacketDecoder),
}

impl ChunkDecoder {
    /// A decoder; `None` for a stream that its codec cannot have.
    pub(crate) fn new(codec: Codec, spec: SampleSpec) -> Option<Self> {
        let kind = match codec {
            Codec::Pcm => Kind::Pcm,
            Codec::Flac => Kind::Flac(Vec::new()),
            Codec::Opus => Kind::Opus(OpusPacketDecoder::new(spec.rate, spec.layout.channels())?),
            // No codec of Snapcast.
            _ => return None,
        };
        Some(Self { spec, kind })
    }

    pub(crate) const fn rate(&self) -> SampleRate {
        self.spec.rate
    }

    pub(crate) fn channels(&self) -> usize {
        self.spec.layout.channels()
    }

    /// Whether a decoder that starts in mid-stream needs the chunk before to be exact.
    pub(crate) const fn needs_preroll(&self) -> bool {
        matches!(self.kind, Kind::Opus(_))
    }

    /// Panics of the codec's library. Each time a new decoder went on.
    pub(crate) fn panics(&self) -> u64 {
        match &self.kind {
            Kind::Opus(opus) => opus.panics(),
            Kind::Pcm | Kind::Flac(_) => 0,
        }
    }

    /// Replaces the contents of `out` by the frames of a chunk; returns their number, 0 for a
    /// damaged chunk.
    ///
    /// # Real-time
    /// Allocates for a chunk that is longer than all before.
    pub(crate) fn decode(&mut self, chunk: &[u8], out: &mut Vec<f32>) -> Frames {
        out.clear();
        let channels = self.channels();
        match &mut self.kind {
            Kind::Pcm => {
                let width = self.spec.format.bytes();
                let frames = (chunk.len() / (width * channels)).min(MAX_FRAMES);
                out.resize(frames * channels, 0.0);
                convert::decode(self.spec.format, &chunk[..frames * channels * width], out);
            }
            Kind::Flac(scratch) => {
                decode_flac(chunk, (channels, self.spec.format), scratch, out);
            }
            Kind::Opus(opus) => {
                let frames = opus.frames(chunk).unwrap_or(0).min(MAX_FRAMES);
                out.resize(frames * channels, 0.0);
                let decoded = opus.decode(chunk, out).unwrap_or(0);
                out.truncate(decoded * channels);
            }
        }
        Frames::from(out.len() / channels)
    }
}

/// Tells chunks with sound from silent ones.
#[derive(Debug, Default)]
pub(super) struct SoundDetector {
    decoder: Option<ChunkDecoder>,
    samples: Vec<f32>,
}

impl SoundDetector {
    /// Whether a chunk of `stream`, the same one each time, has sound.
    pub(super) fn has_sound(&mut self, stream: Option<StreamFormat>, chunk: &[u8]) -> bool {
        if self.decoder.is_none() {
            self.decoder = stream.and_then(|one| ChunkDecoder::new(one.codec, one.spec));
        }
        let Some(decoder) = &mut self.decoder else { return false };
        decoder.decode(chunk, &mut self.samples);
        has_sound(&self.samples)
    }
}

/// Whether samples are more than digital silence, or what a lossy codec makes of that.
pub(super) fn has_sound(samples: &[f32]) -> bool {
    samples.iter().any(|sample| sample.abs() >= LEAST_SOUND)
}

/// Decodes all FLAC frames of a chunk, up to one that is damaged or has other channels.
fn decode_flac(
    mut chunk: &[u8],
    (channels, format): (usize, SampleFormat),
    samples: &mut Vec<i64>,
    out: &mut Vec<f32>,
) {
    let (shape, scale) = ((channels, format.bits().into()), full_scale(format));
    while out.len() < MAX_FRAMES * channels {
        let Some(frame) = decode_frame(chunk, shape, samples) else { return };
        let start = out.len();
        out.resize(start + frame.length * channels, 0.0);
        for (from, first) in samples.chunks_exact(frame.length).zip(start..) {
            for (to, from) in out[first..].iter_mut().step_by(channels).zip(from) {
                *to = convert_sample(*from, scale);
            }
        }
        chunk = &chunk[frame.bytes..];
    }
}

/// Exact up to 24 bits.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "FLAC on Snapcast's wire has 16 or 24 bits"
)]
fn convert_sample(sample: i64, scale: f32) -> f32 {
    sample as i32 as f32 * scale
}

/// The value of one step.
fn full_scale(format: SampleFormat) -> f32 {
    0.5_f32.powi(i32::from(format.bits()) - 1)
}

impl fmt::Debug for ChunkDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkDecoder").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// Half a step of 24 bits.
const LEAST_SOUND: f32 = 1.0 / 16_777_216.0;

/// More than a FLAC frame can hold; a chunk of Snapcast has a hundredth of it.
const MAX_FRAMES: usize = 65_536;

#[cfg(test)]
mod tests {
    use aulos_core::Block;
    use aulos_engine::encode::{CodecConfig, make_encoder};

    use super::*;

    #[allow(clippy::cast_precision_loss, reason = "some thousand frames")]
    fn programme(spec: SampleSpec, chunk: usize) -> Block {
        let channels = spec.layout.channels();
        let mut block = Block::with_capacity(spec.rate, spec.layout, 960 * channels);
        block.resize(Frames(960));
        for (number, sample) in block.samples_mut().iter_mut().enumerate() {
            let frame = (chunk * 960 + number / channels) as f32;
            let raw = (frame * 0.05).sin() * 0.4 + (number % channels) as f32 * 0.1;
            *sample = (raw * 32_768.0).round() / 32_768.0;
        }
        block
    }

    #[test]
    #[allow(clippy::float_cmp, reason = "exact")]
    fn flac_and_pcm_are_exact_and_opus_is_near() {
        for (codec, spec) in [
            ("flac", "48000:16:2"),
            ("flac", "44100:24:6"),
            ("pcm", "48000:24:2"),
            ("opus", "48000:16:2"),
        ] {
            let spec: SampleSpec = spec.parse().unwrap();
            let config: CodecConfig = codec.parse().unwrap();
            let mut encoder = make_encoder(config, spec, Frames(960)).unwrap();
            let mut decoder = ChunkDecoder::new(config.codec(), spec).unwrap();
            let (mut chunk, mut out) = (Vec::new(), Vec::new());
            for number in 0..20 {
                let block = programme(spec, number);
                chunk.clear();
                encoder.encode(&block, &mut chunk).unwrap();
                assert_eq!(decoder.decode(&chunk, &mut out), Frames(960), "{codec}");
                let off =
                    out.iter().zip(block.samples()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(codec == "opus" || off == 0.0, "{codec} {spec:?}: {off}");
            }
            assert!(out.iter().any(|sample| sample.abs() > 0.2), "{codec}");
        }
    }

    /// Chunks of sound, of digital silence and of the least sound that 16 bits have.
    #[test]
    fn the_detector_tells_sound_from_silence_of_every_codec() {
        let spec = SampleSpec::DEFAULT;
        for codec in ["pcm", "flac", "opus"] {
            let config: CodecConfig = codec.parse().unwrap();
            let mut encoder = make_encoder(config, spec, Frames(960)).unwrap();
            let stream = Some(StreamFormat { codec: config.codec(), spec });
            let mut detector = SoundDetector::default();
            let mut found = Vec::new();
            for number in 0..130 {
                let mut block = programme(spec, number);
                if (10..90).contains(&number) {
                    block.samples_mut().fill(0.0);
                } else if number >= 90 {
                    let step = 1.0 / 32_768.0;
                    block.samples_mut().iter_mut().step_by(120).for_each(|one| *one = step);
                }
                let mut chunk = Vec::new();
                encoder.encode(&block, &mut chunk).unwrap();
                found.push(detector.has_sound(stream, &chunk));
            }
            println!("{codec}: {found:?}");
            assert!(
                found[..10].iter().all(|is| *is) && found[90..].iter().all(|is| *is),
                "{codec}"
            );
            // A lossy codec rings for some packets: libopus for 0.8 s.
            let silent = if codec == "opus" { 55 } else { 10 };
            assert!(!found[silent..90].contains(&true), "{codec}: {found:?}");
        }
    }

    /// 16-bit chunks of which silence becomes sound at any frame, as FLAC.
    fn beginnings() -> impl Iterator<Item = (Block, Vec<u8>)> {
        let mut random = aulos_core::Rng::new(11);
        (0..960).step_by(7).map(move |silent| {
            let mut block = programme(SampleSpec::DEFAULT, 0);
            for (number, sample) in block.samples_mut().iter_mut().enumerate() {
                let noise = f32::from(u8::try_from(random.next_u64() % 256).unwrap()) / 32_768.0;
                *sample = if number / 2 < silent { 0.0 } else { *sample + noise };
            }
            let config: CodecConfig = "flac".parse().unwrap();
            let mut encoder = make_encoder(config, SampleSpec::DEFAULT, Frames(960)).unwrap();
            let mut chunk = Vec::new();
            encoder.encode(&block, &mut chunk).unwrap();
            (block, chunk)
        })
    }

    #[test]
    fn flac_residuals_without_a_code_are_decoded() {
        let mut decoder = ChunkDecoder::new(Codec::Flac, SampleSpec::DEFAULT).unwrap();
        let mut out = Vec::new();
        for (block, chunk) in beginnings() {
            // The second frame of a chunk too.
            let twice = [&chunk[..], &chunk[..]].concat();
            assert_eq!(decoder.decode(&twice, &mut out), Frames(1_920));
            assert_eq!(out, [block.samples(), block.samples()].concat());
        }
    }

    #[test]
    #[allow(clippy::cast_possible_truncation, reason = "random bytes")]
    fn damaged_flac_is_no_panic() {
        let mut decoder = ChunkDecoder::new(Codec::Flac, SampleSpec::DEFAULT).unwrap();
        let mut random = aulos_core::Rng::new(5);
        let mut out = Vec::new();
        for (_, chunk) in beginnings() {
            for _ in 0..50 {
                let mut chunk = chunk.clone();
                for _ in 0..1 + random.next_u64() % 4 {
                    let at = random.next_u64() as usize % chunk.len();
                    chunk[at] ^= 1 << (random.next_u64() % 8);
                }
                chunk.truncate(random.next_u64() as usize % (chunk.len() * 2));
                decoder.decode(&chunk, &mut out);
            }
        }
    }

    #[test]
    #[allow(clippy::cast_possible_truncation, reason = "random bytes")]
    fn garbage_is_no_frame_and_no_panic() {
        let spec = SampleSpec::DEFAULT;
        let mut random = aulos_core::Rng::new(3);
        for codec in [Codec::Pcm, Codec::Flac, Codec::Opus] {
            let mut decoder = ChunkDecoder::new(codec, spec).unwrap();
            let mut out = Vec::new();
            for length in 0..600 {
                let mut bytes: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
                if codec == Codec::Flac && length > 4 {
                    bytes[..2].copy_from_slice(&[0xff, 0xf8]);
                }
                assert!(decoder.decode(&bytes, &mut out).as_usize() <= MAX_FRAMES);
                assert!(out.iter().all(|sample| sample.is_finite()));
            }
        }
    }
}
