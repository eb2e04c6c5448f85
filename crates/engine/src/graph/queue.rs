//! A queue between two graphs: the first ends in the queue's sink, the second starts with its
//! source, each on a thread of its own if need be.
//!
//! It also separates a part that is sometimes slow from one that must not be late.

use aulos_rt::pipe::PipeConfigError;

use super::ends::{LaneSink, LaneSource};
use super::lane::LaneConfig;

/// Creates both ends of a queue with the capacity of `lane`. When it is full it blocks the graph in
/// front of it, or drops frames as configured.
///
/// Not for a real-time thread: allocates.
///
/// # Errors
/// [`PipeConfigError::OutOfMemory`] when the system has no memory for this capacity.
pub fn queue(lane: &LaneConfig) -> Result<(LaneSink, LaneSource), PipeConfigError> {
    let (way_in, way_out) = lane.open()?;
    Ok((LaneSink(way_in), LaneSource(way_out)))
}
