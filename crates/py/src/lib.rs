//! The loudness meter of `aulos-dsp` for Python.
//!
//! ```text
//!  any object with a buffer -> buffer (in place, without the GIL) -> dsp::meter -> Meter, Loudness
//! ```
//!
//! Arrays are passed by the buffer protocol, so numpy is not needed to build or to run this module.
//! The Python interface is documented in `python/aulos/__init__.pyi`; this crate only maps names.

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
