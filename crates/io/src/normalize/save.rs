//! A file of sound that is there whole, or not at all.
//!
//! It is written beside its place under another name and takes the place at the end, so that
//! whoever looks, and whoever kills us, finds the old file or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use aulos_core::{ChannelLayout, SampleFormat, SampleRate, SampleSpec};
use aulos_dsp::convert;
use flac_codec::encode::{FlacSampleWriter, Options};

/// What a file is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Container {
    /// WAVE.
    Wave,
    /// FLAC.
    Flac,
}

impl Container {
    /// By the ending of a name; `None` for one that we cannot write.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        match ending.as_str() {
            "wav" | "wave" => Some(Self::Wave),
            "flac" => Some(Self::Flac),
            _ => None,
        }
    }

    /// The sample format that comes nearest to what came in.
    pub(super) fn format(self, codec: &str, bits: Option<u32>) -> SampleFormat {
        let float = codec.contains("f32") || codec.contains("f64");
        match (self, bits) {
            (Self::Wave, _) if float => SampleFormat::F32,
            (Self::Wave, Some(25..=32)) => SampleFormat::S32Le,
            (_, Some(1..=16)) => SampleFormat::S16Le,
            // Lossy codecs have no bits; 24 hide nothing of them.
            _ => SampleFormat::S24Le,
        }
    }
}

/// A file under way.
pub(super) struct SoundFile {
    writer: Option<Writer>,
    file: File,
    part: PathBuf,
    path: PathBuf,
    dither: Option<Dither>,
    scratch: Vec<f32>,
}

enum Writer {
    Wave(Wave),
    Flac(Box<FlacSampleWriter<BufWriter<File>>>, Vec<i32>, u32),
}

/// What is to be written.
pub(super) struct Form {
    pub(super) container: Container,
    pub(super) spec: SampleSpec,
    /// The loudspeaker of each channel, as in WAVE's mask.
    pub(super) speakers: Option<u32>,
    /// Whether samples of 16 bits are dithered: those that have been changed.
    pub(super) dither: bool,
}

impl SoundFile {
    pub(super) fn create(path: &Path, form: &Form) -> io::Result<Self> {
        let part = beside(path);
        let file = OpenOptions::new().write(true).create_new(true).open(&part)?;
        let mut new = Self {
            writer: None,
            file: file.try_clone()?,
            part,
            path: path.to_owned(),
            dither: (form.dither && form.spec.format == SampleFormat::S16Le).then(Dither::default),
            scratch: Vec::new(),
        };
        // From here on, dropping removes the part.
        let out = BufWriter::with_capacity(BUFFER, file);
        let SampleSpec { rate, layout, format } = form.spec;
        new.writer = Some(match form.container {
            Container::Wave => Writer::Wave(Wave::new(out, form.spec, form.speakers)?),
            Container::Flac => {
                let bits = u32::from(format.bits());
                Writer::Flac(Box::new(flac(out, rate, layout, bits)?), Vec::new(), bits)
            }
        });
        Ok(new)
    }

    pub(super) fn write(&mut self, samples: &[f32]) -> io::Result<()> {
        let mut samples = samples;
        if let Some(dither) = &mut self.dither {
            self.scratch.clear();
            self.scratch.extend(samples.iter().map(|x| x + dither.next()));
            samples = &self.scratch;
        }
        match &mut self.writer {
            Some(Writer::Wave(wave)) => wave.write(samples),
            Some(Writer::Flac(flac, whole, bits)) => {
                let scale = f64::from(1_u32 << (*bits - 1));
                whole.clear();
                whole.extend(samples.iter().map(|x| whole_of(*x, scale)));
                flac.write(whole).map_err(foreign)
            }
            None => Ok(()),
        }
    }

    /// Takes the place of whatever has the name.
    pub(super) fn finish(mut self) -> io::Result<()> {
        match self.writer.take() {
            Some(Writer::Wave(wave)) => wave.finish()?,
            // What is left in its buffer overwrites the head, for which there is room already.
            Some(Writer::Flac(flac, ..)) => flac.finalize().map_err(foreign)?,
            None => {}
        }
        self.file.sync_all()?;
        fs::rename(&self.part, &self.path)
    }
}

impl Drop for SoundFile {
    fn drop(&mut self) {
        // After `finish` there is nothing of this name any more.
        fs::remove_file(&self.part).ok();
    }
}

fn flac(
    out: BufWriter<File>,
    rate: SampleRate,
    layout: ChannelLayout,
    bits: u32,
) -> io::Result<FlacSampleWriter<BufWriter<File>>> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    let channels = u8::try_from(layout.channels()).ok().filter(|channels| *channels <= 8);
    let channels = channels.ok_or_else(|| wrong("FLAC has eight channels at most: write WAVE"))?;
    FlacSampleWriter::new(out, Options::default(), rate.hz(), bits, channels, None)
        .map_err(|error| wrong(&format!("FLAC cannot hold it: {error}; write WAVE")))
}

