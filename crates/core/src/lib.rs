//! The nouns of the house: what a rate, a format, a block, a chunk and a moment are.
//!
//! Everything that two floors have to agree on is here, and nothing else: units that cannot be
//! mixed up, arithmetic that neither wraps nor drifts, and the two containers in which sound moves.
//!
//! ```text
//!  SampleRate x SampleFormat x ChannelLayout = SampleSpec
//!
//!  MediaTime (frames) --- Timeline (rate, drift) --- Instant (nanoseconds)
//!
//!  Block: f32, one owner, mutable        Chunk: encoded, shared, frozen
//! ```
//!
//! No function here allocates, except where a container is made; none reads a clock.

#![forbid(unsafe_code)]

mod block;
mod calendar;
mod chunk;
mod format;
mod layout;
mod level;
mod map;
mod media;
mod rate;
mod rng;
mod spec;
mod time;
mod timeline;
mod token_bucket;

pub use block::Block;
pub use calendar::Utc;
pub use chunk::{Chunk, Codec, HEADROOM, UnknownCodec};
pub use format::{SampleFormat, UnknownSampleFormat};
pub use layout::{ChannelLayout, InvalidChannelLayout, MAX_CHANNELS};
pub use level::{Db, Lufs, Ppm};
pub use map::{ChannelMap, UnknownChannelMap};
pub use media::{Frames, MediaTime};
pub use rate::{InvalidSampleRate, SampleRate};
pub use rng::Rng;
pub use spec::{InvalidSampleSpec, SampleSpec};
pub use time::{Instant, Span};
pub use timeline::Timeline;
pub use token_bucket::TokenBucket;
