//! The samples that a recorder may still ask for.

use std::collections::VecDeque;

use aulos_core::{Frames, MediaTime, SampleRate};
use aulos_engine::recorder::{FrameRun, RecordTapReader};

/// Runs of frames, oldest first.
#[derive(Debug)]
pub(super) struct Kept {
    channels: usize,
    /// Where each run begins and how long it is.
    runs: VecDeque<(MediaTime, Frames)>,
    samples: VecDeque<f32>,
    /// The frame behind the last one, and its rate.
    end: Option<(MediaTime, SampleRate)>,
}

impl Kept {
    pub(super) const fn new(channels: usize) -> Self {
        Self { channels, runs: VecDeque::new(), samples: VecDeque::new(), end: None }
    }

    /// Takes one run out of the ring, if there is one. What does not go on where the last ended
    /// takes its place: all of that has been written, or never will be.
    pub(super) fn take(&mut self, spool: &mut RecordTapReader) -> Option<FrameRun> {
        let next = spool.peek()?;
        let rate = next.timeline.rate();
        if self.end.is_some_and(|(end, last)| next.pts < end || rate != last) {
            self.runs.clear();
            self.samples.clear();
            self.end = None;
        }
        let mark = spool.read(&mut self.samples)?;
        match self.runs.back_mut() {
            Some((from, frames)) if *from + *frames == mark.pts => *frames += mark.frames,
            _ => self.runs.push_back((mark.pts, mark.frames)),
        }
        self.end = Some((mark.end(), rate));
        Some(mark)
    }

    /// Forgets what is older than `frame`.
    pub(super) fn drop_below(&mut self, frame: MediaTime) {
        while let Some((from, frames)) = self.runs.front_mut() {
            let gone = frame.since(*from).min(*frames);
            self.samples.drain(..gone.as_usize() * self.channels);
            *from += gone;
            *frames -= gone;
            if *frames > Frames::ZERO {
                break;
            }
            self.runs.pop_front();
        }
    }

    /// Moves up to `most` frames from `from` on into `out`, and forgets them and what is older.
    pub(super) fn read(&mut self, from: MediaTime, most: Frames, out: &mut Vec<f32>) -> Frames {
        self.drop_below(from);
        out.clear();
        let Some((first, frames)) = self.runs.front().copied() else { return Frames::ZERO };
        if first != from {
            return Frames::ZERO;
        }
        let taken = frames.min(most);
        out.extend(self.samples.range(..taken.as_usize() * self.channels));
        self.drop_below(from + taken);
        taken
    }
}
