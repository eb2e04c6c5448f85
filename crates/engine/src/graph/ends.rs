//! The ends of a lane as a graph's sink and source, whatever is at the other end.

use aulos_core::{Block, Frames, Instant};

use super::lane::{LaneMonitor, LaneReader, LaneWriter};
use super::{PushResult, Sink, StreamEnd};
use crate::source::{Pacing, PullResult, Source};

/// Writes a graph's audio into a lane: for a program ([`app_sink`](super::app_sink)), or for
/// another graph ([`queue`](super::queue())).
#[derive(Debug)]
pub struct LaneSink(pub(super) LaneWriter);

impl LaneSink {
    /// A view of the lane for any thread: its fill, its high-water mark, and its losses.
    #[must_use]
    pub fn monitor(&self) -> LaneMonitor {
        self.0.monitor()
    }
}

impl Sink for LaneSink {
    fn push(&mut self, _now: Instant, block: &Block, from: Frames) -> PushResult {
        self.0.push_block(block, from)
    }

    fn end(&mut self, how: StreamEnd) {
        self.0.end(how);
    }
}

/// Reads audio from a lane: from a program ([`app_source`](super::app_source)), from another graph
/// ([`queue`](super::queue())), or from one with many readers ([`Proxy`](super::Proxy)).
///
/// Its media time counts the frames written into the lane: it jumps where some were lost.
#[derive(Debug)]
pub struct LaneSource(pub(super) LaneReader);

impl LaneSource {
    /// Frames lost on the way to this end so far.
    #[must_use]
    pub const fn lost(&self) -> Frames {
        self.0.lost()
    }

    /// A view of the lane for any thread.
    #[must_use]
    pub fn monitor(&self) -> LaneMonitor {
        self.0.monitor()
    }
}

impl Source for LaneSource {
    /// Returns the buffered frames, up to the length of a block.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call.
    fn pull(&mut self, now: Instant, into: &mut Block) -> PullResult {
        self.0.pull_block(now, into)
    }

    fn pacing(&self) -> Pacing {
        self.0.pacing()
    }
}
