//! File formats of recordings, which are readable at any time while they grow.
//!
//! ```text
//!  samples -> FileEncoder -> bytes to append, patches for the header; the caller writes them
//!  incomplete file -> repair -> complete file
//!  complete file and its markers -> write_markers
//! ```
//!
//! A [`FileEncoder`] computes the bytes and touches no file, so that the recorder's thread handles
//! disk errors in its own way, and a test can stop after any byte. A killed process loses what was
//! not yet flushed: at most one block of the codec more than the time since the last
//! [`flush`](FileEncoder::flush).
//!
//! * WAVE begins as RIFF with sizes that mean "to the end", which every reader accepts; each flush
//!   writes the exact sizes, and the file becomes RF64 in place before 4 GiB. If it began as RF64,
//!   ffmpeg would find no sound in a file that was not closed.
//! * FLAC frames are independent; each flush writes their number into STREAMINFO. The MD5 sum is
//!   written at the end; in the file of a killed process it stays "unknown".
//! * MP3 frames are independent as well; each flush writes their number into the Info frame.
//! * M4A is a fragmented MP4 file while it grows, a fragment for each flush; at the end it gets an
//!   index and an edit list.
//! * Opus is in Ogg pages of at most 200 ms; each flush ends a page. Granule positions count
//!   frames, so that a file has the exact length of the sound.
//!
//! `docs/decisions/recording-formats.md` has the formats that were rejected.

mod flac;
mod m4a;
mod markers;
mod mp3;
mod opus;
mod repair;
mod table;
#[cfg(test)]
mod tests;
mod wave;

use core::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aulos_core::{ChannelLayout, Frames, SampleFormat, SampleRate, SampleSpec, Utc};
use aulos_engine::encode::EncodeError;
use aulos_proto::Patch;

use super::report::SegmentLoudness;

pub use markers::write_markers;
pub(crate) use opus::OpusFileEncoder;
pub use repair::{RepairError, RepairReport};
pub use table::{
    FILE_FORMAT_NAMES, FILE_FORMATS, FileFormat, FileFormatInfo, FormatSettings, UnknownFileFormat,
    UnsupportedFileFormat, make_file_encoder, repair,
};
pub(crate) use wave::WaveFileEncoder;

/// Sample format of a WAVE recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WavEncoding {
    /// 16-bit integers.
    S16,
    /// Packed 24-bit integers.
    S24,
    /// 32-bit floats: samples above full scale are kept.
    F32,
}

impl WavEncoding {
    const fn format(self) -> SampleFormat {
        match self {
            Self::S16 => SampleFormat::S16Le,
            Self::S24 => SampleFormat::S24Le,
            Self::F32 => SampleFormat::F32,
        }
    }
}

/// Metadata in the header of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileMetadata {
    /// Frames per second.
    pub rate: SampleRate,
    /// The channels, in the order of WAVE.
    pub layout: ChannelLayout,
    /// Name of the recorded station.
    pub title: String,
    /// The recorder's reference for the file; may be empty.
    pub reference: String,
    /// Time of the first frame.
    pub start_time: SystemTime,
    /// The same in frames since midnight, UTC, as in sound editors.
    pub time_reference: Frames,
}

impl FileMetadata {
    /// Metadata of a file whose first frame was played at `start_time`.
    #[must_use]
    pub fn new(
        rate: SampleRate,
        layout: ChannelLayout,
        name: &str,
        start_time: SystemTime,
    ) -> Self {
        let since = start_time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_of_day = Duration::new(since.as_secs() % SECONDS_PER_DAY, since.subsec_nanos());
        let frames = time_of_day.as_nanos() * u128::from(rate.hz()) / NANOS_PER_SECOND;
        let time_reference = Frames(u64::try_from(frames).unwrap_or(0));
        let (title, reference) = (name.to_owned(), String::new());
        Self { rate, layout, title, reference, start_time, time_reference }
    }

    /// Metadata of the file that begins `frames` after this one. Its time reference is exact,
    /// however often a recording is cut.
    #[must_use]
    pub fn after(&self, frames: Frames) -> Self {
        let hz = u64::from(self.rate.hz());
        let nanos = u128::from(frames.0) * NANOS_PER_SECOND / u128::from(hz);
        let later = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Self {
            start_time: self.start_time.checked_add(later).unwrap_or(self.start_time),
            time_reference: Frames((self.time_reference + frames).0 % (SECONDS_PER_DAY * hz)),
            ..self.clone()
        }
    }

    /// The date of the time reference. `start_time` may be slightly before midnight and the
    /// reference after it.
    fn date(&self) -> Utc {
        let since = self.start_time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let second = self.time_reference.0 / u64::from(self.rate.hz());
        let day = (since + SECONDS_PER_DAY / 2).saturating_sub(second) / SECONDS_PER_DAY;
        Utc::from_unix(day * SECONDS_PER_DAY + second)
    }

    /// The metadata as comments.
    fn comments(&self) -> [(&'static str, String); 3] {
        [
            ("TITLE", self.title.clone()),
            ("DATE", self.date().to_string()),
            ("TIME_REFERENCE", self.time_reference.0.to_string()),
        ]
    }

    const fn spec(&self, format: SampleFormat) -> SampleSpec {
        SampleSpec { rate: self.rate, format, layout: self.layout }
    }
}

/// Encodes one file: computes the bytes and writes nothing itself.
///
/// The bytes that a call appends to `out` go to the end of the file, then the patches to their
/// offsets, in their order. The file is readable after any prefix of these writes.
pub trait FileEncoder: fmt::Debug + Send {
    /// Encodes interleaved whole frames, any number of them.
    ///
    /// # Real-time
    /// Not for a real-time thread: the libraries of MP3 and AAC allocate, and FLAC's until it has seen the sound
    /// that is hardest to compress, and for each block of more than two channels. WAVE and Opus do
    /// not allocate once `out` has capacity.
    ///
    /// # Errors
    /// [`EncodeError`] when the codec's library fails. These samples are then lost; earlier ones
    /// are not.
    fn write(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Makes the samples so far readable, except the current block or packet. To be called about
    /// every 200 ms.
    ///
    /// # Real-time
    /// Does not allocate once both have capacity.
    fn flush(&mut self, out: &mut Vec<u8>, patches: &mut Vec<Patch>);

    /// States the length of the file before there is sound, for a stream whose header cannot be
    /// changed later. Formats whose header has no length ignore it.
    fn announce_length(&mut self, _frames: Frames, _patches: &mut Vec<Patch>) {}

    /// Sets the loudness of the file, for formats that store it; called before the file ends.
    fn set_loudness(&mut self, _: &SegmentLoudness) {}

    /// Completes the file: it has exactly the encoded frames, and states their number.
    ///
    /// # Errors
    /// [`EncodeError`] when the codec's library fails. [`repair`] can then complete the file.
    fn finish(
        self: Box<Self>,
        out: &mut Vec<u8>,
        patches: &mut Vec<Patch>,
    ) -> Result<(), EncodeError>;

    /// Encoded frames.
    fn frames(&self) -> Frames;

    /// Frames that a reader finds after the output of the last flush was written.
    fn readable_frames(&self) -> Frames;

    /// Samples that exceeded the format's range and were clipped.
    fn clipped_samples(&self) -> u64;
}

/// Seconds of a day.
const SECONDS_PER_DAY: u64 = 86_400;
const NANOS_PER_SECOND: u128 = 1_000_000_000;
