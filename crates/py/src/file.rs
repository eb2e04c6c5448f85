//! A whole audio file as an array.

use std::path::{Path, PathBuf};

use aulos_core::{Block, ChannelLayout, SampleRate};
use aulos_files::decode::{FileDecodeOptions, FileDecodeStatus, OpenError, UniformDecoder};
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyPermissionError, PyValueError};
use pyo3::prelude::*;

use crate::buffer::frames_view;

/// Decodes a whole file: its samples as a memoryview of float32 with the shape (frames, channels),
/// and its sample rate.
#[pyfunction]
pub(crate) fn read(py: Python<'_>, path: PathBuf) -> PyResult<(Bound<'_, PyAny>, u32)> {
    let (samples, rate, channels) = py.detach(|| decode(&path))?;
    Ok((frames_view(py, &samples, channels)?, rate.hz()))
}

fn decode(path: &Path) -> PyResult<(Vec<f32>, SampleRate, usize)> {
    let named = |reason: &dyn ToString| format!("{}: {}", path.display(), reason.to_string());
    let opened = UniformDecoder::open(path, FileDecodeOptions::default());
    let mut decoder = opened.map_err(|error| open_error(error, named(&error)))?;
    let (rate, layout) = (decoder.info().rate, decoder.info().layout);
    let mut block = Block::with_capacity(rate, ChannelLayout::STEREO, BLOCK_SAMPLES);
    let mut samples = Vec::new();
    loop {
        let status = decoder.next(&mut block);
        match status.map_err(|error| PyValueError::new_err(named(&error)))? {
            FileDecodeStatus::End => return Ok((samples, rate, layout.channels())),
            FileDecodeStatus::Block => samples.extend_from_slice(block.samples()),
        }
    }
}

/// The exception that Python's own `open` raises for the same reason; what is no audio is a
/// `ValueError`.
fn open_error(error: OpenError, message: String) -> PyErr {
    match error {
        OpenError::NoSuchFile => PyFileNotFoundError::new_err(message),
        OpenError::Permission => PyPermissionError::new_err(message),
        OpenError::Io(_) | OpenError::NotAFile | OpenError::OutsideRoots => {
            PyOSError::new_err(message)
        }
        _ => PyValueError::new_err(message),
    }
}

const BLOCK_SAMPLES: usize = 1 << 14;
