//! Stations in other places, through NATS: what this server publishes, and what it plays.
//!
//! ```text
//!  station -> ring -> origin -> NATS -> subscriptions -> ring -> feeder (reactor) -> station
//! ```
//!
//! The client of NATS needs an async runtime, and no media thread may wait for it. So it has a thread
//! with a runtime of its own, and both ends of it are rings: what it does not take in time is lost,
//! and counted. What a message means is decided in [`aulos_session::nats`].

mod counters;

#[cfg(feature = "nats")]
mod edge;
#[cfg(feature = "nats")]
mod link;
#[cfg(feature = "nats")]
mod origin;
#[cfg(feature = "nats")]
mod service;
#[cfg(feature = "nats")]
pub(crate) use service::NatsService;

#[cfg(not(feature = "nats"))]
mod unsupported;
#[cfg(not(feature = "nats"))]
pub(crate) use unsupported::NatsService;

use std::sync::Arc;

use aulos_core::{Frames, SampleSpec, Span};
use aulos_engine::fanout::TimedChunk;
use aulos_rt::ring::Consumer;

pub(crate) use counters::NatsCounters;

/// A station that is published.
#[cfg_attr(not(feature = "nats"), allow(dead_code, reason = "it is never published"))]
#[derive(Debug)]
pub(crate) struct PublishedStation {
    pub(crate) name: String,
    /// Name of the codec and header for its decoder, as a message of the Snapcast protocol.
    pub(crate) codec_header: Arc<[u8]>,
    pub(crate) spec: SampleSpec,
    /// From the time of a chunk to its playout.
    pub(crate) buffer: Span,
    /// Frames per chunk.
    pub(crate) chunk: Frames,
    pub(crate) chunks: Consumer<TimedChunk>,
}
