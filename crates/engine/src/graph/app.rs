//! The interface of a program to a graph: samples in, samples out.

use std::fmt;

use aulos_core::{Frames, MediaTime};
use aulos_rt::pipe::PipeConfigError;

use super::StreamEnd;
use super::ends::{LaneSink, LaneSource};
use super::lane::{LaneConfig, LaneMonitor, LanePull, LaneReader, LaneWriter};

/// Creates a source that a program fills: the writer for its thread, and the source for the graph.
///
/// Not for a real-time thread: allocates.
///
/// # Errors
/// [`PipeConfigError::OutOfMemory`] when the system has no memory for this capacity.
///
/// # Examples
/// ```
/// use aulos_core::{ChannelLayout, Frames, SampleRate, Span};
/// use aulos_engine::graph::{LaneConfig, app_source};
///
/// let lane =
///     LaneConfig::new(SampleRate::HZ_48000, ChannelLayout::STEREO).capacity(Span::from_millis(1));
/// let (mut writer, source) = app_source(&lane)?;
/// // A millisecond has 48 frames: what does not fit stays with the program.
/// assert_eq!(writer.push(&[0.25; 200]), Ok(Frames(48)));
/// assert_eq!(writer.push(&[0.25; 200]), Ok(Frames::ZERO));
/// drop(source);
/// assert!(writer.push(&[0.25; 200]).is_err());
/// # Ok::<(), aulos_engine::graph::PipeConfigError>(())
/// ```
pub fn app_source(lane: &LaneConfig) -> Result<(AppWriter, LaneSource), PipeConfigError> {
    let (way_in, way_out) = lane.open()?;
    Ok((AppWriter(way_in), LaneSource(way_out)))
}

/// Creates a sink that a program empties: the sink for the graph, and the reader for its thread.
///
/// Not for a real-time thread: allocates.
///
/// # Errors
/// As [`app_source`].
pub fn app_sink(lane: &LaneConfig) -> Result<(LaneSink, AppReader), PipeConfigError> {
    let (way_in, way_out) = lane.open()?;
    Ok((LaneSink(way_in), AppReader(way_out)))
}

/// The program's end of an [`app_source`]. Dropping it ends the stream as lost; call
/// [`Self::finish`] when it is complete.
#[derive(Debug)]
pub struct AppWriter(LaneWriter);

impl AppWriter {
    /// Writes whole frames; returns how many. A full lane with back-pressure takes fewer than
    /// offered: try the rest again later. A lane that may drop takes all of them.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call; the time is that of the copy.
    ///
    /// # Errors
    /// [`DisconnectedError`] when the source is gone: the samples would never be read.
    pub fn push(&mut self, samples: &[f32]) -> Result<Frames, DisconnectedError> {
        self.0.push(samples).ok_or(DisconnectedError)
    }

    /// Frames that fit now. The number may grow at any moment, and never shrinks.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn free(&self) -> Frames {
        self.0.free()
    }

    /// Whether the source is gone. Once true it stays true.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.0.is_abandoned()
    }

    /// A view of the lane for any thread.
    #[must_use]
    pub fn monitor(&self) -> LaneMonitor {
        self.0.monitor()
    }

    /// Ends the stream as complete: the source ends after the buffered frames.
    ///
    /// Not for a real-time thread: may free memory.
    pub fn finish(self) {
        self.0.end(StreamEnd::Finished);
    }
}

/// The program's end of an [`app_sink`].
#[derive(Debug)]
pub struct AppReader(LaneReader);

impl AppReader {
    pub(super) const fn of(lane: LaneReader) -> Self {
        Self(lane)
    }

    /// Fills `samples` with as many whole frames as are buffered, and leaves the rest of it
    /// unchanged.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call; the time is that of the copy.
    pub fn pull(&mut self, samples: &mut [f32]) -> PulledFrames {
        let LanePull { at, frames, lost } = self.0.pull(samples);
        PulledFrames { at, frames, lost }
    }

    /// How the stream ended; `None` while frames are buffered or may still arrive.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn ending(&self) -> Option<StreamEnd> {
        self.0.ending()
    }

    /// Buffered frames.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn available(&self) -> Frames {
        self.0.available()
    }

    /// Frames that this reader has missed so far.
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

/// Result of [`AppReader::pull`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PulledFrames {
    /// The number of the first frame, counted from the first one written.
    pub at: MediaTime,
    /// Number of frames.
    pub frames: Frames,
    /// Number of frames lost before them.
    pub lost: Frames,
}

/// The other end is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "there is nothing more to say")]
pub struct DisconnectedError;

impl fmt::Display for DisconnectedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other end has been dropped")
    }
}

impl std::error::Error for DisconnectedError {}
