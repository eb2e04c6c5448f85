//! The figures of a programme, independent of the meter.

use std::fmt::Write as _;

use aulos_core::{Db, Lufs};
use aulos_dsp::meter::{Measurement, Meter, MeterMode};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::options::{MODES, invalid};

/// Immutable; what does not exist is None.
#[pyclass(frozen, module = "aulos")]
#[derive(Clone)]
pub(crate) struct Loudness {
    measurement: Measurement,
    mode: MeterMode,
    #[pyo3(get)]
    seconds: f64,
    #[pyo3(get)]
    relative_threshold: Option<f64>,
}

impl Loudness {
    pub(crate) fn of(meter: &Meter) -> Self {
        let rate = f64::from(meter.config().rate.hz());
        #[allow(clippy::cast_precision_loss, reason = "below 2^53 frames")]
        let seconds = meter.frames().0 as f64 / rate;
        let heard = finite(meter.integrated()).is_some();
        let relative_threshold = finite(meter.relative_threshold()).filter(|_| heard);
        let (measurement, mode) = (meter.measurement(), meter.config().mode);
        Self { measurement, mode, seconds, relative_threshold }
    }

    /// The figures of a file.
    pub(crate) const fn of_file(
        measurement: Measurement,
        mode: MeterMode,
        seconds: f64,
        relative_threshold: Option<f64>,
    ) -> Self {
        Self { measurement, mode, seconds, relative_threshold }
    }

    pub(crate) const fn measurement(&self) -> &Measurement {
        &self.measurement
    }

    /// This programme and `next` after it. The relative threshold of the whole is not part of the
    /// figures.
    pub(crate) fn followed_by(&self, next: &Self) -> PyResult<Self> {
        next.check_mode(self.mode)?;
        let mut measurement = self.measurement.clone();
        measurement.merge(&next.measurement).map_err(|error| invalid(&error))?;
        let seconds = self.seconds + next.seconds;
        Ok(Self { measurement, mode: self.mode, seconds, relative_threshold: None })
    }

    pub(crate) fn check_mode(&self, mode: MeterMode) -> PyResult<()> {
        let what = "the parts were not measured with the same mode";
        if self.mode == mode { Ok(()) } else { Err(PyValueError::new_err(what)) }
    }

    fn figures(&self) -> [(&'static str, Option<f64>); 7] {
        [
            ("integrated", self.integrated()),
            ("loudness_range", self.loudness_range()),
            ("max_momentary", self.max_momentary()),
            ("max_short_term", self.max_short_term()),
            ("true_peak", self.true_peak()),
            ("sample_peak", self.sample_peak()),
            ("relative_threshold", self.relative_threshold),
        ]
    }

    fn if_measured(&self, mode: MeterMode, after: f64) -> Option<&Measurement> {
        (self.mode.contains(mode) && self.seconds >= after).then_some(&self.measurement)
    }
}

#[pymethods]
impl Loudness {
    #[getter]
    pub(crate) fn integrated(&self) -> Option<f64> {
        finite(Some(self.if_measured(MeterMode::INTEGRATED, 0.0)?.integrated()))
    }

    #[getter]
    pub(crate) fn loudness_range(&self) -> Option<f64> {
        let measured = self.if_measured(MeterMode::RANGE, SHORT_TERM)?;
        self.integrated().map(|_| measured.range().get())
    }

    #[getter]
    pub(crate) fn max_momentary(&self) -> Option<f64> {
        finite(Some(self.if_measured(MeterMode::MAXIMA, MOMENTARY)?.max_momentary()))
    }

    #[getter]
    pub(crate) fn max_short_term(&self) -> Option<f64> {
        let mode = MeterMode::MAXIMA | MeterMode::SHORT_TERM;
        finite(Some(self.if_measured(mode, SHORT_TERM)?.max_short_term()))
    }

    #[getter]
    pub(crate) fn true_peak(&self) -> Option<f64> {
        decibels(self.if_measured(MeterMode::TRUE_PEAK, 0.0)?.true_peak())
    }

