//! FLAC files: blocks of a fixed length, and a shorter one at the end.

use aulos_core::{Block, Frames, SampleFormat, SampleRate};
use aulos_engine::encode::{EncodeError, Encoder, FlacEncoder, UnsupportedFormat};
use aulos_proto::Patch;
use aulos_proto::flac::{FlacFileHeader, FrameRenumberer, Md5, StreamInfo};

use super::{FileEncoder, FileMetadata};

/// Encodes a FLAC file.
#[derive(Debug)]
pub(super) struct FlacFileEncoder {
    encoder: FlacEncoder,
    /// The encoder's numbers begin again after a panic of its library, and players seek by them.
    renumberer: FrameRenumberer,
    frame: Vec<u8>,
    header: FlacFileHeader,
    block: Block,
    /// Samples in the block.
    filled: usize,
    /// Frames in complete blocks.
    encoded_frames: Frames,
    readable_frames: Frames,
    min_frame_bytes: u32,
    max_frame_bytes: u32,
    /// MD5 of the samples as they are encoded.
    md5: Md5,
    /// Bytes of a sample.
    sample_bytes: usize,
    bytes: Vec<u8>,
}

impl FlacFileEncoder {
    pub(super) fn new(
        bits: u16,
        metadata: &FileMetadata,
        out: &mut Vec<u8>,
    ) -> Result<Self, UnsupportedFormat> {
        let format = match bits {
            16 => SampleFormat::S16Le,
            24 => SampleFormat::S24Le,
            _ => return Err(UnsupportedFormat::Format(aulos_core::Codec::Flac)),
        };
        let (rate, layout, length) = (metadata.rate, metadata.layout, block_frames(metadata.rate));
        let encoder = FlacEncoder::for_file(metadata.spec(format), length, COMPRESSION_LEVEL)?;
        // The encoder's header is the magic and STREAMINFO.
        let info = encoder.header().get(8..).and_then(StreamInfo::parse);
        let info = info.ok_or(UnsupportedFormat::Rate(aulos_core::Codec::Flac))?;
        let comments = metadata.comments();
        let comments = comments.iter().map(|(name, text)| (*name, &**text));
        let header = FlacFileHeader::begin(info, comments, CHAPTER_SPACE_BYTES, out);
        let mut block = Block::with_capacity(rate, layout, length.as_usize() * layout.channels());
        block.resize(length);
        let (filled, encoded_frames, readable_frames) = (0, Frames(0), Frames(0));
        let (min_frame_bytes, max_frame_bytes) = (u32::MAX, 0);
        let (md5, bytes) = (Md5::default(), Vec::new());
        Ok(Self {
            encoder,
            renumberer: FrameRenumberer::default(),
            frame: Vec::new(),
            header,
            block,
            filled,
            encoded_frames,
            readable_frames,
            min_frame_bytes,
            max_frame_bytes,
            md5,
            sample_bytes: format.bytes(),
            bytes,
        })
    }

    /// Encodes the block; a shorter block is the last one.
    fn encode_block(&mut self, out: &mut Vec<u8>, last: bool) -> Result<(), EncodeError> {
        let start = out.len();
        self.filled = 0;
        self.frame.clear();
        if last {
            self.encoder.encode_last(&self.block, &mut self.frame)?;
        } else {
            self.encoder.encode(&self.block, &mut self.frame)?;
        }
        self.renumberer.write(&self.frame, out);
        let bytes = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
        (self.min_frame_bytes, self.max_frame_bytes) =
            (self.min_frame_bytes.min(bytes), self.max_frame_bytes.max(bytes));
        self.encoded_frames += self.block.frames();
        // Little endian, in the minimum number of bytes (RFC 9639, section 8.2).
        let integers = &self.encoder.integers()[..self.block.samples().len()];
        self.bytes.clear();
        for integer in integers {
            self.bytes.extend(&integer.to_le_bytes()[..self.sample_bytes]);
        }
        self.md5.add(&self.bytes);
        Ok(())
    }

    fn patch_stream_info(&mut self, patches: &mut Vec<Patch>) {
        self.readable_frames = self.encoded_frames;
        if self.encoded_frames > Frames(0) {
            self.header.info.set_totals(
                self.encoded_frames.0,
                self.min_frame_bytes,
                self.max_frame_bytes,
            );
            patches.push(self.header.stream_info_patch());
        }
    }
}

impl FileEncoder for FlacFileEncoder {
    fn write(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut rest = samples;
        while !rest.is_empty() {
            let space = &mut self.block.samples_mut()[self.filled..];
            let (head_part, later) = rest.split_at(rest.len().min(space.len()));
            space[..head_part.len()].copy_from_slice(head_part);
            self.filled += head_part.len();
            rest = later;
            if self.filled == self.block.samples().len() {
                self.encode_block(out, false)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self, _: &mut Vec<u8>, patches: &mut Vec<Patch>) {
        self.patch_stream_info(patches);
    }

    fn announce_length(&mut self, frames: Frames, patches: &mut Vec<Patch>) {
        // The sizes of the blocks are unknown, which zeros mean.
        self.header.info.set_totals(frames.0, 0, 0);
        patches.push(self.header.stream_info_patch());
    }

    fn finish(
        mut self: Box<Self>,
        out: &mut Vec<u8>,
        patches: &mut Vec<Patch>,
    ) -> Result<(), EncodeError> {
        let frames = Frames::from(self.filled / self.block.layout().channels());
        if frames > Frames(0) {
            self.block.resize(frames);
            self.encode_block(out, true)?;
        }
        self.header.info.set_md5(self.md5.clone().finish());
        self.patch_stream_info(patches);
        Ok(())
    }

    fn frames(&self) -> Frames {
        self.encoded_frames + Frames::from(self.filled / self.block.layout().channels())
    }

    fn readable_frames(&self) -> Frames {
        self.readable_frames
    }

    fn clipped_samples(&self) -> u64 {
        self.encoder.clipped()
    }
}

/// Block size: 4,096 at common rates, as the reference encoder uses; less at low rates, because a
/// kill loses the current block: 100 ms at most.
const fn block_frames(rate: SampleRate) -> Frames {
    let max = rate.hz() as u64 / 10;
    let mut frames = 4_096;
    while frames > max && frames > 16 {
        frames /= 2;
    }
    Frames(frames)
}

/// Space reserved in the header for markers: more than a hundred with short labels. The sidecar has
/// all of them.
const CHAPTER_SPACE_BYTES: usize = 8 << 10;

/// The reference encoder's default: a file is stored for longer than a chunk.
const COMPRESSION_LEVEL: u8 = 5;
