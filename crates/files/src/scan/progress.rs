//! The progress of a scan, updated by all threads and read by the caller.
//!
//! Progress counts the bytes of files, which are known before any is opened, and shares of a file,
//! so that a single long file moves a progress bar as steadily as many short ones.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use aulos_core::{Frames, SampleRate};

/// The progress over all files.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScanProgress {
    /// Bytes of files. A file of unknown length counts at its end.
    pub bytes: u64,
    /// Seconds of audio.
    pub seconds: f64,
}

/// The sum over several threads.
#[derive(Debug, Default)]
pub(super) struct ProgressCounter {
    bytes: AtomicU64,
    micros: AtomicU64,
}

impl ProgressCounter {
    #[allow(clippy::cast_precision_loss, reason = "a scan lasts less than 2^53 microseconds")]
    pub(super) fn read(&self) -> ScanProgress {
        let bytes = self.bytes.load(Ordering::Relaxed);
        ScanProgress { bytes, seconds: self.micros.load(Ordering::Relaxed) as f64 / 1e6 }
    }
}

/// One file's share of the progress. At its end it counts in full, however much was measured.
#[derive(Debug)]
pub(super) struct FileProgress<'a> {
    all: &'a ProgressCounter,
    bytes: u64,
    /// The duration if known, and how much of it has been measured.
    length: Option<u64>,
    measured_micros: AtomicU64,
}

impl<'a> FileProgress<'a> {
    pub(super) fn new(all: &'a ProgressCounter, path: &Path) -> Self {
        let file = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
        let bytes = file.map_or(0, |file| file.len());
        Self { all, bytes, length: None, measured_micros: AtomicU64::new(0) }
    }

    pub(super) fn set_length(&mut self, frames: Option<Frames>, rate: SampleRate) {
        self.length =
            frames.map(|frames| frames_to_micros(frames.0, rate)).filter(|&length| length > 0);
    }

    pub(super) fn add_frames(&self, frames: u64, rate: SampleRate) {
        let new = frames_to_micros(frames, rate);
        let before = self.measured_micros.fetch_add(new, Ordering::Relaxed);
        self.all.micros.fetch_add(new, Ordering::Relaxed);
        let bytes = self.bytes_in(before + new) - self.bytes_in(before);
        self.all.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The file will be measured again from its beginning.
    pub(super) fn restart(&self) {
        let heard = self.measured_micros.swap(0, Ordering::Relaxed);
        self.all.micros.fetch_sub(heard, Ordering::Relaxed);
        self.all.bytes.fetch_sub(self.bytes_in(heard), Ordering::Relaxed);
    }

    /// The file's bytes that correspond to this many microseconds of its audio.
    fn bytes_in(&self, heard: u64) -> u64 {
        let Some(length) = self.length else { return 0 };
        let part = u128::from(self.bytes) * u128::from(heard.min(length)) / u128::from(length);
        u64::try_from(part).unwrap_or(self.bytes)
    }
}

impl Drop for FileProgress<'_> {
    fn drop(&mut self) {
        let heard = self.bytes_in(self.measured_micros.load(Ordering::Relaxed));
        self.all.bytes.fetch_add(self.bytes - heard, Ordering::Relaxed);
    }
}

fn frames_to_micros(frames: u64, rate: SampleRate) -> u64 {
    frames.saturating_mul(1_000_000) / u64::from(rate.hz())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_grows_while_a_file_is_measured_and_counts_it_once() {
        let scratch = aulos_blackbox::scratch::ScratchDir::new("progress").unwrap();
        let path = scratch.join("file");
        std::fs::write(&path, [0; 1000]).unwrap();
        let (all, rate) = (ProgressCounter::default(), SampleRate::HZ_48000);
        let mut share = FileProgress::new(&all, &path);
        share.set_length(Some(Frames(480_000)), rate);
        share.add_frames(120_000, rate);
        assert_eq!(all.read(), ScanProgress { bytes: 250, seconds: 2.5 });
        share.restart();
        assert_eq!(all.read(), ScanProgress::default());
        share.add_frames(240_000, rate);
        share.add_frames(480_000, rate);
        assert_eq!(all.read(), ScanProgress { bytes: 1000, seconds: 15.0 });
        drop(share);
        // A file of unknown length, and one that could not be opened.
        let share = FileProgress::new(&all, &path);
        share.add_frames(48_000, rate);
        assert_eq!(all.read(), ScanProgress { bytes: 1000, seconds: 16.0 });
        drop(share);
        drop(FileProgress::new(&all, Path::new("/nowhere")));
        assert_eq!(all.read(), ScanProgress { bytes: 2000, seconds: 16.0 });
    }
}
