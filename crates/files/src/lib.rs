//! Audio files: decoding, measuring, tagging, normalizing and recording them; and the history of
//! loudness.
//!
//! This crate alone knows decoders and tag containers; `aulos-io` below it has the descriptors and
//! threads. Everything here may wait for the disk and runs on the codec pool, the recorders'
//! threads or the caller's thread, never on that of a station.
//!
//! ```text
//!  file, stream --decode--> source ----ring of blocks----> station
//!  playlist     --decode--> playlist --ring of blocks----> station
//!       file    --decode--> scan (measure, tag), normalize --> file
//!                           record <---ring of blocks---- station
//! ```

#![forbid(unsafe_code)]

pub mod decode;
pub mod history;
pub mod logger;
pub mod normalize;
pub mod playlist;
pub mod record;
pub mod scan;
pub mod sounds;
pub mod source;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
