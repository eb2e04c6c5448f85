//! Lossless compression (RFC 9639), by `flac-codec`.

use core::fmt;
use core::ops::RangeInclusive;

use aulos_core::{Block, Codec, Frames, SampleFormat, SampleRate, SampleSpec};
use aulos_dsp::Dither;
use flac_codec::encode::{FlacStreamWriter, Options};

use super::encoder::{EncodeError, Encoder, UnsupportedFormat, check_block};
use super::settings::{CodecConfigError, CodecSettings};
use super::shared_buffer::{BufferReader, BufferWriter, shared_buffer};
use crate::codec_guard::{CodecLibrary, GuardedCodec};

/// Settings of the FLAC encoder. Prints as its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a plain record of settings")]
pub struct FlacConfig {
    /// Compression level, 0 (least work) to 8 (smallest).
    pub level: u8,
}

/// FLAC encoder: one whole frame per block.
///
/// The frames have a fixed block size and count from 0, and each one states its rate, channels and
/// bits: the header followed by the frames from any one on is a valid stream. After a panic of the
/// library they count from 0 again; a file needs numbers of its own. Samples that are not integers
/// of the format are dithered ([`Dither`]).
pub struct FlacEncoder {
    spec: SampleSpec,
    block: Frames,
    bits: u16,
    header: [u8; HEADER_BYTES],
    library: GuardedCodec<FrameWriter>,
    dither: Dither,
    integers: Vec<i32>,
    clipped: u64,
}

impl FlacEncoder {
    /// The default compression level.
    pub const DEFAULT_LEVEL: u8 = DEFAULT_LEVEL;

    /// An encoder of blocks of exactly `block` frames. `level` is 0 (least work) to 8 (smallest);
    /// 3 and more use linear prediction.
    ///
    /// # Errors
    /// [`UnsupportedFormat`] for other than 16 or 24 bits, more than eight channels, a block that
    /// is not 16 to 65,535 frames long, or a rate that a frame header cannot state.
    pub fn new(spec: SampleSpec, block: Frames, level: u8) -> Result<Self, UnsupportedFormat> {
        let mut flac = Self::for_file(spec, block, level)?;
        flac.warm_up();
        Ok(flac)
    }

    /// The same, with frames that count from exactly 0, which players use to seek. So nothing is
    /// encoded in advance: the first blocks allocate, and so does any that is harder to compress
    /// than all before it.
    ///
    /// # Errors
    /// As [`FlacEncoder::new`].
    pub fn for_file(spec: SampleSpec, block: Frames, level: u8) -> Result<Self, UnsupportedFormat> {
        let bits = match spec.format {
            SampleFormat::S16Le => 16,
            SampleFormat::S24Le | SampleFormat::S24In32Le => 24,
            _ => return Err(UnsupportedFormat::Format(Codec::Flac)),
        };
        if spec.layout.channels() > MAX_CHANNELS {
            return Err(UnsupportedFormat::Channels(Codec::Flac));
        }
        let length = u16::try_from(block.0)
            .ok()
            .filter(|&length| length >= MIN_BLOCK)
            .ok_or(UnsupportedFormat::BlockLength(Codec::Flac))?;
        if !fits_frame_header(spec.rate) {
            return Err(UnsupportedFormat::Rate(Codec::Flac));
        }
        let samples = block.as_usize() * spec.layout.channels();
        // An incompressible frame is stored verbatim, with one extra bit for a difference.
        let capacity = samples * 4 + FRAME_OVERHEAD;
        let library = GuardedCodec::new(CodecLibrary::FlacCodec, move || {
            let (writer, encoded) = shared_buffer(capacity);
            Some(FrameWriter { writer: FlacStreamWriter::new(writer, options(level)), encoded })
        });
        Ok(Self {
            spec,
            block,
            bits,
            header: stream_header(spec, length, bits),
            library: library.ok_or(UnsupportedFormat::Format(Codec::Flac))?,
            dither: Dither::default(),
            integers: vec![0; samples],
            clipped: 0,
        })
    }

