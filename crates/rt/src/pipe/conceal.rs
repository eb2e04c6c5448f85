//! Concealment of gaps.

use super::format::SampleEncoding;

/// Fills gaps according to the pipe's [`UnderrunPolicy`](super::UnderrunPolicy).
#[derive(Debug)]
pub(super) struct Concealer {
    sample: SampleEncoding,
    frame: usize,
    /// The latest real frames, oldest first; empty unless they are to be repeated.
    history: Box<[u8]>,
    /// Number of bytes at the end of `history` that are real.
    known: usize,
    /// Frames filled since the gap began.
    into_gap: usize,
    fade: usize,
}

impl Concealer {
    /// Fills with silence.
    pub(super) fn silence(sample: SampleEncoding, frame: usize) -> Self {
        Self { sample, frame, history: Box::default(), known: 0, into_gap: 0, fade: 0 }
    }

    /// Repeats the latest frames, fading out over `fade` frames, then silence.
    pub(super) fn repeat(sample: SampleEncoding, frame: usize, fade: usize) -> Self {
        let history = vec![0; HISTORY * frame].into_boxed_slice();
        Self { history, fade: fade.max(1), ..Self::silence(sample, frame) }
    }

    /// Records real frames that were output.
    pub(super) fn push_history(&mut self, real: &[u8]) {
        self.into_gap = 0;
        let size = self.history.len();
        let new = real.len().min(size);
        self.history.copy_within(new.., 0);
        self.history[size - new..].copy_from_slice(&real[real.len() - new..]);
        self.known = (self.known + new).min(size);
    }

    /// Fills `out`, which follows the recorded frames.
    pub(super) fn fill(&mut self, out: &mut [u8]) {
        let silent = self.known == 0 || self.into_gap >= self.fade;
        let repeated = if silent { 0 } else { self.repeat_into(out) };
        out[repeated..].fill(self.sample.silence());
    }

    /// Repeats the history back and forth, so that no joint is a jump; returns the number of bytes.
    fn repeat_into(&mut self, out: &mut [u8]) -> usize {
        let known = self.known / self.frame;
        let mut bytes = 0;
        for frame in out.chunks_exact_mut(self.frame) {
            if self.into_gap >= self.fade {
                break;
            }
            let step = self.into_gap % (2 * known);
            let back = if step < known { step } else { 2 * known - 1 - step };
            let from = self.history.len() - (back + 1) * self.frame;
            frame.copy_from_slice(&self.history[from..from + self.frame]);
            self.sample.scale(frame, gain(self.into_gap, self.fade));
            self.into_gap += 1;
            bytes += self.frame;
        }
        bytes
    }
}

/// Frames that are repeated: 2.7 ms at 48 kHz, long enough for a pitch, short enough to copy on
/// every read.
const HISTORY: usize = 128;

/// From unity (2^16) to zero over `fade` frames.
fn gain(step: usize, fade: usize) -> u32 {
    u32::try_from((fade - step) * 65_536 / fade).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_back_and_forth_and_fades_out() {
        let mut conceal = Concealer::repeat(SampleEncoding::S16Le, 2, 8);
        let real: Vec<u8> = [8000_i16, 16_000].iter().flat_map(|s| s.to_le_bytes()).collect();
        conceal.push_history(&real);
        let mut out = [1; 24];
        conceal.fill(&mut out[..6]);
        conceal.fill(&mut out[6..]);
        let samples: Vec<_> =
            out.as_chunks().0.iter().map(|&pair| i16::from_le_bytes(pair)).collect();
        let expected = [16_000_i16, 7000, 6000, 10_000, 8000, 3000, 2000, 2000, 0, 0, 0, 0];
        assert_eq!(samples, expected);
    }

    #[test]
    fn nothing_known_is_silence() {
        let mut conceal = Concealer::repeat(SampleEncoding::U8, 1, 100);
        let mut out = [0; 5];
        conceal.fill(&mut out);
        assert_eq!(out, [0x80; 5]);
    }
}
