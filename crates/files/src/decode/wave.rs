//! Reads WAVE files of PCM samples without a container library.
//!
//! A scan mostly reads them: large aligned blocks, one conversion, and any frame can be accessed
//! directly. The library also refuses RF64, which every file beyond 4 GB uses. A memory map would
//! crash the process if the file were truncated (`docs/decisions/audio-decoders.md`).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use aulos_core::{ChannelLayout, Frames, SampleFormat, SampleRate};
use aulos_dsp::convert;
use aulos_proto::wav::{self, ParseOutcome, WavSampleFormat, WaveInfo};

use super::error::{FileDecodeError, OpenError};
use super::media::PacketOutcome;
use super::sizes::{ChunkKind, audio_end, tags_start};

/// An open WAVE file with a position. A clone has a position of its own in the same file.
#[derive(Clone, Debug)]
pub struct WaveFile {
    file: Arc<File>,
    wave: WaveInfo,
    /// Offsets in the file: the next byte to read, and the end of the audio.
    at: u64,
    end: u64,
    /// Whether the file is shorter than its header says.
    is_cut: bool,
    /// The length in the header, if the file contradicts it.
    stated: Option<Frames>,
    /// Bytes read but not yet returned: `bytes[from..to]`.
    bytes: Vec<u8>,
    from: usize,
    to: usize,
    samples_f32: Vec<f32>,
    samples_i32: Vec<i32>,
    samples_f64: Vec<f64>,
}

