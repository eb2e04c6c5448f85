//! The loudness meter of `aulos-dsp` for Python.
//!
//! ```text
//!  any object with a buffer -> buffer (in place, without the GIL) -> dsp::meter -> Meter, Loudness
//! ```
//!
//! Arrays come in by the buffer protocol, so numpy is not needed to build or to run this. What
//! Python sees is described in `python/aulos/__init__.pyi`; nothing is decided here but names.

mod buffer;
mod loudness;
mod meter;
mod options;

use pyo3::prelude::*;

/// The compiled half of the package `aulos`.
#[pymodule]
mod _aulos {
    #[pymodule_export]
    use crate::loudness::{Loudness, merge};
    #[pymodule_export]
    use crate::meter::{Meter, measure};
}
