//! Sound that is made here: a test tone and the demo programme; and sound that is kept here.
//!
//! A fresh house has to be heard before anything is connected to it, and a meter needs something to
//! show. The alternative was a recording inside the binary: a few minutes of music are megabytes,
//! belong to somebody, and fix one rate. Both generators are exact functions of the frame number:
//! the same frames come out whatever the length of a block, today and after a year of running.

mod demo;
mod loop_source;
mod reverb;
mod score;
mod tone;
mod voice;

pub use demo::Demo;
pub use loop_source::{LoopSource, MAX_LOOP_SAMPLES};
pub use tone::Tone;
