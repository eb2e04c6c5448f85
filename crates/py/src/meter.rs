//! The meter, and the measurement of a whole array.

use aulos_dsp::meter;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::buffer::SampleArray;
use crate::loudness::{Loudness, decibels, finite};
use crate::options::{MeterOptions, ModesArgument, PositionArgument, invalid, mode_names};

/// A meter that hears sound piece by piece.
#[pyclass(module = "aulos")]
pub(crate) struct Meter {
    meter: meter::Meter,
    /// What it was made with.
    positions: Option<Vec<PositionArgument>>,
    dual_mono: bool,
    /// Merged programmes, which count as heard before.
    earlier: Option<Loudness>,
}

#[pymethods]
impl Meter {
    #[new]
    #[pyo3(signature = (rate, channels=2, *, mode=None, positions=None, dual_mono=false, lra_hop=1.0))]
    fn new(
        rate: u32,
        channels: usize,
        mode: Option<ModesArgument>,
        positions: Option<Vec<PositionArgument>>,
        dual_mono: bool,
        lra_hop: f64,
    ) -> PyResult<Self> {
        let options = MeterOptions::new(mode, positions.clone(), dual_mono, lra_hop)?;
        let config = options.config(rate, channels)?;
        let meter = meter::Meter::new(config).map_err(|error| invalid(&error))?;
        Ok(Self { meter, positions, dual_mono, earlier: None })
    }

    fn add(&mut self, py: Python<'_>, sound: &Bound<'_, PyAny>) -> PyResult<()> {
        let sound = SampleArray::of(sound)?;
        if sound.channels != self.channels() {
            let (has, wants) = (sound.channels, self.channels());
            let what = format!(
                "sound has {has} channels, but the meter has {wants}: the shape must be (frames, {wants})"
            );
            return Err(PyValueError::new_err(what));
        }
        sound.feed(py, &mut self.meter)
    }

    fn reset(&mut self) {
        self.meter.reset();
        self.earlier = None;
    }

    fn loudness(&self) -> PyResult<Loudness> {
        let own = Loudness::of(&self.meter);
        self.earlier.as_ref().map_or_else(|| Ok(own.clone()), |earlier| earlier.followed_by(&own))
    }

    fn merge(&mut self, other: MergedPart<'_>) -> PyResult<()> {
        let other = match other {
            MergedPart::Meter(meter) => meter.loudness()?,
            MergedPart::Loudness(loudness) => loudness.clone(),
        };
        other.check_mode(self.meter.config().mode)?;
        self.earlier = Some(match &self.earlier {
            Some(earlier) => earlier.followed_by(&other)?,
            None => other,
        });
        Ok(())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        let config = self.meter.config();
        let hop = if config.range_hop == meter::RangeHop::Tenth { 0.1 } else { 1.0 };
        let keywords = PyDict::new(py);
        keywords.set_item("mode", mode_names(config.mode))?;
        keywords.set_item("positions", self.positions.clone())?;
        keywords.set_item("dual_mono", self.dual_mono)?;
        keywords.set_item("lra_hop", hop)?;
        let heard = (self.frames() > 0 || self.earlier.is_some()).then(|| self.loudness());
        let heard = heard.transpose()?;
        let restore = py.import("aulos._aulos")?.getattr("_restore_meter")?;
        Ok((restore, (self.rate(), self.channels(), keywords, heard)))
    }

    #[getter]
    fn rate(&self) -> u32 {
        self.meter.config().rate.hz()
    }

    #[getter]
    fn channels(&self) -> usize {
        self.meter.config().positions.len()
    }

    #[getter]
    fn frames(&self) -> u64 {
        self.meter.frames().0
    }

    #[getter]
    fn rejected(&self) -> u64 {
        self.meter.rejected()
    }

    #[getter]
    fn momentary(&self) -> Option<f64> {
        finite(self.meter.momentary())
    }

    #[getter]
    fn short_term(&self) -> Option<f64> {
        finite(self.meter.short_term())
    }

