//! One graph goes on in another: the first ends in the queue's sink, the second begins with its
//! source, and each has a thread of its own if it likes.
//!
//! It is also what stands between a part that is sometimes slow and one that must not be late.

use aulos_core::{Block, Frames, Instant};
use aulos_rt::pipe::ConfigError;

use super::lane::{Lane, LaneIn, LaneOut, Monitor};
use super::{Ending, Pushed, Sink};
use crate::source::{Pacing, Pulled, Source};

/// The two ends of a queue. It holds as much as `lane` has room for; when it is full it holds the
/// graph in front of it, or loses what it is told to lose.
///
/// Not for a real-time thread: allocates.
///
/// # Errors
/// [`ConfigError::OutOfMemory`] when the system has no memory for so much room.
pub fn queue(lane: &Lane) -> Result<(QueueSink, QueueSource), ConfigError> {
    let (way_in, way_out) = lane.open()?;
    Ok((QueueSink(way_in), QueueSource(way_out)))
}

/// Where the first graph ends. See [`queue`].
#[derive(Debug)]
pub struct QueueSink(LaneIn);

impl QueueSink {
    /// A view of the queue for any thread: what waits, the most that ever did, and what was lost.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.0.monitor()
    }
}

impl Sink for QueueSink {
    fn push(&mut self, _now: Instant, block: &Block, from: Frames) -> Pushed {
        self.0.push_block(block, from)
    }

    fn end(&mut self, how: Ending) {
        self.0.end(how);
    }
}

/// Where the second graph begins. See [`queue`].
///
/// Its media time counts the frames that came into the queue: where some were lost it jumps by them.
#[derive(Debug)]
pub struct QueueSource(LaneOut);

impl QueueSource {
    /// Frames that were lost on the way to this end so far.
    #[must_use]
    pub const fn lost(&self) -> Frames {
        self.0.lost()
    }

    /// A view of the queue for any thread.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.0.monitor()
    }
}

impl Source for QueueSource {
    /// Gives what is there, as far as it is no longer than a block.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call.
    fn pull(&mut self, now: Instant, into: &mut Block) -> Pulled {
        self.0.pull_block(now, into)
    }

    fn pacing(&self) -> Pacing {
        self.0.pacing()
    }
}
