//! One graph goes on in another: the first ends in the queue's sink, the second begins with its
//! source, and each has a thread of its own if it likes.
//!
//! It is also what stands between a part that is sometimes slow and one that must not be late.

use aulos_rt::pipe::PipeConfigError;

use super::ends::{LaneSink, LaneSource};
use super::lane::LaneConfig;

/// The two ends of a queue. It holds as much as `lane` has room for; when it is full it holds the
/// graph in front of it, or loses what it is told to lose.
///
/// Not for a real-time thread: allocates.
///
/// # Errors
/// [`ConfigError::OutOfMemory`] when the system has no memory for so much room.
pub fn queue(lane: &LaneConfig) -> Result<(LaneSink, LaneSource), PipeConfigError> {
    let (way_in, way_out) = lane.open()?;
    Ok((LaneSink(way_in), LaneSource(way_out)))
}