    #[getter]
    fn integrated(&self) -> PyResult<Option<f64>> {
        match self.earlier {
            None => Ok(finite(self.meter.integrated())),
            Some(_) => Ok(self.loudness()?.integrated()),
        }
    }

    #[getter]
    fn relative_threshold(&self) -> PyResult<Option<f64>> {
        // That of merged programmes is not part of their figures.
        let own = finite(self.meter.relative_threshold()).filter(|_| self.earlier.is_none());
        Ok(self.integrated()?.and(own))
    }

    #[getter]
    fn loudness_range(&self) -> PyResult<Option<f64>> {
        Ok(self.loudness()?.loudness_range())
    }

    #[getter]
    fn max_momentary(&self) -> PyResult<Option<f64>> {
        match self.earlier {
            None => Ok(finite(self.meter.max_momentary())),
            Some(_) => Ok(self.loudness()?.max_momentary()),
        }
    }

    #[getter]
    fn max_short_term(&self) -> PyResult<Option<f64>> {
        match self.earlier {
            None => Ok(finite(self.meter.max_short_term())),
            Some(_) => Ok(self.loudness()?.max_short_term()),
        }
    }

    #[getter]
    fn true_peak(&self) -> PyResult<Option<f64>> {
        Ok(self.loudness()?.true_peak())
    }

    #[getter]
    fn sample_peak(&self) -> PyResult<Option<f64>> {
        Ok(self.loudness()?.sample_peak())
    }

    #[getter]
    fn true_peaks(&self) -> Option<Vec<Option<f64>>> {
        self.peaks(meter::Meter::true_peak)
    }

    #[getter]
    fn sample_peaks(&self) -> Option<Vec<Option<f64>>> {
        self.peaks(meter::Meter::sample_peak)
    }

    fn __repr__(&self) -> String {
        let (rate, channels) = (self.rate(), self.channels());
        format!("Meter({rate}, {channels}, mode={:?})", self.meter.config().mode)
    }
}

impl Meter {
    /// In dB, one per channel.
    fn peaks(
        &self,
        read: impl Fn(&meter::Meter, usize) -> Option<f64>,
    ) -> Option<Vec<Option<f64>>> {
        (0..self.channels()).map(|channel| read(&self.meter, channel).map(decibels)).collect()
    }
}

/// Measures a whole array.
#[pyfunction]
#[pyo3(signature = (sound, rate, *, mode=None, positions=None, dual_mono=false, lra_hop=1.0))]
pub(crate) fn measure(
    sound: &Bound<'_, PyAny>,
    rate: u32,
    mode: Option<ModesArgument>,
    positions: Option<Vec<PositionArgument>>,
    dual_mono: bool,
    lra_hop: f64,
) -> PyResult<Loudness> {
    let (py, sound) = (sound.py(), SampleArray::of(sound)?);
    let options = MeterOptions::new(mode, positions, dual_mono, lra_hop)?;
    let config = options.config(rate, sound.channels)?;
    let mut meter = meter::Meter::new(config).map_err(|error| invalid(&error))?;
    sound.feed(py, &mut meter)?;
    Ok(Loudness::of(&meter))
}

/// Makes a pickled meter again.
#[pyfunction]
#[pyo3(name = "_restore_meter")]
pub(crate) fn restore_meter(
    py: Python<'_>,
    rate: u32,
    channels: usize,
    keywords: &Bound<'_, PyDict>,
    heard: Option<PyRef<'_, Loudness>>,
) -> PyResult<Py<Meter>> {
    let made = py.get_type::<Meter>().call((rate, channels), Some(keywords))?;
    let made = made.cast_into::<Meter>()?;
    made.borrow_mut().earlier = heard.map(|heard| heard.clone());
    Ok(made.unbind())
}

/// What a meter takes in as heard before.
#[derive(FromPyObject)]
pub(crate) enum MergedPart<'py> {
    Meter(PyRef<'py, Meter>),
    Loudness(PyRef<'py, Loudness>),
}

type Restored<'py> = (u32, usize, Bound<'py, PyDict>, Option<Loudness>);
type Reduced<'py> = (Bound<'py, PyAny>, Restored<'py>);
