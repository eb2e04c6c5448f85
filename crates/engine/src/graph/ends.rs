//! Where a graph ends in a lane, and where one begins with it: the same, whatever is at the other end.

use aulos_core::{Block, Frames, Instant};

use super::lane::{LaneMonitor, LaneReader, LaneWriter};
use super::{PushResult, Sink, StreamEnd};
use crate::source::{Pacing, PullResult, Source};

/// Puts a graph's sound into a lane: for a program ([`app_sink`](super::app_sink)), or for another
/// graph ([`queue`](super::queue())).
#[derive(Debug)]
pub struct LaneSink(pub(super) LaneWriter);

impl LaneSink {
    /// A view of the lane for any thread: what waits, the most that ever did, and what was lost.
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

/// Gives what comes through a lane: from a program ([`app_source`](super::app_source)), from another
/// graph ([`queue`](super::queue())), or from one that many hear ([`Proxy`](super::Proxy)).
///
/// Its media time counts the frames that were put into the lane: where some were lost it jumps by them.
#[derive(Debug)]
pub struct LaneSource(pub(super) LaneReader);

impl LaneSource {
    /// Frames that were lost on the way to this end so far.
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
    /// Gives what is there, as far as it is no longer than a block.
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
