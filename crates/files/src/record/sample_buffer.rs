//! The samples that a recorder may still need.

use std::collections::VecDeque;

use aulos_core::{Frames, MediaTime, SampleRate};
use aulos_engine::recorder::{FrameRun, RecordTapReader};

/// Runs of frames, oldest first.
#[derive(Debug)]
pub(super) struct SampleBuffer {
    channels: usize,
    /// Start and length of each run.
    runs: VecDeque<(MediaTime, Frames)>,
    samples: VecDeque<f32>,
    /// End of the last run, and its rate.
    end: Option<(MediaTime, SampleRate)>,
}

impl SampleBuffer {
    pub(super) const fn new(channels: usize) -> Self {
        Self { channels, runs: VecDeque::new(), samples: VecDeque::new(), end: None }
    }

    /// Moves one run from the tap into the buffer, if there is one. A run that does not continue
    /// the last one at the same rate replaces the content: all of that has been written, or never
    /// will be.
    pub(super) fn fill_from(&mut self, tap: &mut RecordTapReader) -> Option<FrameRun> {
        let next = tap.peek()?;
        let rate = next.timeline.rate();
        if self.end.is_some_and(|(end, last)| next.pts < end || rate != last) {
            self.runs.clear();
            self.samples.clear();
            self.end = None;
        }
        let run = tap.read(&mut self.samples)?;
        match self.runs.back_mut() {
            Some((from, frames)) if *from + *frames == run.pts => *frames += run.frames,
            _ => self.runs.push_back((run.pts, run.frames)),
        }
        self.end = Some((run.end(), rate));
        Some(run)
    }

    /// Removes the frames before `frame`.
    pub(super) fn drop_before(&mut self, frame: MediaTime) {
        while let Some((from, frames)) = self.runs.front_mut() {
            let removed = frame.since(*from).min(*frames);
            self.samples.drain(..removed.as_usize() * self.channels);
            *from += removed;
            *frames -= removed;
            if *frames > Frames::ZERO {
                break;
            }
            self.runs.pop_front();
        }
    }

    /// Moves up to `max` frames starting at `from` into `out`, and removes them and older ones.
    pub(super) fn read(&mut self, from: MediaTime, max: Frames, out: &mut Vec<f32>) -> Frames {
        self.drop_before(from);
        out.clear();
        let Some((first, frames)) = self.runs.front().copied() else { return Frames::ZERO };
        if first != from {
            return Frames::ZERO;
        }
        let count = frames.min(max);
        out.extend(self.samples.range(..count.as_usize() * self.channels));
        self.drop_before(from + count);
        count
    }
}
