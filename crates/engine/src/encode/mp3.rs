//! Lossy compression (ISO/IEC 11172-3 and 13818-3, layer III) at a constant bit rate.
//!
//! A frame has a length of its own, so that blocks are gathered until one is full, and a payload
//! has none, one or several frames. Each frame stands alone (no bit reservoir), so that a listener
//! can join at any of them.
//!
//! What makes the frames is an [`Mp3FrameEncoder`]: `rusty_mp3` here, LAME in `aulos-io`, which may
//! load libraries. The choice: docs/decisions/mp3-encoder.md.

use core::fmt;

use aulos_core::{Block, Codec, Frames, SampleSpec};
use rusty_mp3::Mp3Encode;
use rusty_mp3::header::FrameHeader;

use super::{
    EncodeError, Encoder, MP3_KBPS, Mp3Config, Mp3Library, UnsupportedFormat, check_block,
};
use crate::codec_guard::{CodecLibrary, GuardedCodec};

/// Makes MP3 frames of a constant bit rate.
pub trait Mp3FrameEncoder: Send {
    /// Encodes one frame: as many samples of each channel as a frame has, all within -1 to 1.
    /// Appends whole frames or parts of them to `out`; a library may be late.
    ///
    /// # Errors
    /// [`EncodeError`] when the library refuses.
    fn encode(&mut self, channels: &[Vec<f32>], out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Delay of the encoder, without that of a decoder.
    fn delay(&self) -> Frames;

    /// See [`Encoder::panics`].
    fn panics(&self) -> u64 {
        0
    }
}

/// MP3 encoder: the frames that are complete with a block.
///
/// Its libraries allocate or are in C: it is not for a real-time thread.
pub struct Mp3Encoder {
    spec: SampleSpec,
    block: Frames,
    shape: Mp3FrameShape,
    library: Box<dyn Mp3FrameEncoder>,
    /// The samples of each channel that wait for their frame.
    channels: Vec<Vec<f32>>,
    /// What the library has put out of a frame that is not complete.
    encoded: Vec<u8>,
    clipped: u64,
    frame_count: u64,
}

/// What the frames of a stream have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mp3FrameShape {
    /// Frames per second.
    pub hz: u32,
    /// Number of channels, 1 or 2.
    pub channels: usize,
    /// Bit rate in kbit/s.
    pub kbps: u32,
}

impl Mp3FrameShape {
    /// The frames of this spec at this bit rate, or the highest that the sample rate permits.
    ///
    /// # Errors
    /// [`UnsupportedFormat`] for another rate than 16, 22.05, 24, 32, 44.1 or 48 kHz, or more than
    /// two channels.
    pub fn new(spec: SampleSpec, config: Mp3Config) -> Result<Self, UnsupportedFormat> {
        let (info, hz, channels) = (Codec::Mp3.info(), spec.rate.hz(), spec.layout.channels());
        if !info.supports_rate(hz) {
            return Err(UnsupportedFormat::Rate(Codec::Mp3));
        }
        if channels > info.max_channels {
            return Err(UnsupportedFormat::Channels(Codec::Mp3));
        }
        Ok(Self { hz, channels, kbps: config.bitrate_at(spec.rate) / 1_000 })
    }

    /// Number of samples of each channel in a frame: 1,152, with MPEG 2 half of it.
    #[must_use]
    pub const fn frames(self) -> Frames {
        Frames(self.length() as u64)
    }

    const fn length(self) -> u32 {
        if self.hz < Mp3Config::MPEG_1_HZ { 576 } else { 1_152 }
    }

    /// Length of a frame without padding, in bytes, and the remainder that padding makes up for.
    const fn bytes(self) -> (usize, u32) {
        let bits = self.length() / 8 * self.kbps * 1_000;
        ((bits / self.hz) as usize, bits % self.hz)
    }

    /// Length of the frame that begins with these bytes; `None` if it is none of this stream.
    fn frame_bytes(self, begin: [u8; 4]) -> Option<usize> {
        let [sync, version, rates, mode] = begin;
        // MPEG 1 or 2 (the fourth bit), layer III, no checksum.
        let (expected, table, hz) = match self.length() {
            576 => (0xf3, &MPEG_2_KBPS, self.hz * 2),
            _ => (0xfb, &MP3_KBPS, self.hz),
        };
        let kbps = usize::from(rates >> 4).checked_sub(1).and_then(|row| table.get(row));
        let same = sync == 0xff
            && version == expected
            && kbps == Some(&self.kbps)
            && RATES.get(usize::from(rates >> 2 & 3)) == Some(&hz)
            && (mode >> 6 == 3) == (self.channels == 1);
        same.then(|| self.bytes().0 + usize::from(rates >> 1 & 1))
    }
}

impl Mp3Encoder {
    /// An encoder of blocks of exactly `block` frames by `rusty_mp3`. The format of `spec` is that
    /// of the decoder's output and does not matter here.
    ///
    /// # Errors
    /// As [`Mp3FrameShape::new`]; [`UnsupportedFormat::Library`] where LAME is asked for.
    pub fn new(
        spec: SampleSpec,
        block: Frames,
        config: Mp3Config,
    ) -> Result<Self, UnsupportedFormat> {
        let shape = Mp3FrameShape::new(spec, config)?;
        if config.library == Mp3Library::Lame {
            return Err(UnsupportedFormat::Library(Codec::Mp3));
        }
        Ok(Self::with_library(spec, block, shape, Box::new(BuiltinLibrary::new(shape)?)))
    }

