//! Signal processing: format conversion, resampling, fades, levels, loudness.
//!
//! ```text
//!  bytes -> convert -> remix -> Resampler -> Crossfade -> Equalizer -> Normalizer
//!        -> LevelMeter, Meter
//!        -> Limiter -> Dither, convert -> bytes
//! ```
//!
//! All functions work on interleaved f32 with a full scale of +-1.0, in place or from slice to
//! slice, in blocks of any size. Nothing allocates after construction.

mod comfort;
pub mod convert;
mod dither;
pub mod equalizer;
mod fade;
mod frame_start;
pub mod g711;
pub mod g722;
mod level;
mod limiter;
pub mod linear_pcm;
pub mod meter;
pub mod normalize;
mod ramp;
mod remix;
mod resample;
mod route;
pub mod silence;
mod simd;
pub mod sound;

pub use comfort::ComfortNoise;
pub use dither::Dither;
pub use fade::{Crossfade, apply_gain, mix_in};
pub use frame_start::{COMPARED_FRAMES, FrameStart, compare_frame_starts};
pub use level::LevelMeter;
pub use limiter::Limiter;
pub use ramp::GainRamp;
pub use remix::remix;
pub use resample::{ResampleProgress, Resampler};
pub use route::route;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