/// Interleaved samples without loss of precision.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_enums, reason = "what WAVE has")]
pub enum SampleRun<'a> {
    /// Integers up to 24 bits, and 32-bit floats.
    F32(&'a [f32]),
    /// 32-bit integers.
    I32(&'a [i32]),
    /// 64-bit floats.
    F64(&'a [f64]),
}

impl SampleRun<'_> {
    /// The number of samples of all channels.
    #[must_use]
    pub const fn samples(&self) -> usize {
        match self {
            Self::F32(run) => run.len(),
            Self::I32(run) => run.len(),
            Self::F64(run) => run.len(),
        }
    }
}

impl WaveFile {
    /// Opens `path`; `None` when it is not WAVE, or is compressed WAVE.
    ///
    /// # Errors
    /// [`OpenError`] when the file cannot be read.
    pub fn open(path: &Path) -> Result<Option<Self>, OpenError> {
        // Without it, opening a FIFO would wait for a writer.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(OpenError::NotAFile);
        }
        Ok(Self::from_file(file)?)
    }

    pub(crate) fn from_file(file: File) -> io::Result<Option<Self>> {
        let size = file.metadata()?.len();
        let Some(wave) = read_wave_header(&file)? else { return Ok(None) };
        let start = wave.data_offset as u64;
        let frame = wave.frame_bytes() as u64;
        let end = match wave.data_bytes {
            Some(stated) => audio_end(&file, ChunkKind::Riff, start, stated)?,
            None => tags_start(&file, start.min(size), size)?,
        };
        // An incomplete frame at the end is ignored.
        let end = end.max(start);
        let end = end - (end - start) % frame;
        let stated = wave.data_bytes.map(|bytes| Frames(bytes / frame));
        let stated = stated.filter(|stated| stated.0 != (end - start) / frame);
        let cut = stated.is_some_and(|stated| stated.0 > (end - start) / frame);
        rustix::fs::fadvise(&file, start, None, rustix::fs::Advice::Sequential).ok();
        Ok(Some(Self {
            file: Arc::new(file),
            wave,
            at: start,
            end,
            is_cut: cut,
            stated,
            bytes: Vec::new(),
            from: 0,
            to: 0,
            samples_f32: Vec::new(),
            samples_i32: Vec::new(),
            samples_f64: Vec::new(),
        }))
    }

    /// Frames per second.
    #[must_use]
    pub const fn rate(&self) -> SampleRate {
        self.wave.rate
    }

    /// The channels.
    #[must_use]
    pub const fn layout(&self) -> ChannelLayout {
        self.wave.layout
    }

    /// The loudspeaker of each channel as a WAVE channel mask, if the file has one.
    #[must_use]
    pub const fn speakers(&self) -> Option<u32> {
        self.wave.channel_mask
    }

    /// The number of complete frames.
    #[must_use]
    pub const fn frames(&self) -> Frames {
        Frames((self.end - self.wave.data_offset as u64) / self.wave.frame_bytes() as u64)
    }

    /// Whether the file is shorter than its header says.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The length in the header, if the file contradicts it.
    #[must_use]
    pub const fn contradicted_frames(&self) -> Option<Frames> {
        self.stated
    }

    /// Seeks to `frame`, or to the end if it is beyond.
    pub fn seek(&mut self, frame: Frames) {
        let frame = frame.0.min(self.frames().0);
        self.at = self.wave.data_offset as u64 + frame * self.wave.frame_bytes() as u64;
        (self.from, self.to) = (0, 0);
    }

    /// The next frames, at most `most` of them; `None` at the end.
    ///
    /// # Errors
    /// [`FileDecodeError::Io`]. A file that shrinks meanwhile ends early, and [`WaveFile::is_cut`]
    /// is then true.
    pub fn next(&mut self, most: Frames) -> Result<Option<SampleRun<'_>>, FileDecodeError> {
        let frame = self.wave.frame_bytes();
        if self.to - self.from < frame && !self.read()? {
            return Ok(None);
        }
        let most = usize::try_from(most.0).unwrap_or(usize::MAX);
        let channels = self.wave.layout.channels();
        let count = ((self.to - self.from) / frame).min(most).min(RUN_SAMPLES.div_ceil(channels));
        let bytes = &self.bytes[self.from..self.from + count * frame];
        self.from += bytes.len();
        let samples = count * channels;
        Ok(Some(match self.wave.sample_format {
            WavSampleFormat::Native(SampleFormat::S32Le) => {
                fill(&mut self.samples_i32, bytes, i32::from_le_bytes);
                SampleRun::I32(&self.samples_i32)
            }
            WavSampleFormat::Native(SampleFormat::F32) => {
                fill(&mut self.samples_f32, bytes, f32::from_le_bytes);
                SampleRun::F32(&self.samples_f32)
            }
            WavSampleFormat::Native(format) => {
                self.samples_f32.resize(samples, 0.0);
                convert::decode(format, bytes, &mut self.samples_f32);
                SampleRun::F32(&self.samples_f32)
            }
            WavSampleFormat::F64 => {
                fill(&mut self.samples_f64, bytes, f64::from_le_bytes);
                SampleRun::F64(&self.samples_f64)
            }
        }))
    }

    /// Replaces `out` with the next frames, converted to f32.
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "rounded")]
    pub(super) fn decode(&mut self, out: &mut Vec<f32>) -> Result<PacketOutcome, FileDecodeError> {
        out.clear();
        let end = if self.is_cut { PacketOutcome::TruncatedEnd } else { PacketOutcome::End };
        match self.next(Frames(u64::MAX))? {
            Some(SampleRun::F32(run)) => out.extend_from_slice(run),
            Some(SampleRun::I32(run)) => {
                out.extend(run.iter().map(|&n| n as f32 / 2_147_483_648.0));
            }
            Some(SampleRun::F64(run)) => out.extend(run.iter().map(|&x| x as f32)),
            None => return Ok(end),
        }
        Ok(PacketOutcome::Frames)
    }

    /// The codec's short name.
    pub(super) const fn codec(&self) -> &'static str {
        match self.wave.sample_format {
            WavSampleFormat::Native(SampleFormat::U8) => "pcm_u8",
            WavSampleFormat::Native(SampleFormat::S16Le) => "pcm_s16le",
            WavSampleFormat::Native(SampleFormat::S24Le) => "pcm_s24le",
            WavSampleFormat::Native(SampleFormat::F32) => "pcm_f32le",
            WavSampleFormat::Native(_) => "pcm_s32le",
            WavSampleFormat::F64 => "pcm_f64le",
        }
    }

    pub(super) const fn bits(&self) -> u32 {
        match self.wave.sample_format {
            WavSampleFormat::Native(format) => format.bits() as u32,
            WavSampleFormat::F64 => 64,
        }
    }

    /// Reads the next block behind the incomplete rest of a frame. `false` at the end.
    fn read(&mut self) -> Result<bool, FileDecodeError> {
        self.bytes.resize(READ_BYTES + 64 * 8, 0);
        self.bytes.copy_within(self.from..self.to, 0);
        let left = self.to - self.from;
        (self.from, self.to) = (0, left);
        // Up to the next multiple, so that all blocks except the first are aligned.
        let room = READ_BYTES as u64 - self.at % READ_BYTES as u64;
        let want = usize::try_from(room.min(self.end - self.at)).unwrap_or(READ_BYTES);
        while self.to < left + want {
            match self.file.read_at(&mut self.bytes[self.to..left + want], self.at) {
                Ok(0) => {
                    (self.end, self.is_cut) = (self.at, true);
                    break;
                }
                Ok(count) => {
                    self.to += count;
                    self.at += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.to >= self.wave.frame_bytes())
    }
}

fn fill<const N: usize, T>(out: &mut Vec<T>, bytes: &[u8], convert: impl Fn([u8; N]) -> T) {
    out.clear();
    out.extend(bytes.as_chunks().0.iter().map(|chunk| convert(*chunk)));
}

/// Parses the header of the file.
fn read_wave_header(file: &File) -> io::Result<Option<WaveInfo>> {
    let read = read_header(file, |bytes| match wav::parse(bytes) {
        Ok(ParseOutcome::Complete(wave)) => Some(Ok(wave)),
        Ok(ParseOutcome::Incomplete { needed }) => Some(Err(needed)),
        Err(_) => None,
    });
    Ok(match read? {
        HeaderParse::Parsed(_, wave) => Some(wave),
        HeaderParse::Truncated | HeaderParse::Unrecognized => None,
    })
}

/// The result of parsing a header.
pub(crate) enum HeaderParse<T> {
    /// The header, and its bytes.
    Parsed(Vec<u8>, T),
    /// The file ends within the header.
    Truncated,
    /// An unknown format.
    Unrecognized,
}

/// Reads as much of the header of `file` as `parse` needs. `parse` returns `Err` with the number of
/// bytes that it needs, or `None` for an unknown format; it has to limit that number.
pub(crate) fn read_header<T>(
    file: &File,
    parse: impl Fn(&[u8]) -> Option<Result<T, usize>>,
) -> io::Result<HeaderParse<T>> {
    let mut bytes = vec![0; FIRST_READ_BYTES];
    let mut known = 0;
    loop {
        while known < bytes.len() {
            match file.read_at(&mut bytes[known..], known as u64) {
                Ok(0) => break,
                Ok(count) => known += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        match parse(&bytes[..known]) {
            Some(Ok(found)) => {
                bytes.truncate(known);
                return Ok(HeaderParse::Parsed(bytes, found));
            }
            Some(Err(needed)) if known == bytes.len() => bytes.resize(needed, 0),
            Some(Err(_)) => return Ok(HeaderParse::Truncated),
            None => return Ok(HeaderParse::Unrecognized),
        }
    }
}

/// The size and the alignment of reads.
const READ_BYTES: usize = 256 * 1024;

/// Samples converted at a time: they fit the L2 cache, and the meter is faster with long runs.
const RUN_SAMPLES: usize = 16_384;

/// Most headers are shorter.
const FIRST_READ_BYTES: usize = 4_096;
