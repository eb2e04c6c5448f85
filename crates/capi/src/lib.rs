//! The loudness meter of `aulos-dsp` behind the C interface of libebur128: a binary drop-in for
//! `libebur128.so.1`.
//!
//! Names, struct, numbers and corner behaviour are those of libebur128 1.2.6, figures agree to
//! 1e-9 LU. Known differences, all towards safety: a longest window takes memory for its
//! milliseconds and not a thousand times as much, and is refused beyond an hour or 2 GiB; null pointers in
//! place of a state or of samples are answered with an error instead of a crash; below 4 kHz, where
//! the original's filter is not stable, ours is; a channel that is moved counts at its new place
//! from then on, not for what the windows already hold.
//!
//! Nothing is decided here: [`exports`] holds the C functions, `state` what they work on. A panic,
//! which would be a defect of ours, is turned into an error code and never crosses the border.

#![allow(unsafe_code, reason = "this crate is an FFI border")]

pub mod exports;
mod position;
pub mod state;
