//! Parts with which a programmer builds a graph of his own: sound goes in where his program has it,
//! comes out where he wants it, and between them the house's sources and threads do the work.
//!
//! ```text
//!  AppWriter --lane--> LaneSource -+                        +-> LaneSink --lane--> AppReader
//!  (any thread)                    +-> Graph (a thread of --+                       (any thread)
//!  Tone, Demo, any Source ---------+   the workers)         +-> LaneSink --lane--> LaneSource -> Graph
//!                                                           +-> ProxySink ==lanes=> LaneSource, many
//! ```
//!
//! A [`Graph`] carries sound from one [`Source`] to one [`Sink`]. It is a machine: it has no thread and
//! no clock, so a test can run an hour of it in a moment; hundreds of them share the threads of
//! `aulos_io::Workers`. What works on sound on its way is a source that holds another one.
//!
//! Whatever crosses from one thread to another goes through a *lane*: frames in a ring that is as long
//! as [`Lane`] says, with one end on each side. Neither end waits for the other. A full lane says so
//! to who fills it, or loses what is told to be lost, and counts.
//!
//! | to do this | take |
//! |---|---|
//! | give a graph the samples that a program has | [`app_source`] |
//! | take samples out of a graph | [`app_sink`] |
//! | let one graph go on in another, on another thread | [`queue`] |
//! | let many graphs hear one, each at its own pace | [`proxy`] |
//! | have a sound to begin with | [`Tone`](crate::generate::Tone), [`Demo`](crate::generate::Demo) |
//!
//! # Rejected
//! A graph of nodes that is built and changed by name while it runs: what can be wrong in it is found
//! when it runs, and each step between two nodes costs. Here a graph is a value of Rust; what does not
//! fit together does not compile.

mod app;
mod ends;
mod lane;
mod proxy;
mod queue;
mod run;
#[cfg(test)]
mod tests;

use aulos_core::{Block, Frames, Instant};
pub use aulos_rt::pipe::PipeConfigError;

pub use app::{AppReader, AppWriter, DisconnectedError, PulledFrames, app_sink, app_source};
pub use ends::{LaneSink, LaneSource};
pub use lane::{LaneConfig, LaneMonitor, LaneOverflow};
pub use proxy::{MAX_READERS, Proxy, ProxyError, ProxySink, proxy};
pub use queue::queue;
pub use run::{Graph, GraphPace, GraphStatus, TimedTask};

#[cfg(doc)]
use crate::source::Source;

/// Where a graph puts its sound.
pub trait Sink: Send {
    /// Takes `block` from frame `from` on, or as much of it as there is room for.
    ///
    /// # Real-time
    /// Does not wait, lock, allocate or call the system.
    fn push(&mut self, now: Instant, block: &Block, from: Frames) -> PushResult;

    /// The source has ended: nothing more comes.
    ///
    /// # Real-time
    /// As above.
    fn end(&mut self, how: StreamEnd);
}

/// What became of a block, or of the rest of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what was not taken is still there"]
pub enum PushResult {
    /// So many frames of it were taken. With fewer than there were the sink is full for now.
    Accepted(Frames),
    /// It has another rate or other channels than the sink, and was not taken.
    FormatMismatch,
    /// Nobody takes it any more.
    Disconnected,
}

/// How a sound came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// That was all of it.
    Finished,
    /// Who made it is gone, and nobody knows whether it was all.
    Lost,
}