    /// The same by another library, which encodes frames of `shape`.
    #[must_use]
    pub fn with_library(
        spec: SampleSpec,
        block: Frames,
        shape: Mp3FrameShape,
        library: Box<dyn Mp3FrameEncoder>,
    ) -> Self {
        let channels = vec![Vec::with_capacity(shape.frames().as_usize()); shape.channels];
        let encoded = Vec::with_capacity(MAX_PENDING_BYTES);
        Self { spec, block, shape, library, channels, encoded, clipped: 0, frame_count: 0 }
    }

    /// Encodes interleaved frames, any number of them, and appends the MP3 frames that are
    /// complete.
    ///
    /// # Errors
    /// [`EncodeError::Codec`] when the library refuses or puts out something else than frames of
    /// this stream; the samples of that frame are lost.
    pub fn encode_samples(
        &mut self,
        samples: &[f32],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let length = self.shape.frames().as_usize();
        for frame in samples.chunks_exact(self.shape.channels) {
            for (channel, &sample) in self.channels.iter_mut().zip(frame) {
                // The comparison is false for what is not a number.
                self.clipped += u64::from(sample.abs() > 1.0);
                let finite = if sample.is_nan() { 0.0 } else { sample };
                channel.push(finite.clamp(-1.0, 1.0));
            }
            if self.channels.first().is_some_and(|channel| channel.len() >= length) {
                let encoded = self.library.encode(&self.channels, &mut self.encoded);
                self.channels.iter_mut().for_each(Vec::clear);
                encoded
                    .and_then(|()| self.take_frames(out))
                    .inspect_err(|_| self.encoded.clear())?;
            }
        }
        Ok(())
    }

    /// What the frames have in common.
    #[must_use]
    pub const fn shape(&self) -> Mp3FrameShape {
        self.shape
    }

    /// Number of MP3 frames so far.
    #[must_use]
    pub const fn frame_count(&self) -> u64 {
        self.frame_count
    }

    /// Delay of the encoder, without the 529 frames of a decoder.
    #[must_use]
    pub fn delay(&self) -> Frames {
        self.library.delay()
    }

    /// Moves complete frames to `out`, and checks that they are frames of this stream.
    fn take_frames(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut taken = 0;
        while let Some(begin) = self.encoded.get(taken..).and_then(<[u8]>::first_chunk) {
            let length = self.shape.frame_bytes(*begin).ok_or(EncodeError::Codec)?;
            let Some(frame) = self.encoded.get(taken..taken + length) else { break };
            out.extend_from_slice(frame);
            taken += length;
            self.frame_count += 1;
        }
        self.encoded.drain(..taken);
        if self.encoded.len() > MAX_PENDING_BYTES { Err(EncodeError::Codec) } else { Ok(()) }
    }
}

impl Encoder for Mp3Encoder {
    fn codec(&self) -> Codec {
        Codec::Mp3
    }

    fn spec(&self) -> SampleSpec {
        self.spec
    }

    fn encode(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        check_block(block, self.spec, self.block)?;
        self.encode_samples(block.samples(), out)
    }

    fn clipped(&self) -> u64 {
        self.clipped
    }

    fn panics(&self) -> u64 {
        self.library.panics()
    }
}

impl fmt::Debug for Mp3Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mp3").field("shape", &self.shape).field("block", &self.block).finish()
    }
}

/// `rusty_mp3`, frame by frame: its stream-level encoder keeps every frame until the end.
struct BuiltinLibrary {
    encoder: GuardedCodec<Box<Mp3Encode>>,
    header: FrameHeader,
    /// Length without padding and the remainder of each frame, in `hz`ths of a byte.
    step: (usize, u32),
    /// What frames without padding are short of.
    owed: u32,
}

impl BuiltinLibrary {
    fn new(shape: Mp3FrameShape) -> Result<Self, UnsupportedFormat> {
        let channels = if shape.channels == 1 { 1 } else { 2 };
        let header = rusty_mp3::encoder_header(shape.hz, channels, shape.kbps)
            .map_err(|_| UnsupportedFormat::Rate(Codec::Mp3))?;
        let make = || Some(Box::new(Mp3Encode::new()));
        let encoder = GuardedCodec::new(CodecLibrary::RustyMp3, make)
            .ok_or(UnsupportedFormat::Rate(Codec::Mp3))?;
        Ok(Self { encoder, header, step: shape.bytes(), owed: 0 })
    }
}

impl Mp3FrameEncoder for BuiltinLibrary {
    fn encode(&mut self, channels: &[Vec<f32>], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (bytes, remainder) = self.step;
        self.owed += remainder;
        self.header.padding = self.owed >= self.header.sample_rate;
        if self.header.padding {
            self.owed -= self.header.sample_rate;
        }
        let header = &self.header;
        let frame = self.encoder.call_again(|encoder| encoder.encode_frame(header, channels, None));
        let frame = frame.ok().and_then(Result::ok).ok_or(EncodeError::Codec)?;
        if frame.len() != bytes + usize::from(self.header.padding) {
            return Err(EncodeError::Codec);
        }
        out.extend_from_slice(&frame);
        Ok(())
    }

    fn delay(&self) -> Frames {
        BUILTIN_DELAY
    }

    fn panics(&self) -> u64 {
        self.encoder.panics()
    }
}

/// The bit rates of MPEG 2 in kbit/s, and the sample rates of MPEG 1 in Hz, by their numbers in a
/// frame's header (ISO/IEC 13818-3, 2.4.2.3, and 11172-3, 2.4.2.3).
const MPEG_2_KBPS: [u32; 14] = [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];
const RATES: [u32; 3] = [44_100, 48_000, 32_000];

/// Overlap of the filters; measured by correlation, and what the library states in its own files.
const BUILTIN_DELAY: Frames = Frames(528);

/// More than a library may hold back: the longest frame, of 320 kbit/s at 32 kHz, has 1,441 bytes.
const MAX_PENDING_BYTES: usize = 4 * 1_441;

#[cfg(test)]
mod tests;
