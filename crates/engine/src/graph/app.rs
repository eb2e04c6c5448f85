//! Where a program of one's own meets a graph: samples in, samples out.

use std::fmt;

use aulos_core::{Frames, MediaTime};
use aulos_rt::pipe::PipeConfigError;

use super::StreamEnd;
use super::ends::{LaneSink, LaneSource};
use super::lane::{LaneConfig, LaneMonitor, LanePull, LaneReader, LaneWriter};

/// A source that a program fills: the end for its thread, and the source for the graph.
///
/// Not for a real-time thread: allocates.
///
/// # Errors
/// [`ConfigError::OutOfMemory`] when the system has no memory for so much room.
///
/// # Examples
/// ```
/// use aulos_core::{ChannelLayout, Frames, SampleRate, Span};
/// use aulos_engine::graph::{Lane, app_source};
///
/// let lane = Lane::new(SampleRate::STUDIO, ChannelLayout::STEREO).room(Span::from_millis(1));
/// let (mut writer, source) = app_source(&lane)?;
/// // A millisecond has 48 frames: what has no room stays with the program.
/// assert_eq!(writer.push(&[0.25; 200]), Ok(Frames(48)));
/// assert_eq!(writer.push(&[0.25; 200]), Ok(Frames::ZERO));
/// drop(source);
/// assert!(writer.push(&[0.25; 200]).is_err());
/// # Ok::<(), aulos_engine::graph::ConfigError>(())
/// ```
pub fn app_source(lane: &LaneConfig) -> Result<(AppWriter, LaneSource), PipeConfigError> {
    let (way_in, way_out) = lane.open()?;
    Ok((AppWriter(way_in), LaneSource(way_out)))
}

/// A sink that a program empties: the sink for the graph, and the end for its thread.
///
/// Not for a real-time thread: allocates.
///
/// # Errors
/// As [`app_source`].
pub fn app_sink(lane: &LaneConfig) -> Result<(LaneSink, AppReader), PipeConfigError> {
    let (way_in, way_out) = lane.open()?;
    Ok((LaneSink(way_in), AppReader(way_out)))
}

/// The program's end of an [`app_source`]. Dropping it ends the sound as lost; say
/// [`Self::finish`] when it was all.
#[derive(Debug)]
pub struct AppWriter(LaneWriter);

impl AppWriter {
    /// Puts whole frames in, and says how many: fewer than there are when the lane is full and
    /// holds, and then the rest is to be tried again later. A lane that may lose takes all of them.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call; the time is that of the copy.
    ///
    /// # Errors
    /// [`Gone`] when the source is: nobody will ever hear it.
    pub fn push(&mut self, samples: &[f32]) -> Result<Frames, DisconnectedError> {
        self.0.push(samples).ok_or(DisconnectedError)
    }

    /// Frames that there is room for now. It may become more at any moment, and never less.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn free(&self) -> Frames {
        self.0.free()
    }

    /// The source is gone. Once true it stays true.
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

    /// That was all: the source says that it has ended, behind what still waits.
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

    /// Fills as many whole frames of `samples` as are there, and leaves the rest of it as it is.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call; the time is that of the copy.
    pub fn pull(&mut self, samples: &mut [f32]) -> PulledFrames {
        let LanePull { at, frames, lost } = self.0.pull(samples);
        PulledFrames { at, frames, lost }
    }

    /// How the sound came to its end; none while something waits or may still come.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn ending(&self) -> Option<StreamEnd> {
        self.0.ending()
    }

    /// Frames that are there now.
    ///
    /// # Real-time
    /// Wait-free.
    #[must_use]
    pub fn available(&self) -> Frames {
        self.0.available()
    }

    /// Frames that this end has missed so far.
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

/// What [`AppReader::pull`] has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PulledFrames {
    /// The number of the first frame, of all that were put in.
    pub at: MediaTime,
    /// How many frames.
    pub frames: Frames,
    /// How many were lost in front of them.
    pub lost: Frames,
}

/// Nobody is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "there is nothing more to say")]
pub struct DisconnectedError;

impl fmt::Display for DisconnectedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody is at the other end any more")
    }
}

impl std::error::Error for DisconnectedError {}
