//! One file: decoded and measured.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use aulos_core::{ChannelLayout, Db, Lufs, SampleRate};
use aulos_dsp::meter::{Measurement, RangeHop};

use super::error::ScanError;
use super::find::Found;
use super::listen::{Curve, Heard, listen};
use super::progress::{Counter, Share};
use super::sound::Sound;

/// How files are measured.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Look between the samples for peaks as well.
    pub true_peak: bool,
    /// A file of one channel is going to be heard from two loudspeakers.
    pub dual_mono: bool,
    /// How often the loudness range takes a value.
    pub range_hop: RangeHop,
    /// Keep what is needed to merge files to an album: 88 bytes for each second of sound.
    pub keep: bool,
    /// Keep how loudness and peaks run: 12 bytes for each second of sound.
    pub curve: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            true_peak: false,
            dual_mono: false,
            range_hop: RangeHop::Second,
            keep: false,
            curve: false,
        }
    }
}

/// What became of one file.
#[derive(Clone, Debug)]
pub struct Report {
    /// The file.
    pub path: PathBuf,
    /// Why it failed, if it did; figures are then those of what could be read.
    pub error: Option<ScanError>,
    /// What it is, if it could be opened.
    pub shape: Option<Shape>,
    /// What was measured; all absent if it could not be opened.
    pub loudness: Loudness,
    /// To be merged with others, when [`Options::keep`] asked for it and nothing failed.
    pub kept: Option<Box<Measurement>>,
    /// How it runs, when [`Options::curve`] asked for it.
    pub curve: Curve,
}

/// The outer form of a file's sound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Frames per second at its beginning.
    pub rate: SampleRate,
    /// Channels at its beginning.
    pub layout: ChannelLayout,
    /// How long it is, as decoded.
    pub seconds: f64,
}

/// Figures of a file or an album; what does not exist is absent, and none is infinite.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loudness {
    /// Integrated loudness, unless nothing passes the gates.
    pub integrated: Option<Lufs>,
    /// Loudness range in LU; absent for silence and below 3 s.
    pub range: Option<Db>,
    /// The greatest loudness of any 400 ms.
    pub max_momentary: Option<Lufs>,
    /// The greatest loudness of any 3 s; absent below 3 s.
    pub max_short_term: Option<Lufs>,
    /// The greatest value at or between samples, in dBTP, if it was asked for.
    pub true_peak: Option<Db>,
    /// The greatest sample, in dBFS.
    pub sample_peak: Option<Db>,
    /// The relative gate; absent for silence.
    pub relative_threshold: Option<Lufs>,
}

impl Loudness {
    /// The figures of `whole`, which is `seconds` long.
    #[must_use]
    pub fn of(whole: &Measurement, seconds: f64, options: &Options) -> Self {
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

/// Measures one file. Whatever it is, there is a report; a panic of a codec is caught.
///
/// On a thread of a rayon pool, a long file is cut and its pieces go to whoever is free.
#[must_use]
pub fn measure(found: Found, options: &Options) -> Report {
    measure_counted(found, options, &Counter::default())
}

/// [`measure`], counting along.
pub(super) fn measure_counted(found: Found, options: &Options, all: &Counter) -> Report {
    let Found { path, error } = found;
    if let Some(error) = error {
        return failed(path, error);
    }
    let mut share = Share::new(all, &path);
    let tried = catch_unwind(AssertUnwindSafe(|| {
        let mut sound = Sound::open(&path)?;
        let shape = sound.shape();
        Ok((shape, listen(&path, &mut sound, options, &mut share)))
    }));
    drop(share);
    let ((rate, layout), heard) = match tried {
        Ok(Ok(heard)) => heard,
        Ok(Err(error)) => return failed(path, ScanError::Open(error)),
        Err(_) => return failed(path, ScanError::Internal),
    };
    let Heard { error, whole, seconds, curve } = heard;
    let loudness = whole.as_ref().map(|whole| Loudness::of(whole, seconds, options));
    let error = error.or_else(|| (seconds < MOMENTARY).then_some(ScanError::Short));
    let kept = whole.filter(|_| options.keep && error.is_none()).map(Box::new);
    let shape = Some(Shape { rate, layout, seconds });
    Report { path, error, shape, loudness: loudness.unwrap_or_default(), kept, curve }
}

fn failed(path: PathBuf, error: ScanError) -> Report {
    let loudness = Loudness::default();
    Report { path, error: Some(error), shape: None, loudness, kept: None, curve: Curve::default() }
}

/// The windows of BS.1770 and R 128, in seconds.
const MOMENTARY: f64 = 0.4;
const SHORT_TERM: f64 = 3.0;
