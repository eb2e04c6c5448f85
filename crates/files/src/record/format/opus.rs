//! Ogg Opus files with the exact length of the sound.
//!
//! A decoder's output is delayed by the encoder's delay. That many frames are skipped at the start,
//! and at the end silence is appended until all sound is in packets.

use aulos_core::{Block, Codec, Frames, SampleFormat, SampleRate, SampleSpec};
use aulos_engine::encode::{EncodeError, Encoder, OpusPacketEncoder, UnsupportedFormat};
use aulos_proto::Patch;
use aulos_proto::ogg::OpusFile;

use super::{FileEncoder, FileMetadata};

/// Encodes an Ogg Opus file.
#[derive(Debug)]
pub(crate) struct OpusFileEncoder {
    encoder: OpusPacketEncoder,
    file: OpusFile,
    /// Length of a page.
    page_frames: Frames,
    block: Block,
    /// Samples in the block.
    filled: usize,
    frames: Frames,
    packet: Vec<u8>,
}

pub(super) fn make_encoder(
    bits_per_second: u32,
    metadata: &FileMetadata,
    out: &mut Vec<u8>,
) -> Result<OpusFileEncoder, UnsupportedFormat> {
    let comments = metadata.comments();
    let comments = comments.iter().map(|(name, text)| (*name, &**text));
    let spec = metadata.spec(SampleFormat::F32);
    OpusFileEncoder::new(spec, metadata.rate, bits_per_second, comments, PAGE_FRAMES, out)
}

impl OpusFileEncoder {
    /// Begins a file: appends its header to `out`. `input_rate` is the rate of the original sound,
    /// which the header states.
    pub(crate) fn new<'a>(
        spec: SampleSpec,
        input_rate: SampleRate,
        bits_per_second: u32,
        comments: impl ExactSizeIterator<Item = (&'a str, &'a str)>,
        page_frames: Frames,
        out: &mut Vec<u8>,
    ) -> Result<Self, UnsupportedFormat> {
        let SampleSpec { rate, layout, .. } = spec;
        let encoder = OpusPacketEncoder::new(spec, PACKET_FRAMES, bits_per_second)?;
        let skip = u16::try_from(OpusPacketEncoder::DELAY.0).unwrap_or(u16::MAX);
        let file = OpusFile::begin(SERIAL, layout, input_rate, skip, comments, out)
            .map_err(|_| UnsupportedFormat::Channels(Codec::Opus))?;
        let mut block =
            Block::with_capacity(rate, layout, PACKET_FRAMES.as_usize() * layout.channels());
        block.resize(PACKET_FRAMES);
        let (filled, frames, packet) = (0, Frames(0), Vec::with_capacity(MAX_PACKET_BYTES));
        Ok(Self { encoder, file, page_frames, block, filled, frames, packet })
    }

    pub(crate) fn encode_samples(
        &mut self,
        samples: &[f32],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        self.frames += Frames::from(samples.len() / self.block.layout().channels());
        let mut tail = samples;
        while !tail.is_empty() {
            let space = &mut self.block.samples_mut()[self.filled..];
            let (head, later) = tail.split_at(tail.len().min(space.len()));
            space[..head.len()].copy_from_slice(head);
            self.filled += head.len();
            tail = later;
            if self.filled == self.block.samples().len() {
                self.encode_block(out)?;
                if self.file.pending_frames() >= self.page_frames {
                    self.file.page(out);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn finish_file(mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        // The delayed sound must be output as well. That is at least one packet, so that the last
        // page is never empty.
        let channels = self.block.layout().channels();
        let remaining = self.filled / channels + OpusPacketEncoder::DELAY.as_usize();
        for _ in 0..remaining.div_ceil(PACKET_FRAMES.as_usize()) {
            // `encode` resets `filled`.
            let filled = self.filled;
            self.block.samples_mut()[filled..].fill(0.0);
            self.encode_block(out)?;
        }
        self.file.finish(self.frames, out);
        Ok(())
    }

    fn encode_block(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.packet.clear();
        self.filled = 0;
        self.encoder.encode(&self.block, &mut self.packet)?;
        self.file.write(&self.packet, PACKET_FRAMES, out);
        Ok(())
    }
}

impl FileEncoder for OpusFileEncoder {
    fn write(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.encode_samples(samples, out)
    }

    fn flush(&mut self, out: &mut Vec<u8>, _: &mut Vec<Patch>) {
        self.file.page(out);
    }

    fn finish(self: Box<Self>, out: &mut Vec<u8>, _: &mut Vec<Patch>) -> Result<(), EncodeError> {
        self.finish_file(out)
    }

    fn frames(&self) -> Frames {
        self.frames
    }

    fn readable_frames(&self) -> Frames {
        self.file.paged_frames()
    }

    fn clipped_samples(&self) -> u64 {
        0
    }
}

/// 20 ms.
const PACKET_FRAMES: Frames = Frames(960);
/// 200 ms: what a kill may lose beside what was never written.
const PAGE_FRAMES: Frames = Frames(9_600);
/// One packet of 20 ms (RFC 6716, section 3.4).
const MAX_PACKET_BYTES: usize = 1_275 + 7;
/// The file has one stream, so any number is unique.
const SERIAL: u32 = 1;
