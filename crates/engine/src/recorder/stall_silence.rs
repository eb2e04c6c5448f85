//! Silence in place of the frames that a stall has cost, so that a recording stays in time.

use aulos_core::{Frames, MediaTime};

use super::{GapReason, Recorder, RecorderOutput, Segment};

impl Recorder {
    /// Outputs silence for a stall before the frame `next`, up to the end of the segment.
    pub(super) fn fill_stall(&mut self, mut segment: Segment, next: MediaTime) -> bool {
        let due = self.due(&segment, next);
        let Some(stall) = self.stalls.before(next) else {
            return false;
        };
        if !core::mem::replace(&mut stall.is_reported, true) {
            let (at, frames) = (next, stall.frames);
            self.outputs.push_back(RecorderOutput::Stalled { at, frames });
        }
        if let Some((_, cause)) = due.filter(|(at, _)| *at <= next) {
            self.cut(segment, next, cause);
            return true;
        }
        let frames = due.map_or(stall.frames, |(at, _)| stall.frames.min(at.since(next)));
        stall.frames -= frames;
        if stall.frames == Frames::ZERO {
            self.stalls.drop_first();
        }
        segment.frames += frames;
        self.advance_segment(segment, next);
        let cause = GapReason::Stalled;
        self.outputs.push_back(RecorderOutput::Silence { from: next, frames, cause });
        true
    }
}
