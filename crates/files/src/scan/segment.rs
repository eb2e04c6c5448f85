//! Measures a file in segments, so that several processes or machines share a long one.
//!
//! A segment is some of the pieces in which [`measure_file`](super::measure_file) measures the
//! file, so that the joined segments are its report to the last bit, whatever their number. After
//! any irregularity there is no segment, and the file has to be measured as a whole.

use core::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use aulos_core::{ChannelLayout, SampleRate};
use aulos_dsp::meter::Measurement;

use super::measure::{AudioProperties, LoudnessSummary, ScanReport};
use super::meter_file::{LoudnessCurve, measure_cuts, piece_cuts, seconds_of};
use super::options::ScanOptions;
use super::progress::{FileProgress, ProgressCounter};
use super::sound::SoundReader;

/// The measurement of a segment.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "built by what transports a segment")]
pub struct FileSegment {
    /// Sample rate of the file.
    pub rate: SampleRate,
    /// Channel layout of the file.
    pub layout: ChannelLayout,
    /// `None` if the file has fewer pieces than segments, and this segment has none.
    pub measurement: Option<Measurement>,
}

/// Measures the segment `index`, from 0, of `count`; with all threads of the rayon pool if the
/// caller is one of them.
///
/// `None` if the file cannot be opened or split (only WAVE and formats with exact seeking can), is
/// shorter than six minutes, is damaged, or if `index` is not below `count`.
#[must_use]
pub fn measure_segment(
    path: &Path,
    index: usize,
    count: NonZeroUsize,
    options: &ScanOptions,
) -> Option<FileSegment> {
    let measure = || {
        if index >= count.get() {
            return None;
        }
        let sound = SoundReader::open(path).ok()?;
        let mut cuts = piece_cuts(&sound, options)?;
        let boundary = |n: usize| n.checked_mul(cuts.len()).map(|pieces| pieces / count);
        let cuts = cuts.drain(boundary(index)?..boundary(index + 1)?).collect();
        let progress = ProgressCounter::default();
        let share = FileProgress::new(&progress, path);
        let (rate, layout) = sound.shape();
        let measurement = measure_cuts(path, &sound, cuts, options, &share)?.measurement;
        Some(FileSegment { rate, layout, measurement })
    };
    // After a panic, measuring the whole file reports it.
    catch_unwind(AssertUnwindSafe(measure)).ok().flatten()
}

/// The report of a file whose segments were all measured, given in order. `None` if they are not of
/// one file, or are none.
#[must_use]
pub fn join_segments(
    path: PathBuf,
    segments: Vec<FileSegment>,
    options: &ScanOptions,
) -> Option<ScanReport> {
    let first = segments.first()?;
    let (rate, layout) = (first.rate, first.layout);
    if segments.iter().any(|segment| (segment.rate, segment.layout) != (rate, layout)) {
        return None;
    }
    let measured = segments.into_iter().filter_map(|segment| segment.measurement);
    let whole = Measurement::join(measured).ok().flatten()?;
    let seconds = seconds_of(whole.frames(), rate);
    Some(ScanReport {
        path,
        error: None,
        shape: Some(AudioProperties { rate, layout, seconds }),
        loudness: LoudnessSummary::from_measurement(&whole, seconds, options),
        measurement: options.keep_measurement.then(|| Box::new(whole)),
        curve: LoudnessCurve::default(),
        warnings: Vec::new(),
    })
}
