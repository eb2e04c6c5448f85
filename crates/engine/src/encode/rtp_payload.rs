//! RTP payloads other than Opus: samples in network byte order, G.711 and G.722.

use aulos_core::{Block, Codec, Frames, SampleRate, SampleSpec};
use aulos_dsp::g711::{self, G711Law};
use aulos_dsp::{Dither, Resampler, g722, remix};

use super::encoder::{EncodeError, Encoder, check_block};

/// Sample encoding of [`RtpPayloadEncoder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "the codecs that RTP has and that need no packets")]
pub enum RtpPayloadCodec {
    /// 16 bits, big endian; dithered where samples are not integers of the format ([`Dither`]).
    L16,
    /// 24 bits, the same.
    L24,
    /// G.711 of one law.
    G711(G711Law),
    /// G.722 at 64 kbit/s.
    G722,
}

/// Encodes a station's blocks to a byte stream that can be cut into packets between any two frames
/// (with G.722: between two pairs of frames).
///
/// At another rate than the station's a payload sometimes has a frame more or less; the average is
/// exact. Its codec is reported as PCM, because its chunks only go into packets.
pub struct RtpPayloadEncoder {
    spec: SampleSpec,
    channels: usize,
    coder: Coder,
    dither: Dither,
    resampler: Option<Resampler>,
    /// In the payload's channels: at the station's rate, and at the payload's.
    mixed: Vec<f32>,
    ready: Vec<f32>,
    /// Maximum number of output frames per block.
    max_frames: usize,
    clipped: u64,
}

enum Coder {
    L16,
    L24,
    G711(G711Law),
    G722(Box<g722::G722Encoder>),
}

impl RtpPayloadEncoder {
    /// An encoder of blocks of `spec` with up to `block` frames, to frames of `channels` at `rate`.
    /// Allocates all memory in advance; at another rate that includes a megabyte for a filter.
    ///
    /// # Panics
    /// When `channels` is 0.
    #[must_use]
    pub fn new(
        format: RtpPayloadCodec,
        spec: SampleSpec,
        block: Frames,
        rate: SampleRate,
        channels: usize,
    ) -> Self {
        assert!(channels > 0, "a frame has channels");
        let resampler = (rate != spec.rate).then(|| Resampler::new(channels, spec.rate, rate));
        let from = block.as_usize() + SLACK;
        let max_frames = rate.frames(spec.rate.span(Frames::from(from))).as_usize() + SLACK;
        Self {
            spec,
            channels,
            coder: match format {
                RtpPayloadCodec::L16 => Coder::L16,
                RtpPayloadCodec::L24 => Coder::L24,
                RtpPayloadCodec::G711(law) => Coder::G711(law),
                RtpPayloadCodec::G722 => Coder::G722(Box::new(g722::G722Encoder::new())),
            },
            dither: Dither::default(),
            resampler,
            mixed: Vec::with_capacity((from + SLACK) * channels),
            ready: Vec::with_capacity((max_frames + SLACK) * channels),
            max_frames,
            clipped: 0,
        }
    }

    /// Maximum payload of a block in bytes.
    #[must_use]
    pub const fn max_payload_bytes(&self) -> usize {
        (self.max_frames + SLACK) * self.channels * 3
    }
}

impl Encoder for RtpPayloadEncoder {
    fn codec(&self) -> Codec {
        Codec::Pcm
    }

    /// The spec of the input blocks.
    fn spec(&self) -> SampleSpec {
        self.spec
    }

    fn clipped(&self) -> u64 {
        self.clipped
    }

    /// # Real-time
    /// Does not allocate while `out` has room.
    fn encode(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        check_block(block, self.spec, block.frames())?;
        let (from, to) = (block.layout().channels(), self.channels);
        let kept = self.mixed.len();
        self.mixed.resize(kept + block.frames().as_usize() * to, 0.0);
        if from == to {
            self.mixed[kept..].copy_from_slice(block.samples());
        } else {
            remix(block.samples(), from, &mut self.mixed[kept..], to);
        }
        match &mut self.resampler {
            None => {
                self.ready.extend_from_slice(&self.mixed);
                self.mixed.clear();
            }
            Some(resampler) => {
                let kept = self.ready.len();
                self.ready.resize(kept + self.max_frames * to, 0.0);
                let done = resampler.process(&self.mixed, &mut self.ready[kept..]);
                self.ready.truncate(kept + done.produced.as_usize() * to);
                self.mixed.drain(..done.consumed.as_usize() * to);
            }
        }
        // G.722 has two samples in a byte: an odd one waits.
        let whole = match self.coder {
            Coder::G722(_) => self.ready.len() / 2 * 2,
            _ => self.ready.len(),
        };
        let samples = &self.ready[..whole];
        let start = out.len();
        let bytes = match self.coder {
            Coder::L16 => whole * 2,
            Coder::L24 => whole * 3,
            Coder::G711(_) => whole,
            Coder::G722(_) => whole / 2,
        };
        out.resize(start + bytes, 0);
        let room = &mut out[start..];
        self.clipped += match &mut self.coder {
            Coder::L16 => self.dither.encode_l16(samples, room) as u64,
            Coder::L24 => self.dither.encode_l24(samples, room) as u64,
            Coder::G711(law) => {
                g711::encode(*law, samples, room);
                0
            }
            Coder::G722(encoder) => {
                encoder.encode(samples, room);
                0
            }
        };
        self.ready.drain(..whole);
        Ok(())
    }
}

impl core::fmt::Debug for RtpPayloadEncoder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Wire").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// Frames that a resampler may leave for the next call, and more.
const SLACK: usize = 64;
