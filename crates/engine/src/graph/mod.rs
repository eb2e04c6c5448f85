//! Parts for a program's own graphs: audio enters from the program, leaves to it, and passes
//! through the library's sources and threads in between.
//!
//! ```text
//!  AppWriter --lane--> LaneSource -+                        +-> LaneSink --lane--> AppReader
//!  (any thread)                    +-> Graph (a thread of --+                       (any thread)
//!  Tone, Demo, any Source ---------+   the workers)         +-> LaneSink --lane--> LaneSource
//!                                                           |                         -> Graph
//!                                                           +-> ProxySink =lanes=> LaneSource, ...
//! ```
//!
//! A [`Graph`] carries audio from one [`Source`] to one [`Sink`]. It is a machine: it has no thread
//! and no clock, so a test can run an hour of it in a moment; hundreds of graphs share the threads
//! of `aulos_io::Workers`. An effect is a source that wraps another source.
//!
//! Audio crosses threads in a *lane*: a ring of frames whose length [`LaneConfig`] sets, with one
//! end on each side. Neither end waits for the other. A full lane tells its writer, or drops frames
//! as configured, and counts them.
//!
//! | task | function |
//! |---|---|
//! | feed a graph with a program's samples | [`app_source`] |
//! | read samples from a graph | [`app_sink`] |
//! | continue one graph in another, on another thread | [`queue`] |
//! | feed many graphs from one, each at its own pace | [`proxy`] |
//! | have a test signal | [`Tone`](crate::generate::Tone), [`Demo`](crate::generate::Demo) |
//!
//! The server does not use it: its stations are built by itself. It is for other programs; the
//! examples `tone`, `app_source`, `queue` and `proxy` of `aulos-io` show it.
//!
//! # Rejected
//! A graph of nodes that is built and changed by name at run time: its errors show only at run
//! time, and each step between two nodes costs. Here a graph is a Rust value; parts that do not fit
//! do not compile.

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

/// Destination of a graph's audio.
pub trait Sink: Send {
    /// Takes `block` from frame `from` on, or as much of it as fits.
    ///
    /// # Real-time
    /// Does not wait, lock, allocate or call the system.
    fn push(&mut self, now: Instant, block: &Block, from: Frames) -> PushResult;

    /// The source has ended: nothing follows.
    ///
    /// # Real-time
    /// As above.
    fn end(&mut self, how: StreamEnd);
}

/// Result of pushing a block, or the rest of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "data that was not consumed remains"]
pub enum PushResult {
    /// This many frames were taken. With fewer than offered the sink is full for now.
    Accepted(Frames),
    /// Its rate or channels differ from the sink's; nothing was taken.
    FormatMismatch,
    /// The receiver is gone.
    Disconnected,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The stream is complete.
    Finished,
    /// The sender disappeared; the stream may be incomplete.
    Lost,
}
