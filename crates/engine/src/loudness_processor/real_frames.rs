//! Which frames of a station's output come from a source: an end is delayed like the sound before
//! it.

use aulos_core::{Frames, SampleRate, Span};

/// The number of real frames in each of the last quanta, which follows the audio's latency.
#[derive(Debug)]
pub(crate) struct RealFrameHistory {
    quantum: usize,
    /// Real frames of each quantum, a ring; the newest is before `next`.
    real: Box<[usize]>,
    next: usize,
}

impl RealFrameHistory {
    pub(crate) fn new(rate: SampleRate, quantum: Frames) -> Self {
        let longest = rate.frames(MAX_LATENCY).as_usize() / quantum.as_usize().max(1) + 2;
        Self { quantum: quantum.as_usize(), real: vec![0; longest].into(), next: 0 }
    }

    pub(crate) fn push(&mut self, real: usize) {
        self.real[self.next] = real;
        self.next = (self.next + 1) % self.real.len();
    }

    /// Real frames of the quantum that comes out with a latency of `latency` frames: up to its last
    /// real frame.
    pub(crate) fn real(&self, latency: usize) -> usize {
        let (ago, late) = (latency / self.quantum, latency % self.quantum);
        let newer = self.ago(ago);
        if newer > 0 {
            return (late + newer).min(self.quantum);
        }
        // The part of the previous quantum that falls into this one.
        self.ago(ago + 1).saturating_sub(self.quantum - late)
    }

    fn ago(&self, quanta: usize) -> usize {
        let length = self.real.len();
        self.real[(self.next + length - 1 - quanta.min(length - 1)) % length]
    }

    pub(crate) fn clear(&mut self) {
        self.real.fill(0);
    }
}

/// Longer than any look-ahead, and than the latency of an insert.
const MAX_LATENCY: Span = Span::from_millis(3_200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_delayed_like_the_sound_before_it() {
        let mut trail = RealFrameHistory::new(SampleRate::HZ_48000, Frames(960));
        // Two whole quanta, one that ends in its middle, silence.
        let mut real_frames = |latency: usize| {
            trail.clear();
            let quanta = [960, 960, 500, 0, 0, 0, 0];
            let mut out = Vec::new();
            for real in quanta {
                trail.push(real);
                out.push(trail.real(latency));
            }
            out
        };
        assert_eq!(real_frames(0), [960, 960, 500, 0, 0, 0, 0]);
        assert_eq!(real_frames(960), [0, 960, 960, 500, 0, 0, 0]);
        assert_eq!(real_frames(240), [960, 960, 740, 0, 0, 0, 0]);
        assert_eq!(real_frames(500), [960, 960, 960, 40, 0, 0, 0]);
        assert_eq!(real_frames(1_000), [0, 960, 960, 540, 0, 0, 0]);
        trail.clear();
        assert_eq!(trail.real(144_000), 0);
    }
}
