//! The loudness of many files, measured on several threads, in columns.

use core::num::NonZeroUsize;
use core::ops::ControlFlow;
use std::ffi::OsString;
use std::path::PathBuf;
use std::thread::available_parallelism;

use aulos_core::{ChannelLayout, Db, Lufs, SampleRate};
use aulos_dsp::meter::MeterMode;
use aulos_files::scan::{
    self, FileSegment, ScanEvent, ScanFile, ScanOptions, ScanReport, find_files, scan_files,
};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::loudness::Loudness;
use crate::options::{MeterOptions, invalid};

/// Measures files, and those in directories, in this order. Returns lists of equal length by name:
/// numbers with NaN for what is undefined. `aulos.scan_paths` makes a table of them.
#[pyfunction]
#[pyo3(signature = (paths, jobs, true_peak, dual_mono, lra_hop, keep, progress))]
#[allow(clippy::too_many_arguments, reason = "called by the Python half alone")]
pub(crate) fn scan_columns<'py>(
    py: Python<'py>,
    paths: Vec<PathBuf>,
    jobs: Option<usize>,
    true_peak: bool,
    dual_mono: bool,
    lra_hop: f64,
    keep: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let options = scan_options(true_peak, dual_mono, lra_hop, keep)?;
    let jobs = match jobs {
        None => available_parallelism().unwrap_or(NonZeroUsize::MIN),
        Some(jobs) => NonZeroUsize::new(jobs)
            .ok_or_else(|| PyValueError::new_err("jobs is 0: expected at least 1, or None"))?,
    };
    let reports = py.detach(|| measure_all(paths, jobs, &options, progress.as_ref()))?;
    columns(py, reports, &options)
}

/// The files that paths select, each with the reason if it is none; see `aulos_files`.
#[pyfunction]
pub(crate) fn find_audio(py: Python<'_>, paths: Vec<PathBuf>) -> Vec<(OsString, Option<String>)> {
    let found = py.detach(|| find_files(&paths));
    let row =
        |file: ScanFile| (file.path.into_os_string(), file.error.map(|error| error.to_string()));
    found.into_iter().map(row).collect()
}

/// Whether a file of this name is one of those that a directory stands for.
#[pyfunction]
pub(crate) fn has_audio_name(path: PathBuf) -> bool {
    aulos_files::scan::has_audio_name(&path)
}

/// Measures segment `index` of `count` of a file: its sample rate, number of channels and figures
/// (`None` if it has no audio), or `None` if the file has to be measured as a whole.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "called by the Python half alone")]
pub(crate) fn measure_segment(
    py: Python<'_>,
    path: PathBuf,
    index: usize,
    count: NonZeroUsize,
    true_peak: bool,
    dual_mono: bool,
    lra_hop: f64,
) -> PyResult<Option<Segment>> {
    let options = scan_options(true_peak, dual_mono, lra_hop, false)?;
    let measured = py.detach(|| scan::measure_segment(&path, index, count, &options));
    Ok(measured.map(|FileSegment { rate, layout, measurement }| {
        let figures = |whole| Loudness::of_file(whole, mode_of(&options), 0.0, None);
        (rate.hz(), layout.channels(), measurement.map(figures))
    }))
}

type Segment = (u32, usize, Option<Loudness>);

/// The columns, of one row, of a file whose segments were all measured.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "called by the Python half alone")]
pub(crate) fn join_segments<'py>(
    py: Python<'py>,
    path: PathBuf,
    segments: Vec<(u32, usize, Option<PyRef<'py, Loudness>>)>,
    true_peak: bool,
    dual_mono: bool,
    lra_hop: f64,
    keep: bool,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let options = scan_options(true_peak, dual_mono, lra_hop, keep)?;
    let segment = |(rate, channels, figures): (_, _, Option<PyRef<'_, Loudness>>)| {
        let rate = SampleRate::new(rate).map_err(|error| invalid(&error))?;
        let layout = ChannelLayout::new(channels).map_err(|error| invalid(&error))?;
        let measurement = figures.map(|figures| figures.measurement().clone());
        Ok(FileSegment { rate, layout, measurement })
    };
    let segments = segments.into_iter().map(segment).collect::<PyResult<Vec<_>>>()?;
    let report = scan::join_segments(path, segments, &options);
    report.map(|report| columns(py, vec![report], &options)).transpose()
}

