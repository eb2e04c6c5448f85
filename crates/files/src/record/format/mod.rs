//! Files of sound that can be read at every moment of their making.
//!
//! ```text
//!  samples -> Framer -> bytes to append, patches for the front    the caller writes them
//!  a file that was left behind -> repair -> a whole one
//!  a whole one and its markers -> write_markers
//! ```
//!
//! A [`Framer`] says which bytes go where and touches no file, so that the recorder's thread has its
//! own way with disks, and a test can break off after any byte. Whoever is killed loses what was not
//! flushed yet: at most one block of the codec more than the time since the last
//! [`flush`](Framer::flush).
//!
//! * WAVE begins as RIFF with sizes that say "to the end", which every reader takes; they are told
//!   exactly at each flush, and the file becomes RF64 in place before 4 GiB. Begun as RF64, ffmpeg
//!   would hear nothing of a file that was not closed.
//! * FLAC frames stand alone; each flush tells in STREAMINFO how many there are. The MD5 sum comes with
//!   the end, of a file that is killed it stays "not known".
//! * Opus is in Ogg pages of 200 ms at most; each flush ends a page. Positions count frames, so that
//!   a file is as long as the sound was, to the frame.
//!
//! `docs/decisions/recording-formats.md` has the formats that were rejected.

mod flac;
mod markers;
mod opus;
mod repair;
#[cfg(test)]
mod tests;
mod text;
mod wave;

use core::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aulos_core::{ChannelLayout, Frames, SampleFormat, SampleRate, SampleSpec, Utc};
use aulos_engine::encode::{EncodeError, UnsupportedFormat};
use aulos_proto::Patch;

use super::report::Measured;

pub use markers::write_markers;
pub(crate) use opus::OpusFramer;
pub use repair::{RepairError, Repaired, repair};
pub use text::UnknownFileFormat;
pub(crate) use wave::WaveFramer;

/// What a recording is written as. Reads and prints as `wav:16`, `wav:24`, `wav:f32`, `flac:16`,
/// `flac:24`, `opus:128k`; `wav` and `flac` alone have 16 bits, `opus` has 192 kb/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileFormat {
    /// WAVE with the origin of the sound (Broadcast Wave); RF64 beyond 4 GiB.
    Wav(WavSamples),
    /// FLAC; lossless to its bits.
    Flac {
        /// 16 or 24.
        bits: u16,
    },
    /// Opus in Ogg.
    Opus {
        /// About so many, 6,000 to 510,000.
        bits_per_second: u32,
    },
}

/// How WAVE has a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WavSamples {
    /// Integers of 16 bits.
    S16,
    /// Integers of 24 bits, packed.
    S24,
    /// Floats: what is above full scale is kept.
    F32,
}

impl WavSamples {
    const fn format(self) -> SampleFormat {
        match self {
            Self::S16 => SampleFormat::S16Le,
            Self::S24 => SampleFormat::S24Le,
            Self::F32 => SampleFormat::F32,
        }
    }
}

impl FileFormat {
    /// The ending of a name, without the dot.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Wav(_) => "wav",
            Self::Flac { .. } => "flac",
            Self::Opus { .. } => "opus",
        }
    }
}

/// What goes into the head of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct About {
    /// Frames per second.
    pub rate: SampleRate,
    /// The channels, in the order of WAVE.
    pub layout: ChannelLayout,
    /// What is recorded: the name of a station.
    pub name: String,
    /// The recorder's own number for the file; may be empty.
    pub reference: String,
    /// When the first frame of the file was heard.
    pub begun: SystemTime,
    /// The same as a sound editor counts it: frames since midnight, UTC.
    pub time_reference: Frames,
}

impl About {
    /// A file that begins with the frame that was heard at `begun`.
    #[must_use]
    pub fn new(rate: SampleRate, layout: ChannelLayout, name: &str, begun: SystemTime) -> Self {
        let since = begun.duration_since(UNIX_EPOCH).unwrap_or_default();
        let today = Duration::new(since.as_secs() % DAY, since.subsec_nanos());
        let frames = today.as_nanos() * u128::from(rate.hz()) / NANOS;
        let time_reference = Frames(u64::try_from(frames).unwrap_or(0));
        let (name, reference) = (name.to_owned(), String::new());
        Self { rate, layout, name, reference, begun, time_reference }
    }

    /// The file that begins `frames` after this one: its time reference is exact, however often a
    /// recording is cut.
    #[must_use]
    pub fn after(&self, frames: Frames) -> Self {
        let hz = u64::from(self.rate.hz());
        let nanos = u128::from(frames.0) * NANOS / u128::from(hz);
        let later = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Self {
            begun: self.begun.checked_add(later).unwrap_or(self.begun),
            time_reference: Frames((self.time_reference + frames).0 % (DAY * hz)),
            ..self.clone()
        }
    }

