//! The sound of one client: room correction, balance, delay and channels of a loudspeaker.
//!
//! ```text
//!  programme -> ChannelMap -> preamp and gain -> bands -> delay -> limiter, if asked for
//! ```
//!
//! A [`SoundChain`] is a value: clients with equal chains share one encoding. [`import`] reads one
//! from the texts that measuring programs write, a [`SoundProgram`] is its coefficients at one
//! rate, and a [`SoundProcessor`] runs it. Convolution was left out: whole impulse responses are
//! the work of `CamillaDSP` behind a client.

mod chain;
mod import;
mod import_problem;
mod presets;
mod processor;
mod text_line;
mod width;

pub use chain::{
    ChannelChain, Headroom, InvalidChain, MAX_CHANNEL_GAIN, MAX_DELAY, MAX_PREAMP, SoundChain,
    response_frequencies,
};
pub use import::{ImportOptions, ImportedChain, export, import};
pub use import_problem::{
    ImportProblem, ImportReason, ImportWarning, MAX_TEXT_BYTES, MAX_TEXT_LINES,
};
pub use presets::SoundPreset;
pub use processor::{SoundProcessor, SoundProgram};

#[cfg(test)]
mod tests;
