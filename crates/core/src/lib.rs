//! Shared types: sample rate, sample format, block, chunk, media time and local time.
//!
//! This crate contains only what two layers have to agree on: units that cannot be mixed up,
//! arithmetic that neither wraps nor accumulates errors, and the two containers of audio.
//!
//! ```text
//!  SampleRate x SampleFormat x ChannelLayout = SampleSpec
//!
//!  MediaTime (frames) --- Timeline (rate, drift) --- Instant (nanoseconds)
//!
//!  Block: f32, one owner, mutable        Chunk: encoded, shared, frozen
//! ```
//!
//! Only constructors of containers allocate; no function reads a clock.

#![forbid(unsafe_code)]

mod backoff;
mod block;
mod calendar;
mod chunk;
mod clock_bounds;
mod codec;
mod format;
mod layout;
mod level;
mod map;
mod media;
mod rate;
mod reconnect;
mod rng;
mod spec;
mod time;
mod timeline;
mod token_bucket;

pub use backoff::Backoff;
pub use block::Block;
pub use calendar::Utc;
pub use chunk::{Chunk, HEADROOM};
pub use clock_bounds::{ClockBounds, ClockLine};
pub use codec::{CODECS, Codec, CodecInfo, StreamContainer, UnknownCodec};
pub use format::{SampleFormat, UnknownSampleFormat};
pub use layout::{ChannelLayout, InvalidChannelLayout, MAX_CHANNELS};
pub use level::{Db, Lufs, Ppm};
pub use map::{ChannelMap, ChannelNumber, UnknownChannelMap};
pub use media::{Frames, MediaTime};
pub use rate::{InvalidSampleRate, SampleRate};
pub use reconnect::ReconnectBackoff;
pub use rng::Rng;
pub use spec::{InvalidSampleSpec, SampleSpec};
pub use time::{Instant, Span};
pub use timeline::Timeline;
pub use token_bucket::TokenBucket;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
