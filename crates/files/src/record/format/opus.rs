//! Opus in Ogg, as long as the sound was, to the frame.
//!
//! A decoder's output is late by the encoder's delay. So much is skipped at the beginning, and at
//! the end the sound is followed by silence until all of it is in packets.

use aulos_core::{Block, Codec, Frames, SampleFormat, SampleRate, SampleSpec};
use aulos_engine::encode::{EncodeError, Encoder, OpusPacketEncoder, UnsupportedFormat};
use aulos_proto::Patch;
use aulos_proto::ogg::OpusFile;

use super::{About, Framer};

/// An Ogg Opus file in the making.
#[derive(Debug)]
pub(crate) struct OpusFramer {
    encoder: OpusPacketEncoder,
    file: OpusFile,
    /// How long a page becomes.
    page: Frames,
    block: Block,
    /// Samples of the block that are filled.
    filled: usize,
    frames: Frames,
    packet: Vec<u8>,
}

pub(super) fn open(
    bits_per_second: u32,
    about: &About,
    out: &mut Vec<u8>,
) -> Result<OpusFramer, UnsupportedFormat> {
    let comments = about.comments();
    let comments = comments.iter().map(|(name, text)| (*name, &**text));
    let spec = about.spec(SampleFormat::F32);
    OpusFramer::begin(spec, about.rate, bits_per_second, comments, PAGE, out)
}

impl OpusFramer {
    /// Begins a file: appends its head to `out`. `from` is what the sound had before; it is told.
    pub(crate) fn begin<'a>(
        spec: SampleSpec,
        from: SampleRate,
        bits_per_second: u32,
        comments: impl ExactSizeIterator<Item = (&'a str, &'a str)>,
        page: Frames,
        out: &mut Vec<u8>,
    ) -> Result<Self, UnsupportedFormat> {
        let SampleSpec { rate, layout, .. } = spec;
        let encoder = OpusPacketEncoder::new(spec, PACKET, bits_per_second)?;
        let skip = u16::try_from(OpusPacketEncoder::DELAY.0).unwrap_or(u16::MAX);
        let file = OpusFile::begin(SERIAL, layout, from, skip, comments, out)
            .map_err(|_| UnsupportedFormat::Channels(Codec::Opus))?;
        let mut block = Block::with_capacity(rate, layout, PACKET.as_usize() * layout.channels());
        block.resize(PACKET);
        let (filled, frames, packet) = (0, Frames(0), Vec::with_capacity(MAX_PACKET));
        Ok(Self { encoder, file, page, block, filled, frames, packet })
    }

    pub(crate) fn take(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.frames += Frames::from(samples.len() / self.block.layout().channels());
        let mut rest = samples;
        while !rest.is_empty() {
            let room = &mut self.block.samples_mut()[self.filled..];
            let (now, later) = rest.split_at(rest.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            self.filled += now.len();
            rest = later;
            if self.filled == self.block.samples().len() {
                self.encode(out)?;
                if self.file.pending_frames() >= self.page {
                    self.file.page(out);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn end(mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        // What is behind by the delay has to come out as well. That is a packet at least, so that
        // the last page is never empty.
        let channels = self.block.layout().channels();
        let missing = self.filled / channels + OpusPacketEncoder::DELAY.as_usize();
        for _ in 0..missing.div_ceil(PACKET.as_usize()) {
            // `encode` leaves nothing filled.
            let filled = self.filled;
            self.block.samples_mut()[filled..].fill(0.0);
            self.encode(out)?;
        }
        self.file.finish(self.frames, out);
        Ok(())
    }

    fn encode(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.packet.clear();
        self.filled = 0;
        self.encoder.encode(&self.block, &mut self.packet)?;
        self.file.write(&self.packet, PACKET, out);
        Ok(())
    }
}

impl Framer for OpusFramer {
    fn write(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.take(samples, out)
    }

    fn flush(&mut self, out: &mut Vec<u8>, _: &mut Vec<Patch>) {
        self.file.page(out);
    }

    fn finish(self: Box<Self>, out: &mut Vec<u8>, _: &mut Vec<Patch>) -> Result<(), EncodeError> {
        self.end(out)
    }

    fn frames(&self) -> Frames {
        self.frames
    }

    fn readable(&self) -> Frames {
        self.file.paged_frames()
    }

    fn clipped(&self) -> u64 {
        0
    }
}

/// 20 ms.
const PACKET: Frames = Frames(960);
/// 200 ms: what a kill can take besides what was never written.
const PAGE: Frames = Frames(9_600);
/// Of one frame of 20 ms (RFC 6716, section 3.4).
const MAX_PACKET: usize = 1_275 + 7;
/// There is one stream in the file; any number will do.
const SERIAL: u32 = 1;
