//! What the normaliser promises, judged by others.
//!
//! Each test is a guarantee of `aulos_dsp::normalize`; the judge of loudness and true peak is ffmpeg's
//! `ebur128`, beside it the crate of that name, never the meter that the normaliser has inside. The
//! programmes are generated (`aulos_sim`), music of the distribution and speech of espeak-ng.

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
mod judge;
mod live;
mod loudness;
mod music;
mod pauses;
mod peaks;
mod pilot;
mod sound;
