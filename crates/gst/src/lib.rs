//! GStreamer elements of aulos.
//!
//! ```text
//!  aulosnormalize   live loudness normalization   dsp::normalize
//!  aulosmeter       loudness as messages          dsp::meter
//!  aulosfallback    the best of several inputs    engine::switch, dsp (resampler, cross-fade)
//! ```
//!
//! The elements only adapt: they convert buffers and times, negotiate and report. What can be
//! decided without GStreamer is in modules that do not use it, and is tested without it.

mod failure;
mod fallback;
mod lock;
mod meter;
mod normalize;
mod pcm;
mod plugin;
mod time_map;

pub use plugin::plugin_register_static;
