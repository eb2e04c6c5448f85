//! Access to the samples of a Python object in place.
//!
//! An array in C order is interleaved, one in Fortran order (the result of `x.T` for an array of
//! channels) is planar; both are measured in place. Anything else is copied first. The GIL is
//! released meanwhile, as in numpy: writing to an array during the measurement gives a meaningless
//! figure.

#![allow(unsafe_code, reason = "memory that Python owns")]

use aulos_dsp::meter::{Meter, MeterSample};
use pyo3::buffer::{Element, PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyMemoryView};

/// An array that can be measured.
pub(crate) struct SampleArray {
    samples: Samples,
    frames: usize,
    pub(crate) channels: usize,
}

enum Samples {
    I16(PyBuffer<i16>),
    I32(PyBuffer<i32>),
    F32(PyBuffer<f32>),
    F64(PyBuffer<f64>),
}

impl SampleArray {
    /// Checks and wraps an object of shape (frames,) or (frames, channels).
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let Ok(buffer) = PyUntypedBuffer::get(object) else {
            let kind = object.get_type().name()?;
            let what = format!("{WANTED}, not {kind}; convert it with numpy.asarray(x, 'float32')");
            return Err(PyTypeError::new_err(what));
        };
        let (frames, channels) = match *buffer.shape() {
            [frames] => (frames, 1),
            [frames, channels] => (frames, channels),
            ref shape => {
                let what = format!("shape {shape:?}: expected (frames,) or (frames, channels)");
                return Err(PyValueError::new_err(what));
            }
        };
        let samples = Samples::of(buffer)?;
        Ok(Self { samples, frames, channels })
    }

    /// Feeds the samples to a meter with the same number of channels.
    pub(crate) fn feed(&self, py: Python<'_>, meter: &mut Meter) -> PyResult<()> {
        match &self.samples {
            Samples::I16(buffer) => self.feed_as(py, buffer, meter),
            Samples::I32(buffer) => self.feed_as(py, buffer, meter),
            Samples::F32(buffer) => self.feed_as(py, buffer, meter),
            Samples::F64(buffer) => self.feed_as(py, buffer, meter),
        }
    }

    /// A copy of the samples, interleaved, with a full scale of 1.
    pub(crate) fn to_f32(&self, py: Python<'_>) -> PyResult<Vec<f32>> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "rounded")]
        Ok(match &self.samples {
            Samples::I16(buffer) => scaled(&buffer.to_vec(py)?, |x| f32::from(x) / 32_768.0),
            Samples::I32(buffer) => scaled(&buffer.to_vec(py)?, |x| x as f32 / 2_147_483_648.0),
            Samples::F32(buffer) => buffer.to_vec(py)?,
            Samples::F64(buffer) => scaled(&buffer.to_vec(py)?, |x| x as f32),
        })
    }

    fn feed_as<T: Element + MeterSample + Send + Sync>(
        &self,
        py: Python<'_>,
        buffer: &PyBuffer<T>,
        meter: &mut Meter,
    ) -> PyResult<()> {
        if self.frames == 0 || self.channels == 0 {
            return Ok(());
        }
        if let Some(samples) = buffer.as_slice_ptr() {
            // SAFETY: Python keeps the memory, of this type and length, while the buffer is held;
            // any bits are a valid sample, and no decision about memory depends on their values.
            let samples = unsafe { samples.as_ref() };
            py.detach(|| meter.add(samples));
        } else if let Some(samples) = buffer.as_fortran_slice_ptr() {
            // SAFETY: as above.
            let samples = unsafe { samples.as_ref() };
            let planes: Vec<&[T]> = samples.chunks_exact(self.frames).collect();
            py.detach(|| meter.add_planar(&planes));
        } else {
            let samples = buffer.to_vec(py)?;
            py.detach(|| meter.add(&samples));
        }
        Ok(())
    }
}

fn scaled<T: Copy>(samples: &[T], convert: impl Fn(T) -> f32) -> Vec<f32> {
    samples.iter().map(|sample| convert(*sample)).collect()
}

/// A memoryview of `samples` with the shape (frames, channels).
pub(crate) fn frames_view<'py>(
    py: Python<'py>,
    samples: &[f32],
    channels: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let bytes = PyByteArray::new_with(py, size_of_val(samples), |bytes| {
        for (bytes, sample) in bytes.as_chunks_mut().0.iter_mut().zip(samples) {
            *bytes = sample.to_ne_bytes();
        }
        Ok(())
    })?;
    let view = PyMemoryView::from(&bytes)?;
    // Python has no views without frames in two dimensions.
    if samples.is_empty() {
        return view.call_method1("cast", ("f",));
    }
    view.call_method1("cast", ("f", (samples.len() / channels, channels)))
}

impl Samples {
    fn of(buffer: PyUntypedBuffer) -> PyResult<Self> {
        let format = buffer.format().to_string_lossy().into_owned();
        // The library assumes the native byte order.
        let foreign = if cfg!(target_endian = "little") { ['>', '!'] } else { ['<', '<'] };
        let native = !format.starts_with(foreign);
        if native && buffer.as_typed::<f32>().is_ok() {
            Ok(Self::F32(buffer.into_typed()?))
        } else if native && buffer.as_typed::<f64>().is_ok() {
            Ok(Self::F64(buffer.into_typed()?))
        } else if native && buffer.as_typed::<i16>().is_ok() {
            Ok(Self::I16(buffer.into_typed()?))
        } else if native && buffer.as_typed::<i32>().is_ok() {
            Ok(Self::I32(buffer.into_typed()?))
        } else {
            let what = format!(
                "{WANTED}, aligned and in native byte order, not of format {format:?}; \
                 convert it with x.astype('float32'), whose full scale is 1.0"
            );
            Err(PyTypeError::new_err(what))
        }
    }
}

const WANTED: &str = "sound must be an array of int16, int32, float32 or float64";
