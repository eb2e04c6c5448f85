//! The stalls of a station that a recording has not passed yet: while its process or its machine
//! stood still, no frames were made, and its timeline goes on later.

use std::collections::VecDeque;

use aulos_core::{Frames, MediaTime, Span};

use super::record_tap::FrameRun;

/// A stall that the recording has not passed yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    /// The first frame after it.
    pub(super) at: MediaTime,
    /// Missing frames that are not replaced by silence yet.
    pub(super) frames: Frames,
    pub(super) is_reported: bool,
}

/// The stalls that the recording has not passed yet, oldest first.
#[derive(Debug, Default)]
pub(super) struct Stalls(VecDeque<Stall>);

impl Stalls {
    /// Notes a stall before the frames of `run`; false if it is too long for silence, so that the
    /// frames begin another segment.
    pub(super) fn note(&mut self, run: &FrameRun) -> bool {
        if run.stall > MAX_STALL_SILENCE {
            return false;
        }
        let frames = run.timeline.rate().frames(run.stall);
        if frames > Frames::ZERO {
            self.0.push_back(Stall { at: run.pts, frames, is_reported: false });
        }
        true
    }

    /// The stall just before the frame `next`.
    pub(super) fn before(&mut self, next: MediaTime) -> Option<&mut Stall> {
        self.0.front_mut().filter(|stall| stall.at == next)
    }

    /// The first stall is replaced by silence.
    pub(super) fn drop_first(&mut self) {
        self.0.pop_front();
    }

    /// The first frame after `next` before which silence is missing.
    pub(super) fn next_after(&self, next: MediaTime) -> Option<MediaTime> {
        self.0.iter().map(|stall| stall.at).find(|at| *at > next)
    }

    /// How many frames later the timeline, which is that after all stalls, has the frame `at`.
    pub(super) fn frames_since(&self, at: MediaTime) -> Frames {
        let stalls = self.0.iter().filter(|stall| stall.at >= at);
        stalls.fold(Frames::ZERO, |sum, stall| sum + stall.frames)
    }

    /// Forgets the stalls before a frame, which are left out.
    pub(super) fn drop_before(&mut self, below: MediaTime) {
        while self.0.front().is_some_and(|stall| stall.at < below) {
            self.0.pop_front();
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The longest stall that becomes silence: 12 MB of stereo at 48 kHz. A machine that slept for a
/// night must not write hours of silence when it wakes.
const MAX_STALL_SILENCE: Span = Span::from_secs(60);
