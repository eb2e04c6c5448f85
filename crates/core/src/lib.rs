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
mod budget;
mod calendar;
mod chance;
mod chunk;
mod format;
mod layout;
mod level;
mod map;
mod media;
mod rate;
mod spec;
mod time;
mod timeline;

pub use block::Block;
pub use budget::Budget;
pub use calendar::Utc;
pub use chance::Chance;
pub use chunk::{Chunk, Codec, HEADROOM, UnknownCodec};
pub use format::{SampleFormat, UnknownFormat};
pub use layout::{ChannelLayout, InvalidLayout, MAX_CHANNELS};
pub use level::{Db, Lufs, Ppm};
pub use map::{ChannelMap, UnknownMap};
pub use media::{Frames, MediaTime};
pub use rate::{InvalidRate, SampleRate};
pub use spec::{InvalidSpec, SampleSpec};
pub use time::{Instant, Span};
pub use timeline::Timeline;
