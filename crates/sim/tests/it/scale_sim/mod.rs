//! A cluster in virtual time: origins, a network between the nodes, edges, and their listeners.
//!
//! ```text
//!  programme -> origin -> NATS or Snapcast -> NatsInput | SnapcastInput -> Station -> ChunkLog
//!                                                                                        |
//!                        what sounds, frame by frame <- Player <- network <- Session <---+
//! ```
//!
//! Every node and every listener has a clock, every listener also a sound card, all of which drift.
//! The machines are those of the product; what is written here is the network, the cards, and what
//! `aulos-io` and the thread of NATS do between machines: ticks of 5 and 10 ms, and one send for
//! each client and wait. Nothing here costs processor time in the simulated world: what a processor
//! can do is measured elsewhere (`docs/explanation/scale.md`).
//!
//! The sound is a ramp of [`RAMP`] frames at a low rate, so 100,000 listeners can really render it,
//! and each frame says to less than a microsecond which frame of the programme it is.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a simulated world in small numbers"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod cluster;
mod edge;
mod feed;
mod listener;
mod origin;
mod table;

use std::sync::Arc;

use aulos_core::{Codec, Instant, SampleSpec, Span};
use aulos_proto::snap::wire::codec_header;

pub(crate) use cluster::{Cluster, ClusterPlan, Population, for_each_edge, is_long};
pub(crate) use edge::EdgeKind;
pub(crate) use feed::Outage;
pub(crate) use listener::ListenerRecord;
pub(crate) use origin::OriginNode;
pub(crate) use table::{Differences, judge, percentile};

/// The simulated time after so many seconds.
pub(crate) fn at(seconds: f64) -> Instant {
    Instant::ZERO + Span::from_nanos((seconds * 1e9) as i64)
}

/// What every chunk decodes to: 24 bits, so that a step of the ramp is hundreds of steps of a
/// sample.
pub(crate) fn spec() -> SampleSpec {
    "8000:24:1".parse().unwrap()
}

/// The payload of the codec header message of every stream here.
pub(crate) fn stream_header() -> Arc<[u8]> {
    codec_header(Codec::Pcm, spec(), &[]).unwrap().into()
}

/// Frames per second.
pub(crate) const RATE: f64 = 8_000.0;

/// Duration and frames of a chunk.
pub(crate) const CHUNK: Span = Span::from_millis(20);
pub(crate) const CHUNK_FRAMES: u64 = 160;

/// Frames of one ramp: four seconds, longer than any delay from an origin to a loudspeaker.
pub(crate) const RAMP: f64 = 32_000.0;

/// Peak of the ramp; a resampler overshoots at its edge.
pub(crate) const PEAK: f64 = 0.5;

/// From the stamp of a chunk of an origin to its playout.
pub(crate) const ORIGIN_BUFFER: Span = Span::from_secs(1);

/// The tick of a reactor, and of this simulation.
pub(crate) const TICK: Span = Span::from_millis(5);
