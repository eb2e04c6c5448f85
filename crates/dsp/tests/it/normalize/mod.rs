//! The guarantees of the normalizer, checked with independent meters.
//!
//! Each test is a guarantee of `aulos_dsp::normalize`; loudness and true peak are measured by
//! ffmpeg's `ebur128` and by the crate of that name, never by the meter inside the normalizer. The
//! programmes are generated (`aulos_sim`), music packages of the distribution, and speech of
//! espeak-ng.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test signals and helpers of tests"
)]

mod bounds;
mod live;
mod loudness;
mod material;
mod music;
mod passages;
mod pauses;
mod peaks;
mod pilot;
mod reference;
mod sound;
