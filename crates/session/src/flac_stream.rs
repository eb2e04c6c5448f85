//! FLAC for listeners who may be absent.
//!
//! Three quarters of what an idle station with FLAC costs is its compression. While nobody listens,
//! the samples are stored in frames as they are: a listener who joins gets a second of them and
//! then compressed ones, in one stream with continuous numbers.

use aulos_core::{Block, Codec, Frames, SampleFormat, SampleSpec};
use aulos_engine::encode::{Effort, EncodeError, Encoder, FlacEncoder, UnsupportedFormat};
use aulos_proto::flac::{FrameRenumberer, VerbatimFrameWriter};

/// A FLAC encoder that compresses with [`Effort::Full`] and only stores with [`Effort::Least`].
#[derive(Debug)]
pub struct FlacStreamEncoder {
    encoder: FlacEncoder,
    effort: Effort,
    stored: VerbatimFrameWriter,
    numbers: FrameRenumberer,
    /// A frame before it has its number.
    frame: Vec<u8>,
}

impl FlacStreamEncoder {
    /// An encoder of blocks of exactly `block` frames; `level` is 0 to 8.
    ///
    /// # Errors
    /// As [`FlacEncoder::new`].
    pub fn new(spec: SampleSpec, block: Frames, level: u8) -> Result<Self, UnsupportedFormat> {
        let encoder = FlacEncoder::new(spec, block, level)?;
        let bits = if spec.format == SampleFormat::S16Le { 16 } else { 24 };
        let channels = spec.layout.channels();
        let stored = VerbatimFrameWriter::new(spec.rate.hz(), channels, bits, block.as_usize())
            .ok_or(UnsupportedFormat::Rate(Codec::Flac))?;
        // What cannot be compressed has up to one bit more per sample.
        let samples = block.as_usize() * channels;
        let frame = Vec::with_capacity(stored.len(samples) + samples / 8 + MAX_OVERHEAD);
        Ok(Self {
            encoder,
            effort: Effort::Full,
            stored,
            numbers: FrameRenumberer::default(),
            frame,
        })
    }
}

impl Encoder for FlacStreamEncoder {
    fn codec(&self) -> Codec {
        Codec::Flac
    }

    fn spec(&self) -> SampleSpec {
        self.encoder.spec()
    }

    fn header(&self) -> &[u8] {
        self.encoder.header()
    }

    fn clipped(&self) -> u64 {
        self.encoder.clipped()
    }

    fn panics(&self) -> u64 {
        self.encoder.panics()
    }

    fn set_effort(&mut self, effort: Effort) {
        self.effort = effort;
    }

    fn encode(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.frame.clear();
        match self.effort {
            Effort::Full => self.encoder.encode(block, &mut self.frame)?,
            Effort::Least => self.stored.write(self.encoder.quantize(block)?, &mut self.frame),
        }
        self.numbers.write(&self.frame, out);
        Ok(())
    }
}

/// Headers of eight subframes, and the rounding up of each.
const MAX_OVERHEAD: usize = 256;
