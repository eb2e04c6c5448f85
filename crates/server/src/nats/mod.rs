//! Stations in other places, through NATS: what this server publishes, and what it plays.
//!
//! ```text
//!  station -> ring -> origin -> NATS -> subscriptions -> ring -> feeder (reactor) -> station
//! ```
//!
//! The client of NATS needs an async runtime, and no media thread may wait for it. So it has a
//! thread with a runtime of its own, and both ends of it are rings: what it does not take in time
//! is lost, and counted. What a message means, and which of several origins sends, is decided in
//! [`aulos_session::nats`].

mod counters;

#[cfg(feature = "nats")]
mod edge;
#[cfg(feature = "nats")]
mod history;
#[cfg(feature = "nats")]
mod lease;
#[cfg(feature = "nats")]
mod link;
#[cfg(feature = "nats")]
mod nodes;
#[cfg(feature = "nats")]
mod origin;
#[cfg(feature = "nats")]
mod replicas;
#[cfg(feature = "nats")]
mod service;
#[cfg(feature = "nats")]
mod settings;
#[cfg(feature = "nats")]
pub(crate) use service::NatsService;

#[cfg(not(feature = "nats"))]
mod unsupported;
#[cfg(not(feature = "nats"))]
pub(crate) use unsupported::NatsService;

use std::sync::{Arc, Mutex, PoisonError};

use aulos_core::{Frames, SampleSpec, Span};
use aulos_engine::fanout::TimedChunk;
use aulos_rt::ring::Consumer;
use aulos_session::nats::LeaseState;

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

/// Which part this server has in the publication of a station; shared by its task and the status.
#[cfg_attr(not(feature = "nats"), allow(dead_code, reason = "no station is published"))]
#[derive(Clone, Debug)]
pub(crate) struct PublicationState(Arc<Mutex<LeaseState>>);

impl Default for PublicationState {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(LeaseState::Waiting)))
    }
}

impl PublicationState {
    pub(crate) fn get(&self) -> LeaseState {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    #[cfg(feature = "nats")]
    fn set(&self, state: LeaseState) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}