    #[getter]
    pub(crate) fn sample_peak(&self) -> Option<f64> {
        decibels(self.if_measured(MeterMode::SAMPLE_PEAK, 0.0)?.sample_peak())
    }

    #[getter]
    fn rejected(&self) -> u64 {
        self.measurement.rejected()
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut bytes = vec![VERSION, mode_bits(self.mode)];
        let threshold = self.relative_threshold.unwrap_or(f64::NAN);
        bytes.extend(self.seconds.to_le_bytes());
        bytes.extend(threshold.to_le_bytes());
        bytes.extend(self.measurement.to_bytes());
        PyBytes::new(py, &bytes)
    }

    #[staticmethod]
    fn from_bytes(data: &[u8]) -> PyResult<Self> {
        let foreign =
            || PyValueError::new_err("not the output of Loudness.to_bytes() of this version");
        let (&[version, bits], rest) = data.split_first_chunk().ok_or_else(foreign)?;
        let (seconds, rest) = rest.split_first_chunk().ok_or_else(foreign)?;
        let (threshold, rest) = rest.split_first_chunk().ok_or_else(foreign)?;
        let (seconds, threshold) = (f64::from_le_bytes(*seconds), f64::from_le_bytes(*threshold));
        let mode = mode_of(bits).ok_or_else(foreign)?;
        if version != VERSION || !seconds.is_finite() || seconds < 0.0 {
            return Err(foreign());
        }
        let measurement = Measurement::from_bytes(rest).map_err(|_| foreign())?;
        let relative_threshold = threshold.is_finite().then_some(threshold);
        Ok(Self { measurement, mode, seconds, relative_threshold })
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        Ok((py.get_type::<Self>().getattr("from_bytes")?, (self.to_bytes(py),)))
    }

    fn __eq__(&self, other: &Self) -> bool {
        let alone = |all: &Self| (all.mode, all.seconds.to_bits(), all.figures().map(bits));
        alone(self) == alone(other) && self.measurement == other.measurement
    }

    fn __repr__(&self) -> String {
        let mut text = format!("Loudness(seconds={:.3}", self.seconds);
        for (name, value) in self.figures() {
            // Writing to a string cannot fail.
            let _ = match value {
                Some(value) => write!(text, ", {name}={value:.2}"),
                None => write!(text, ", {name}=None"),
            };
        }
        text + ")"
    }
}

/// Figures of several programmes as if one had followed the other.
#[pyfunction]
pub(crate) fn merge(parts: Vec<PyRef<'_, Loudness>>) -> PyResult<Loudness> {
    let Some((first, rest)) = parts.split_first() else {
        return Err(PyValueError::new_err("nothing to merge: the sequence is empty"));
    };
    rest.iter().try_fold(Loudness::clone(first), |whole, part| whole.followed_by(part))
}

pub(crate) fn finite(lufs: Option<Lufs>) -> Option<f64> {
    lufs.map(Lufs::get).filter(|value| value.is_finite())
}

/// An amplitude in dB of full scale; `None` for silence.
pub(crate) fn decibels(amplitude: f64) -> Option<f64> {
    Some(Db::from_amplitude(amplitude).get()).filter(|value| value.is_finite())
}

fn bits((_, value): (&'static str, Option<f64>)) -> Option<u64> {
    value.map(f64::to_bits)
}

fn mode_bits(mode: MeterMode) -> u8 {
    let single = MODES.iter().take(MODES.len() - 1).enumerate();
    single.filter(|(_, (_, bit))| mode.contains(*bit)).fold(0, |bits, (at, _)| bits | 1 << at)
}

fn mode_of(bits: u8) -> Option<MeterMode> {
    let single = MODES.iter().take(MODES.len() - 1).enumerate();
    let set = single.filter(|(at, _)| bits & 1 << at != 0).map(|(_, (_, mode))| *mode);
    set.reduce(|all, mode| all | mode)
}

const VERSION: u8 = 1;
/// The windows of R 128, in seconds: a shorter programme has no maxima.
const MOMENTARY: f64 = 0.4;
const SHORT_TERM: f64 = 3.0;