    /// The date of the time reference. `begun` may be a hair before midnight where that is behind it.
    fn date(&self) -> Utc {
        let since = self.begun.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let second = self.time_reference.0 / u64::from(self.rate.hz());
        let day = (since + DAY / 2).saturating_sub(second) / DAY;
        Utc::from_unix(day * DAY + second)
    }

    /// The same for formats with comments.
    fn comments(&self) -> [(&'static str, String); 3] {
        [
            ("TITLE", self.name.clone()),
            ("DATE", self.date().to_string()),
            ("TIME_REFERENCE", self.time_reference.0.to_string()),
        ]
    }

    const fn spec(&self, format: SampleFormat) -> SampleSpec {
        SampleSpec { rate: self.rate, format, layout: self.layout }
    }
}

/// One file of sound in the making: says which bytes go where, and writes nothing itself.
///
/// What a call appends to `out` goes to the end of the file, and the patches to their places after
/// that, in their order. The file can be read after any prefix of this.
pub trait Framer: fmt::Debug + Send {
    /// Takes whole frames, interleaved, as many as there are.
    ///
    /// # Real-time
    /// Not for a real-time thread: FLAC's library allocates until it has seen the sound that is
    /// hardest to compress, and for each block of more than two channels. WAVE and Opus do not
    /// allocate once `out` has room.
    ///
    /// # Errors
    /// [`EncodeError`] when the codec's library fails. The sound is then lost; what was taken before
    /// is not.
    fn write(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Makes readable what was taken so far, but for the block or packet that has begun. To be
    /// called every 200 ms or so.
    ///
    /// # Real-time
    /// Does not allocate once both have room.
    fn flush(&mut self, out: &mut Vec<u8>, patches: &mut Vec<Patch>);

    /// Says how loud all of it is, for formats that tell it; called before the file ends.
    fn set_loudness(&mut self, _: &Measured) {}

    /// Ends the file: all that was taken is in it, no frame more, and it says so.
    ///
    /// # Errors
    /// [`EncodeError`] when the codec's library fails. [`repair`] then ends the file.
    fn finish(
        self: Box<Self>,
        out: &mut Vec<u8>,
        patches: &mut Vec<Patch>,
    ) -> Result<(), EncodeError>;

    /// Frames taken.
    fn frames(&self) -> Frames;

    /// Frames that a reader finds since the last flush was written.
    fn readable(&self) -> Frames;

    /// Samples that did not fit into the format, and were clipped.
    fn clipped(&self) -> u64;
}

/// Begins a file: appends its head to `out`.
///
/// # Errors
/// [`Refused`] when the format cannot hold such sound.
///
/// # Examples
/// ```
/// use aulos_core::{ChannelLayout, Frames, SampleRate};
/// use aulos_files::record::format::{About, FileFormat, open};
///
/// let format: FileFormat = "flac:24".parse()?;
/// let about = About::new(SampleRate::HZ_48000, ChannelLayout::STEREO, "Hall", std::time::UNIX_EPOCH);
/// let (mut file, mut out, mut patches) = (Vec::new(), Vec::new(), Vec::new());
/// let mut framer = open(format, &about, &mut out)?;
/// for round in 0..50 {
///     framer.write(&[0.25; 2 * 960], &mut out)?;
///     if round % 10 == 9 {
///         framer.flush(&mut out, &mut patches);
///     }
///     file.append(&mut out);
///     for patch in patches.drain(..) {
///         let at = patch.at() as usize;
///         file[at..at + patch.bytes().len()].copy_from_slice(patch.bytes());
///     }
/// }
/// assert_eq!(framer.frames(), Frames(48_000));
/// framer.finish(&mut out, &mut patches)?;
/// let next = about.after(Frames(48_000));
/// assert_eq!(next.time_reference, Frames(48_000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn open(
    format: FileFormat,
    about: &About,
    out: &mut Vec<u8>,
) -> Result<Box<dyn Framer>, Refused> {
    let refused = |why| Refused { format, why };
    Ok(match format {
        FileFormat::Wav(samples) => Box::new(wave::open(samples, about, out)),
        FileFormat::Flac { bits } => {
            Box::new(flac::FlacFramer::open(bits, about, out).map_err(refused)?)
        }
        FileFormat::Opus { bits_per_second } => {
            Box::new(opus::open(bits_per_second, about, out).map_err(refused)?)
        }
    })
}

/// A format that cannot hold the sound of a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// Which.
    pub format: FileFormat,
    /// Why.
    pub why: UnsupportedFormat,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instead = match (self.format, self.why) {
            (FileFormat::Opus { .. }, UnsupportedFormat::Rate(_)) => {
                "record flac or wav, or run the station at 48000 Hz"
            }
            (FileFormat::Opus { .. }, _) => "record flac or wav",
            _ => "record wav",
        };
        write!(f, "{}: {instead}", self.why)
    }
}

impl core::error::Error for Refused {}

/// Seconds.
const DAY: u64 = 86_400;
const NANOS: u128 = 1_000_000_000;
