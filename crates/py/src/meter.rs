//! The meter, and the measurement of a whole array.

use aulos_dsp::meter;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::buffer::SampleArray;
use crate::loudness::{Loudness, decibels, finite};
use crate::options::{Modes, Options, Place, invalid};

/// A meter that hears sound piece by piece.
#[pyclass(module = "aulos")]
pub(crate) struct Meter {
    meter: meter::Meter,
}

#[pymethods]
impl Meter {
    #[new]
    #[pyo3(signature = (rate, channels=2, *, mode=None, positions=None, dual_mono=false, lra_hop=1.0))]
    fn new(
        rate: u32,
        channels: usize,
        mode: Option<Modes>,
        positions: Option<Vec<Place>>,
        dual_mono: bool,
        lra_hop: f64,
    ) -> PyResult<Self> {
        let config = Options::new(mode, positions, dual_mono, lra_hop)?.config(rate, channels)?;
        Ok(Self { meter: meter::Meter::new(config).map_err(|error| invalid(&error))? })
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
    }

    fn loudness(&self) -> Loudness {
        Loudness::of(&self.meter)
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
    fn integrated(&self) -> Option<f64> {
        finite(self.meter.integrated())
    }

    #[getter]
    fn relative_threshold(&self) -> Option<f64> {
        self.integrated().and_then(|_| finite(self.meter.relative_threshold()))
    }

    #[getter]
    fn loudness_range(&self) -> Option<f64> {
        self.loudness().loudness_range()
    }

    #[getter]
    fn max_momentary(&self) -> Option<f64> {
        finite(self.meter.max_momentary())
    }

    #[getter]
    fn max_short_term(&self) -> Option<f64> {
        finite(self.meter.max_short_term())
    }

    #[getter]
    fn true_peak(&self) -> Option<f64> {
        greatest(&self.true_peaks()?)
    }

    #[getter]
    fn sample_peak(&self) -> Option<f64> {
        greatest(&self.sample_peaks()?)
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
    mode: Option<Modes>,
    positions: Option<Vec<Place>>,
    dual_mono: bool,
    lra_hop: f64,
) -> PyResult<Loudness> {
    let (py, sound) = (sound.py(), SampleArray::of(sound)?);
    let options = Options::new(mode, positions, dual_mono, lra_hop)?;
    let config = options.config(rate, sound.channels)?;
    let mut meter = meter::Meter::new(config).map_err(|error| invalid(&error))?;
    sound.feed(py, &mut meter)?;
    Ok(Loudness::of(&meter))
}

fn greatest(peaks: &[Option<f64>]) -> Option<f64> {
    peaks.iter().copied().flatten().reduce(f64::max)
}