fn scan_options(
    true_peak: bool,
    dual_mono: bool,
    lra_hop: f64,
    keep: bool,
) -> PyResult<ScanOptions> {
    let range_hop = MeterOptions::new(None, None, dual_mono, lra_hop)?.range_hop;
    Ok(ScanOptions { true_peak, dual_mono, range_hop, keep_measurement: keep, curve: false })
}

fn measure_all(
    paths: Vec<PathBuf>,
    jobs: NonZeroUsize,
    options: &ScanOptions,
    progress: Option<&Py<PyAny>>,
) -> PyResult<Vec<ScanReport>> {
    let files = find_files(&paths);
    let (all, mut measured) = (files.len(), 0);
    let (mut reports, mut raised) = (Vec::with_capacity(all), Ok(()));
    let scanned = scan_files(files, jobs, options, |event| {
        let told = match event {
            // Several times a second: Ctrl-C ends the scan.
            ScanEvent::Progress(_) => Python::attach(|py| py.check_signals()),
            ScanEvent::Measured => {
                measured += 1;
                progress.map_or(Ok(()), |progress| {
                    Python::attach(|py| progress.call1(py, (measured, all)).map(drop))
                })
            }
            ScanEvent::Report(report) => {
                reports.push(*report);
                Ok(())
            }
        };
        match told {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                raised = Err(error);
                ControlFlow::Break(())
            }
        }
    });
    scanned.map_err(|error| PyRuntimeError::new_err(format!("cannot start threads: {error}")))?;
    raised.map(|()| reports)
}

fn columns<'py>(
    py: Python<'py>,
    reports: Vec<ScanReport>,
    options: &ScanOptions,
) -> PyResult<Bound<'py, PyDict>> {
    let columns = PyDict::new(py);
    let paths: Vec<_> = reports.iter().map(|report| report.path.as_os_str()).collect();
    columns.set_item("path", paths)?;
    let errors: Vec<_> = reports.iter().map(|one| one.error.map(|e| e.to_string())).collect();
    columns.set_item("error", errors)?;
    for (name, read) in NUMBERS {
        let values: Vec<f64> = reports.iter().map(|one| read(one).unwrap_or(f64::NAN)).collect();
        columns.set_item(name, values)?;
    }
    if options.keep_measurement {
        let mode = mode_of(options);
        let kept = reports.into_iter().map(|report| kept_loudness(py, report, mode));
        columns.set_item("loudness", kept.collect::<PyResult<Vec<_>>>()?)?;
    }
    Ok(columns)
}

fn mode_of(options: &ScanOptions) -> MeterMode {
    let peak = if options.true_peak { MeterMode::TRUE_PEAK } else { MeterMode::SAMPLE_PEAK };
    MeterMode::RANGE | MeterMode::INTEGRATED | MeterMode::MAXIMA | peak
}

fn kept_loudness(
    py: Python<'_>,
    report: ScanReport,
    mode: MeterMode,
) -> PyResult<Option<Py<Loudness>>> {
    let (Some(kept), Some(shape)) = (report.measurement, report.shape) else { return Ok(None) };
    let threshold = report.loudness.relative_threshold.map(Lufs::get);
    Py::new(py, Loudness::of_file(*kept, mode, shape.seconds, threshold)).map(Some)
}

type Number = fn(&ScanReport) -> Option<f64>;

const NUMBERS: [(&str, Number); 10] = [
    ("sample_rate", |one| one.shape.map(|shape| f64::from(shape.rate.hz()))),
    #[allow(clippy::cast_precision_loss, reason = "64 at most")]
    ("channels", |one| one.shape.map(|shape| shape.layout.channels() as f64)),
    ("seconds", |one| one.shape.map(|shape| shape.seconds)),
    ("integrated", |one| one.loudness.integrated.map(Lufs::get)),
    ("loudness_range", |one| one.loudness.range.map(Db::get)),
    ("max_momentary", |one| one.loudness.max_momentary.map(Lufs::get)),
    ("max_short_term", |one| one.loudness.max_short_term.map(Lufs::get)),
    ("true_peak", |one| one.loudness.true_peak.map(Db::get)),
    ("sample_peak", |one| one.loudness.sample_peak.map(Db::get)),
    ("relative_threshold", |one| one.loudness.relative_threshold.map(Lufs::get)),
];
