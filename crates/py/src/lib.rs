//! Loudness, normalization and audio files for Python.
//!
//! ```text
//!  any object with a buffer -> buffer (in place, without the GIL) -> dsp::meter -> Meter, Loudness
//!                                   \-> f32 ---------------------> dsp::normalize -> memoryview
//!  paths ------------------------------------------------------> files -> columns, memoryview
//! ```
//!
//! Arrays are passed by the buffer protocol, so numpy is not needed to build or to run this module.
//! The Python interface is documented in `python/aulos/__init__.pyi`; this crate only maps names.

mod buffer;
mod file;
mod loudness;
mod meter;
mod normalizer;
mod options;
mod scan;

use pyo3::prelude::*;

/// The compiled half of the package `aulos`.
#[pymodule]
mod _aulos {
    #[pymodule_export]
    use crate::file::read;
    #[pymodule_export]
    use crate::loudness::{Loudness, merge};
    #[pymodule_export]
    use crate::meter::{Meter, measure, restore_meter};
    #[pymodule_export]
    use crate::normalizer::Normalizer;
    #[pymodule_export]
    use crate::scan::{find_audio, has_audio_name, join_segments, measure_segment, scan_columns};
}
