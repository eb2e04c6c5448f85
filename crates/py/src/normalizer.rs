//! The live normalizer on arrays.

use aulos_core::{ChannelLayout, Db, Lufs, SampleRate};
use aulos_dsp::normalize::{self, LookAhead, NormalizerError, NormalizerPreset, Settings};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::buffer::{SampleArray, frames_view};
use crate::loudness::finite;
use crate::options::{find, invalid};

/// A normalizer that processes sound piece by piece.
#[pyclass(module = "aulos")]
pub(crate) struct Normalizer {
    normalizer: normalize::Normalizer,
    rate: SampleRate,
    layout: ChannelLayout,
}

#[pymethods]
impl Normalizer {
    #[new]
    #[pyo3(signature = (
        rate, channels=2, *, mode="full", preset="r128", target=None, ceiling=None, range=None,
        dual_mono=false
    ))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        rate: u32,
        channels: usize,
        mode: &str,
        preset: &str,
        target: Option<f64>,
        ceiling: Option<f64>,
        range: Option<f64>,
        dual_mono: bool,
    ) -> PyResult<Self> {
        let mode = find("mode", mode, &MODES)?;
        let defaults =
            preset.parse::<NormalizerPreset>().map_err(|error| invalid(&error))?.settings();
        let settings = Settings {
            target: target.map_or(defaults.target, Lufs::new),
            ceiling: ceiling.map_or(defaults.ceiling, Db::new),
            tolerance: range.map_or(defaults.tolerance, Db::new),
            dual_mono,
            ..defaults
        };
        let rate = SampleRate::new(rate).map_err(|error| invalid(&error))?;
        let layout = ChannelLayout::new(channels).map_err(|error| invalid(&error))?;
        let made = normalize::Normalizer::new(mode, settings, rate, layout);
        let normalizer = made.map_err(|error| match error {
            // The setting has another name than the argument.
            NormalizerError::Settings(mut setting) if setting.name == "tolerance" => {
                setting.name = "range";
                invalid(&setting)
            }
            error => invalid(&error),
        })?;
        Ok(Self { normalizer, rate, layout })
    }

    fn process<'py>(
        &mut self,
        py: Python<'py>,
        sound: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let sound = SampleArray::of(sound)?;
        if sound.channels != self.channels() {
            let (has, wants) = (sound.channels, self.channels());
            let what = format!("sound has {has} channels, but the normalizer has {wants}");
            return Err(PyValueError::new_err(what));
        }
        let mut samples = sound.to_f32(py)?;
        py.detach(|| self.normalizer.process(&mut samples));
        frames_view(py, &samples, self.channels())
    }

    fn drain<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let channels = self.channels();
        let (mut samples, mut block) = (Vec::new(), vec![0.0; DRAINED_FRAMES * channels]);
        loop {
            let frames = self.normalizer.drain(&mut block).as_usize();
            if frames == 0 {
                return frames_view(py, &samples, channels);
            }
            samples.extend_from_slice(&block[..frames * channels]);
        }
    }

    #[getter]
    fn rate(&self) -> u32 {
        self.rate.hz()
    }

    #[getter]
    fn channels(&self) -> usize {
        self.layout.channels()
    }

    #[getter]
    fn latency(&self) -> u64 {
        self.normalizer.latency().0
    }

    #[getter]
    fn gain(&self) -> f64 {
        self.normalizer.statistics().gain.get()
    }

    #[getter]
    fn input_integrated(&self) -> Option<f64> {
        finite(Some(self.normalizer.statistics().input.integrated))
    }

    #[getter]
    fn output_integrated(&self) -> Option<f64> {
        finite(Some(self.normalizer.statistics().output.integrated))
    }
}

/// As in the configuration of a station.
const MODES: [(&str, LookAhead); 4] = [
    ("full", LookAhead::Full),
    ("mid", LookAhead::Mid),
    ("low", LookAhead::Low),
    ("gain-only", LookAhead::GainOnly),
];

const DRAINED_FRAMES: usize = 4_096;
