//! Decodes and measures one file.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use aulos_core::{ChannelLayout, Db, Lufs, SampleRate};
use aulos_dsp::meter::Measurement;

use super::error::ScanError;
use super::find::ScanFile;
use super::meter_file::{LoudnessCurve, MeasuredPart, measure_sound};
use super::options::ScanOptions;
use super::progress::{FileProgress, ProgressCounter};
use super::sound::SoundReader;
use crate::decode::FileWarning;

/// The result of one file.
#[derive(Clone, Debug)]
pub struct ScanReport {
    /// The file.
    pub path: PathBuf,
    /// The error, if any; the figures then cover the part that could be read.
    pub error: Option<ScanError>,
    /// The format, if the file could be opened.
    pub shape: Option<AudioProperties>,
    /// The loudness; all fields are `None` if the file could not be opened.
    pub loudness: LoudnessSummary,
    /// The data for merging, if [`ScanOptions::keep_measurement`] requested it and nothing failed.
    pub measurement: Option<Box<Measurement>>,
    /// The course of loudness, if [`ScanOptions::curve`] requested it.
    pub curve: LoudnessCurve,
    /// What the file does otherwise than its header says; it was measured nevertheless.
    pub warnings: Vec<FileWarning>,
}

/// The format and duration of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AudioProperties {
    /// Sample rate at its beginning.
    pub rate: SampleRate,
    /// Channel layout at its beginning.
    pub layout: ChannelLayout,
    /// The decoded duration.
    pub seconds: f64,
}

/// Loudness figures of a file or an album. Undefined figures are `None`, and none is infinite.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoudnessSummary {
    /// Integrated loudness; `None` if nothing passes the gates.
    pub integrated: Option<Lufs>,
    /// Loudness range in LU; `None` for silence and below 3 s.
    pub range: Option<Db>,
    /// The maximum momentary loudness (400 ms).
    pub max_momentary: Option<Lufs>,
    /// The maximum short-term loudness (3 s); `None` below 3 s.
    pub max_short_term: Option<Lufs>,
    /// The true peak in dBTP, if requested.
    pub true_peak: Option<Db>,
    /// The sample peak in dBFS.
    pub sample_peak: Option<Db>,
    /// The relative gate; `None` for silence.
    pub relative_threshold: Option<Lufs>,
}

impl LoudnessSummary {
    /// The figures of a measurement of `seconds`.
    #[must_use]
    pub fn from_measurement(whole: &Measurement, seconds: f64, options: &ScanOptions) -> Self {
        let lufs = |value: Lufs| value.get().is_finite().then_some(value);
        let peak = |value: f64| {
            let db = Db::from_amplitude(value);
            db.get().is_finite().then_some(db)
        };
        let integrated = lufs(whole.integrated());
        Self {
            integrated,
            range: integrated.filter(|_| seconds >= SHORT_TERM).map(|_| whole.range()),
            max_momentary: lufs(whole.max_momentary()).filter(|_| seconds >= MOMENTARY),
            max_short_term: lufs(whole.max_short_term()).filter(|_| seconds >= SHORT_TERM),
            true_peak: peak(whole.true_peak()).filter(|_| options.true_peak),
            sample_peak: peak(whole.sample_peak()),
            relative_threshold: integrated.map(|_| whole.relative_threshold()),
        }
    }
}

/// Measures one file. There is always a report; a panic of a codec is caught.
///
/// On a thread of a rayon pool, a long file is split and its pieces are measured by free threads.
#[must_use]
pub fn measure_file(found: ScanFile, options: &ScanOptions) -> ScanReport {
    measure_counted(found, options, &ProgressCounter::default())
}

/// [`measure_file`] with progress.
pub(super) fn measure_counted(
    found: ScanFile,
    options: &ScanOptions,
    all: &ProgressCounter,
) -> ScanReport {
    let ScanFile { path, error } = found;
    if let Some(error) = error {
        return failed_report(path, error);
    }
    let mut share = FileProgress::new(all, &path);
    let tried = catch_unwind(AssertUnwindSafe(|| {
        let mut sound = SoundReader::open(&path)?;
        let shape = sound.shape();
        let measured = measure_sound(&path, &mut sound, options, &mut share);
        Ok((shape, measured, sound.warnings()))
    }));
    drop(share);
    let ((rate, layout), heard, mut warnings) = match tried {
        Ok(Ok(heard)) => heard,
        Ok(Err(error)) => return failed_report(path, ScanError::Open(error)),
        Err(_) => return failed_report(path, ScanError::Internal),
    };
    let MeasuredPart { error, measurement: whole, seconds, curve } = heard;
    let loudness =
        whole.as_ref().map(|whole| LoudnessSummary::from_measurement(whole, seconds, options));
    let samples = whole.as_ref().map_or(0, Measurement::rejected);
    warnings.extend((samples > 0).then_some(FileWarning::NotFinite { samples }));
    let error = error.or_else(|| (seconds < MOMENTARY).then_some(ScanError::Short));
    let is_silent = loudness.is_some_and(|it| it.integrated.is_none()) && seconds >= MOMENTARY;
    warnings.extend(is_silent.then_some(FileWarning::Silent));
    let kept = whole.filter(|_| options.keep_measurement && error.is_none()).map(Box::new);
    let shape = Some(AudioProperties { rate, layout, seconds });
    ScanReport {
        path,
        error,
        shape,
        loudness: loudness.unwrap_or_default(),
        measurement: kept,
        curve,
        warnings,
    }
}

fn failed_report(path: PathBuf, error: ScanError) -> ScanReport {
    let loudness = LoudnessSummary::default();
    ScanReport {
        path,
        error: Some(error),
        shape: None,
        loudness,
        measurement: None,
        curve: LoudnessCurve::default(),
        warnings: Vec::new(),
    }
}

/// The windows of BS.1770 and R 128, in seconds.
const MOMENTARY: f64 = 0.4;
const SHORT_TERM: f64 = 3.0;
