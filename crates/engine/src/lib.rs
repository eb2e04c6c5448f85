//! Audio processing without I/O: sources, switching, loudness, encoding and fan-out.
//!
//! ```text
//!  Source -> Input -+
//!  Source -> Input -+-> Switch -> LoudnessProcessor -> AnnouncementMixer -> limiter -> Rendition
//!   (LoudnessMeter)     (Insert)  (one clock)     |                       |-> Overlay     (Encoder)
//!                                                 |-> StationTap -> SwappableSource        v
//!                                                       (another station)       ring per reactor
//!                                                                                          v
//!                                                                       ChunkLog, ChunkCursor
//! ```
//!
//! No code in this crate reads a clock or touches a socket: `now` is an argument, so a test runs
//! hours of audio in milliseconds.

#![forbid(unsafe_code)]

pub mod announce;
pub mod codec_guard;
mod control_port;
pub mod decode;
pub mod encode;
pub mod fanout;
pub mod generate;
pub mod input;
pub mod insert;
pub mod loudness;
pub mod loudness_processor;
pub mod output_bus;
pub mod overlay;
pub mod ready_chunk;
pub mod recorder;
pub mod rendition;
pub mod servo;
pub mod source;
pub mod standby;
pub mod station;
pub mod status;
pub mod swappable_source;
pub mod switch;
pub mod tapped_rendition;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