    /// Encodes the end of the audio: the only block that may be shorter.
    ///
    /// # Errors
    /// As [`Encoder::encode`]; [`EncodeError::Shape`] for an empty block, too.
    pub fn encode_last(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let frames = block.frames();
        if frames > self.block || frames == Frames(0) {
            return Err(EncodeError::Shape);
        }
        check_block(block, self.spec, frames)?;
        self.integers.truncate(block.samples().len());
        let encoded = self.encode_samples(block.samples(), out);
        self.integers.resize(self.block.as_usize() * self.spec.layout.channels(), 0);
        encoded
    }

    /// The integers of a whole block, interleaved, as [`Encoder::encode`] would encode them.
    ///
    /// # Errors
    /// [`EncodeError::Shape`].
    pub fn quantize(&mut self, block: &Block) -> Result<&[i32], EncodeError> {
        check_block(block, self.spec, self.block)?;
        self.fill_integers(block.samples());
        Ok(&self.integers)
    }

    fn fill_integers(&mut self, samples: &[f32]) {
        self.clipped += self.dither.to_integers(self.bits, samples, &mut self.integers) as u64;
    }

    /// The integers of the last encoded block, interleaved; after a short last block they are
    /// zero. Checksums of a file are computed from them, because dither makes them impossible to
    /// derive from the input.
    #[must_use]
    pub fn integers(&self) -> &[i32] {
        &self.integers
    }

    fn encode_samples(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.fill_integers(samples);
        self.write(|encoded| encoded.drain_into(out))
    }

    /// Encodes and discards noise of every level, smooth and with peaks, identical and different in
    /// the channels, and silence. The library's buffers grow with the least compressible block of
    /// each kind so far, and that must not happen on a station's thread. Frame numbers start a
    /// little above 0 as a result.
    fn warm_up(&mut self) {
        let channels = self.spec.layout.channels();
        let mut noise = 1u32;
        for shift in 0..self.bits {
            for (peak_every, same) in [(1, false), (61, false), (1, true)] {
                for (index, integer) in self.integers.iter_mut().enumerate() {
                    if !same || index % channels == 0 {
                        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    }
                    let quiet = if index % peak_every == 0 { 0 } else { 8 };
                    let loud = u32::from(32 - self.bits) + u32::from(shift) + quiet;
                    *integer = noise.cast_signed() >> loud.min(31);
                }
                self.discard();
            }
        }
        self.integers.fill(0);
        self.discard();
    }

    fn discard(&mut self) {
        // A write error here occurs later as well, and is reported then.
        self.write(BufferReader::clear).ok();
    }

    /// Encodes the integers, and passes the frame to `take`.
    fn write(&mut self, mut take: impl FnMut(&BufferReader)) -> Result<(), EncodeError> {
        #[allow(clippy::cast_possible_truncation, reason = "at most eight")]
        let channels = self.spec.layout.channels() as u8;
        let (rate, bits, integers) = (self.spec.rate.hz(), self.bits.into(), &self.integers);
        let written = self.library.call_again(|FrameWriter { writer, encoded }| {
            encoded.clear();
            writer.write(rate, channels, bits, integers).map(|()| take(encoded))
        });
        written.ok().and_then(Result::ok).ok_or(EncodeError::Codec)
    }
}

/// The library's writer, and the buffer that it writes to.
struct FrameWriter {
    writer: FlacStreamWriter<BufferWriter>,
    encoded: BufferReader,
}

impl CodecSettings for FlacConfig {
    const CODEC: Codec = Codec::Flac;

    fn with_options(self, options: &str) -> Result<Self, CodecConfigError> {
        let level = options.parse().ok().filter(|level| LEVELS.contains(level));
        level.map(|level| Self { level }).ok_or(LEVEL)
    }

    fn bitrate(self, _: SampleSpec) -> Option<u32> {
        None
    }