fn foreign(error: flac_codec::Error) -> io::Error {
    match error {
        flac_codec::Error::Io(error) => error,
        other => io::Error::other(other),
    }
}

#[allow(clippy::cast_possible_truncation, reason = "rounding is meant, and bounded")]
fn whole_of(sample: f32, scale: f64) -> i32 {
    (f64::from(sample) * scale).round().clamp(-scale, scale - 1.0) as i32
}

fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

/// RIFF WAVE, up to the 4 GiB that it can count.
struct Wave {
    out: BufWriter<File>,
    format: SampleFormat,
    head: u32,
    data: u64,
    bytes: Vec<u8>,
}

impl Wave {
    fn new(mut out: BufWriter<File>, spec: SampleSpec, speakers: Option<u32>) -> io::Result<Self> {
        let head = head_of(spec, speakers);
        out.write_all(&head)?;
        let head = u32::try_from(head.len()).unwrap_or(0);
        Ok(Self { out, format: spec.format, head, data: 0, bytes: Vec::new() })
    }

    fn write(&mut self, samples: &[f32]) -> io::Result<()> {
        self.bytes.resize(samples.len() * self.format.bytes(), 0);
        convert::encode(self.format, samples, &mut self.bytes);
        self.data += self.bytes.len() as u64;
        if self.data + u64::from(self.head) > u64::from(u32::MAX) {
            let what = "WAVE holds 4 GiB at most: write FLAC";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
        self.out.write_all(&self.bytes)
    }

    fn finish(mut self) -> io::Result<()> {
        // Chunks begin at even places; the byte that sees to it is not counted in its chunk.
        let odd = self.data % 2;
        if odd == 1 {
            self.out.write_all(&[0])?;
        }
        let size = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes();
        self.out.seek(SeekFrom::Start(4))?;
        self.out.write_all(&size(u64::from(self.head) - 8 + self.data + odd))?;
        self.out.seek(SeekFrom::Start(u64::from(self.head) - 4))?;
        self.out.write_all(&size(self.data))?;
        self.out.flush()
    }
}

/// Everything up to the first sample, sizes empty. More than two channels or 16 bits need the
/// extensible form (Microsoft, "Multiple channel audio data and WAVE files").
fn head_of(spec: SampleSpec, speakers: Option<u32>) -> Vec<u8> {
    let SampleSpec { rate, layout, format } = spec;
    let channels = u16::try_from(layout.channels()).unwrap_or(u16::MAX);
    let frame = u16::try_from(spec.frame_bytes()).unwrap_or(u16::MAX);
    let tag: u16 = if format == SampleFormat::F32 { FLOAT } else { WHOLE };
    let extensible = channels > 2 || format != SampleFormat::S16Le;
    let mut head = Vec::new();
    head.extend(b"RIFF\0\0\0\0WAVEfmt ");
    head.extend(if extensible { 40_u32 } else { 16 }.to_le_bytes());
    head.extend(if extensible { EXTENSIBLE } else { tag }.to_le_bytes());
    head.extend(channels.to_le_bytes());
    head.extend(rate.hz().to_le_bytes());
    head.extend(rate.hz().saturating_mul(u32::from(frame)).to_le_bytes());
    head.extend(frame.to_le_bytes());
    head.extend(format.bits().to_le_bytes());
    if extensible {
        let mask = speakers.filter(|mask| mask.count_ones() == u32::from(channels));
        head.extend(22_u16.to_le_bytes());
        head.extend(format.bits().to_le_bytes());
        head.extend(mask.unwrap_or(0).to_le_bytes());
        head.extend(tag.to_le_bytes());
        head.extend(SUBFORMAT);
    }
    head.extend(b"data\0\0\0\0");
    head
}

/// Noise of two evenly distributed parts, one step of 16 bits high each: what rounding leaves then
/// is as loud at every level, and knows nothing of the sound (Lipshitz, Wannamaker, Vanderkooy 1992).
#[derive(Clone, Copy, Debug)]
struct Dither(u64);

impl Default for Dither {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl Dither {
    #[allow(clippy::cast_precision_loss, reason = "24 bits fit")]
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let [one, other] = [self.0 >> 40, self.0 >> 16 & 0xff_ffff].map(|bits| bits as f32);
        (one - other) / 16_777_216.0 / 32_768.0
    }
}

const WHOLE: u16 = 1;
const FLOAT: u16 = 3;
const EXTENSIBLE: u16 = 0xfffe;
/// The rest of the identifier of a sub-format.
const SUBFORMAT: [u8; 14] = [0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71];
const BUFFER: usize = 256 * 1024;
