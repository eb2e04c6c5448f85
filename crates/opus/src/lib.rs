//! Opus (RFC 6716) by `unsafe-libopus`: libopus 1.3.1, translated from C to Rust.
//!
//! The crate exists because the library has libopus' interface, of pointers and unsafe functions.
//! Why this library: `docs/decisions/opus-codec.md`.
//!
//! The library may panic, where libopus would end the program; the state is not to be used after
//! that. Callers contain it (`aulos_engine::codec_guard`).

#![allow(unsafe_code, reason = "every function of the library is unsafe")]

mod decoder;
mod encoder;

pub use decoder::{MultistreamDecoder, OpusDecoder, StreamMapping};
pub use encoder::{Application, EncoderConfig, OpusEncoder};

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;

#[cfg(test)]
mod tests;
