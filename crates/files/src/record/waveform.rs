//! The waveform of a recording: its highest level in some hundred parts of equal length, for a
//! picture.
//!
//! It is computed once for each file, on request and in steps, and kept beside the file. To compute
//! it while recording was the alternative: every recorder would work for a picture that few look
//! at, and files of before would have none.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use aulos_core::Frames;
use aulos_io::confined_open::{open_regular_beneath, open_root};
use aulos_io::disk::replace;
use serde_json::{Value, json};

use super::catalog::open_recording;
use crate::decode::{FileDecodeOptions, FileDecoder};

/// A waveform has at most this many points, and at least half of them unless its file is shorter.
pub const MAX_WAVEFORM_POINTS: usize = 1_024;

/// Longest recording whose waveform is computed, in frames: a day at 48 kHz. The rest of a longer
/// one is left out.
const MAX_FRAMES: u64 = 86_400 * 48_000;

/// Frames of one step: some hundredths of a second of work.
const STEP_FRAMES: u64 = 480_000;

/// Longest file of a waveform that is read: four digits a point, and the rest of the object.
const MAX_FILE: u64 = 4 * MAX_WAVEFORM_POINTS as u64 + 256;

/// The waveform of a complete file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waveform {
    /// The length that the points cover, in seconds.
    pub seconds: f64,
    /// The highest absolute sample of all channels in each part, in 1/255 of full scale; empty if
    /// the file cannot be decoded.
    pub points: Vec<u8>,
}

/// Computes the waveform of a complete file, a step at a time. It blocks on the disk only.
#[derive(Debug)]
pub struct WaveformScan {
    /// Keeps the file open, because the decoder opens it by its descriptor.
    file: File,
    decoder: FileDecoder,
    folder: PathBuf,
    name: String,
    /// Frames of each part; doubled when there are too many parts.
    part: u64,
    /// Frames of the last part so far.
    filled: u64,
    peaks: Vec<f32>,
    frames: u64,
    rate: u32,
}

impl Waveform {
    /// Reads the waveform that is kept beside a complete file of a recorder; `None` if there is
    /// none of this file. Blocks.
    ///
    /// # Errors
    /// As [`open_recording`].
    pub fn read(folder: &Path, recorder: &str, name: &Path) -> io::Result<Option<Self>> {
        let size = open_recording(folder, recorder, name)?.metadata()?.len();
        let kept = waveform_name(name.to_str().unwrap_or_default());
        let Ok(file) = open_regular_beneath(open_root(folder)?, Path::new(&kept)) else {
            return Ok(None);
        };
        let mut text = Vec::new();
        file.take(MAX_FILE).read_to_end(&mut text)?;
        Ok(Self::parse(&text, size))
    }

    /// Nothing for the waveform of another version, or of a file of another size.
    fn parse(text: &[u8], size: u64) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        if value["version"] != VERSION || value["bytes"] != size {
            return None;
        }
        let points =
            value["points"].as_array()?.iter().map(|point| point.as_u64()?.try_into().ok());
        let points = points.collect::<Option<Vec<u8>>>()?;
        let fits = points.len() <= MAX_WAVEFORM_POINTS;
        fits.then_some(Self { seconds: value["seconds"].as_f64()?, points })
    }

    fn write(&self, size: u64, path: &Path) -> io::Result<()> {
        let Self { seconds, points } = self;
        let value =
            json!({ "version": VERSION, "bytes": size, "seconds": seconds, "points": points });
        replace(path, 0o666, value.to_string().as_bytes())
    }
}

impl WaveformScan {
    /// Opens a complete file of a recorder. Blocks.
    ///
    /// # Errors
    /// As [`open_recording`]; [`InvalidData`](io::ErrorKind::InvalidData) if it is not decodable.
    pub fn open(folder: &Path, recorder: &str, name: &Path) -> io::Result<Self> {
        let file = open_recording(folder, recorder, name)?;
        // By its path another file could be opened than the one that has been checked.
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let decoder = FileDecoder::open(&path, FileDecodeOptions::default())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        let name = name.to_str().unwrap_or_default().to_owned();
        let (folder, rate) = (folder.to_owned(), 1);
        let (peaks, part) = (Vec::with_capacity(MAX_WAVEFORM_POINTS), 256);
        Ok(Self { file, decoder, folder, name, part, filled: 0, peaks, frames: 0, rate })
    }

    /// Works for some hundredths of a second; the waveform when the file is done. A file that is
    /// damaged has one up to there.
    pub fn step(&mut self) -> Option<Waveform> {
        let end = self.frames + STEP_FRAMES;
        while self.frames < end {
            let room = self.part - self.filled;
            let run = match self.decoder.next_run(Frames(room)) {
                Ok(Some(run)) if self.frames < MAX_FRAMES => run,
                _ => return Some(self.waveform()),
            };
            let ((rate, layout), samples) = run;
            self.rate = rate.hz();
            let frames = (samples.len() / layout.channels()) as u64;
            let peak = samples.iter().fold(0.0_f32, |peak, sample| peak.max(sample.abs()));
            self.add(frames, peak);
        }
        None
    }

