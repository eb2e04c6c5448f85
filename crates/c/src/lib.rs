//! `libaulos.so.0`: the live normalizer of `aulos-dsp`, the pipe and the notifier of `aulos-rt` for
//! C.
//!
//! `include/aulos.h` documents the functions, which only check arguments and map names.
//! `aulos-capi` is a library of its own, because its exports are those of libebur128 and no others.
//!
//! All functions share one contract: an object comes from its `create`, has not been destroyed, and
//! is used by one thread at a time; results can be written to; buffers are as long as their length
//! arguments say. Null pointers give an error. A panic, which would be a bug, is converted to an
//! error code and never crosses the C boundary.

#![allow(unsafe_code, reason = "this crate is an FFI border")]
#![allow(clippy::missing_safety_doc, reason = "one contract, at the head of the crate")]

mod error;
pub mod normalizer;
pub mod notify;
pub mod pipe;

use core::ffi::{c_char, c_int};

/// The version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn aulos_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// An error in words.
#[unsafe(no_mangle)]
pub extern "C" fn aulos_error_text(error: c_int) -> *const c_char {
    error::text(error).as_ptr()
}
