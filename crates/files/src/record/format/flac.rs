//! FLAC: blocks of a fixed length, and a shorter one at the end.

use aulos_core::{Block, Frames, SampleFormat, SampleRate};
use aulos_engine::encode::{EncodeError, Encoder, FlacEncoder, UnsupportedFormat};
use aulos_proto::Patch;
use aulos_proto::flac::{Chapters, FlacFileHeader, Md5, StreamInfo};

use super::super::marker::{MAX_LABEL, MAX_MARKERS};
use super::{About, Framer};

/// A FLAC file in the making.
#[derive(Debug)]
pub(super) struct FlacFramer {
    encoder: FlacEncoder,
    head: FlacFileHeader,
    block: Block,
    /// Samples of the block that are filled.
    filled: usize,
    /// In FLAC frames, and told in the head.
    encoded: Frames,
    readable: Frames,
    smallest: u32,
    largest: u32,
    /// Of the samples as they are encoded.
    sum: Md5,
    /// Bytes of a sample.
    width: usize,
    bytes: Vec<u8>,
}

impl FlacFramer {
    pub(super) fn open(
        bits: u16,
        about: &About,
        out: &mut Vec<u8>,
    ) -> Result<Self, UnsupportedFormat> {
        let format = match bits {
            16 => SampleFormat::S16Le,
            24 => SampleFormat::S24Le,
            _ => return Err(UnsupportedFormat::Format(aulos_core::Codec::Flac)),
        };
        let (rate, layout, length) = (about.rate, about.layout, block(about.rate));
        let encoder = FlacEncoder::for_file(about.spec(format), length, LEVEL)?;
        // The encoder's own header is the magic and STREAMINFO.
        let info = encoder.header().get(8..).and_then(StreamInfo::parse);
        let info = info.ok_or(UnsupportedFormat::Rate(aulos_core::Codec::Flac))?;
        let comments = about.comments();
        let comments = comments.iter().map(|(name, text)| (*name, &**text));
        let head = FlacFileHeader::begin(info, comments, CHAPTERS, out);
        let mut block = Block::with_capacity(rate, layout, length.as_usize() * layout.channels());
        block.resize(length);
        let (filled, encoded, readable) = (0, Frames(0), Frames(0));
        let (smallest, largest) = (u32::MAX, 0);
        let (sum, bytes) = (Md5::default(), Vec::new());
        Ok(Self {
            encoder,
            head,
            block,
            filled,
            encoded,
            readable,
            smallest,
            largest,
            sum,
            width: format.bytes(),
            bytes,
        })
    }

    /// Encodes the block, which is the last one if it is shorter than it should be.
    fn encode(&mut self, out: &mut Vec<u8>, last: bool) -> Result<(), EncodeError> {
        let start = out.len();
        self.filled = 0;
        if last {
            self.encoder.encode_last(&self.block, out)?;
        } else {
            self.encoder.encode(&self.block, out)?;
        }
        let bytes = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
        (self.smallest, self.largest) = (self.smallest.min(bytes), self.largest.max(bytes));
        self.encoded += self.block.frames();
        // Little endian, in as many bytes as they need (RFC 9639, section 8.2).
        let integers = &self.encoder.integers()[..self.block.samples().len()];
        self.bytes.clear();
        for integer in integers {
            self.bytes.extend(&integer.to_le_bytes()[..self.width]);
        }
        self.sum.add(&self.bytes);
        Ok(())
    }

    fn tell(&mut self, patches: &mut Vec<Patch>) {
        self.readable = self.encoded;
        if self.encoded > Frames(0) {
            self.head.info.set_totals(self.encoded.0, self.smallest, self.largest);
            patches.push(self.head.stream_info_patch());
        }
    }
}

impl Framer for FlacFramer {
    fn write(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut rest = samples;
        while !rest.is_empty() {
            let room = &mut self.block.samples_mut()[self.filled..];
            let (now, later) = rest.split_at(rest.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            self.filled += now.len();
            rest = later;
            if self.filled == self.block.samples().len() {
                self.encode(out, false)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self, _: &mut Vec<u8>, patches: &mut Vec<Patch>) {
        self.tell(patches);
    }

    fn finish(
        mut self: Box<Self>,
        out: &mut Vec<u8>,
        patches: &mut Vec<Patch>,
    ) -> Result<(), EncodeError> {
        let frames = Frames::from(self.filled / self.block.layout().channels());
        if frames > Frames(0) {
            self.block.resize(frames);
            self.encode(out, true)?;
        }
        self.head.info.set_md5(self.sum.clone().finish());
        self.tell(patches);
        Ok(())
    }

    fn frames(&self) -> Frames {
        self.encoded + Frames::from(self.filled / self.block.layout().channels())
    }

    fn readable(&self) -> Frames {
        self.readable
    }

    fn clipped(&self) -> u64 {
        self.encoder.clipped()
    }
}

/// The reference encoder's 4,096 at the rates of music; at low ones less, since a block that has
/// begun is lost when its writer is killed: 100 ms at most.
const fn block(rate: SampleRate) -> Frames {
    let most = rate.hz() as u64 / 10;
    let mut frames = 4_096;
    while frames > most && frames > 16 {
        frames /= 2;
    }
    Frames(frames)
}

/// Room in the head for as many markers as a file can have.
const CHAPTERS: usize = MAX_MARKERS * (Chapters::FIXED + MAX_LABEL);

/// What the reference encoder does when it is not told: a file is kept longer than a chunk.
const LEVEL: u8 = 5;
