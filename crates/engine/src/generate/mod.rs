//! Generated audio: tones, the demo programme, signals for setting up loudspeakers, and a looped
//! sound from memory.
//!
//! A new installation needs something to play before a source is connected, and a meter needs a
//! signal. The alternative was a recording inside the binary: a few minutes of music are megabytes,
//! have a copyright, and fix one rate. Both generators are exact functions of the frame number: the
//! output is the same whatever the length of a block, today and after a year.

mod demo;
mod generator;
mod loop_source;
mod reverb;
mod score;
mod test_tone;
mod tone;
mod voice;

pub use demo::Demo;
pub use generator::Generator;
pub use loop_source::{LoopSource, MAX_LOOP_SAMPLES};
pub use test_tone::{TestTone, TestToneSource};
pub use tone::{Cadence, Sine, Tone, ToneConfig};
