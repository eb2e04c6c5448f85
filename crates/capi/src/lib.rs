//! The loudness meter of `aulos-dsp` with the C interface of libebur128: a binary drop-in
//! replacement for `libebur128.so.1`.
//!
//! Names, struct, constants and corner cases are those of libebur128 1.2.6, figures agree to 1e-9
//! LU. Known differences, all towards safety: a longest window takes memory for its milliseconds
//! and not a thousand times as much, and is refused beyond an hour or 2 GiB; null pointers in place
//! of a state or of samples give an error instead of a crash; below 4 kHz, where the original's
//! filter is unstable, this one is stable; a channel whose position changes counts with its new
//! weight from then on, not for audio already in the windows.
//!
//! [`exports`] has the C functions, `state` their data; the meter does the rest. A panic, which
//! would be a bug, is converted to an error code and never crosses the C boundary.

#![allow(unsafe_code, reason = "this crate is an FFI border")]

pub mod exports;
mod position;
pub mod state;