    fn make_encoder(
        self,
        spec: SampleSpec,
        block: Frames,
    ) -> Result<Box<dyn Encoder>, UnsupportedFormat> {
        Ok(Box::new(FlacEncoder::new(spec, block, self.level)?))
    }
}

impl Default for FlacConfig {
    fn default() -> Self {
        Self { level: DEFAULT_LEVEL }
    }
}

impl fmt::Display for FlacConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.level.fmt(f)
    }
}

impl Encoder for FlacEncoder {
    fn codec(&self) -> Codec {
        Codec::Flac
    }

    fn spec(&self) -> SampleSpec {
        self.spec
    }

    fn header(&self) -> &[u8] {
        &self.header
    }

    fn clipped(&self) -> u64 {
        self.clipped
    }

    fn panics(&self) -> u64 {
        self.library.panics()
    }

    fn encode(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        check_block(block, self.spec, self.block)?;
        self.encode_samples(block.samples(), out)
    }
}

impl fmt::Debug for FlacEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flac").field("spec", &self.spec).field("block", &self.block).finish()
    }
}

/// The settings of the reference encoder's levels, as far as the library has them.
fn options(level: u8) -> Options {
    let fast = Options::fast();
    let (lpc, partitions, both_ways, quick) = match level {
        0 => (None, 3, false, true),
        1 => (None, 3, true, true),
        2 => (None, 3, true, false),
        3 => (Some(6), 4, true, true),
        4 => (Some(8), 4, true, true),
        5 => (Some(8), 5, true, false),
        6 => (Some(8), 6, true, false),
        _ => (Some(12), 6, true, false),
    };
    let options = fast.clone().mid_side(both_ways).fast_channel_correlation(quick);
    // Both limits are far inside the library's ranges; if they ever were not, the fastest settings
    // still give a valid stream.
    options
        .max_lpc_order(lpc)
        .and_then(|options| options.max_partition_order(partitions))
        .unwrap_or(fast)
}

/// Whether a frame can be read without the stream's header: its rate is in kHz, in Hz or in tens
/// of Hz, in 8, 16 and 16 bits (RFC 9639, section 9.1.2).
const fn fits_frame_header(rate: SampleRate) -> bool {
    let hz = rate.hz();
    hz < 65_535 || (hz.is_multiple_of(10) && hz < 655_350)
}

/// `fLaC` and a STREAMINFO (RFC 9639, section 8.2) for a stream without an end.
fn stream_header(spec: SampleSpec, block: u16, bits: u16) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(b"fLaC");
    // The last metadata block, of type 0, 34 bytes long.
    header[4..8].copy_from_slice(&[0x80, 0, 0, 34]);
    header[8..10].copy_from_slice(&block.to_be_bytes());
    header[10..12].copy_from_slice(&block.to_be_bytes());
    // The smallest and the largest frame in bytes: 0, not known.
    // 20 bits rate, 3 bits channels - 1, 5 bits bits - 1, 36 bits of length: 0, not known.
    let channels = spec.layout.channels() as u64;
    let packed = u64::from(spec.rate.hz()) << 44 | (channels - 1) << 41 | u64::from(bits - 1) << 36;
    header[18..26].copy_from_slice(&packed.to_be_bytes());
    // The MD5 of the sound: 0, not known.
    header
}

const HEADER_BYTES: usize = 42;
const MAX_CHANNELS: usize = 8;
const MIN_BLOCK: u16 = 16;

/// Frame header, subframe headers, CRC, rounding up, for eight channels.
const FRAME_OVERHEAD: usize = 256;

pub(super) const LEVEL: CodecConfigError = CodecConfigError::setting(
    "the compression level of flac is an integer from 0 to 8",
    "use flac:0 (least CPU) to flac:8 (smallest), or `flac` alone",
);

/// The levels that FLAC encoders have in common.
const LEVELS: RangeInclusive<u8> = 0..=8;

/// Linear prediction without the search of level 5: 13 to 21 % smaller than fixed predictors
/// (level 2) on music, for a fifth more work; see docs/decisions/flac-level.md.
const DEFAULT_LEVEL: u8 = 4;