    /// Keeps a waveform beside its file. Blocks.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn keep(&self, waveform: &Waveform) -> io::Result<()> {
        let size = self.file.metadata()?.len();
        waveform.write(size, &self.folder.join(waveform_name(&self.name)))
    }

    /// Adds frames that fit into the last part.
    fn add(&mut self, frames: u64, peak: f32) {
        if self.filled == 0 {
            self.peaks.push(peak);
        } else if let Some(last) = self.peaks.last_mut() {
            *last = last.max(peak);
        }
        (self.filled, self.frames) = (self.filled + frames, self.frames + frames);
        if self.filled < self.part {
            return;
        }
        self.filled = 0;
        if self.peaks.len() == MAX_WAVEFORM_POINTS {
            let halves =
                self.peaks.chunks(2).map(|pair| pair.iter().fold(0.0, |a: f32, b| a.max(*b)));
            self.peaks = halves.collect();
            self.part *= 2;
        }
    }

    fn waveform(&self) -> Waveform {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 255")]
        let byte = |peak: &f32| (peak.min(1.0) * 255.0).round() as u8;
        // A day of frames is far below 2^53.
        #[allow(clippy::cast_precision_loss, reason = "see above")]
        let seconds = self.frames as f64 / f64::from(self.rate);
        Waveform { seconds, points: self.peaks.iter().map(byte).collect() }
    }
}

/// The name of the file with the waveform of a recording.
pub(super) fn waveform_name(file: &str) -> String {
    format!("{file}.peaks")
}

const VERSION: u64 = 1;

#[cfg(test)]
mod tests {
    use std::fs;

    use aulos_blackbox::scratch::ScratchDir;
    use aulos_blackbox::signal::{SampleWidth, write_wav};

    use super::*;
    use crate::record::sidecar::sidecar_name;

    /// A recording in this state, whose level is a quarter, then a half of full scale.
    fn recording(folder: &Path, name: &str, frames: u32, state: &str) {
        let sound: Vec<_> =
            (0..frames).map(|at| if at < frames / 2 { [8_192, 0] } else { [0, -16_384] }).collect();
        let file = File::create(folder.join(name)).unwrap();
        write_wav(file, &sound, SampleWidth::B16).unwrap();
        let sidecar = json!({
            "written_by": "aulos", "recorder": "air", "state": state, "file": name,
            "start_utc": "2026-11-22T10:00:00.000000Z", "start_unix_ns": 0, "rate": 48_000,
            "frames": frames, "lost_frames": 0, "markers": [],
        });
        fs::write(folder.join(sidecar_name(name)), sidecar.to_string()).unwrap();
    }

    fn scan(folder: &Path, name: &str) -> Waveform {
        let mut scan = WaveformScan::open(folder, "air", Path::new(name)).unwrap();
        let waveform = std::iter::repeat_with(|| scan.step()).flatten().next().unwrap();
        scan.keep(&waveform).unwrap();
        waveform
    }

    #[test]
    fn the_points_are_the_levels_of_equal_parts_and_are_kept_beside_the_file() {
        let scratch = ScratchDir::new("waveform").unwrap();
        let folder = scratch.join(".");
        for frames in [100_u32, 48_000, 1_000_000] {
            recording(&folder, "a.wav", frames, "closed");
            let read = || Waveform::read(&folder, "air", Path::new("a.wav")).unwrap();
            // What was kept is that of the file of before.
            assert_eq!(read(), None);
            let found = scan(&folder, "a.wav");
            assert!((found.seconds - f64::from(frames) / 48_000.0).abs() < 1e-6, "{found:?}");
            let count = found.points.len();
            assert!(count <= MAX_WAVEFORM_POINTS, "{count}");
            assert!(frames < 1_000_000 || count >= MAX_WAVEFORM_POINTS / 2, "{count}");
            if frames > 1_000 {
                let (first, second) = found.points.split_at(count / 2);
                // The part in the middle may have both levels.
                let (_, first) = first.split_last().unwrap();
                assert!(first.iter().all(|point| *point == 64), "{first:?}");
                assert!(second[1..].iter().all(|point| *point == 128), "{second:?}");
            }
            assert_eq!(read(), Some(found));
        }
        fs::write(folder.join("a.wav.peaks"), "{\"version\":1").unwrap();
        assert_eq!(Waveform::read(&folder, "air", Path::new("a.wav")).unwrap(), None);
    }

    #[test]
    fn only_complete_files_of_the_recorder_have_one() {
        let scratch = ScratchDir::new("waveform-only").unwrap();
        let folder = scratch.join(".");
        recording(&folder, "open.wav", 4_800, "recording");
        recording(&folder, "text.wav", 4_800, "closed");
        fs::write(folder.join("text.wav"), "no sound").unwrap();
        for name in ["open.wav", "none.wav", "../a.wav"] {
            let error = WaveformScan::open(&folder, "air", Path::new(name)).unwrap_err();
            assert_ne!(error.kind(), io::ErrorKind::InvalidData, "{name}");
            assert!(Waveform::read(&folder, "air", Path::new(name)).is_err(), "{name}");
        }
        let error = WaveformScan::open(&folder, "air", Path::new("text.wav")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
