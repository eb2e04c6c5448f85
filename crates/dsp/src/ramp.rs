//! A gain that changes without clicks.

use aulos_core::Frames;

use crate::fade::{apply_gain, raised_cosine};

/// A gain that is constant or on a ramp to its target, over blocks of any size.
///
/// The ramp is a raised cosine: no corner at either end. It can be redirected at any time and
/// continues from its present value.
///
/// # Examples
/// ```
/// use aulos_core::Frames;
/// let mut ramp = aulos_dsp::GainRamp::at(1.0);
/// ramp.ramp_to(0.0, Frames(2));
/// let mut block = [1.0; 4];
/// ramp.apply(&mut block, 1);
/// assert_eq!(block[2..], [0.0, 0.0]);
/// assert!(block[0] > block[1] && block[1] > 0.0);
/// ```
#[derive(Clone, Debug)]
pub struct GainRamp {
    from: f32,
    to: f32,
    length: u64,
    position: u64,
}

impl GainRamp {
    /// A constant gain.
    #[must_use]
    pub const fn at(gain: f32) -> Self {
        Self { from: gain, to: gain, length: 0, position: 0 }
    }

    /// Starts a ramp from the present gain to `gain` within `over`; if they are equal, there is no
    /// ramp.
    pub fn ramp_to(&mut self, gain: f32, over: Frames) {
        self.from = self.gain();
        self.to = gain;
        self.position = 0;
        self.length = if self.from.to_bits() == gain.to_bits() { 0 } else { over.0 };
    }

    /// Multiplies every frame of `samples` (interleaved) by its gain. A constant gain of 1 leaves
    /// every bit as it is.
    ///
    /// # Real-time
    /// Does not allocate; a cosine per frame of a ramp, a multiplication per sample otherwise.
    ///
    /// # Panics
    /// If `channels` is 0.
    pub fn apply(&mut self, samples: &mut [f32], channels: usize) {
        let moving = self.remaining().as_usize().saturating_mul(channels).min(samples.len());
        let (way, rest) = samples.split_at_mut(moving);
        for frame in way.chunks_exact_mut(channels) {
            let gain = self.gain();
            frame.iter_mut().for_each(|sample| *sample *= gain);
            self.position += 1;
        }
        if !self.is_unity() {
            apply_gain(rest, self.to);
        }
    }

    /// The gain of the next frame.
    #[must_use]
    pub fn gain(&self) -> f32 {
        if self.position >= self.length {
            return self.to;
        }
        let way = raised_cosine(self.position, self.length);
        self.from + (self.to - self.from) * way
    }

    /// Frames until the end of the ramp.
    #[must_use]
    pub const fn remaining(&self) -> Frames {
        Frames(self.length.saturating_sub(self.position))
    }

    /// Whether the gain is constantly 1, so that samples pass unchanged.
    #[must_use]
    pub const fn is_unity(&self) -> bool {
        self.remaining().0 == 0 && self.to.to_bits() == 1.0_f32.to_bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_can_be_turned_round_on_the_way_without_a_step() {
        let mut ramp = GainRamp::at(1.0);
        ramp.ramp_to(0.2, Frames(1_000));
        let mut block = [1.0; 2 * 3_000];
        ramp.apply(&mut block[..2 * 400], 2);
        ramp.ramp_to(1.0, Frames(1_000));
        ramp.apply(&mut block[2 * 400..], 2);
        let steps = block.chunks(2).map(|frame| frame[0]).collect::<Vec<_>>();
        assert!(steps.windows(2).all(|pair| (pair[0] - pair[1]).abs() < 0.002));
        assert!(steps[399] < 0.75 && steps[1_401..].iter().all(|gain| *gain >= 1.0));
        assert!(ramp.is_unity());
    }

    #[test]
    fn a_gain_of_one_that_rests_changes_no_bit() {
        let mut block = [f32::MIN_POSITIVE / 3.0, -0.0, 0.1];
        let before = block.map(f32::to_bits);
        GainRamp::at(1.0).apply(&mut block, 1);
        assert_eq!(block.map(f32::to_bits), before);
    }

    #[test]
    fn where_it_is_already_it_need_not_go() {
        let mut ramp = GainRamp::at(0.5);
        ramp.ramp_to(0.5, Frames(100));
        assert_eq!(ramp.remaining(), Frames::ZERO);
        ramp.ramp_to(0.25, Frames::ZERO);
        assert_eq!(ramp.gain().to_bits(), 0.25_f32.to_bits());
    }
}
